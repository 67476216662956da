"""LeaderWorkerSet: each group of the set is a gang of one leader and its workers, optionally in segments.

A segment has `size` pods. If `size` divides the number of workers ("even"), the leader is an additional pod of segment
0 or, with policy LeaderExcluded, a sub-group of its own; otherwise the leader counts as the first pod of segment 0.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.defaults import ceil_div, checked_count, segment_topology
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupSpec,
    SubGroupSpec,
    Workload,
    annotations_of,
    count_at,
    full_name,
    labels_of,
    positive,
    template_annotations,
    text_at,
    whole,
)
from pykai.objects import names

_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_SIZE = "leaderworkerset.sigs.k8s.io/size"
_TEMPLATE = ("spec", "leaderWorkerTemplate")
_LEADER, _WORKERS = "leader", "workers"


def leader_worker_set(work: Workload) -> GroupSpec:
    """Return one gang per group of the set."""
    spec = defaults.group(work)
    index = labels_of(work.pod).get(_GROUP_INDEX)
    pods = _min_member(work)
    return replace(
        spec,
        name=spec.name if index is None else f"{spec.name}-group-{index}",
        min_member=pods,
        sub_groups=sub_groups(work, pods),
    )


def _min_member(work: Workload) -> int:
    policy = text_at(work.top, "spec", "startupPolicy") or "LeaderCreated"
    if policy == "LeaderCreated":
        return _declared_size(work)
    if policy != "LeaderReady":
        raise GroupingError(f"LeaderWorkerSet {full_name(work.top)}: unknown spec.startupPolicy {policy!r}")
    if worker_index(work) == 0 and not text_at(work.pod, "spec", "nodeName"):
        return 1  # workers are created once the leader is ready
    size = annotations_of(work.pod).get(_SIZE)
    return _declared_size(work) if size is None else positive(size, f"annotation {_SIZE}")


def _declared_size(work: Workload) -> int:
    size = count_at(work.top, *_TEMPLATE, "size")
    if size is None or size < 1:
        found = "is missing" if size is None else f"must be at least 1, found {size}"
        raise GroupingError(f"LeaderWorkerSet {full_name(work.top)}: {'.'.join(_TEMPLATE)}.size {found}")
    return size


def worker_index(work: Workload) -> int | None:
    """Return the worker index of the pod, 0 for the leader; None without the label."""
    text = labels_of(work.pod).get(_WORKER_INDEX)
    index = None if text is None else whole(text, f"label {_WORKER_INDEX}")
    if index is not None and index < 0:
        raise GroupingError(f"pod {full_name(work.pod)}: label {_WORKER_INDEX}: {index} must not be negative")
    return index


def sub_groups(work: Workload, pods: int) -> tuple[SubGroupSpec, ...]:
    """Return the sub-groups of a gang of this many pods."""
    size = _segment_size(work)
    is_leader = worker_index(work) == 0
    if size is None or size > pods:
        parts = [SubGroupSpec(_LEADER, 1)] + ([SubGroupSpec(_WORKERS, pods - 1)] if pods > 1 else [])
        return _with_pod(work, parts, _LEADER if is_leader else _WORKERS)
    policy = text_at(work.top, *_TEMPLATE, "subGroupPolicy", "subGroupPolicyType") or "LeaderWorker"
    if policy == "LeaderWorker":
        return _leader_in_segment(work, pods, size)
    if policy != "LeaderExcluded":
        raise GroupingError(f"LeaderWorkerSet {full_name(work.top)}: unknown subGroupPolicyType {policy!r}")
    if not _is_even(pods, size):
        raise GroupingError(
            f"LeaderWorkerSet {full_name(work.top)}: {pods - 1} workers do not divide into segments of {size}, "
            "as policy LeaderExcluded requires"
        )
    parts = [SubGroupSpec(_LEADER, 1), *_segments(work, pods, size)]
    return _with_pod(work, parts, _segment_of(work, pods, size) or _LEADER)


def _segment_size(work: Workload) -> int | None:
    size = count_at(work.top, *_TEMPLATE, "subGroupPolicy", "subGroupSize")
    if size is None:
        template = template_annotations(work.top, *_TEMPLATE, "workerTemplate")
        wanted = annotations_of(work.top).get(names.SEGMENT_SIZE, template.get(names.SEGMENT_SIZE))
        size = None if wanted is None else positive(wanted, f"annotation {names.SEGMENT_SIZE}")
    if size is not None and size <= 1:
        raise GroupingError(f"LeaderWorkerSet {full_name(work.top)}: segments of {size} pods, expected at least 2")
    if size is not None and size > _declared_size(work):
        raise GroupingError(f"LeaderWorkerSet {full_name(work.top)}: segments of {size} pods exceed its groups")
    return size


def _leader_in_segment(work: Workload, pods: int, size: int) -> tuple[SubGroupSpec, ...]:
    first, *others = _segments(work, pods, size)
    workers = first.min_member if _is_even(pods, size) else first.min_member - 1
    parts = [
        replace(first, min_member=0, min_sub_group=2),
        *others,
        SubGroupSpec(_LEADER, 1, parent=first.name),
        SubGroupSpec(_WORKERS, workers, parent=first.name),
    ]
    own = _segment_of(work, pods, size) or _LEADER
    return _with_pod(work, parts, _WORKERS if own == first.name else own)


def _segments(work: Workload, pods: int, size: int) -> list[SubGroupSpec]:
    members = pods - 1 if _is_even(pods, size) else pods
    topology = segment_topology(work, template_annotations(work.top, *_TEMPLATE, "workerTemplate"))
    return [
        SubGroupSpec(f"segment-{index}", min(size, members - index * size), topology=topology)
        for index in range(checked_count(ceil_div(members, size)))
    ]


def _segment_of(work: Workload, pods: int, size: int) -> str:
    """Return the name of the pod's segment; empty for the leader."""
    index = worker_index(work)
    if index is None:
        raise GroupingError(f"pod {full_name(work.pod)} missing required label {_WORKER_INDEX!r}")
    if index >= pods:
        raise GroupingError(f"pod {full_name(work.pod)}: label {_WORKER_INDEX}: {index} in a group of {pods} pods")
    return "" if index == 0 else f"segment-{(index - 1 if _is_even(pods, size) else index) // size}"


def _is_even(pods: int, size: int) -> bool:
    return (pods - 1) % size == 0


def _with_pod(work: Workload, parts: list[SubGroupSpec], own: str) -> tuple[SubGroupSpec, ...]:
    return tuple(part.taking(work.pod_name) if part.name == own else part for part in parts)
