"""Pods that refer to a Workload of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers.podgrouper.grouping import ignored_settings, workload_of
from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupingSettings, GroupSpec

from .cluster import Memory, Object, group_pod, obj, pod, ref

IGNORE = "kai.scheduler/ignore-workload-api"
QUEUE = "kai.scheduler/queue"
GROUPS = [
    {"name": "workers", "policy": {"gang": {"minCount": 4}}},
    {"name": "driver", "policy": {"basic": {}}},
    {"name": "none", "policy": {"gang": {}}},
]


def group_of(group: str, key: str = "", job: Object | None = None, **parts: Any) -> GroupSpec | None:
    owner = job or obj(
        "batch/v1", "Job", "job", labels={QUEUE: "of-job", "kai.scheduler/preemptibility": "preemptible"}
    )
    reference = {"name": "train", "podGroup": group, **({"podGroupReplicaKey": key} if key else {})}
    member = pod(owners=[ref(owner)], spec={"workloadRef": reference}, **parts)
    workload = obj("scheduling.k8s.io/v1alpha1", "Workload", "train", labels={QUEUE: "of-workload"})
    workload["spec"] = {"podGroups": GROUPS}
    return group_pod(member, Memory(owner, workload))


@pytest.mark.parametrize(
    ("group", "key", "name", "minimum"),
    [
        ("workers", "", "train-workers", 4),
        ("workers", "a", "train-workers-a", 4),
        ("driver", "", "train-driver", 1),
    ],
)
def test_each_pod_group_and_replica_is_a_gang(group: str, key: str, name: str, minimum: int) -> None:
    spec = group_of(group, key)
    assert spec is not None
    assert (spec.name, spec.min_member, spec.sub_groups) == (name, minimum, ())
    assert (spec.owner["kind"], spec.queue, spec.preemptibility) == ("Job", "of-workload", "preemptible")


def test_who_opts_out_is_grouped_by_kind() -> None:
    by_pod = group_of("workers", annotations={IGNORE: "true"})
    by_owner = group_of("workers", job=obj("batch/v1", "Job", "job", annotations={IGNORE: "true"}))
    assert {spec.name for spec in (by_pod, by_owner) if spec} == {"pg-job-u-job"}
    not_so = group_of("workers", annotations={IGNORE: "false"})
    assert not_so is not None
    assert not_so.name == "train-workers"


def test_a_pod_waits_for_its_workload() -> None:
    alone = pod(spec={"workloadRef": {"name": "gone", "podGroup": "g"}})
    with pytest.raises(GroupingError, match="Workload ns/gone of pod ns/p does not exist"):
        group_pod(alone, Memory())


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("other", "Workload ns/train has no pod group 'other'"),
        ("none", "minCount of pod group none must be at least 1"),
    ],
)
def test_what_a_workload_does_not_say_is_refused(group: str, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        group_of(group)


# ------------------------------------------------------------------------------------------------------ 1.36 and later
API = "scheduling.k8s.io/v1beta1"


def native(kind: str, name: str, parent: str = "", labels: dict[str, str] | None = None, **policy: Any) -> Object:
    made = obj(API, kind, name, labels=labels or {})
    made["spec"] = {"schedulingPolicy": policy, **({"parentCompositePodGroupName": parent} if parent else {})}
    return made


def grouped(*objects: Object, group: str = "workers", **parts: Any) -> GroupSpec | None:
    owner = obj("batch/v1", "Job", "job", labels={QUEUE: "of-job"})
    member = pod(owners=[ref(owner)], spec={"schedulingGroup": {"podGroupName": group}}, **parts)
    return group_pod(member, Memory(owner, *objects))


@pytest.mark.parametrize(("policy", "minimum"), [({"gang": {"minCount": 4}}, 4), ({"basic": {}}, 1)])
def test_a_scheduling_group_is_a_gang(policy: dict[str, Any], minimum: int) -> None:
    group = native("PodGroup", "workers", labels={QUEUE: "of-group"}, **policy)
    group["spec"]["priorityClassName"] = "high"
    spec = grouped(group)
    assert spec is not None
    assert (spec.name, spec.min_member, spec.min_sub_group, spec.sub_groups) == ("workers", minimum, None, ())
    assert (spec.owner["kind"], spec.queue, spec.priority_class) == ("Job", "of-group", "high")


TREE = (
    native("CompositePodGroup", "root", labels={QUEUE: "of-root"}, gang={"minGroupCount": 2}),
    native("CompositePodGroup", "inner", "root", basic={}),
    native("CompositePodGroup", "empty", "root", basic={}),
    native("PodGroup", "driver", "root", basic={}),
    native("PodGroup", "workers", "inner", gang={"minCount": 3}),
    native("PodGroup", "others", gang={"minCount": 9}),
)


def test_the_root_of_a_tree_is_the_gang_and_groups_below_are_its_sub_groups() -> None:
    spec = grouped(*TREE)
    assert spec is not None
    assert (spec.name, spec.min_sub_group, spec.queue) == ("root", 2, "of-root")
    assert [(each.name, each.parent, each.min_member, each.min_sub_group, each.pods) for each in spec.sub_groups] == [
        ("inner", "", 0, 0, ()),
        ("workers", "inner", 3, None, ("p",)),
        ("driver", "", 1, None, ()),
    ]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ((), "PodGroup ns/workers of pod ns/p does not exist in scheduling.k8s.io"),
        (TREE[1:], "CompositePodGroup ns/root does not exist"),
        ((TREE[0], native("PodGroup", "workers", "root", basic={})), "CompositePodGroup ns/root has 1 of 2 groups"),
        (
            (native("CompositePodGroup", "inner", "inner", basic={}), TREE[4]),
            "CompositePodGroup ns/inner is above itself",
        ),
        ((native("PodGroup", "workers", gang={}),), "minCount of ns/workers must be at least 1"),
    ],
)
def test_a_pod_waits_for_all_of_its_scheduling_group(objects: tuple[Object, ...], message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(*objects)


def test_a_pod_without_owners_stays_in_its_scheduling_group_unless_it_opts_out() -> None:
    member = pod(spec={"schedulingGroup": {"podGroupName": "workers"}}, annotations={"pod-group-name": "workers"})
    group = native("PodGroup", "workers", gang={"minCount": 2})
    spec = group_pod(member, Memory(group))
    assert spec is not None
    assert spec.min_member == 2
    member["metadata"]["annotations"][IGNORE] = "true"
    assert group_pod(member, Memory(group)) is None, "it names a group itself"


def test_a_topology_that_is_not_honoured_is_reported() -> None:
    group = native("PodGroup", "workers", basic={})
    group["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    work = workload_of(pod(spec={"schedulingGroup": {"podGroupName": "workers"}}), Memory(group), GroupingSettings())
    assert work is not None
    (line,) = ignored_settings(work)
    assert line.startswith("PodGroup ns/workers: schedulingConstraints.topology ignored: name a Topology")
