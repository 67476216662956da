from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupTopology

from .cluster import Object, grouped, home, obj, pod, tree

SIZE, TOPOLOGY = "kai.scheduler/segment-size", "kai.scheduler/topology"
REQUIRED = "kai.scheduler/segment-topology-required-placement"
PREFERRED = "kai.scheduler/segment-topology-preferred-placement"


def pytorch(workers: int, template: Object | None = None, annotations: Object | None = None, **spec: Object) -> Object:
    worker = {"replicas": workers, "template": {"metadata": {"annotations": template or {}}}}
    specs = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": worker}, **spec}
    return obj("kubeflow.org/v1", "PyTorchJob", spec=specs, annotations=annotations or {})


def worker(index: int | str, **annotations: str) -> Object:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
    return pod(f"worker-{index}", labels=labels, annotations=annotations)


def test_workers_in_segments_the_last_one_partial() -> None:
    spec = grouped(pytorch(5, {SIZE: "2"}), worker(4))
    assert tree(spec)[1:] == [
        ("worker", "", (3,)),
        ("worker-0", "worker", 2),
        ("worker-1", "worker", 2),
        ("worker-2", "worker", 1),
    ]
    assert home(spec) == ["worker-2"]


def test_elastic_segments_need_no_pod() -> None:
    spec = grouped(pytorch(20, {SIZE: "4"}, elasticPolicy={"minReplicas": 13}), worker(0))
    assert [minimum for _, _, minimum in tree(spec)[2:]] == [4, 4, 4, 0, 0]


def test_no_workers_no_segments() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 1}}
    assert tree(grouped(pytorch(0, {SIZE: "2"}, runPolicy=policy), pod())) == [("master", "", 1), ("worker", "", 0)]


def test_workers_without_replicas_are_one_pod() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 2}}
    top = pytorch(5, {SIZE: "2"}, runPolicy=policy)
    del top["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    assert tree(grouped(top, worker(0)))[1:] == [("worker", "", (1,)), ("worker-0", "worker", 1)]


def test_an_empty_size_counts_as_none() -> None:
    assert len(grouped(pytorch(4, {SIZE: "2"}), worker(0, **{SIZE: ""})).sub_groups) == 2 + 2
    assert len(grouped(pytorch(4, {SIZE: ""}), worker(0)).sub_groups) == 2


def test_as_many_segments_as_allowed() -> None:
    assert len(grouped(pytorch(10_000, {SIZE: "1"}), worker(0)).sub_groups) == 10_002


def test_the_pods_own_size_comes_first() -> None:
    assert len(grouped(pytorch(4, {SIZE: "2"}), worker(0, **{SIZE: "1"})).sub_groups) == 2 + 4


@pytest.mark.parametrize(
    ("member", "template", "top", "expected"),
    [
        ({}, {TOPOLOGY: "net", REQUIRED: "rack"}, {}, GroupTopology("net", "rack", "")),
        (
            {TOPOLOGY: "pod-net", PREFERRED: "node"},
            {TOPOLOGY: "net", REQUIRED: "rack"},
            {},
            GroupTopology("pod-net", "rack", "node"),
        ),
        ({}, {REQUIRED: "rack"}, {TOPOLOGY: "net"}, GroupTopology("net", "rack", "")),
        ({}, {REQUIRED: "rack"}, {}, None),
        ({}, {TOPOLOGY: "net"}, {}, None),
        ({}, {}, {TOPOLOGY: "net", REQUIRED: "rack"}, None),
    ],
)
def test_segment_topology(member: Object, template: Object, top: Object, expected: GroupTopology | None) -> None:
    spec = grouped(pytorch(2, {SIZE: "1", **template}, top), worker(0, **member))
    assert [group.topology for group in spec.sub_groups] == [None, None, expected, expected]


@pytest.mark.parametrize(
    ("workers", "template", "index", "message"),
    [
        (4, {SIZE: "two"}, 0, "segment-size: 'two' is not a whole number"),
        (4, {SIZE: "0"}, 0, "segment-size: value 0 must be >= 1"),
        (4, {SIZE: "2"}, "x", "replica-index: 'x' is not a whole number"),
        (4, {SIZE: "2"}, -1, "-1 must not be negative"),
        (4, {SIZE: "2"}, 4, "beyond the job's 2 segments"),
        (10001, {SIZE: "1"}, 0, "10001 is greater than max allowed segmentation 10000"),
    ],
)
def test_refused_segments(workers: int, template: Object, index: int | str, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(pytorch(workers, template), worker(index))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 40))
def test_every_worker_has_one_segment_and_needed_segments_are_full(workers: int, size: int, minimum: int) -> None:
    top = pytorch(workers, {SIZE: str(size)}, elasticPolicy={"minReplicas": 1 + min(minimum, workers)})
    specs = [grouped(top, worker(index)) for index in range(workers)]
    homes = Counter(name for spec in specs for name in home(spec))
    leaves = [group for group in specs[0].sub_groups if group.parent == "worker"]
    assert sum(homes.values()) == workers
    assert all(leaf.min_member in (0, homes[leaf.name]) for leaf in leaves)
    assert sum(leaf.min_member for leaf in leaves) >= min(minimum, workers)


# ------------------------------------------------------------------------------------------------ LeaderWorkerSet
def lws(
    size: int,
    segment: int | None = None,
    policy: str | None = None,
    annotations: Object | None = None,
    template: Object | None = None,
    **spec: str,
) -> Object:
    parts: Object = {"size": size, "workerTemplate": {"metadata": {"annotations": template or {}}}}
    if segment is not None:
        parts["subGroupPolicy"] = {"subGroupSize": segment} | ({"subGroupPolicyType": policy} if policy else {})
    fields = {"leaderWorkerTemplate": parts, **spec}
    return obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec=fields, annotations=annotations or {})


def lws_pod(index: int | str, group: int | None = None, node: str = "", size: int | None = None) -> Object:
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": str(index)}
    if group is not None:
        labels["leaderworkerset.sigs.k8s.io/group-index"] = str(group)
    annotations = {} if size is None else {"leaderworkerset.sigs.k8s.io/size": str(size)}
    return pod(f"p-{index}", labels=labels, annotations=annotations, spec={"nodeName": node} if node else {})


def test_each_group_of_the_set_is_a_gang() -> None:
    spec = grouped(lws(3), lws_pod(1, group=2))
    assert (spec.name, spec.min_member) == ("pg-w-u-w-group-2", 3)
    assert tree(spec) == [("leader", "", 1), ("workers", "", 2)]
    assert home(spec) == ["workers"]
    assert home(grouped(lws(3), lws_pod(0))) == ["leader"]
    assert tree(grouped(lws(1), lws_pod(0))) == [("leader", "", 1)]


@pytest.mark.parametrize(
    ("member", "minimum"),
    [
        (lws_pod(0), 1),
        (lws_pod(0, node="n"), 5),
        (lws_pod(2), 5),
        (lws_pod(2, size=7), 7),
        (lws_pod(0, node="n", size=7), 7),
    ],
)
def test_leader_ready_starts_with_the_leader(member: Object, minimum: int) -> None:
    spec = grouped(lws(5, startupPolicy="LeaderReady"), member)
    assert spec.min_member == minimum
    assert len(spec.sub_groups) == (1 if minimum == 1 else 2)


def test_leader_ready_with_segments_still_starts_with_the_leader_alone() -> None:
    spec = grouped(lws(5, 2, startupPolicy="LeaderReady"), lws_pod(0))
    assert tree(spec) == [("leader", "", 1)]


@pytest.mark.parametrize(
    ("size", "segment", "policy", "expected"),
    [
        (
            5,
            2,
            None,
            [("segment-0", "", (2,)), ("segment-1", "", 2), ("leader", "segment-0", 1), ("workers", "segment-0", 2)],
        ),
        (
            4,
            2,
            None,
            [("segment-0", "", (2,)), ("segment-1", "", 2), ("leader", "segment-0", 1), ("workers", "segment-0", 1)],
        ),
        (
            5,
            3,
            None,
            [("segment-0", "", (2,)), ("segment-1", "", 2), ("leader", "segment-0", 1), ("workers", "segment-0", 2)],
        ),
        (5, 2, "LeaderExcluded", [("leader", "", 1), ("segment-0", "", 2), ("segment-1", "", 2)]),
    ],
)
def test_lws_segments(size: int, segment: int, policy: str | None, expected: list[Any]) -> None:
    assert tree(grouped(lws(size, segment, policy), lws_pod(0))) == expected


def test_lws_segment_size_by_annotation() -> None:
    assert len(tree(grouped(lws(5, annotations={SIZE: "2"}, template={SIZE: "4"}), lws_pod(0)))) == 4
    assert len(tree(grouped(lws(5, template={SIZE: "2"}), lws_pod(0)))) == 4
    assert len(tree(grouped(lws(5, 2, annotations={SIZE: "nonsense"}), lws_pod(0)))) == 4


@pytest.mark.parametrize(
    ("top", "member", "message"),
    [
        (lws(3, startupPolicy="Whenever"), lws_pod(0), "startupPolicy 'Whenever'"),
        (lws(3), lws_pod(-1), "-1 must not be negative"),
        (lws(3), lws_pod("x"), "'x' is not a whole number"),
        (lws(4, 2, "LeaderExcluded"), lws_pod(0), "3 workers do not divide into segments of 2"),
        (lws(4, 2, "Other"), lws_pod(0), "subGroupPolicyType 'Other'"),
        (lws(4, 5), lws_pod(0), "segments of 5 pods exceed"),
        (lws(4, 1), lws_pod(0), "segments of 1 pods, expected at least 2"),
        (lws(4, template={SIZE: "1"}), lws_pod(0), "segments of 1 pods"),
        (lws(0), lws_pod(0), "leaderWorkerTemplate.size must be at least 1, found 0"),
        (obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec={}), lws_pod(0), "Template.size is missing"),
        (lws(4, annotations={SIZE: "0"}), lws_pod(0), "value 0 must be >= 1"),
        (lws(4, 2), pod(), "missing required label"),
        (lws(4, 2), lws_pod(4), "4 in a group of 4 pods"),
        (lws(20003, 2), lws_pod(0), "10001 is greater than max"),
    ],
)
def test_refused_sets(top: Object, member: Object, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(top, member)


@given(st.integers(2, 40), st.integers(2, 12), st.booleans())
def test_every_pod_of_a_group_has_one_leaf_and_all_leaves_are_full(pods: int, segment: int, excluded: bool) -> None:
    if segment > pods or (excluded and (pods - 1) % segment):
        return
    top = lws(pods, segment, "LeaderExcluded" if excluded else None)
    specs = [grouped(top, lws_pod(index)) for index in range(pods)]
    homes = Counter(name for spec in specs for name in home(spec))
    leaves = [group for group in specs[0].sub_groups if group.min_sub_group is None]
    assert {leaf.name: leaf.min_member for leaf in leaves} == homes
    assert homes["leader"] == 1
