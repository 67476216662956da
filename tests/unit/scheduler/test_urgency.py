"""Which change asks for a cycle: rows of (before, now) for every kind that matters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.objects import kinds
from pykai.scheduler.feed import SOURCES
from pykai.scheduler.urgency import RULES, Urgency, When, urgency

GROUP = {"pod-group-name": "gang"}
LEAVING = datetime(2026, 1, 1, tzinfo=UTC)


def pod(node: str = "", phase: str = "Pending", mine: bool = True, **more: Any) -> kinds.Pod:
    meta = {
        "annotations": GROUP if mine else None,
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
        status=kinds.PodStatus(phase=phase, conditions=more.get("conditions")),
    )


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


def queue(limit: float = 1.0) -> kinds.Queue:
    gpus = kinds.QueueResources(gpu=kinds.QueueResource(limit=limit))
    return kinds.Queue(metadata=kinds.ObjectMeta(name="q"), spec=kinds.QueueSpec(resources=gpus))


CONFIG_MAP = kinds.ConfigMap(metadata=kinds.ObjectMeta(name="c", namespace="team"))
SAID = [kinds.Condition(type="PodScheduled", status="False", message="no room")]

ROWS: list[tuple[str, Any, Any, Urgency]] = [
    ("a pod to schedule", None, pod(), Urgency.WORK),
    ("a pod without a group", None, pod(mine=False), Urgency.NOTHING),
    ("a pod that gets its group", pod(mine=False), pod(), Urgency.WORK),
    ("a gate that opens", pod(gates=b'[{"name":"x"}]'), pod(), Urgency.WORK),
    ("a label that changes", pod(), pod(labels={"a": "b"}), Urgency.WORK),
    ("what we told a pod", pod(), pod(conditions=SAID), Urgency.NOTHING),
    ("a pod that is bound", pod(), pod("n"), Urgency.NEWS),
    ("a pod that starts", pod("n"), pod("n", "Running"), Urgency.NOTHING),
    ("a pod that finishes", pod("n", "Running"), pod("n", "Succeeded"), Urgency.LOSS),
    ("a pod that finished and goes", pod("n", "Succeeded"), None, Urgency.NOTHING),
    ("a pod that is told to go", pod("n", "Running"), pod("n", "Running", gone=LEAVING), Urgency.ROOM),
    ("a pod that is gone", pod("n", "Running", gone=LEAVING), None, Urgency.LOSS),
    ("a pod that gave up waiting", pod(), None, Urgency.LOSS),
    ("a pod of others that is bound", None, pod("n", mine=False), Urgency.NEWS),
    ("a pod of others that is gone", pod("n", mine=False), None, Urgency.ROOM),
    ("a pod of others that waited", pod(mine=False), None, Urgency.NOTHING),
    ("a label of a running pod", pod("n", "Running"), pod("n", "Running", labels={"a": "b"}), Urgency.NEWS),
    ("a node", None, node(), Urgency.ROOM),
    ("a heartbeat", node(version="1", message="a"), node(version="2", message="b"), Urgency.NOTHING),
    ("a node that recovers", node(ready="False"), node(), Urgency.ROOM),
    ("a node that grows", node(), node(b'{"cpu":"2"}'), Urgency.ROOM),
    ("a node that is uncordoned", node(cordoned=True), node(), Urgency.ROOM),
    ("a node that is labelled", node(), node(labels={"a": "b"}), Urgency.ROOM),
    ("a node that is gone", node(), None, Urgency.LOSS),
    ("a group", None, group(), Urgency.WORK),
    ("a group that moves", group(), group("other"), Urgency.WORK),
    (
        "what we noted on a group",
        group(),
        group(annotations={"kai.scheduler/last-start-timestamp": "x"}),
        Urgency.NOTHING,
    ),
    ("what we told a group", group(), group(blamed=True), Urgency.WORD),
    ("what we took back from a group", group(blamed=True), group(), Urgency.NOTHING),
    ("a group that is gone", group(), None, Urgency.NEWS),
    ("a request that succeeds", request(), request("Succeeded"), Urgency.NOTHING),
    ("a request that fails", request(), request("Failed"), Urgency.WORK),
    ("a queue that grows", queue(), queue(2), Urgency.ROOM),
    ("a queue that stays", queue(), queue(), Urgency.NOTHING),
    ("a queue that is gone", queue(), None, Urgency.NEWS),
    ("a config map", None, CONFIG_MAP, Urgency.NEWS),
    ("a config map that changes", CONFIG_MAP, CONFIG_MAP, Urgency.NOTHING),
    ("nothing of ours", None, None, Urgency.NOTHING),
]


@pytest.mark.parametrize(("old", "new", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_asks_for_a_cycle(old: Any, new: Any, expected: Urgency) -> None:
    assert urgency(old, new, ClusterCache(SchedulerParams())) is expected


@pytest.mark.parametrize(
    ("others", "old", "new", "expected"),
    [
        ([group(blamed=True)], pod(), pod("n"), Urgency.CHORE),
        ([request()], pod(), pod(labels={"runai-gpu-group": "x"}), Urgency.NOTHING),
        ([request("Failed")], pod(), pod(labels={"a": "b"}), Urgency.WORK),
        ([request(owner="another")], pod(), pod(labels={"a": "b"}), Urgency.WORK),
        ([pod()], request(), None, Urgency.WORK),
        ([pod("n")], request(), None, Urgency.NOTHING),
        ([], request(), None, Urgency.NOTHING),
        ([node()], None, request(), Urgency.NOTHING),
        ([], None, request(), Urgency.WORK),
        ([], None, request(pool="theirs"), Urgency.NOTHING),
    ],
)
def test_what_depends_on_its_neighbours(others: list[Any], old: Any, new: Any, expected: Urgency) -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load(others)
    assert urgency(old, new, cache) is expected


def test_every_kind_that_is_followed_has_a_rule() -> None:
    assert {source.kind for source in SOURCES} == set(RULES)


def test_a_word_matters_only_where_nobody_waits() -> None:
    assert Urgency.WORD.when(somebody_waits=True) is When.NEVER
    assert Urgency.WORD.when(somebody_waits=False) is When.IN_TIME


def test_room_matters_only_to_those_who_wait() -> None:
    assert Urgency.ROOM.when(somebody_waits=True) is When.NOW
    assert Urgency.ROOM.when(somebody_waits=False) is When.NEVER
