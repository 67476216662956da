"""PyTorchJob: the master and the workers as sub-groups, the workers optionally in segments.

The gang's size counts all of them; what exceeds the master belongs to the workers. Segments beyond that number are
elastic: they exist, and need no pod.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default, kubeflow
from pykai.controllers.grouping.fields import (
    GroupingError,
    annotations_of,
    count_at,
    full_name,
    labels_of,
    map_at,
    positive,
    template_annotations,
    whole,
)
from pykai.controllers.grouping.segments import ceil_div, checked_count, segment_topology
from pykai.controllers.grouping.spec import GroupSpec, SubGroup
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names

_REPLICAS = "pytorchReplicaSpecs"
_ROLE = "training.kubeflow.org/replica-type"
_INDEX = "training.kubeflow.org/replica-index"
_MASTER, _WORKER = "master", "worker"
_WORKER_TEMPLATE = ("spec", _REPLICAS, "Worker", "template")


def group(work: Workload) -> GroupSpec:
    """A gang of master and workers."""
    total = _total(work)
    masters = count_at(work.top, "spec", _REPLICAS, "Master", "replicas") or 0
    sub_groups = (*_master(work, masters), *_workers(work, max(0, total - masters)))
    return replace(default.group(work), min_member=total, sub_groups=sub_groups)


def _total(work: Workload) -> int:
    wanted = kubeflow.scheduling_policy_minimum(work.top)
    if wanted is not None:
        return wanted
    replicas = kubeflow.all_replicas(work.top, _REPLICAS)
    elastic = count_at(work.top, "spec", "elasticPolicy", "minReplicas")
    return replicas if elastic is None else elastic


def _master(work: Workload, masters: int) -> tuple[SubGroup, ...]:
    if masters <= 0:
        return ()
    sub_group = SubGroup(_MASTER, masters)
    return (sub_group.taking(work.pod_name) if _role(work) == _MASTER else sub_group,)


def _workers(work: Workload, minimum: int) -> tuple[SubGroup, ...]:
    if map_at(work.top, "spec", _REPLICAS, "Worker") is None:
        return ()
    replicas = count_at(work.top, "spec", _REPLICAS, "Worker", "replicas") or 0
    size = _segment_size(work)
    if size is not None and replicas > 0:
        return _segmented(work, size, _segment_minimums(replicas, size, minimum))
    sub_group = SubGroup(_WORKER, minimum)
    return (sub_group.taking(work.pod_name) if _role(work) == _WORKER else sub_group,)


def _segment_size(work: Workload) -> int | None:
    template = template_annotations(work.top, *_WORKER_TEMPLATE)
    wanted = annotations_of(work.pod).get(names.SEGMENT_SIZE, template.get(names.SEGMENT_SIZE))
    return None if wanted is None else positive(wanted, f"annotation {names.SEGMENT_SIZE}")


def _segment_minimums(replicas: int, size: int, minimum: int) -> list[int]:
    """Pods each segment needs: all it will ever have, or none beyond the workers' minimum."""
    count = checked_count(ceil_div(replicas, size))
    needed = ceil_div(minimum, size)
    return [min(size, replicas - index * size) if index < needed else 0 for index in range(count)]


def _segmented(work: Workload, size: int, minimums: list[int]) -> tuple[SubGroup, ...]:
    topology = segment_topology(work, template_annotations(work.top, *_WORKER_TEMPLATE))
    segments = [
        SubGroup(f"{_WORKER}-{index}", minimum, parent=_WORKER, topology=topology)
        for index, minimum in enumerate(minimums)
    ]
    if _role(work) == _WORKER:
        own = _replica_index(work) // size
        if own >= len(segments):
            raise GroupingError(
                f"pod {full_name(work.pod)}: label {_INDEX} lies beyond the job's {len(segments)} segments"
            )
        segments[own] = segments[own].taking(work.pod_name)
    return (SubGroup(_WORKER, min_sub_group=len(segments)), *segments)


def _replica_index(work: Workload) -> int:
    index = whole(labels_of(work.pod).get(_INDEX, ""), f"pod {full_name(work.pod)}: label {_INDEX}")
    if index < 0:
        raise GroupingError(f"pod {full_name(work.pod)}: label {_INDEX}: {index} must not be negative")
    return index


def _role(work: Workload) -> str:
    return labels_of(work.pod).get(_ROLE, "")
