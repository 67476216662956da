"""What a pod asks for: resource amounts, GPUs by device, share, memory or claim, and its QoS class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pykai.model.pods import GpuKind
from pykai.model.resources import FIXED, counted, scale, whole_gpus
from pykai.objects import names
from pykai.objects.kinds import Pod, ResourceClaim, ResourceSlice
from pykai.objects.pod_template import Amount, Container, PodClaim, PodTemplate, decode_template
from pykai.objects.units import amount, milli

Amounts = dict[str, float]


def row_amount(name: str, text: Amount) -> float:
    """A quantity in the unit of its resource row."""
    return milli(text) if scale(name) == 1000.0 else amount(text)


def add(into: Amounts, requests: Mapping[str, Amount] | None) -> Amounts:
    for name, text in (requests or {}).items():
        if counted(name) and name != "pods":
            into[name] = into.get(name, 0.0) + row_amount(name, text)
    return into


def _requests(container: Container) -> Mapping[str, Amount] | None:
    """Requests default to limits, as the API server fills them."""
    resources = container.resources
    if not resources.limits:
        return resources.requests
    return {**resources.limits, **(resources.requests or {})}


def pod_amounts(template: PodTemplate) -> Amounts:
    """Per resource the larger of what runs together and of what each init step needs, plus overhead and one pod."""
    together: Amounts = {}
    steps: Amounts = {}
    sidecars: Amounts = {}
    for container in template.init_containers:
        if container.restart_policy == "Always":
            add(sidecars, _requests(container))
        else:
            for name, value in add(dict(sidecars), _requests(container)).items():
                steps[name] = max(steps.get(name, 0.0), value)
    together = dict(sidecars)
    for container in template.containers:
        add(together, _requests(container))
    for name, value in steps.items():
        together[name] = max(together.get(name, 0.0), value)
    add(together, template.overhead)
    together["pods"] = 1.0
    return together


@dataclass(frozen=True)
class GpuRequest:
    """How a pod asks for GPUs; `devices` counts devices, `portion` is per device, `memory_mib` per device."""

    kind: GpuKind
    devices: int
    portion: float
    memory_mib: int
    legacy_mig: bool = False

    @property
    def gpus(self) -> float:
        return whole_gpus(self.portion, self.devices)


def _positive_int(text: str | None) -> int:
    try:
        return max(int(text), 0) if text else 0
    except ValueError:
        return 0


def _fraction(text: str | None) -> float:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return 0.0
    return value if 0.0 < value <= 1.0 else 0.0


def gpu_request(amounts: Amounts, annotations: Mapping[str, str]) -> GpuRequest:
    """Classify a pod: whole devices, a fraction, an amount of memory, or MIG instances."""
    legacy = any(key.startswith(names.MIG_PREFIX) for key in annotations)
    whole = int(sum(value for name, value in amounts.items() if name.endswith("gpu")))
    if any(name.startswith(names.MIG_PREFIX) and value > 0 for name, value in amounts.items()):
        return GpuRequest(GpuKind.MIG, whole, 1.0 if whole else 0.0, 0, False)
    memory = _positive_int(annotations.get(names.GPU_MEMORY))
    portion = _fraction(annotations.get(names.GPU_FRACTION))
    if portion or memory:
        devices = _positive_int(annotations.get(names.GPU_FRACTION_DEVICES)) or 1
        kind = GpuKind.FRACTION if portion else GpuKind.MEMORY
        return GpuRequest(kind, devices, portion, 0 if portion else memory, legacy)
    return GpuRequest(GpuKind.REGULAR, whole, 1.0 if whole else 0.0, 0, legacy)


def config_map_names(template: PodTemplate) -> set[str]:
    """Config maps the pod cannot start without: env, envFrom and mounted volumes, optional ones left out."""
    found = set(_volume_config_maps(template))
    for container in [*template.containers, *template.init_containers]:
        for source in container.env_from or ():
            found.update(_required_names([source.get("configMapRef")]))
        for variable in container.env or ():
            found.update(_required_names([(variable.get("valueFrom") or {}).get("configMapKeyRef")]))
    return found


def _volume_config_maps(template: PodTemplate) -> Iterable[str]:
    mounted = {
        mount.get("name")
        for container in [*template.containers, *template.init_containers]
        for mount in container.volume_mounts or ()
    }
    for volume in template.volumes:
        if volume.get("name") in mounted:
            projected = (volume.get("projected") or {}).get("sources") or ()
            yield from _required_names([volume.get("configMap"), *(source.get("configMap") for source in projected)])


def _required_names(references: Iterable[object]) -> Iterable[str]:
    for reference in references:
        if isinstance(reference, dict) and not reference.get("optional") and reference.get("name"):
            yield reference["name"]


def qos_class(template: PodTemplate) -> str:
    """Guaranteed, Burstable or BestEffort, by the rules of Kubernetes."""
    containers = [*template.containers, *template.init_containers]
    amounts = [(_requests(c) or {}, c.resources.limits or {}) for c in containers]
    if not any(requests or limits for requests, limits in amounts):
        return "BestEffort"
    guaranteed = all(
        name in limits and amount(requests.get(name, "0")) == amount(limits[name])
        for requests, limits in amounts
        for name in FIXED[:2]
    )
    return "Guaranteed" if guaranteed else "Burstable"


def numa_shape(template: PodTemplate) -> object:
    """The requests container by container: what NUMA alignment looks at beyond the sum."""
    return [
        (c.restart_policy, sorted((_requests(c) or {}).items()), sorted((c.resources.limits or {}).items()))
        for c in [*template.init_containers, *template.containers]
    ]


Key = tuple[str, str]
LARGEST = 2**63 - 1


def gpus_per_node(slices: Iterable[ResourceSlice]) -> dict[str, int]:
    """Devices of GPU drivers by node; slices not tied to one node are not counted."""
    found: dict[str, int] = {}
    for item in slices:
        node = item.spec.get("nodeName") or ""
        if node and "gpu" in str(item.spec.get("driver", "")).lower():
            found[node] = found.get(node, 0) + len(item.spec.get("devices") or ())
    return found


def device_requests(claim: ResourceClaim) -> Iterator[dict[str, Any]]:
    """The claim's exact device requests."""
    for request in (claim.spec.get("devices") or {}).get("requests") or ():
        yield {"name": request.get("name", ""), **(request.get("exactly") or {})}


def claim_gpus(claim: ResourceClaim) -> int:
    """Devices of GPU classes a claim asks for; `All` counts as one."""
    total = 0
    for request in device_requests(claim):
        if "gpu" in str(request.get("deviceClassName", "")).lower():
            exact = request.get("allocationMode", "ExactCount") == "ExactCount"
            total += max(int(request.get("count") or 1), 1) if exact else 1
    return min(total, LARGEST)


def claim_names(pod: Pod, claims: Sequence[PodClaim]) -> Iterator[tuple[str, str]]:
    """(name in the pod, ResourceClaim name) of a pod's claims; generated ones from status."""
    generated = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses or ()}
    for claim in claims:
        name = claim.resource_claim_name or generated.get(claim.name) or ""
        yield claim.name, name


def gpus_per_pod(pods: Iterable[Pod], claims: Mapping[Key, ResourceClaim]) -> dict[Key, float]:
    """GPU devices asked for through claims, by (namespace, pod name).

    A claim made for a pod's extended resources is left out: the pod's own requests count for it.
    """
    owned: dict[Key, list[str]] = {}
    for (namespace, name), claim in claims.items():
        if (claim.metadata.annotations or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true":
            continue
        for pod_name in _holders(claim):
            owned.setdefault((namespace, pod_name), []).append(name)
    found: dict[Key, float] = {}
    for pod in pods:
        meta = pod.metadata
        key = (meta.namespace, meta.name)
        wanted = set(owned.get(key, ()))
        if bytes(pod.spec.resource_claims):
            wanted |= {name for _, name in claim_names(pod, decode_template(pod.spec).claims)}
        total = sum(claim_gpus(claims[meta.namespace, name]) for name in wanted if (meta.namespace, name) in claims)
        if total:
            found[key] = float(min(total, LARGEST))
    return found


def _holders(claim: ResourceClaim) -> Iterator[str]:
    """Names of the pods a claim belongs to by what it says itself: its owner, and the first it is reserved for."""
    for owner in claim.metadata.owner_references or ():
        if owner.kind == "Pod":
            yield owner.name
    for consumer in ((claim.status or {}).get("reservedFor") or ())[:1]:
        if consumer.get("resource") == "pods":
            yield str(consumer.get("name", ""))
