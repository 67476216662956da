"""What a pod and its group learn from one another: the pod its group and sub-group, the group the pod's node pool."""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping.fields import Object, annotations_of, labels_of, name_of, namespace_of
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Settings
from pykai.objects import names


def with_node_pool(spec: GroupSpec, pod: Object, settings: Settings) -> GroupSpec:
    """The group in the node pool of its pod, unless the workload already chose one."""
    key = settings.node_pool_label
    pool = labels_of(pod).get(key)
    return spec if pool is None or key in spec.labels else replace(spec, labels={**spec.labels, key: pool})


def pod_patch(spec: GroupSpec, pod: Object) -> Object | None:
    """The merge patch that puts the pod in its group; None where it is there. An older sub-group is never removed."""
    wanted: dict[str, dict[str, str]] = {}
    if annotations_of(pod).get(names.POD_GROUP_ANNOTATION) != spec.name:
        wanted["annotations"] = {names.POD_GROUP_ANNOTATION: spec.name}
    sub_group = spec.sub_group_of(namespace_of(pod), name_of(pod))
    if sub_group is not None and labels_of(pod).get(names.SUBGROUP_LABEL) != sub_group.name:
        wanted["labels"] = {names.SUBGROUP_LABEL: sub_group.name}
    return {"metadata": wanted} if wanted else None
