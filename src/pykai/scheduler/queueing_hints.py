"""Queueing hints and the cycle trigger: which change requires a cycle, and how soon. An idle cluster costs no CPU.

A change that may make a pending pod schedulable triggers a cycle now; one that only changes reasons, within the
schedule period; watch events of our own writes trigger none. Objects are compared by the fields the scheduler reads,
so a heartbeat that only changes the resourceVersion is no change.

Changes are debounced: a cycle waits until they pause, but at most `burst` seconds after the first. The pause after a
cycle grows with its duration, so that a busy cluster does not use a whole CPU. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pykai.cache.cluster import ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.kube.clock import steady
from pykai.objects import kinds, names, nvfractions
from pykai.scheduler.bind_requests import targets_missing_node


class When(Enum):
    """How soon a cycle must follow."""

    NEVER = "never"
    IN_TIME = "in time"
    NOW = "now"


class Hint(Enum):
    """How soon a cycle must follow: while pods are pending, and while none are."""

    SKIP = (When.NEVER, When.NEVER)
    """The change affects no decision."""
    REASONS = (When.IN_TIME, When.NEVER)
    """The reasons of pending pods may change."""
    CONDITION = (When.NEVER, When.IN_TIME)
    """A gang has a scheduling condition, to be cleared if none of its pods are pending."""
    WRITE = (When.IN_TIME, When.IN_TIME)
    """A write is due."""
    CAPACITY = (When.NOW, When.NEVER)
    """Pending pods may fit now."""
    LOSS = (When.NOW, When.IN_TIME)
    """As CAPACITY; also, a gang may be below its minimum, or fair shares change."""
    QUEUE = (When.NOW, When.NOW)
    """A pod is newly pending, or its requirements changed."""

    def when(self, pods_wait: bool) -> When:
        """Return how soon a cycle must follow."""
        return self.value[0] if pods_wait else self.value[1]


ENDED = ("Succeeded", "Failed")
Rule = Callable[[Any, Any, ClusterCache], Hint]
"""Arguments: old and new object (None: absent), and the cache with the change applied."""


def queueing_hint(old: Any, new: Any, cache: ClusterCache) -> Hint:
    """Return the hint for a change of one object in the cache; None: absent, or not of this scheduler."""
    if old is None and new is None:
        return Hint.SKIP
    return RULES[type(old if new is None else new)](old, new, cache)


# ----------------------------------------------------------------------------------------------------------------- pods
def _pod(old: kinds.Pod | None, new: kinds.Pod | None, cache: ClusterCache) -> Hint:
    pod = old if new is None else new
    assert pod is not None
    in_group = names.POD_GROUP_ANNOTATION in (pod.metadata.annotations or {})
    mine = in_group and pod.spec.scheduler_name == cache.params.scheduler_name
    if new is None or new.status.phase in ENDED:
        return _pod_gone(old, mine)
    if old is None:
        return Hint.REASONS if new.spec.node_name else Hint.QUEUE if mine else Hint.SKIP
    if old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None:
        return Hint.CAPACITY if new.spec.node_name or (not mine and _reserved(new)) else Hint.REASONS
    if not mine and _reserved(old) not in ("", _reserved(new)):
        return Hint.CAPACITY
    if not new.spec.node_name:
        undecided = mine and not _being_bound(new, cache)
        return Hint.QUEUE if undecided and _requirements(old) != _requirements(new) else Hint.SKIP
    if not old.spec.node_name:
        return Hint.WRITE if mine and (_by_memory(new) or _shows_condition(new, cache)) else Hint.REASONS
    if old.spec != new.spec:
        return Hint.CAPACITY
    return Hint.REASONS if _labels_and_annotations(old) != _labels_and_annotations(new) else Hint.SKIP


def _pod_gone(old: kinds.Pod | None, mine: bool) -> Hint:
    """Return the hint for a deleted or finished pod, whose resources are free."""
    if old is None or old.status.phase in ENDED:
        return Hint.SKIP
    if mine:
        return Hint.LOSS
    return Hint.CAPACITY if _reserved(old) else Hint.SKIP


def _reserved(pod: kinds.Pod) -> str:
    """Return the node that the pod is bound or nominated to; "" if none."""
    return pod.spec.node_name or pod.status.nominated_node_name


def _requirements(pod: kinds.Pod) -> object:
    """Return all fields that decide where a pod may be placed."""
    return pod.spec, *_labels_and_annotations(pod), pod.status.resource_claim_statuses, pod.status.nominated_node_name


def _labels_and_annotations(pod: kinds.Pod) -> tuple[object, object]:
    return pod.metadata.labels, pod.metadata.annotations


def _being_bound(pod: kinds.Pod, cache: ClusterCache) -> bool:
    request = cache.of(kinds.BindRequest).get(pod.metadata.key)
    return request is not None and request_is_for(request, pod) and not request_failed(request)


def _by_memory(pod: kinds.Pod) -> bool:
    """Whether a pod requests GPU memory: its fraction of a device, and so the fair shares, depend on its node."""
    annotations = pod.metadata.annotations or {}
    return names.GPU_MEMORY in annotations or nvfractions.memory_mib(annotations) > 0


def _shows_condition(pod: kinds.Pod, cache: ClusterCache) -> bool:
    """Whether the pod's gang still has a scheduling condition, which is to be cleared."""
    name = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
    group = cache.of(kinds.PodGroup).get((pod.metadata.namespace, name))
    return group is not None and bool(group.status.scheduling_conditions)


# --------------------------------------------------------------------------------------------------------- other kinds
def _node(old: kinds.Node | None, new: kinds.Node | None, _: ClusterCache) -> Hint:
    if new is None:
        return Hint.LOSS
    return Hint.SKIP if old is not None and _offer(old) == _offer(new) else Hint.CAPACITY


def _offer(node: kinds.Node) -> object:
    """Return the scheduling-relevant fields of a node; of conditions, type and status."""
    conditions = [(condition.type, condition.status) for condition in node.status.conditions or ()]
    return node.metadata.labels, node.spec, bytes(node.status.allocatable), conditions


def _group(old: kinds.PodGroup | None, new: kinds.PodGroup | None, _: ClusterCache) -> Hint:
    if new is None:  # its remaining pods no longer count for a queue: fair shares change
        return Hint.WRITE
    if old is None or old.spec != new.spec:
        return Hint.QUEUE
    if not old.metadata.uid and new.metadata.uid:  # it was expected: now its conditions can be written
        return Hint.REASONS
    before, shown = old.status.scheduling_conditions, new.status.scheduling_conditions
    if before and not shown:  # if another writer removed it, the gang still waits
        return Hint.REASONS
    return Hint.CONDITION if shown and shown != before else Hint.SKIP


def _queue(old: kinds.Queue | None, new: kinds.Queue | None, _: ClusterCache) -> Hint:
    """Ignore the status, except that a removed fair share, or that of a re-created queue, is written again."""
    if new is None:
        return Hint.REASONS
    if old is None or old.metadata.uid != new.metadata.uid:
        return Hint.LOSS
    if (old.spec, old.metadata.labels) != (new.spec, new.metadata.labels):
        return Hint.LOSS
    return Hint.WRITE if old.status.fair_share and not new.status.fair_share else Hint.SKIP


def _bind_request(old: kinds.BindRequest | None, new: kinds.BindRequest | None, cache: ClusterCache) -> Hint:
    """Skip our own new requests; return QUEUE for those to delete and those whose deletion leaves a pod pending."""
    if new is not None:
        failed = request_failed(new) and (old is None or not request_failed(old))
        late = old is None and targets_missing_node(new, cache)
        return Hint.QUEUE if failed or late else Hint.SKIP
    assert old is not None
    pod = cache.of(kinds.Pod).get((old.metadata.namespace, old.spec.pod_name))
    return Hint.QUEUE if pod is not None and not pod.spec.node_name else Hint.SKIP


def _config_map(old: object, new: object, _: ClusterCache) -> Hint:
    """Only the existence of a ConfigMap is read."""
    return Hint.REASONS if old is None else Hint.SKIP


def _numa(old: Any, new: Any, _: ClusterCache) -> Hint:
    return Hint.REASONS if new is not None and not _same(old, new) else Hint.SKIP


def _device_taint_rule(old: Any, new: Any, _: ClusterCache) -> Hint:
    """Without the rule its devices may be allocated again."""
    return Hint.SKIP if new is not None and _same(old, new) else Hint.CAPACITY


def _any(old: Any, new: Any, _: ClusterCache) -> Hint:
    if new is None:
        return Hint.REASONS
    return Hint.SKIP if _same(old, new) else Hint.CAPACITY


def _same(old: Any, new: Any) -> bool:
    """Whether two states of an object differ only in metadata other than labels."""
    if old is None:
        return False
    fields = [name for name in new.__struct_fields__ if name != "metadata"]
    return old.metadata.labels == new.metadata.labels and all(getattr(old, f) == getattr(new, f) for f in fields)


RULES: Mapping[type[Any], Rule] = {
    kinds.Pod: _pod,
    kinds.Node: _node,
    kinds.PodGroup: _group,
    kinds.BindRequest: _bind_request,
    kinds.ConfigMap: _config_map,
    kinds.NodeResourceTopology: _numa,
    kinds.Namespace: _any,
    kinds.PodDisruptionBudget: _any,
    kinds.Queue: _queue,
    kinds.PriorityClass: _any,
    kinds.PersistentVolumeClaim: _any,
    kinds.PersistentVolume: _any,
    kinds.StorageClass: _any,
    kinds.CSIStorageCapacity: _any,
    kinds.CSIDriver: _any,
    kinds.CSINode: _any,
    kinds.Topology: _any,
    kinds.ResourceClaim: _any,
    kinds.ResourceSlice: _any,
    kinds.DeviceClass: _any,
    kinds.DeviceTaintRule: _device_taint_rule,
}


NEVER = float("inf")


@dataclass(frozen=True)
class Debounce:
    """Debounce intervals in seconds. `period` is the maximum delay between a relevant change and a cycle."""

    period: float = 1.0
    pause: float = 0.02
    burst: float = 0.05
    rest: float = 0.5
    """Pause after a cycle, as a fraction of the cycle's duration."""
    refresh: float = 60.0
    """Maximum seconds between cycles while pods are pending."""

    def __post_init__(self) -> None:
        if not 0 <= self.pause <= self.burst or self.period <= 0:
            raise ValueError("0 <= pause <= burst and 0 < period must hold")


class CycleTrigger:
    """Decides when the next cycle is due. The scheduler keeps `pods_wait` up to date."""

    def __init__(self, debounce: Debounce) -> None:
        self.pods_wait = False
        self._debounce = debounce
        self._first_request: float | None = None
        self._last_request = 0.0
        self._latest = NEVER
        self._not_before = 0.0
        self._changed = asyncio.Event()

    def hint(self, hint: Hint) -> None:
        """Request a cycle as soon as the hint requires."""
        when = hint.when(self.pods_wait)
        if when is When.NOW:
            self.request()
        elif when is When.IN_TIME:
            self.request_by(steady() + self._debounce.period)

    def request(self) -> None:
        """Request a cycle now, or as soon as the burst is over."""
        self._last_request = steady()
        if self._first_request is None:
            self._first_request = self._last_request
        self._changed.set()

    def request_by(self, instant: float) -> None:
        """Request a cycle no later than `instant`."""
        if instant < self._latest:
            self._latest = instant
            self._changed.set()

    def begin(self) -> None:
        """Mark the start of a cycle, which covers all earlier requests."""
        self._first_request = None
        self._latest = NEVER

    def end(self, took: float) -> None:
        """Mark the end of a cycle that took this many seconds."""
        self._not_before = steady() + min(took * self._debounce.rest, self._debounce.period)
        if self.pods_wait:
            self.request_by(steady() + self._debounce.refresh)

    def due(self) -> float:
        """Return when the next cycle is due according to the requests so far; infinity without one."""
        requested = NEVER
        if self._first_request is not None:
            requested = min(self._last_request + self._debounce.pause, self._first_request + self._debounce.burst)
        return max(min(requested, self._latest), self._not_before)

    async def wait(self) -> None:
        """Return when a cycle is due."""
        while (left := self.due() - steady()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if left == NEVER else left):
                    await self._changed.wait()
            except TimeoutError:
                pass
