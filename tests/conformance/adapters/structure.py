"""Gangs: the tree of a PodGroup, which pods it places next or loses first, whether it may be evicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.cache.podgroups import SubGroupError, effective_preemptibility, sub_group_tree
from pykai.engine.cycle import Cycle
from pykai.engine.gang import active_pods, next_victims, pods_to_place
from pykai.engine.policy import Policy
from pykai.model.gangs import PodSet, SubGroupSet, TopologyRequirement
from pykai.objects import kinds
from tests.conformance.adapters import clusters
from tests.conformance.cases import choose

Case = dict[str, Any]


def constraint(topology: TopologyRequirement | None) -> Case:
    if topology is None:
        return {}
    levels = {"required_level": topology.required, "preferred_level": topology.preferred}
    return {"topology_constraint": {"topology": topology.topology, **levels}}


def described(group: SubGroupSet) -> Case:
    """A tree in the words of the cases."""
    tree: Case = {"name": group.name, **constraint(group.topology)}
    if group.min_satisfied is not None:
        tree["min_sub_group"] = group.min_satisfied
    leaves = [child for child in group.children if isinstance(child, PodSet)]
    inner = [described(child) for child in group.children if isinstance(child, SubGroupSet)]
    if leaves:
        tree["pod_sets"] = [
            {"name": p.name, "min_available": p.min_available, **constraint(p.topology)} for p in leaves
        ]
    return {**tree, "sub_group_sets": inner} if inner else tree


def tree(given: Case) -> Case:
    group = clusters.as_kind(kinds.PodGroup, given["pod_group"])
    try:
        found = sub_group_tree(group)
    except SubGroupError as error:
        return {"error": str(error)}
    if not group.spec.sub_groups:  # the cases leave out the podset made up for a group without any
        found = SubGroupSet(found.name, found.min_satisfied, (), found.topology)
    return {"tree": described(found)}


def preemptibility(given: Case) -> Case:
    evictable = effective_preemptibility(given["preemptibility"], given["priority"])
    return {"preemptibility": "preemptible" if evictable else "non-preemptible"}


def cycle_of(job: Case, simulated: bool = False) -> Cycle:
    """A cluster with nothing but the job; pods ordered by uid, sub-groups by name.

    `simulated`: a pod that the simulation took from its node waits for a place like any other.
    """
    root = job.get("root_sub_group_set") or {"pod_sets": list((job.get("pod_sets") or {}).values())}
    members = [(name, state, p["name"]) for p in clusters.podsets(root) for name, state in p.get("pods", {}).items()]
    pods = [clusters.pod(name, {}, "job", podset) for name, _, podset in members]
    statuses = {name: "Pending" if simulated and taken(state) else state["status"] for name, state, _ in members}
    return Cycle(clusters.snapshot([clusters.pod_group("job", root), *pods], statuses), Policy(()), now=0.0)


def taken(pod: Case) -> bool:
    return pod["status"] == "Releasing" and any(value is True for key, value in pod.items() if "virtual" in key)


def to_place(given: Case) -> Case:
    cycle = cycle_of(given["job"], simulated=not given.get("is_real_allocation", False))
    chosen = pods_to_place(cycle.trial, cycle.orders, 0)
    return {"tasks": [cycle.snapshot.pods.names[pod] for pod in chosen]}


def to_evict(given: Case) -> Case:
    cycle = cycle_of(given["job"])
    chosen, more = next_victims(cycle.trial, cycle.orders, 0, active_pods(cycle.trial, 0))
    return {"tasks": [cycle.snapshot.pods.names[pod] for pod in chosen], "has_more_tasks": more}


OPERATIONS: dict[str, Callable[[Case], Case]] = {
    "pod_group_to_tree": tree,
    "effective_preemptibility": preemptibility,
    "tasks_to_allocate": to_place,
    "tasks_to_evict": to_evict,
}


def structure(case: Case, _document: Case) -> list[str]:
    got, expected = choose(OPERATIONS, case["input"]["operation"])(case["input"]), case["expected"]
    if "error" in expected and "error" in got:
        return []  # the wording is ours
    if not case["deterministic"]:
        got, expected = ({**answer, "tasks": sorted(answer["tasks"])} for answer in (got, expected))
    return [] if got == expected else [f"expected {expected}", f"got      {got}"]


SUITES = {"podgroup/structure": structure}
