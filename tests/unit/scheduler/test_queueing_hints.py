"""Which change asks for a cycle: rows of (before, now) for every kind that matters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.objects import kinds
from pykai.scheduler.informers import SOURCES
from pykai.scheduler.queueing_hints import RULES, Hint, When, queueing_hint

GROUP = {"pod-group-name": "gang"}
MEMORY = {"gpu-memory": "20000"}
LEAVING = datetime(2026, 1, 1, tzinfo=UTC)


def pod(node: str = "", phase: str = "Pending", mine: bool = True, **more: Any) -> kinds.Pod:
    meta = {
        "annotations": {**GROUP, **more.get("annotations", {})} if mine else None,
        "labels": more.get("labels"),
        "deletion_timestamp": more.get("gone"),
    }
    return kinds.Pod(
        metadata=kinds.ObjectMeta(name="a", namespace="team", uid="1", **meta),  # type: ignore[arg-type]
        spec=kinds.PodSpec(
            node_name=node,
            scheduler_name="kai-scheduler" if mine else "other",
            scheduling_gates=Raw(more.get("gates", b"")),
        ),
        status=kinds.PodStatus(
            phase=phase, conditions=more.get("conditions"), nominated_node_name=more.get("nominated", "")
        ),
    )


def foreign(nominated: str = "", node: str = "", **more: Any) -> kinds.Pod:
    """A pod of another scheduler, nominated to a node."""
    return pod(node, mine=False, nominated=nominated, **more)


def node(allocatable: bytes = b'{"cpu":"1"}', ready: str = "True", **more: Any) -> kinds.Node:
    return kinds.Node(
        metadata=kinds.ObjectMeta(name="n", labels=more.get("labels"), resource_version=more.get("version", "")),
        spec=kinds.NodeSpec(unschedulable=more.get("cordoned", False)),
        status=kinds.NodeStatus(
            allocatable=Raw(allocatable),
            conditions=[kinds.Condition(type="Ready", status=ready, message=more.get("message", ""))],
        ),
    )


def group(queue: str = "q", annotations: dict[str, str] | None = None, blamed: bool = False) -> kinds.PodGroup:
    conditions = [kinds.SchedulingCondition(node_pool="default")] if blamed else None
    return kinds.PodGroup(
        metadata=kinds.ObjectMeta(name="gang", namespace="team", annotations=annotations),
        spec=kinds.PodGroupSpec(queue=queue),
        status=kinds.PodGroupStatus(scheduling_conditions=conditions),
    )


def request(phase: str = "", owner: str = "1", pool: str = "") -> kinds.BindRequest:
    owners = [kinds.OwnerReference(kind="Pod", name="a", uid=owner)]
    labels = {"kai.scheduler/node-pool": pool} if pool else None
    return kinds.BindRequest(
        metadata=kinds.ObjectMeta(name="a", namespace="team", owner_references=owners, labels=labels),
        spec=kinds.BindRequestSpec(pod_name="a", selected_node="n"),
        status=kinds.BindRequestStatus(phase=phase),
    )


def taint_rule() -> kinds.DeviceTaintRule:
    taint = {"key": "k", "effect": "NoSchedule"}
    return kinds.DeviceTaintRule(kinds.ObjectMeta(name="r"), {"deviceSelector": {}, "taint": taint})


def queue(limit: float = 1.0, uid: str = "1", **status: Any) -> kinds.Queue:
    gpus = kinds.QueueResources(gpu=kinds.QueueResource(limit=limit))
    return kinds.Queue(
        metadata=kinds.ObjectMeta(name="q", uid=uid),
        spec=kinds.QueueSpec(resources=gpus),
        status=kinds.QueueStatus(**status),
    )


CONFIG_MAP = kinds.ConfigMap(metadata=kinds.ObjectMeta(name="c", namespace="team"))
SAID = [kinds.Condition(type="PodScheduled", status="False", message="no room")]

ROWS: list[tuple[str, Any, Any, Hint]] = [
    ("a pod to schedule", None, pod(), Hint.QUEUE),
    ("a pod without a group", None, pod(mine=False), Hint.SKIP),
    ("a pod that gets its group", pod(mine=False), pod(), Hint.QUEUE),
    ("a gate that opens", pod(gates=b'[{"name":"x"}]'), pod(), Hint.QUEUE),
    ("a label that changes", pod(), pod(labels={"a": "b"}), Hint.QUEUE),
    ("what we told a pod", pod(), pod(conditions=SAID), Hint.SKIP),
    ("a pod that is bound", pod(), pod("n"), Hint.REASONS),
    ("a pod that asks for GPU memory and is bound", pod(annotations=MEMORY), pod("n", annotations=MEMORY), Hint.WRITE),
    ("a pod that starts", pod("n"), pod("n", "Running"), Hint.SKIP),
    ("a pod that finishes", pod("n", "Running"), pod("n", "Succeeded"), Hint.LOSS),
    ("a pod that finished and goes", pod("n", "Succeeded"), None, Hint.SKIP),
    ("a pod that is told to go", pod("n", "Running"), pod("n", "Running", gone=LEAVING), Hint.CAPACITY),
    ("a pod that is gone", pod("n", "Running", gone=LEAVING), None, Hint.LOSS),
    ("a pod that gave up waiting", pod(), None, Hint.LOSS),
    ("a pod of others that is bound", None, pod("n", mine=False), Hint.REASONS),
    ("a pod of others that is gone", pod("n", mine=False), None, Hint.CAPACITY),
    ("a pod of others that waited", pod(mine=False), None, Hint.SKIP),
    ("a label of a running pod", pod("n", "Running"), pod("n", "Running", labels={"a": "b"}), Hint.REASONS),
    ("a node", None, node(), Hint.CAPACITY),
    ("a heartbeat", node(version="1", message="a"), node(version="2", message="b"), Hint.SKIP),
    ("a node that recovers", node(ready="False"), node(), Hint.CAPACITY),
    ("a node that grows", node(), node(b'{"cpu":"2"}'), Hint.CAPACITY),
    ("a node that is uncordoned", node(cordoned=True), node(), Hint.CAPACITY),
    ("a node that is labelled", node(), node(labels={"a": "b"}), Hint.CAPACITY),
    ("a node that is gone", node(), None, Hint.LOSS),
    ("a group", None, group(), Hint.QUEUE),
    ("a group that moves", group(), group("other"), Hint.QUEUE),
    (
        "what we noted on a group",
        group(),
        group(annotations={"kai.scheduler/last-start-timestamp": "x"}),
        Hint.SKIP,
    ),
    ("what we told a group", group(), group(blamed=True), Hint.CONDITION),
    ("a condition of a group that was removed", group(blamed=True), group(), Hint.REASONS),
    ("a group that is gone", group(), None, Hint.WRITE),
    ("a request that succeeds", request(), request("Succeeded"), Hint.SKIP),
    ("a request that fails", request(), request("Failed"), Hint.QUEUE),
    ("a queue that comes", None, queue(), Hint.LOSS),
    ("a queue that grows", queue(), queue(2), Hint.LOSS),
    ("a queue made anew", queue(), queue(uid="2"), Hint.LOSS),
    ("a queue that is used", queue(), queue(allocated={"cpu": "1"}), Hint.SKIP),
    ("a queue that lost its fair share", queue(fair_share={"cpu": "1"}), queue(), Hint.WRITE),
    ("a queue that got its fair share", queue(), queue(fair_share={"cpu": "1"}), Hint.SKIP),
    ("a queue that stays", queue(), queue(), Hint.SKIP),
    ("a queue that is gone", queue(), None, Hint.REASONS),
    ("a foreign pod that is nominated", foreign(), foreign("n1"), Hint.SKIP),
    ("a foreign pod that is nominated elsewhere", foreign("n1"), foreign("n2"), Hint.CAPACITY),
    ("a foreign pod that got its nominated node", foreign("n1"), foreign("n1", "n1"), Hint.REASONS),
    ("a foreign pod that got another node", foreign("n1"), foreign("n1", "n2"), Hint.CAPACITY),
    ("a nominated foreign pod that is gone", foreign("n1"), None, Hint.CAPACITY),
    ("a nominated foreign pod that is deleted", foreign("n1"), foreign("n1", gone=LEAVING), Hint.CAPACITY),
    ("a waiting foreign pod that is gone", foreign(), None, Hint.SKIP),
    ("a taint of devices", None, taint_rule(), Hint.CAPACITY),
    ("a taint of devices that stays", taint_rule(), taint_rule(), Hint.SKIP),
    ("a taint of devices that is gone", taint_rule(), None, Hint.CAPACITY),
    ("a config map", None, CONFIG_MAP, Hint.REASONS),
    ("a config map that changes", CONFIG_MAP, CONFIG_MAP, Hint.SKIP),
    ("nothing of ours", None, None, Hint.SKIP),
]


@pytest.mark.parametrize(("old", "new", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_asks_for_a_cycle(old: Any, new: Any, expected: Hint) -> None:
    assert queueing_hint(old, new, ClusterCache(SchedulerParams())) is expected


@pytest.mark.parametrize(
    ("others", "old", "new", "expected"),
    [
        ([group(blamed=True)], pod(), pod("n"), Hint.WRITE),
        ([request()], pod(), pod(labels={"runai-gpu-group": "x"}), Hint.SKIP),
        ([request("Failed")], pod(), pod(labels={"a": "b"}), Hint.QUEUE),
        ([request(owner="another")], pod(), pod(labels={"a": "b"}), Hint.QUEUE),
        ([pod()], request(), None, Hint.QUEUE),
        ([pod("n")], request(), None, Hint.SKIP),
        ([], request(), None, Hint.SKIP),
        ([node()], None, request(), Hint.SKIP),
        ([], None, request(), Hint.QUEUE),
        ([], None, request(pool="theirs"), Hint.SKIP),
    ],
)
def test_what_depends_on_its_neighbours(others: list[Any], old: Any, new: Any, expected: Hint) -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load(others)
    assert queueing_hint(old, new, cache) is expected


def test_every_kind_that_is_followed_has_a_rule() -> None:
    assert {source.kind for source in SOURCES} == set(RULES)


def test_a_word_matters_only_where_nobody_waits() -> None:
    assert Hint.CONDITION.when(pods_wait=True) is When.NEVER
    assert Hint.CONDITION.when(pods_wait=False) is When.IN_TIME


def test_room_matters_only_to_those_who_wait() -> None:
    assert Hint.CAPACITY.when(pods_wait=True) is When.NOW
    assert Hint.CAPACITY.when(pods_wait=False) is When.NEVER
