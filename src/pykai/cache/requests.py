"""What a pod requests: resource amounts, GPUs by device, share, memory or claim, and its QoS class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from pykai.model.pods import GpuKind
from pykai.model.resources import FIXED, counted, scale, whole_gpus
from pykai.objects import names, nvfractions, pod_resize
from pykai.objects.kinds import Pod, ResourceSlice
from pykai.objects.pod_template import Amount, Container, ContainerAmounts, PodTemplate, Resources
from pykai.objects.units import amount, milli

Amounts = dict[str, float]


def row_amount(name: str, text: Amount) -> float:
    """A quantity in the unit of its resource row."""
    return milli(text) if scale(name) == 1000.0 else amount(text)


@lru_cache(maxsize=4096)
def _reader(name: str) -> Callable[[Amount], float] | None:
    """How requests of a resource are read; None: they do not count."""
    if not counted(name) or name == "pods":
        return None
    return milli if scale(name) == 1000.0 else amount


def add(into: Amounts, requests: Mapping[str, Amount] | None) -> Amounts:
    for name, text in requests.items() if requests else ():
        read = _reader(name)
        if read is not None:
            into[name] = into.get(name, 0.0) + read(text)
    return into


def _requests(container: Container) -> Mapping[str, Amount] | None:
    """Requests default to limits, as the API server fills them."""
    resources = container.resources
    if not resources.limits:
        return resources.requests
    return {**resources.limits, **(resources.requests or {})}


def resized(asked: ContainerAmounts, pod: Pod) -> ContainerAmounts:
    """Return the containers with the requests that count while the pod is being resized."""
    status = pod.status
    statuses = pod_resize.read_statuses(status.container_statuses, status.init_container_statuses)
    pending = [each.reason for each in status.conditions or () if each.type == pod_resize.PENDING]
    infeasible = pod_resize.INFEASIBLE in (*pending, status.resize)

    def charged(container: Container) -> Container:
        requests = dict(pod_resize.effective_requests(_requests(container), statuses.get(container.name), infeasible))
        return replace(container, resources=replace(container.resources, requests=requests))

    return replace(
        asked,
        containers=[charged(container) for container in asked.containers],
        init_containers=[charged(container) for container in asked.init_containers],
    )


def pod_amounts(template: PodTemplate | ContainerAmounts) -> Amounts:
    """Return by resource the larger of the containers that run together and of each init step, plus overhead and one
    pod slot."""
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
    together.update(_pod_level(template, together))
    add(together, template.overhead)
    together["pods"] = 1.0
    return together


def _pod_level(template: PodTemplate | ContainerAmounts, containers: Amounts) -> Amounts:
    """Return the pod-level requests, which replace the sum over containers; a limit counts where neither is stated."""
    whole = template.resources
    if whole.requests is None and whole.limits is None:
        return {}
    stated = {name: text for name, text in (whole.limits or {}).items() if name not in containers}
    return add({}, {**stated, **(whole.requests or {})})


class GpuRequest(Struct, frozen=True):
    """A pod's request for GPUs; `devices` is a count, `portion` and `memory_mib` are per device."""

    kind: GpuKind
    devices: int
    portion: float
    memory_mib: int
    legacy_mig: bool = False
    compute_mode: int = 0

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
    legacy = any(key.startswith(names.MIG_PREFIX) for key in annotations) if annotations else False
    asked, instances = 0.0, False
    for name, value in amounts.items():
        if name.endswith("gpu"):
            asked += value
        if value > 0 and name.startswith(names.MIG_PREFIX):
            instances = True
    whole = int(asked)
    if instances:
        return GpuRequest(GpuKind.MIG, whole, 1.0 if whole else 0.0, 0, False)
    if not annotations:
        return GpuRequest(GpuKind.REGULAR, whole, 1.0 if whole else 0.0, 0)
    memory = nvfractions.memory_mib(annotations) or _positive_int(annotations.get(names.GPU_MEMORY))
    portion = _fraction(annotations.get(names.GPU_FRACTION))
    if portion or memory:
        devices = _positive_int(annotations.get(names.GPU_FRACTION_DEVICES)) or 1
        kind = GpuKind.FRACTION if portion else GpuKind.MEMORY
        mode = names.COMPUTE_MODES.index(nvfractions.compute_mode(annotations))
        return GpuRequest(kind, devices, portion, 0 if portion else memory, legacy, mode)
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


def qos_class(template: ContainerAmounts) -> str:
    """Guaranteed, Burstable or BestEffort, by the rules of Kubernetes."""
    containers, whole = [*template.containers, *template.init_containers], template.resources
    stated = [whole] if whole.requests or whole.limits else [c.resources for c in containers]
    if not [each for each in stated if each.limits or each.requests]:
        return "BestEffort"
    return "Guaranteed" if all(map(_guaranteed, stated)) else "Burstable"


def _guaranteed(stated: Resources) -> bool:
    """Whether CPU and memory have limits, and requests that equal them; a request that is not stated does."""
    limits, requests = stated.limits or {}, stated.requests or {}
    for name in FIXED[:2]:
        limit = limits.get(name)
        request = requests.get(name, limit)
        if limit is None or request is None or (request != limit and amount(request) != amount(limit)):
            return False
    return True


def numa_shape(template: ContainerAmounts) -> list[object]:
    """Return requests and limits by container: NUMA alignment depends on them, not only on their sum."""
    return [
        (c.restart_policy, sorted((_requests(c) or {}).items()), sorted((c.resources.limits or {}).items()))
        for c in [*template.init_containers, *template.containers]
    ]


def gpus_per_node(slices: Iterable[ResourceSlice]) -> dict[str, int]:
    """Devices of GPU drivers by node; slices not tied to one node are not counted."""
    found: dict[str, int] = {}
    for item in slices:
        node = item.spec.get("nodeName") or ""
        if node and "gpu" in str(item.spec.get("driver", "")).lower():
            found[node] = found.get(node, 0) + len(item.spec.get("devices") or ())
    return found
