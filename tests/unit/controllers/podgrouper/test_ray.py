from __future__ import annotations

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupTopology

from .cluster import Object, grouped, home, obj, pod, pod_group, tree


def cluster(*groups: Object, head: Object | None = None, name: str = "ray", **more: Object) -> Object:
    return obj(
        "ray.io/v1", "RayCluster", name, spec={"headGroupSpec": head or {}, "workerGroupSpecs": list(groups)}, **more
    )


def annotated(**wishes: str) -> Object:
    keys = {"name": "topology", "required": "topology-required-placement", "preferred": "topology-preferred-placement"}
    return {"metadata": {"annotations": {f"kai.scheduler/{keys[key]}": value for key, value in wishes.items()}}}


@pytest.mark.parametrize(
    ("group", "size"),
    [
        ({"replicas": 3, "minReplicas": 2}, 2),
        ({"replicas": 3}, 3),
        ({"replicas": 3, "minReplicas": 0}, 3),
        ({"replicas": 2, "minReplicas": 2, "numOfHosts": 4}, 8),
        ({"replicas": 0, "minReplicas": 0}, 0),
        ({}, 0),
        ({"replicas": 3, "suspend": True}, 0),
        ({"replicas": 1, "minReplicas": 2, "suspend": True}, 0),
        ({"replicas": 3, "minReplicas": 1, "suspended": True}, 0),
        ({"replicas": 3, "suspend": False, "suspended": True}, 0),
        ({"replicas": 3, "suspend": False, "suspended": False}, 3),
    ],
)
def test_worker_group_size(group: Object, size: int) -> None:
    spec = grouped(cluster(group), pod())
    assert spec.min_member == 1 + size
    assert tree(spec) == [("headgroup", "", 1)] + ([("worker-group-0", "", size)] if size else [])


@pytest.mark.parametrize("key", ["suspend", "suspended"])
def test_suspended_is_yes_or_no(key: str) -> None:
    with pytest.raises(GroupingError, match=f"worker group worker-group-0: {key} must be true or false, found 'yes'"):
        grouped(cluster({"replicas": 1, key: "yes"}), pod())


@pytest.mark.parametrize(
    ("autoscaling", "group", "size"),
    [
        (True, {"minReplicas": 0}, 0),
        (True, {}, 0),
        (True, {"minReplicas": 2, "numOfHosts": 2}, 4),
        (False, {"minReplicas": 0}, 5),
        (None, {"minReplicas": 0, "numOfHosts": 2}, 10),
    ],
)
def test_a_group_that_ray_scales_waits_for_its_least_number(autoscaling: bool, group: Object, size: int) -> None:
    top = cluster({"replicas": 5, **group})
    top["spec"]["enableInTreeAutoscaling"] = autoscaling
    assert tree(grouped(top, pod())) == [("headgroup", "", 1), ("worker-group-0", "", size)]


def test_unnamed_groups_are_named_by_position() -> None:
    spec = grouped(
        cluster({"replicas": 1, "suspend": True}, {"replicas": 1}, {"replicas": 1, "groupName": "gpu"}), pod()
    )
    assert [name for name, _, _ in tree(spec)] == ["headgroup", "worker-group-1", "gpu"]


def test_more_minimum_than_replicas_is_refused() -> None:
    with pytest.raises(GroupingError, match="minReplicas 2 is greater than replicas 1"):
        grouped(cluster({"replicas": 1, "minReplicas": 2}), pod())


def test_pods_find_their_group_by_label() -> None:
    top = cluster({"replicas": 1, "groupName": "gpu"})
    assert home(grouped(top, pod(labels={"ray.io/group": "gpu"}))) == ["gpu"]
    assert home(grouped(top, pod(labels={"ray.io/group": "headgroup"}))) == ["headgroup"]
    assert home(grouped(top, pod(labels={"ray.io/group": "other"}))) == []


def test_topology_per_group() -> None:
    head = {"template": annotated(name="net", preferred="rack")}
    groups = (
        {"replicas": 1, "template": annotated(name="net", required="zone")},
        {"replicas": 1, "template": annotated(name="net")},
    )
    spec = grouped(cluster(*groups, head=head), pod())
    assert [g.topology for g in spec.sub_groups] == [
        GroupTopology("net", "", "rack"),
        GroupTopology("net", "zone", ""),
        None,
    ]
    with pytest.raises(GroupingError, match="group gpu: a topology level is given without"):
        grouped(cluster({"replicas": 1, "groupName": "gpu", "template": annotated(required="zone")}), pod())


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("RayJob", {"rayClusterName": "ray"}),
        (
            "RayService",
            {"activeServiceStatus": {"rayClusterName": "ray"}, "pendingServiceStatus": {"rayClusterName": "x"}},
        ),
        ("RayService", {"activeServiceStatus": {}, "pendingServiceStatus": {"rayClusterName": "ray"}}),
    ],
)
def test_shape_comes_from_the_cluster_and_name_from_the_top(kind: str, status: Object) -> None:
    spec = grouped(obj("ray.io/v1", kind, "job", status=status), pod(), cluster({"replicas": 2}))
    assert (spec.name, spec.owner["kind"], spec.min_member) == ("pg-job-u-job", kind, 3)


def test_no_cluster_yet() -> None:
    with pytest.raises(GroupingError, match="failed to extract rayClusterName for ns/job of kind RayJob"):
        grouped(obj("ray.io/v1", "RayJob", "job"), pod())
    with pytest.raises(GroupingError, match="RayCluster ns/gone"):
        grouped(obj("ray.io/v1", "RayJob", "job", status={"rayClusterName": "gone"}), pod())


def test_priority_label_of_ray() -> None:
    assert grouped(cluster(labels={"ray.io/priority-class-name": "urgent"}), pod()).priority_class == "urgent"


def test_a_group_made_without_sub_groups_stays_so() -> None:
    flat = grouped(cluster({"replicas": 2}), pod(), pod_group("pg-ray-u-ray", minMember=3))
    assert (flat.min_member, flat.sub_groups) == (3, ())
    sub_groups = [{"name": "headgroup", "minMember": 1}]
    assert (
        len(grouped(cluster({"replicas": 2}), pod(), pod_group("pg-ray-u-ray", subGroups=sub_groups)).sub_groups) == 2
    )
