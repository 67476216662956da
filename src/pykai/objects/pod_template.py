"""The part of a pod's spec that all pods of a template share, decoded once per distinct template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Raw, Struct, field, json

from pykai.objects.kinds import ABSENT, Expression, Kind, LabelSelector, PodSpec

Amount = str | int | float


class Resources(Kind):
    requests: dict[str, Amount] | None = None
    limits: dict[str, Amount] | None = None


class Port(Kind):
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Kind):
    name: str = ""
    resources: Resources = Resources()
    ports: list[Port] | None = None
    env: list[dict[str, Any]] | None = None
    env_from: list[dict[str, Any]] | None = None
    restart_policy: str = ""
    volume_mounts: list[dict[str, Any]] | None = None


class ContainerImage(Kind):
    """A container image in the status of a node."""

    names: list[str] | None = None
    size_bytes: int = 0


class Toleration(Kind):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeTerm(Kind):
    match_expressions: list[Expression] = []
    match_fields: list[Expression] = []


class NodeSelectorTerms(Kind):
    node_selector_terms: list[NodeTerm] = []


class PreferredNodeTerm(Kind):
    weight: int = 0
    preference: NodeTerm = NodeTerm()


class NodeAffinity(Kind):
    required: NodeSelectorTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredNodeTerm] = field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(Kind):
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodTerm(Kind):
    weight: int = 0
    pod_affinity_term: PodTerm = PodTerm()


class PodAffinity(Kind):
    required: list[PodTerm] = field(default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[WeightedPodTerm] = field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Kind):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None

    @property
    def pod_terms(self) -> list[PodTerm]:
        """All terms of pod affinity and anti-affinity, required and preferred."""
        halves = [half for half in (self.pod_affinity, self.pod_anti_affinity) if half is not None]
        return [
            term for half in halves for term in (*half.required, *(each.pod_affinity_term for each in half.preferred))
        ]


class SpreadConstraint(Kind):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int = 1
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []

    @property
    def required(self) -> bool:
        return self.when_unsatisfiable != "ScheduleAnyway"


class PodClaim(Kind):
    name: str = ""
    resource_claim_name: str | None = None


class PodTemplate(Struct, gc=False, frozen=True):
    """The decoded template of a pod's spec."""

    containers: list[Container]
    init_containers: list[Container]
    overhead: dict[str, Amount]
    node_selector: dict[str, str]
    affinity: Affinity
    tolerations: list[Toleration]
    volumes: list[dict[str, Any]]
    claims: list[PodClaim]
    gated: bool
    spread: list[SpreadConstraint] = []
    resources: Resources = Resources()
    """Pod-level resources."""

    @property
    def disks(self) -> list[dict[str, Any]]:
        """Inline volumes of disk types, which have no claim."""
        return [volume for volume in self.volumes if not DISKS.isdisjoint(volume)]


DISKS = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
_CONTAINERS = json.Decoder(list[Container])
_AMOUNTS = json.Decoder(dict[str, Amount])
_LABELS = json.Decoder(dict[str, str])
_AFFINITY = json.Decoder(Affinity)
_TOLERATIONS = json.Decoder(list[Toleration])
_OBJECTS = json.Decoder(list[dict[str, Any]])
_CLAIMS = json.Decoder(list[PodClaim])
_RESOURCES = json.Decoder(Resources)
_SPREAD = json.Decoder(list[SpreadConstraint])
Parts = list[Raw]
"""The template fields of a pod's spec, those before `node_name`, in their order."""


def _part(decoder: json.Decoder[Any], raw: Raw, empty: Any) -> Any:
    return empty if raw is ABSENT or bytes(raw) == b"null" else decoder.decode(raw)


CONTAINER_PARTS = PodSpec.__struct_fields__.index("node_selector")
"""The number of template fields that determine requests: those before `node_selector`."""


def template_parts(spec: PodSpec) -> Parts:
    """Return the template fields of a spec; listed by name, the fastest way, as this is read for every pod."""
    return [
        spec.containers,
        spec.init_containers,
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.volumes,
        spec.resource_claims,
        spec.scheduling_gates,
        spec.topology_spread_constraints,
    ]


def template_key(parts: Iterable[Raw]) -> bytes:
    """Return the raw fields joined to an unambiguous key: JSON contains no NUL."""
    return b"\0".join(parts)


class ContainerAmounts(Struct, gc=False, frozen=True):
    """The parts of a template that determine requests."""

    containers: list[Container]
    init_containers: list[Container]
    overhead: dict[str, Amount]
    resources: Resources = Resources()
    """Pod-level resources."""


def decode_containers(spec: PodSpec) -> ContainerAmounts:
    return ContainerAmounts(
        _part(_CONTAINERS, spec.containers, []),
        _part(_CONTAINERS, spec.init_containers, []),
        _part(_AMOUNTS, spec.overhead, {}),
        _part(_RESOURCES, spec.resources, Resources()),
    )


def decode_claims(spec: PodSpec) -> list[PodClaim]:
    """Decode only the resource claims of a template."""
    found: list[PodClaim] = _part(_CLAIMS, spec.resource_claims, [])
    return found


def decode_volumes(spec: PodSpec) -> list[dict[str, Any]]:
    """Return the volumes of a template alone."""
    found: list[dict[str, Any]] = _part(_OBJECTS, spec.volumes, [])
    return found


def decode_template(spec: PodSpec, known: ContainerAmounts | None = None) -> PodTemplate:
    """Decode a template; `known`: its containers, if another template with the same ones was decoded before."""
    decoded = known or decode_containers(spec)
    return PodTemplate(
        containers=decoded.containers,
        init_containers=decoded.init_containers,
        overhead=decoded.overhead,
        node_selector=_part(_LABELS, spec.node_selector, {}),
        affinity=_part(_AFFINITY, spec.affinity, Affinity()),
        tolerations=_part(_TOLERATIONS, spec.tolerations, []),
        volumes=_part(_OBJECTS, spec.volumes, []),
        claims=_part(_CLAIMS, spec.resource_claims, []),
        gated=bool(_part(_OBJECTS, spec.scheduling_gates, [])),
        spread=_part(_SPREAD, spec.topology_spread_constraints, []),
        resources=decoded.resources,
    )
