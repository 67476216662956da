"""Ray: a gang of the head and the minimum number of workers of each worker group.

For a RayJob or a RayService the operator creates a RayCluster, which defines the gang; their status names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupSpec,
    GroupTopology,
    Rule,
    SubGroupSpec,
    Workload,
    count_at,
    full_name,
    labels_of,
    maps_at,
    template_annotations,
    text_at,
    value_at,
)
from pykai.kube.api import Object

_GROUP_LABEL = "ray.io/group"
_PRIORITY_LABEL = "ray.io/priority-class-name"
_HEAD = "headgroup"

CLUSTER_NAME_OF_JOB = (("status", "rayClusterName"),)
CLUSTER_NAME_OF_SERVICE = (
    ("status", "activeServiceStatus", "rayClusterName"),
    ("status", "pendingServiceStatus", "rayClusterName"),
)


def cluster(work: Workload) -> GroupSpec:
    """Return the group of a RayCluster."""
    return _gang(work, work.top)


def on_cluster(*name_paths: tuple[str, ...]) -> Rule:
    """Return the rule of a kind that runs on the RayCluster named at the first non-empty path."""

    def rule(work: Workload) -> GroupSpec:
        return _gang(work, _cluster_of(work, name_paths))

    return rule


def _cluster_of(work: Workload, name_paths: tuple[tuple[str, ...], ...]) -> Object:
    cluster_name = next(filter(None, (text_at(work.top, *path) for path in name_paths)), "")
    kind = text_at(work.top, "kind")
    if not cluster_name:
        raise GroupingError(
            f"failed to extract rayClusterName for {full_name(work.top)} of kind {kind}. Please make sure that the "
            "ray-operator is up and a rayCluster child-object has been created"
        )
    found = work.lookup.get(text_at(work.top, "apiVersion"), "RayCluster", work.home, cluster_name)
    if found is None:
        raise GroupingError(f"RayCluster {work.home}/{cluster_name} of {kind} {full_name(work.top)} does not exist")
    return found


def _gang(work: Workload, ray_cluster: Object) -> GroupSpec:
    spec = defaults.group(work)
    head = template_annotations(ray_cluster, "spec", "headGroupSpec", "template")
    groups = [SubGroupSpec(_HEAD, 1, topology=_topology(head, _HEAD)), *_worker_groups(ray_cluster)]
    own = labels_of(work.pod).get(_GROUP_LABEL)
    sub_groups = tuple(group.taking(work.pod_name) if group.name == own else group for group in groups)
    return replace(
        spec,
        min_member=sum(group.min_member for group in sub_groups),
        priority_class=labels_of(work.top).get(_PRIORITY_LABEL) or spec.priority_class,
        sub_groups=() if work.has_flat_group(spec.name) else sub_groups,
    )


def _worker_groups(ray_cluster: Object) -> list[SubGroupSpec]:
    groups = []
    autoscaled = value_at(ray_cluster, "spec", "enableInTreeAutoscaling") is True
    for index, worker_group in enumerate(maps_at(ray_cluster, "spec", "workerGroupSpecs") or []):
        group_name = text_at(worker_group, "groupName") or f"worker-group-{index}"
        size = None if _is_suspended(worker_group, group_name) else _size(worker_group, group_name, autoscaled)
        if size is not None:
            topology = _topology(template_annotations(worker_group, "template"), group_name)
            groups.append(SubGroupSpec(group_name, size, topology=topology))
    return groups


def _is_suspended(worker_group: Object, group_name: str) -> bool:
    """Whether KubeRay creates no pods of the group: by its field `suspend`, or `suspended`, which KAI reads."""
    for key in ("suspend", "suspended"):
        value = value_at(worker_group, key)
        if value is not None and not isinstance(value, bool):
            raise GroupingError(f"worker group {group_name}: {key} must be true or false, found {value!r}")
        if value:
            return True
    return False


def _size(worker_group: Object, group_name: str, autoscaled: bool) -> int | None:
    """Return the workers that the gang requires: for an autoscaled group its minimum, which may be 0.

    None: the group has no workers.
    """
    replicas = count_at(worker_group, "replicas") or 0
    minimum = count_at(worker_group, "minReplicas") or 0
    if minimum > replicas:
        raise GroupingError(f"worker group {group_name}: minReplicas {minimum} is greater than replicas {replicas}")
    hosts = count_at(worker_group, "numOfHosts")
    each = 1 if hosts is None else hosts
    if not replicas * each:
        return None
    return minimum * each if autoscaled else (minimum or replicas) * each


def _topology(annotations: Mapping[str, str], group_name: str) -> GroupTopology | None:
    topology = defaults.annotated_topology(annotations)
    if topology.has_level and not topology.name:
        raise GroupingError(f"Ray group {group_name}: a topology level is given without the topology's name")
    return topology if topology.has_level else None
