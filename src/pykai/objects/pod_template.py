"""A pod's spec without what differs between copies of one template: decoded once per distinct template.

`Requests` follow Kubernetes: the larger of what runs together (containers and native sidecars) and of what each
ordinary init container needs on top of the sidecars declared before it, plus overhead.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field, json

from pykai.objects.kinds import ABSENT, Kind, PodSpec

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


class Toleration(Kind):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Expression(Kind):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeTerm(Kind):
    match_expressions: list[Expression] = []
    match_fields: list[Expression] = []


class NodeSelectorTerms(Kind):
    node_selector_terms: list[NodeTerm] = []


class NodeAffinity(Kind):
    required: NodeSelectorTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class LabelSelector(Kind):
    match_labels: dict[str, str] = {}
    match_expressions: list[Expression] = []


class PodTerm(Kind):
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


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


class PodClaim(Kind):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodTemplate(Struct, gc=False, frozen=True):
    """The decoded parts of a pod spec that all copies of a template share."""

    containers: list[Container]
    init_containers: list[Container]
    overhead: dict[str, Amount]
    node_selector: dict[str, str]
    affinity: Affinity
    tolerations: list[Toleration]
    volumes: list[dict[str, Any]]
    claims: list[PodClaim]
    gated: bool


_CONTAINERS = json.Decoder(list[Container])
_AMOUNTS = json.Decoder(dict[str, Amount])
_LABELS = json.Decoder(dict[str, str])
_AFFINITY = json.Decoder(Affinity)
_TOLERATIONS = json.Decoder(list[Toleration])
_OBJECTS = json.Decoder(list[dict[str, Any]])
_CLAIMS = json.Decoder(list[PodClaim])
Parts = tuple[Raw, ...]


def _part(decoder: json.Decoder[Any], raw: Raw, empty: Any) -> Any:
    return empty if raw is ABSENT or bytes(raw) == b"null" else decoder.decode(raw)


TEMPLATE_PARTS = PodSpec.__struct_fields__.index("node_name")
"""The fields of a pod's spec before its node make up its template: equal parts mean equal templates."""


def template_key(parts: Parts) -> bytes:
    """The parts as one key, different where they are: no JSON text holds a NUL."""
    return b"\0".join(parts)


def decode_template(spec: PodSpec) -> PodTemplate:
    return PodTemplate(
        containers=_part(_CONTAINERS, spec.containers, []),
        init_containers=_part(_CONTAINERS, spec.init_containers, []),
        overhead=_part(_AMOUNTS, spec.overhead, {}),
        node_selector=_part(_LABELS, spec.node_selector, {}),
        affinity=_part(_AFFINITY, spec.affinity, Affinity()),
        tolerations=_part(_TOLERATIONS, spec.tolerations, []),
        volumes=_part(_OBJECTS, spec.volumes, []),
        claims=_part(_CLAIMS, spec.resource_claims, []),
        gated=bool(_part(_OBJECTS, spec.scheduling_gates, [])),
    )
