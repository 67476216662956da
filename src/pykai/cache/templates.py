"""Templates of pods: the decoded parts of a spec, and everything derived from them alone.

A template is made of parts that other templates share: thousands of pods differ in amounts, volumes or claims only.
"""

from __future__ import annotations

from msgspec import json
from msgspec.structs import replace as changed

from pykai.cache.requests import Amounts, add, config_map_names, gpu_request, numa_shape, pod_amounts, qos_class
from pykai.objects.kinds import PodSpec
from pykai.objects.pod_template import (
    ContainerAmounts,
    PodTemplate,
    PodTerm,
    SpreadConstraint,
    decode_claims,
    decode_volumes,
)


class ContainerRequests:
    """Decoded containers and overhead, and their requests. Templates that differ only in other parts, such as the names
    of their claims, share one object."""

    def __init__(self, decoded: ContainerAmounts) -> None:
        self.decoded = decoded
        self.amounts = pod_amounts(decoded)
        self.overhead: Amounts = add({}, decoded.overhead)
        every = [*decoded.init_containers, *decoded.containers]
        self.reads = any(c.env or c.env_from or c.volume_mounts for c in every)
        """Whether some container may refer to a ConfigMap."""
        ports = [port for c in every for port in c.ports or () if port.host_port]
        shape = (len(decoded.init_containers), numa_shape(decoded), self.overhead, decoded.resources, ports)
        self.meaning = json.encode(shape, order="deterministic")
        """The key by which equal requests are recognized."""
        self.gpu = gpu_request(self.amounts, {})
        """The GPU request of pods without annotations."""
        self._qos = ""

    @property
    def qos(self) -> str:
        """The QoS class of pods that do not state theirs."""
        self._qos = self._qos or qos_class(self.decoded)
        return self._qos


class Constraints:
    """The decoded parts of a template that ask for no amounts and name no volumes or claims: node selector, affinity,
    tolerations, gates, spread. Templates that differ only in other parts share one object."""

    def __init__(self, decoded: PodTemplate) -> None:
        self.decoded = decoded
        self.label_keys = label_keys(decoded)
        stated = (decoded.node_selector, decoded.affinity, decoded.tolerations, decoded.gated, decoded.spread)
        self.meaning = json.encode(stated, order="deterministic")
        """The key by which equal constraints are recognized."""


class Template:
    """A decoded template, with everything derived from it alone.

    `config_maps` must exist before the pod is bound; those whose names begin with `made_later` are created at binding.
    """

    def __init__(self, spec: PodSpec, requests: ContainerRequests, constraints: Constraints, made_later: str) -> None:
        known = requests.decoded
        template = self.decoded = changed(
            constraints.decoded,
            containers=known.containers,
            init_containers=known.init_containers,
            overhead=known.overhead,
            resources=known.resources,
            volumes=decode_volumes(spec),
            claims=decode_claims(spec),
        )
        self.requests = requests
        found = config_map_names(template) if requests.reads else ()
        self.config_maps = frozenset([name for name in found if not (made_later and name.startswith(made_later))])
        self.label_keys = constraints.label_keys
        self.claiming = [v for v in template.volumes if "persistentVolumeClaim" in v or "ephemeral" in v]
        """The volumes that are claims."""
        self.namespaced = bool(self.label_keys is not None or self.config_maps or self.claiming or template.claims)
        self.named = bool([v for v in self.claiming if "ephemeral" in v])
        self.kind = -1
        """Number of the kind of pods without relevant annotations; -1 if their namespace or name matters."""
        claims = tuple([claim.name for claim in template.claims])
        disks = template.disks and json.encode(template.disks, order="deterministic")
        self.unnamed: object = (requests.meaning, constraints.meaning, claims, disks or b"", self.config_maps)
        """The key of the template without its volume claims. Names that admission generates per pod (the token volume,
        ConfigMaps of a shared GPU) are not part of it, so that pods of one workload share a template although their
        bytes differ. Nor are names of ResourceClaims: what they request is."""

    @property
    def meaning(self) -> object:
        """The key by which equal templates are recognized."""
        return self.unnamed, json.encode(self.claiming, order="deterministic") if self.claiming else b""

    @property
    def volume_claims(self) -> list[str]:
        """The claims that its volumes name; none where one of them is named after the pod."""
        stated = [] if self.named else self.claiming
        return [(volume["persistentVolumeClaim"] or {}).get("claimName", "") for volume in stated]


def label_keys(template: PodTemplate) -> frozenset[str] | None:
    """The labels of pods that a template's affinity terms and spread constraints read; None where it has neither."""
    affinity, spread = template.affinity, template.spread
    if affinity.pod_affinity is None and affinity.pod_anti_affinity is None and not spread:
        return None
    stated: list[PodTerm | SpreadConstraint] = [*affinity.pod_terms, *spread]
    keys = {key for each in stated if each.label_selector is not None for key in each.label_selector.keys}
    keys.update(key for each in stated for key in each.match_label_keys)
    keys.update(key for term in affinity.pod_terms for key in term.mismatch_label_keys)
    return frozenset(keys)
