from __future__ import annotations

import copy
from typing import Any

import pytest

from pykai.controllers.podgrouper.grouping import pod_patch
from pykai.controllers.podgrouper.podgroup import (
    is_same,
    keeping_decisions,
    merged,
    pod_group,
    pod_group_to_write,
)
from pykai.controllers.podgrouper.rules.workload import GroupingSettings, GroupSpec, GroupTopology, SubGroupSpec

from .cluster import Object, pod

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


def spec(**more: Any) -> GroupSpec:
    return GroupSpec("pg", "ns", OWNER, **{"queue": "q", "priority_class": "train", **more})


def test_the_object_of_a_plain_group() -> None:
    assert pod_group(spec(labels={"a": "1"}, annotations={"b": "2"})) == {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": "pg",
            "namespace": "ns",
            "labels": {"a": "1"},
            "annotations": {"b": "2"},
            "ownerReferences": [OWNER],
        },
        "spec": {"minMember": 1, "queue": "q", "priorityClassName": "train", "topologyConstraint": {}},
    }


def test_the_object_of_a_full_group() -> None:
    sub_groups = (
        SubGroupSpec("a", min_sub_group=1, topology=GroupTopology("net", "zone", "")),
        SubGroupSpec("a-0", 0, parent="a", pods=("p",)),
    )
    wishes = {"preemptibility": "preemptible", "preemption_delay": 300.0, "staleness_grace_period": -1.0}
    made = pod_group(spec(min_sub_group=1, sub_groups=sub_groups, topology=GroupTopology("net", "", "rack"), **wishes))
    assert made["spec"] == {
        "minSubGroup": 1,
        "queue": "q",
        "priorityClassName": "train",
        "preemptibility": "preemptible",
        "preemptionDelay": "5m0s",
        "stalenessGracePeriod": "-1s",
        "subGroups": [
            {"name": "a", "minSubGroup": 1, "topologyConstraint": {"topology": "net", "requiredTopologyLevel": "zone"}},
            {"name": "a-0", "minMember": 0, "parent": "a"},
        ],
        "topologyConstraint": {"topology": "net", "preferredTopologyLevel": "rack"},
    }


POOL, QUEUE = "kai.scheduler/node-pool", "kai.scheduler/queue"


def test_decisions_on_the_existing_group_stay() -> None:
    old = pod_group(spec(queue="moved", labels={QUEUE: "moved", POOL: "gpus"}))
    old["spec"] |= {"markUnschedulable": False, "schedulingBackoff": 1}
    new = pod_group(spec(queue="q", labels={QUEUE: "q", POOL: "cpus", "a": "1"}, priority_class="build"))
    kept = keeping_decisions(new, old, GroupingSettings())
    assert kept["spec"]["queue"] == "moved"
    assert (kept["spec"]["markUnschedulable"], kept["spec"]["schedulingBackoff"]) == (False, 1)
    assert kept["spec"]["priorityClassName"] == "build"
    assert kept["metadata"]["labels"] == {QUEUE: "moved", POOL: "gpus", "a": "1"}


def test_a_group_without_node_pool_stays_without() -> None:
    kept = keeping_decisions(pod_group(spec(labels={POOL: "gpus", QUEUE: "q"})), pod_group(spec()), GroupingSettings())
    assert kept["metadata"]["labels"] == {QUEUE: "q"}


@pytest.mark.parametrize(
    ("new", "old", "kept"),
    [
        (GroupTopology(), GroupTopology("net", "zone", ""), {"topology": "net", "requiredTopologyLevel": "zone"}),
        (GroupTopology("", "rack", ""), GroupTopology("net", "", ""), {"topology": "net"}),
        (
            GroupTopology("mine", "", "rack"),
            GroupTopology("net", "zone", ""),
            {"topology": "mine", "preferredTopologyLevel": "rack"},
        ),
        (GroupTopology(), GroupTopology(), {}),
    ],
)
def test_a_topology_somebody_set_stays_unless_the_workload_names_one(
    new: GroupTopology, old: GroupTopology, kept: Object
) -> None:
    groups = [pod_group(spec(topology=topology)) for topology in (new, old)]
    assert keeping_decisions(groups[0], groups[1], GroupingSettings())["spec"]["topologyConstraint"] == kept


def test_a_topology_that_the_system_chose_stays() -> None:
    old = pod_group(
        spec(topology=GroupTopology("net", preferred="rack"), annotations={"topology.kai/source": "system"})
    )
    new = pod_group(spec(topology=GroupTopology("net", required="zone")))
    kept = keeping_decisions(new, old, GroupingSettings())["spec"]["topologyConstraint"]
    assert kept == {"topology": "net", "preferredTopologyLevel": "rack"}


@pytest.mark.parametrize("safe", [True, False, None])
def test_whether_pods_may_be_moved_is_written_where_it_is_stated(safe: bool | None) -> None:
    assert pod_group(spec(safe_to_consolidate=safe))["spec"].get("safeToConsolidate") is safe


def test_merging_adds_metadata_and_replaces_the_rest() -> None:
    old = pod_group(spec(labels={"a": "old", "b": "old"}, annotations={"c": "old"}))
    old["metadata"]["resourceVersion"] = "7"
    old["status"] = {"x": 1}
    new = pod_group(spec(labels={"a": "new"}, annotations={"d": "new"}, min_member=4))
    result = merged(old, new)
    assert result["metadata"]["labels"] == {"a": "new", "b": "old"}
    assert result["metadata"]["annotations"] == {"c": "old", "d": "new"}
    assert (result["spec"], result["metadata"]["resourceVersion"], result["status"]) == (new["spec"], "7", {"x": 1})


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"labels": {"a": "1", "x": "2"}}, False),
        ({"labels": {}}, True),
        ({"annotations": {"b": "3"}}, False),
        ({"annotations": {"b": "2", "c": "3"}}, False),
        ({"min_member": 2}, False),
        ({"min_member": 0}, False),
        ({"owner": {**OWNER, "uid": "other"}}, False),
    ],
)
def test_what_is_worth_a_write(change: Object, same: bool) -> None:
    basis = {"labels": {"a": "1"}, "annotations": {"b": "2"}}
    owner = change.pop("owner", OWNER)
    new = pod_group(GroupSpec("pg", "ns", owner, **{"queue": "q", "priority_class": "train", **basis, **change}))
    assert is_same(pod_group(spec(**basis)), new) is same


def test_empty_fields_make_no_difference() -> None:
    old = pod_group(spec())
    old["spec"] |= {"preemptibility": "", "subGroups": [], "topologyConstraint": None}
    assert is_same(old, pod_group(spec()))


def test_create_update_or_leave() -> None:
    wanted = spec(min_member=3)
    created = pod_group_to_write(wanted, None, GroupingSettings())
    assert created == pod_group(wanted)
    assert pod_group_to_write(wanted, created, GroupingSettings()) is None
    before = copy.deepcopy(created)
    updated = pod_group_to_write(spec(min_member=4, queue="other"), created, GroupingSettings())
    assert updated is not None
    assert (updated["spec"]["minMember"], updated["spec"]["queue"]) == (4, "q")
    assert created == before


GROUP = "pod-group-name"
LABEL = "kai.scheduler/subgroup-name"


@pytest.mark.parametrize(
    ("annotations", "labels", "sub_groups", "expected"),
    [
        ({}, {}, (), {"annotations": {GROUP: "pg"}}),
        ({}, {}, (SubGroupSpec("s", 1, pods=("p",)),), {"annotations": {GROUP: "pg"}, "labels": {LABEL: "s"}}),
        ({GROUP: "pg"}, {}, (SubGroupSpec("s", 1, pods=("p",)),), {"labels": {LABEL: "s"}}),
        ({GROUP: "old"}, {LABEL: "s"}, (SubGroupSpec("s", 1, pods=("p",)),), {"annotations": {GROUP: "pg"}}),
        ({GROUP: "pg"}, {LABEL: "s"}, (SubGroupSpec("s", 1, pods=("p",)),), None),
        ({GROUP: "pg"}, {LABEL: "stale"}, (), None),
        ({GROUP: "pg"}, {}, (SubGroupSpec("s", 1, pods=("other",)),), None),
    ],
)
def test_pod_patch(annotations: Object, labels: Object, sub_groups: tuple[Any, ...], expected: Object | None) -> None:
    patch = pod_patch(spec(sub_groups=sub_groups), pod(annotations=annotations, labels=labels))
    assert patch == (None if expected is None else {"metadata": expected})


def test_a_pod_of_another_namespace_has_no_sub_group() -> None:
    assert spec(sub_groups=(SubGroupSpec("s", 1, pods=("p",)),)).sub_group_of("elsewhere", "p") is None
