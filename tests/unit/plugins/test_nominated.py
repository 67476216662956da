from __future__ import annotations

from typing import Any

import pytest

from pykai.plugins.nominated import RESERVED, NominatedNode, ReservedForOthers
from tests import builders
from tests.builders import decoded
from tests.unit.plugins.small_clusters import cycle, node, placed, pod, reason, row

OTHERS = "default-scheduler"


def nominated(name: str, to: str, cpu: str, scheduler: str = OTHERS, priority: int | None = 100, **spec: Any) -> Any:
    """A waiting pod that a scheduler has nominated to a node."""
    fields = {"schedulerName": scheduler, **({} if priority is None else {"priority": priority}), **spec}
    made = builders.pod(name, name, "", {"cpu": cpu}, fields)
    return decoded({**made, "status": {"phase": "Pending", "nominatedNodeName": to}})


def important(name: str, priority: int) -> list[Any]:
    """A pod of ours with a priority."""
    group = builders.pod_group(name, metadata={"namespace": "ns"})
    group["spec"]["priorityClassName"] = "class"
    return [pod(name)[0], decoded(group), decoded(builders.priority_class("class", priority))]


def test_a_pod_goes_to_the_node_that_its_status_names() -> None:
    pods = [nominated(name, to, "1", "kai-scheduler") for name, to in {"p": "b", "q": "gone"}.items()]
    of = cycle([node("a"), node("b"), node("c"), *pods], ())
    score = NominatedNode().pod_score(of, row(of, "p"))
    assert score is not None
    assert score.tolist() == [0, 1e7, 0]
    assert NominatedNode().pod_score(of, row(of, "q")) is None


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (nominated("x", "a", "7"), "a"),
        (nominated("x", "a", "8"), ""),
        (nominated("x", "gone", "8"), "a"),
        (nominated("x", "a", "8", "kai-scheduler"), "a"),
        (nominated("x", "a", "8", schedulingGates=[{"name": "g"}]), "a"),
    ],
    ids=["beside it", "instead of it", "of a node that is gone", "one of ours", "one that is gated"],
)
def test_what_another_scheduler_nominated_a_pod_for_is_kept_for_it(other: Any, where: str) -> None:
    made = cycle([node("a"), pod("p"), other], [ReservedForOthers()])
    assert placed(made)["p"] == where
    if not where:
        assert reason(made, "p") == f"no nodes with enough resources were found: 1 {RESERVED}."


@pytest.mark.parametrize(("theirs", "where"), [(None, "a"), (49, "a"), (50, ""), (51, "")])
def test_pods_of_higher_priority_do_not_wait_for_it(theirs: int | None, where: str) -> None:
    made = cycle([node("a"), important("p", 50), nominated("x", "a", "8", priority=theirs)], [ReservedForOthers()])
    assert placed(made)["p"] == where


def test_what_is_being_released_for_it_is_kept_too() -> None:
    leaving = pod("old", {"nodeName": "a", "containers": [_asking("8")]}, terminating=True)
    made = cycle([node("a"), leaving, pod("p"), nominated("x", "a", "8")], [ReservedForOthers()])
    assert placed(made)["p"] == ""
    made = cycle([node("a"), leaving, pod("p"), nominated("x", "a", "7")], [ReservedForOthers()])
    assert placed(made)["p"] == "~a"


def test_pods_of_one_cycle_leave_it_together() -> None:
    made = cycle([node("a"), pod("p"), pod("q"), nominated("x", "a", "7")], [ReservedForOthers()])
    assert sorted(placed(made).items()) == [("p", "a"), ("q", ""), ("x", "")]


def test_its_host_ports_are_kept() -> None:
    ports = {"ports": [{"hostPort": 80}]}
    listener = pod("p", {"containers": [{**_asking("1"), **ports}]})
    other = nominated("x", "a", "1", containers=[{**_asking("1"), **ports}])
    assert placed(cycle([node("a"), listener, other], [ReservedForOthers()]))["p"] == ""
    assert placed(cycle([node("a"), pod("p"), other], [ReservedForOthers()]))["p"] == "a"


def test_a_share_of_a_gpu_leaves_it_whole_gpus() -> None:
    gpu = {"nvidia.com/gpu": "1"}
    labels = {"nvidia.com/gpu.memory": "1000"}
    share = pod("p", annotations={"gpu-fraction": "0.5"})
    for amount, where in {"1": "", "0": "a"}.items():
        wants = {"name": "m", "resources": {"requests": {"nvidia.com/gpu": amount}}}
        other = nominated("x", "a", "1", containers=[wants])
        assert placed(cycle([node("a", labels, gpu), share, other], [ReservedForOthers()]))["p"] == where


def test_nothing_is_opened_where_nobody_is_nominated() -> None:
    assert cycle([node("a"), pod("p")], [ReservedForOthers()]).resources.states == ()


def _asking(cpu: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": cpu}}}
