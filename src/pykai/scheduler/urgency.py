"""Which change asks for a cycle, and how soon: the rule that lets a quiet cluster cost nothing.

A change that gives somebody who waits a chance starts a cycle now; one that only changes what they are told does so in
time (the schedule period); the echo of what we wrote ourselves does not count. Changes are compared by what the
scheduler reads: a heartbeat that changes nothing else than a version is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from pykai.cache.cluster import ClusterCache
from pykai.cache.pods import request_failed, request_is_for
from pykai.objects import kinds, names
from pykai.scheduler.homeless import is_homeless


class When(Enum):
    """How soon a cycle must follow."""

    NEVER = "never"
    IN_TIME = "in time"
    NOW = "now"


class Urgency(Enum):
    """How soon a cycle must follow while pods wait, and how soon while none do."""

    NOTHING = (When.NEVER, When.NEVER)
    """No decision can depend on it."""
    NEWS = (When.IN_TIME, When.NEVER)
    """What those who wait are told may change."""
    WORD = (When.NEVER, When.IN_TIME)
    """Somebody is said to wait: to be taken back if nobody does."""
    CHORE = (When.IN_TIME, When.IN_TIME)
    """Something is to be written."""
    ROOM = (When.NOW, When.NEVER)
    """Those who wait may have a place now."""
    LOSS = (When.NOW, When.IN_TIME)
    """Likewise, and a gang may have lost its minimum."""
    WORK = (When.NOW, When.NOW)
    """Somebody new waits, or waits for something else."""

    def when(self, somebody_waits: bool) -> When:
        """How soon a cycle must follow."""
        return self.value[0] if somebody_waits else self.value[1]


ENDED = ("Succeeded", "Failed")
Rule = Callable[[Any, Any, ClusterCache], Urgency]
"""(the object before, the object now, the cache with the change applied); None where there is none."""


def urgency(old: Any, new: Any, cache: ClusterCache) -> Urgency:
    """How much a change of one object in the cache matters; None is an object that is not there, or not ours."""
    if old is None and new is None:
        return Urgency.NOTHING
    return RULES[type(old if new is None else new)](old, new, cache)


# ----------------------------------------------------------------------------------------------------------------- pods
def _pod(old: kinds.Pod | None, new: kinds.Pod | None, cache: ClusterCache) -> Urgency:
    pod = old if new is None else new
    assert pod is not None
    mine = _mine(pod, cache)
    if new is None or new.status.phase in ENDED:
        return _pod_gone(old, mine)
    if old is None:
        return _pod_came(new, mine)
    if old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None:
        return Urgency.ROOM if new.spec.node_name else Urgency.NEWS
    if not new.spec.node_name:
        open_wish = mine and not _being_bound(new, cache)
        return Urgency.WORK if open_wish and _wishes(old) != _wishes(new) else Urgency.NOTHING
    if not old.spec.node_name:
        return Urgency.CHORE if mine and _blamed(new, cache) else Urgency.NEWS
    if old.spec != new.spec:
        return Urgency.ROOM
    return Urgency.NEWS if _marks(old) != _marks(new) else Urgency.NOTHING


def _mine(pod: kinds.Pod, cache: ClusterCache) -> bool:
    annotations = pod.metadata.annotations or {}
    return pod.spec.scheduler_name == cache.params.scheduler_name and names.POD_GROUP_ANNOTATION in annotations


def _pod_gone(old: kinds.Pod | None, mine: bool) -> Urgency:
    """A pod that left or finished: who held a place gives it back."""
    if old is None or old.status.phase in ENDED:
        return Urgency.NOTHING
    if mine:
        return Urgency.LOSS
    return Urgency.ROOM if old.spec.node_name else Urgency.NOTHING


def _pod_came(new: kinds.Pod, mine: bool) -> Urgency:
    if new.spec.node_name:
        return Urgency.NEWS
    return Urgency.WORK if mine else Urgency.NOTHING


def _wishes(pod: kinds.Pod) -> object:
    """All that decides where a pod may go."""
    return pod.spec, *_marks(pod), pod.status.resource_claim_statuses, pod.status.nominated_node_name


def _marks(pod: kinds.Pod) -> tuple[object, object]:
    return pod.metadata.labels, pod.metadata.annotations


def _being_bound(pod: kinds.Pod, cache: ClusterCache) -> bool:
    request = cache.of(kinds.BindRequest).get((pod.metadata.namespace, pod.metadata.name))
    return request is not None and request_is_for(request, pod) and not request_failed(request)


def _blamed(pod: kinds.Pod, cache: ClusterCache) -> bool:
    """Whether its gang still shows why it waited: that is to be taken back now."""
    name = (pod.metadata.annotations or {}).get(names.POD_GROUP_ANNOTATION, "")
    group = cache.of(kinds.PodGroup).get((pod.metadata.namespace, name))
    return group is not None and bool(group.status.scheduling_conditions)


# --------------------------------------------------------------------------------------------------------- other kinds
def _node(old: kinds.Node | None, new: kinds.Node | None, _: ClusterCache) -> Urgency:
    if new is None:
        return Urgency.LOSS
    return Urgency.NOTHING if old is not None and _offer(old) == _offer(new) else Urgency.ROOM


def _offer(node: kinds.Node) -> object:
    """What a node offers and to whom; why a condition is as it is does not matter."""
    conditions = [(condition.type, condition.status) for condition in node.status.conditions or ()]
    return node.metadata.labels, node.spec, bytes(node.status.allocatable), conditions


def _group(old: kinds.PodGroup | None, new: kinds.PodGroup | None, _: ClusterCache) -> Urgency:
    if new is None:
        return Urgency.NEWS
    if old is None or old.spec != new.spec:
        return Urgency.WORK
    if not old.metadata.uid and new.metadata.uid:  # it was expected: now its conditions can be written
        return Urgency.NEWS
    said = new.status.scheduling_conditions
    return Urgency.WORD if said and said != old.status.scheduling_conditions else Urgency.NOTHING


def _bind_request(old: kinds.BindRequest | None, new: kinds.BindRequest | None, cache: ClusterCache) -> Urgency:
    """A request that came is our own; one that failed is to be deleted; one that is gone leaves its pod waiting.

    One for a node that went while it was written is to be deleted, too.
    """
    if new is not None:
        failed = request_failed(new) and (old is None or not request_failed(old))
        late = old is None and is_homeless(new, cache)
        return Urgency.WORK if failed or late else Urgency.NOTHING
    assert old is not None
    pod = cache.of(kinds.Pod).get((old.metadata.namespace, old.spec.pod_name))
    return Urgency.WORK if pod is not None and not pod.spec.node_name else Urgency.NOTHING


def _config_map(old: object, new: object, _: ClusterCache) -> Urgency:
    """Only whether it exists is read."""
    return Urgency.NEWS if old is None else Urgency.NOTHING


def _numa(old: Any, new: Any, _: ClusterCache) -> Urgency:
    return Urgency.NEWS if new is not None and not _same(old, new) else Urgency.NOTHING


def _any(old: Any, new: Any, _: ClusterCache) -> Urgency:
    if new is None:
        return Urgency.NEWS
    return Urgency.NOTHING if _same(old, new) else Urgency.ROOM


def _same(old: Any, new: Any) -> bool:
    """Whether two states of an object differ in nothing but their version and annotations."""
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
    kinds.Queue: _any,
    kinds.PriorityClass: _any,
    kinds.PersistentVolumeClaim: _any,
    kinds.PersistentVolume: _any,
    kinds.StorageClass: _any,
    kinds.CSIStorageCapacity: _any,
    kinds.CSIDriver: _any,
    kinds.Topology: _any,
    kinds.ResourceClaim: _any,
    kinds.ResourceSlice: _any,
    kinds.DeviceClass: _any,
}
