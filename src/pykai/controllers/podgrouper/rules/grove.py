"""Grove: translates the PodGang in which the Grove operator has grouped the pods.

The PodGang names its pod groups, the pods of each, and the topology constraints between them. Labels and annotations of
the top owner apply where the PodGang has none.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.defaults import PREEMPTIBILITIES
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupSpec,
    GroupTopology,
    SubGroupSpec,
    Workload,
    annotations_of,
    count_at,
    full_name,
    labels_of,
    map_at,
    maps_at,
    namespace_of,
    text_at,
    value_at,
)
from pykai.kube.api import Object
from pykai.objects import names

_GANG_LABEL = "grove.io/podgang"
_TOPOLOGY_NAME = "grove.io/topology-name"


def pod_gang(work: Workload) -> GroupSpec:
    """Return the group of the pod's PodGang."""
    name = work.required_label(_GANG_LABEL)
    gang = work.lookup.get("scheduler.grove.io/v1alpha1", "PodGang", namespace_of(work.pod), name)
    if gang is None:
        raise GroupingError(f"PodGang {namespace_of(work.pod)}/{name} of pod {full_name(work.pod)} does not exist")
    spec = defaults.group(work.seen_from(gang))
    spec = _with_inherited(
        replace(spec, priority_class=text_at(gang, "spec", "priorityClassName") or spec.priority_class), work.top
    )
    topology_name = spec.annotations.get(_TOPOLOGY_NAME) or spec.annotations.get(names.TOPOLOGY, "")
    where = f"PodGang {full_name(gang)}: spec.podgroups"
    members = [
        member(pod_group, namespace_of(gang), topology_name, f"{where}[{index}]")
        for index, pod_group in enumerate(maps_at(gang, "spec", "podgroups") or [])
    ]
    return replace(
        spec,
        topology=_topology(gang, topology_name, full_name(gang)) or spec.topology,
        min_member=sum(member.min_member for member in members),
        sub_groups=_sub_groups(gang, topology_name, members),
    )


def _with_inherited(spec: GroupSpec, top: Object) -> GroupSpec:
    """Return the group with labels and annotations that only the top owner has, and the fields they set."""
    all_labels = {**labels_of(top), **spec.labels}
    notes = {**annotations_of(top), **spec.annotations}
    delay = defaults.readable_seconds(notes.get(names.PREEMPTION_DELAY, ""))
    preemptibility = all_labels.get(names.PREEMPTIBILITY_LABEL, "")
    grace = defaults.readable_seconds(notes.get(names.STALENESS_GRACE_PERIOD, ""))
    return replace(
        spec,
        labels=all_labels,
        annotations=notes,
        priority_class=all_labels.get(names.PRIORITY_CLASS_LABEL) or spec.priority_class,
        preemptibility=(preemptibility if preemptibility in PREEMPTIBILITIES else "") or spec.preemptibility,
        preemption_delay=spec.preemption_delay if delay is None or delay < 0 else delay,
        staleness_grace_period=spec.staleness_grace_period if grace is None else grace,
        topology=defaults.annotated_topology(notes),
    )


def _sub_groups(gang: Object, topology_name: str, members: list[SubGroupSpec]) -> tuple[SubGroupSpec, ...]:
    """Return the sub-groups: parents first, then the pod groups, each under the parent that lists it."""
    parents: list[SubGroupSpec] = []
    parent_of: dict[str, str] = {}
    for index, config in enumerate(maps_at(gang, "spec", "topologyConstraintGroupConfigs") or []):
        where = f"PodGang {full_name(gang)}: spec.topologyConstraintGroupConfigs[{index}]"
        children = value_at(config, "podGroupNames") or []
        if not isinstance(children, list) or not all(isinstance(child, str) for child in children):
            raise GroupingError(f"{where}.podGroupNames is not a list of names")
        if children:
            name = _required(config, "name", where)
            topology = _topology({"spec": config}, topology_name, where)
            parents.append(SubGroupSpec(name, min_sub_group=len(children), topology=topology))
            parent_of.update(dict.fromkeys(children, name))
    return (*parents, *(replace(member, parent=parent_of.get(member.name, "")) for member in members))


def member(pod_group: Object, home: str, topology_name: str, where: str) -> SubGroupSpec:
    """Return one pod group of a PodGang, with the pods that it references."""
    name = _required(pod_group, "name", where)
    replicas = count_at(pod_group, "minReplicas")
    if replicas is None or replicas <= 0:
        raise GroupingError(f"{where}.minReplicas must be greater than 0")
    references = maps_at(pod_group, "podReferences")
    if references is None:
        raise GroupingError(f"{where}: missing required 'podReferences' field")
    pods = tuple(_pod_name(ref, home, f"{where}.podReferences[{index}]") for index, ref in enumerate(references))
    return SubGroupSpec(name, replicas, pods=pods, topology=_topology({"spec": pod_group}, topology_name, where))


def _pod_name(reference: Object, home: str, where: str) -> str:
    """Return the name of a referenced pod; GroupingError for a pod of another namespace."""
    pod, at = _required(reference, "name", where), _required(reference, "namespace", where)
    if at != home:
        raise GroupingError(f"{where}: pod {at}/{pod} is not in namespace {home}")
    return pod


def _required(source: Object, field: str, where: str) -> str:
    value = text_at(source, field)
    if not value:
        raise GroupingError(f"{where}: missing required '{field}' field")
    return value


def _topology(source: Object, topology_name: str, where: str) -> GroupTopology | None:
    """Return the constraint in `spec.topologyConstraint`; None without a level."""
    pack = map_at(source, "spec", "topologyConstraint", "packConstraint") or {}
    topology = GroupTopology(topology_name, text_at(pack, "required"), text_at(pack, "preferred"))
    if topology.has_level and not topology_name:
        raise GroupingError(f"{where}: topology name cannot be empty when topology constraints are defined")
    return topology if topology.has_level else None
