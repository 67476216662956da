"""The PodGroup controller: keeps phase, counts and `resourcesStatus` of every PodGroup's status up to date.

The resources are the sum over the group's pods, and how much of it is not preemptible. It is all or nothing: while the
resources of one pod are unknown (a claim or node has not arrived yet), the reconcile fails and is retried. Events are
collected for a second, so a pod that is created, scheduled and started meanwhile costs one write, and no group is
written more often than once a second.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import structlog

from pykai.cache.podgroups import DEFAULT_PRIORITY, SEMI_PREEMPTIBLE, effective_preemptibility
from pykai.controllers.ttl_cache import MutationCache
from pykai.controllers.unstructured import UnstructuredView, merge_patch_between, to_unstructured, unstructured_pod
from pykai.kube.api import EVERYTHING, Api, EventType, Object, Patch, Selection
from pykai.kube.api_resources import NODE, POD, POD_GROUP, PRIORITY_CLASS, RESOURCE_CLAIM
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Key, WatchChange
from pykai.kube.workqueue import Meters, Pace, ReconcileLoop, RetryLater, unmetered
from pykai.objects import gpu_request, kinds, names, nvfractions, pod_resize, units
from pykai.objects.custom_resources import SubGroup
from pykai.objects.units import ResourceList, canonical, sum_resources

_ACTIVE_PHASES = frozenset({"Pending", "Running"})
_WHOLE_DEVICE = frozenset({"1", "1.0"})
_MEGABYTE = 10**6


class PodResourcesError(ValueError):
    """The resources of a pod are not known yet; the message names the invalid annotation, label or missing object."""


def is_active(pod: Object) -> bool:
    """Whether the pod requests resources: it has not terminated."""
    return pod.get("status", {}).get("phase") in _ACTIVE_PHASES


def is_allocated(pod: Object) -> bool:
    """Whether the pod holds resources: it runs, or it is scheduled."""
    status = pod.get("status", {})
    if status.get("phase") != "Pending":
        return bool(status.get("phase") == "Running")
    conditions = status.get("conditions") or ()
    return any(each.get("type") == "PodScheduled" and each.get("status") == "True" for each in conditions)


def requested(pod: Object, claims: Sequence[Object]) -> list[ResourceList]:
    """Return the resources that an active pod requests, its claims included, as lists to sum."""
    return [pod_resize.pod_requests(pod, actual=True), requested_share(pod), *claimed_gpus(claims)]


def allocated(pod: Object, claims: Sequence[Object], node: Object | None) -> list[ResourceList]:
    """Return the resources that an allocated pod holds, as lists to sum; `node` is its own, None if unknown."""
    return [pod_resize.pod_requests(pod, actual=True), allocated_share(pod, node), *claimed_gpus(claims)]


def requested_share(pod: Object) -> ResourceList:
    """Return the GPU share in the annotations: devices, or MiB of device memory."""
    annotations = _annotations(pod)
    if annotations.get(names.GPU_FRACTION):
        return {names.NVIDIA_GPU: canonical(_portion(annotations) * _devices(annotations))}
    memory = _memory(annotations)
    return {names.GPU_MEMORY_RESOURCE: canonical(Fraction(memory * _devices(annotations)))} if memory else {}


def allocated_share(pod: Object, node: Object | None) -> ResourceList:
    """Return the GPU share, in devices, that the binder gave the pod; empty for pods that share no GPU."""
    annotations = _annotations(pod)
    if not gpu_request.received_share(annotations, pod["metadata"].get("labels") or {}):
        return {}
    return {names.NVIDIA_GPU: canonical(device_share(annotations, node) * _devices(annotations))}


def device_share(annotations: Mapping[str, str], node: Object | None) -> Fraction:
    """Return the fraction of each of its devices that a sharing pod holds on this node."""
    if annotations.get(names.GPU_FRACTION):
        return _portion(annotations)
    memory = _memory(annotations)
    if not memory:
        raise PodResourcesError(
            f"neither annotation {names.GPU_FRACTION} nor {names.GPU_MEMORY} nor one of a container "
            "gives the size of the share"
        )
    if node is None:
        raise PodResourcesError("the node of the pod does not exist, so its GPU memory is not known")
    return Fraction(memory) / node_gpu_memory(node)


def node_gpu_memory(node: Object) -> Fraction:
    """Return the memory of one GPU of the node in MiB, from the labels of its vendor."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    nvidia = labels.get(names.GPU_MEMORY_LABEL)
    amd = sorted(key for key in labels if key.startswith(names.AMD_GPU_MEMORY_LABEL_PREFIX))
    where = f"node {node['metadata'].get('name', '')}"
    if nvidia is not None and amd:
        raise PodResourcesError(f"{where} has GPU memory labels of two vendors: {names.GPU_MEMORY_LABEL} and {amd[0]}")
    if nvidia is not None:
        memory = Fraction(gpu_request.positive_count(nvidia) or 0)
    elif amd:
        memory = next(filter(None, map(_amd_memory, amd)), Fraction(0))
    else:
        raise PodResourcesError(f"{where} has no label with the memory of its GPUs")
    if memory <= 0:
        labels_found = ", ".join(amd) or names.GPU_MEMORY_LABEL
        raise PodResourcesError(f"{where}: label {labels_found} holds no amount of memory")
    return memory


def _amd_memory(label: str) -> Fraction:
    """Return the amount at the end of the label's key, as in beta.amd.com/gpu.vram.64G; 0 if there is none.

    Nodes with identical GPUs also have a label without an amount, beta.amd.com/gpu.vram.
    """
    text = re.sub(r"^[^0-9]*", "", label)
    try:
        return units.parse_quantity(text) / _MEGABYTE
    except units.QuantityError:
        return Fraction(0)


def claimed_gpus(claims: Sequence[Object]) -> list[ResourceList]:
    """Return the devices that resource claims request of GPU device classes, one list per request."""
    found: list[ResourceList] = []
    for request in chain.from_iterable(each["spec"].get("devices", {}).get("requests") or () for each in claims):
        exact = request.get("exactly") or {}
        device_class = exact.get("deviceClassName", "")
        if "gpu" in device_class.lower():
            counted = exact.get("allocationMode", "ExactCount") == "ExactCount"
            found.append({device_class: max(1, exact.get("count", 1)) if counted else 1})
    return found


def _annotations(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def _portion(annotations: Mapping[str, str]) -> Fraction:
    text = annotations[names.GPU_FRACTION]
    portion = 1.0 if text in _WHOLE_DEVICE else gpu_request.portion(text)
    if portion is None:
        raise PodResourcesError(f"annotation {names.GPU_FRACTION} holds no part of a device: {text!r}")
    return Fraction(str(portion))  # of the text, because the float is not exactly what the user wrote


def _memory(annotations: Mapping[str, str]) -> int:
    """Return MiB per device, 0 if none is requested; annotations of containers override that of the pod."""
    of_container = nvfractions.memory_mib(annotations)
    return of_container or (_count(annotations, names.GPU_MEMORY) if annotations.get(names.GPU_MEMORY) else 0)


def _devices(annotations: Mapping[str, str]) -> int:
    return _count(annotations, names.GPU_FRACTION_DEVICES) if annotations.get(names.GPU_FRACTION_DEVICES) else 1


def _count(annotations: Mapping[str, str], key: str) -> int:
    count = gpu_request.positive_count(annotations[key])
    if count is None:
        raise PodResourcesError(f"annotation {key} holds no whole number above 0: {annotations[key]!r}")
    return count


_PREEMPTIBILITIES = frozenset({"preemptible", SEMI_PREEMPTIBLE, "non-preemptible"})


@dataclass(frozen=True)
class RelatedObjects:
    """The objects that the status of a PodGroup depends on, besides its pods."""

    nodes: Mapping[str, Object]
    claims: Mapping[tuple[str, str], Object]
    """By (namespace, name)."""
    priority_classes: Sequence[Object]


def desired_status(group: Object, pods: Iterable[Object], cluster: RelatedObjects) -> Object:
    """Return the status fields of the group that this controller owns; empty lists are absent."""
    active = [pod for pod in pods if is_active(pod)]
    parts = [_contribution(pod, cluster) for pod in active]
    requests = sum_resources(chain.from_iterable(requests for requests, _ in parts))
    held = sum_resources(chain.from_iterable(held for _, held in parts))
    fixed = {} if is_preemptible(group, cluster.priority_classes) else held
    if group["spec"].get("preemptibility") == SEMI_PREEMPTIBLE:
        core = set(((group.get("status") or {}).get("schedulingState") or {}).get("corePods") or ())
        of_core = (held for pod, (_, held) in zip(active, parts, strict=True) if pod["metadata"]["name"] in core)
        fixed = sum_resources(chain.from_iterable(of_core))
    lists = {"requested": requests, "allocated": held, "allocatedNonPreemptible": fixed}
    return {"resourcesStatus": {name: resources for name, resources in lists.items() if resources}}


def progress(group: kinds.PodGroup, pods: Iterable[kinds.Pod]) -> Object:
    """Return the progress of the group: its phase, the running pods, and the pods it needs."""
    phases = Counter(pod.status.phase for pod in pods)
    minimum, running, done = min_pods(group.spec), phases["Running"], phases["Succeeded"]
    if phases and not running and not phases["Pending"]:
        phase = "Failed" if phases["Failed"] else "Succeeded"
    else:
        phase = "Running" if running and running + done >= minimum else "Pending"
    return {"phase": phase, "running": running, "minimum": minimum}


def min_pods(spec: kinds.PodGroupSpec) -> int:
    """Return the fewest pods that satisfy the group, counting as many of the smallest sub-groups as it needs."""
    children: dict[str, list[SubGroup]] = {}
    for part in spec.sub_groups or ():
        children.setdefault(part.parent or "", []).append(part)

    def least(below: str, pods: int | None, groups: int | None) -> int:
        parts = children.pop(below, None)  # pop, so that a cycle of parents terminates
        if parts is None:
            return 1 if pods is None else pods
        each = sorted(least(part.name, part.min_member, part.min_sub_group) for part in parts)
        return sum(each[: len(each) if groups is None else groups])

    return least("", spec.min_member, spec.min_sub_group)


def _contribution(pod: Object, cluster: RelatedObjects) -> tuple[list[ResourceList], list[ResourceList]]:
    """Return the requested and the allocated resources of a pod; an error names the pod."""
    try:
        claims = _claims_of(pod, cluster.claims)
        node = cluster.nodes.get(pod["spec"].get("nodeName", ""))
        return requested(pod, claims), allocated(pod, claims, node) if is_allocated(pod) else []
    except PodResourcesError as error:
        name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata'].get('name', '')}"
        raise PodResourcesError(f"pod {name}: {error}") from error


def is_preemptible(group: Object, priority_classes: Sequence[Object]) -> bool:
    """Whether the group's pods may be evicted: as the group states, else by its priority.

    The priority is that of the named class, else of the cluster's default class, else the system's default.
    """
    stated = group["spec"].get("preemptibility") or ""
    class_name = group["spec"].get("priorityClassName", "")
    named = [each for each in priority_classes if each["metadata"]["name"] == class_name]
    found = named or [each for each in priority_classes if each.get("globalDefault")]
    priority = int(found[0].get("value", 0)) if found else DEFAULT_PRIORITY
    return effective_preemptibility(stated if stated in _PREEMPTIBILITIES else "", priority)


def _claims_of(pod: Object, claims: Mapping[tuple[str, str], Object]) -> list[Object]:
    """Return the resource claims the pod refers to, those made from a template through its status."""
    made = {each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses") or ()}
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry["name"] in made and made[entry["name"]] is None:
            continue  # the API server marks an entry that needs no claim in this way
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name is None:
            raise PodResourcesError(f"resource claim {entry['name']} has not been made from its template yet")
        key = (pod["metadata"].get("namespace", ""), name)
        if key not in claims:
            raise PodResourcesError(f"resource claim {name} does not exist")
        found.append(claims[key])
    return found


FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
log = structlog.get_logger("podgroup-controller")


@dataclass(frozen=True)
class PodGroupStatusSettings:
    """The scheduler name and selector of counted pods, and for how many seconds events are batched before a write."""

    scheduler_name: str = names.SCHEDULER_NAME
    pods: Selection = EVERYTHING
    workers: int = 10
    gather_seconds: float = 1.0
    meters: Meters = unmetered


class GroupMembers:
    """The pods of every group, by their annotation."""

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._pods: dict[Key, dict[Key, kinds.Pod]] = {}

    def change(self, change: WatchChange[kinds.Pod]) -> set[Key]:
        """Handle a change of a pod; returns the groups whose status may change."""
        now = None if change.type is EventType.DELETED else change.object
        before, after = self._group_of(change.old), self._group_of(now)
        touched = {group for group in (before, after) if group is not None}
        if before is not None and before != after:
            members = self._pods.get(before, {})
            members.pop(change.key, None)
            if not members:
                self._pods.pop(before, None)
        if after is not None and now is not None:
            self._pods.setdefault(after, {})[change.key] = now
        if change.old is None or now is None or before != after:
            return touched
        return set() if _status_inputs(change.old) == _status_inputs(now) else touched

    def of(self, group: Key) -> Iterator[kinds.Pod]:
        """Yield the pods of a group."""
        return iter(self._pods.get(group, {}).values())

    def _group_of(self, pod: kinds.Pod | None) -> Key | None:
        if pod is None or pod.spec.scheduler_name != self._scheduler_name:
            return None
        name = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION)
        return (pod.metadata.namespace, name) if name else None


def _status_inputs(pod: kinds.Pod) -> tuple[object, ...]:
    """Return the fields of a pod that its group's status depends on."""
    status = pod.status
    return (
        status.phase,
        [(each.status, each.reason) for each in status.conditions or () if each.type == "PodScheduled"],
        status.resource_claim_statuses,
        pod.metadata.annotations,
        pod.spec.node_name,
        pod.spec.containers,
    )


def _status_of(group: kinds.PodGroup) -> tuple[object, object]:
    """Return the fields of a group's status that its status depends on."""
    status = group.status
    return (status.resources_status, status.phase, status.running, status.minimum), status.scheduling_state


def _changes(status: Object, wanted: Object) -> Object:
    """Return the merge patch that turns the fields of a status that this controller owns into those wanted."""
    own: Object = {name: status[name] for name in ("phase", "running", "minimum") if name in status}
    return merge_patch_between({**own, "resourcesStatus": status.get("resourcesStatus") or {}}, wanted)


class PodGroupController:
    """The controller; `run` works until cancelled."""

    def __init__(self, api: Api, watches: InformerFactory, settings: PodGroupStatusSettings) -> None:
        self._api = api
        self._gather_seconds = settings.gather_seconds
        self._groups = watches.of(POD_GROUP, kinds.PodGroup)
        self._pods = watches.of(POD, kinds.Pod, settings.pods)
        self._nodes = watches.of(NODE, kinds.Node)
        self._classes = watches.of(PRIORITY_CLASS, kinds.PriorityClass)
        self._claims = watches.of(RESOURCE_CLAIM, kinds.ResourceClaim, optional=True)
        self._unstructured_classes: list[Object] = []
        self._members = GroupMembers(settings.scheduler_name)
        self._mutations = MutationCache()
        pace = Pace(settings.workers, FIRST_SECONDS, LONGEST_SECONDS)
        self._loop: ReconcileLoop[Key] = ReconcileLoop("podgroup-controller", pace, settings.meters("podgroup"))

    async def run(self, ready: asyncio.Event) -> None:
        """Reconcile statuses until cancelled."""
        for watch in (self._pods, self._nodes, self._classes, self._claims, self._groups):
            await watch.synced()
        with ExitStack() as subscriptions:
            subscriptions.callback(self._classes.subscribe(self._class_changed))
            subscriptions.callback(self._pods.subscribe(self._pod_changed))
            subscriptions.callback(self._groups.subscribe(self._group_changed))
            ready.set()
            await self._loop.run(self._reconcile)

    def _pod_changed(self, change: WatchChange[kinds.Pod]) -> None:
        for group in self._members.change(change):
            self._loop.add_after(group, self._gather_seconds)

    def _group_changed(self, change: WatchChange[kinds.PodGroup]) -> None:
        own = self._mutations.observe(change)
        old, new = change.old, change.object
        if old is not None and old.spec == new.spec:
            if _status_of(old) == _status_of(new):
                return
            if own and old.status.scheduling_state == new.status.scheduling_state:
                return
        self._loop.add_after(change.key, self._gather_seconds)

    def _class_changed(self, change: WatchChange[kinds.PriorityClass]) -> None:
        """Enqueue the groups that name a changed class, or fall back to the default one."""
        self._unstructured_classes = [to_unstructured(each) for _, each in self._classes.items()]
        default = change.object.global_default or (change.old is not None and change.old.global_default)
        for key, group in self._groups.items():
            if default or group.spec.priority_class_name == change.key[1]:
                self._loop.add_after(key, self._gather_seconds)

    async def _reconcile(self, key: Key) -> None:
        group = self._groups.get(key[1], key[0])
        if group is None:
            return
        nodes: UnstructuredView[str] = UnstructuredView(self._nodes, lambda name: ("", name))
        claims: UnstructuredView[Key] = UnstructuredView(self._claims, lambda key: key)
        cluster = RelatedObjects(nodes, claims, self._unstructured_classes)
        try:
            pods = [unstructured_pod(pod) for pod in self._members.of(key)]
            wanted = desired_status(to_unstructured(group), pods, cluster)
        except PodResourcesError as error:
            raise RetryLater(str(error)) from error
        wanted |= progress(group, self._members.of(key))
        written = self._mutations.get(key, group.metadata)
        patch = _changes(to_unstructured(group)["status"] if written is None else written.get("status") or {}, wanted)
        if not patch:
            return
        try:
            result = await self._api.patch(POD_GROUP.ref(key[1], key[0]).sub("status"), Patch.merge({"status": patch}))
        except NotFound:
            return
        self._mutations.put(key, result)
        if _changes(result.get("status") or {}, wanted):  # the watch did not show an older write yet
            self._loop.add(key)
        log.info("pod group status written", group=f"{key[0]}/{key[1]}", **wanted["resourcesStatus"])


async def run(api: Api, watches: InformerFactory, settings: PodGroupStatusSettings, ready: asyncio.Event) -> None:
    """Reconcile the status of PodGroups until cancelled."""
    await PodGroupController(api, watches, settings).run(ready)
