"""What the plan says about gangs besides where their pods go: stray pods, conditions that no longer hold."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.decide import decide
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import bound, gang, node, plan, pod, seen

BLAMED = {"schedulingConditions": [{"nodePool": "default", "type": "UnschedulableOnNodePool", "status": "True"}]}


def test_a_pod_of_a_sub_group_that_does_not_exist_is_named() -> None:
    spec: dict[str, Any] = {"minMember": None, "subGroups": [{"name": "left", "minMember": 1}]}
    found = plan(node("n"), gang("g", **spec), pod("g-0", part="left", cpu="99"), pod("g-1", part="right"))
    (verdict,) = found.verdicts
    assert verdict.pods["ns", "g-1"] == 'Pod references subgroup "right", which does not exist in PodGroup ns/g'


@pytest.mark.parametrize(("phase", "cleared"), [("Running", [("ns", "g")]), ("Pending", [])])
def test_a_condition_is_cleared_once_no_pod_waits(phase: str, cleared: list[tuple[str, str]]) -> None:
    group = {**builders.pod_group("g"), "status": BLAMED}
    member = builders.pod("g-0", "g", "n" if phase == "Running" else "", {"cpu": "99"})
    found = decide(seen(node("n", cpu="99"), group, member, pod("other-0", "n", cpu="1")), PACKING, NOW)
    assert list(found.cleared) == cleared


def test_a_new_shared_device_is_named_apart_from_those_in_use() -> None:
    held = [gang("old"), pod("old-0", "n", share="0.9", device="new-1")]
    found = plan(node("n", gpus=2), *held, gang("g"), pod("g-0", share="0.9"))
    (bind,) = found.binds
    assert bound(found) == {"g-0": "n"}
    assert bind.gpu_groups == ("new-2",)


def test_a_queue_without_its_parent_is_said() -> None:
    loose = builders.queue("loose", "nowhere")
    found = plan(node("n"), loose, gang("g", queue="loose"), pod("g-0"))
    (verdict,) = found.verdicts
    why = "Queue 'loose' cannot be used: parent queue 'nowhere' does not exist"
    assert [(reason.code, reason.message) for reason in verdict.reasons] == [("QueueDoesNotExist", why)]


@pytest.mark.parametrize(
    ("rack", "token", "message"),
    [
        ("r9", "NoMatchingNodes", "1 node(s) didn't match Pod's node affinity/selector"),
        ("r1", "OverLimit", "bounded quota has reached the allowable limit of GPUs. Limit is 1 GPUs"),
    ],
)
def test_a_gang_over_the_limit_of_its_queue_says_that_no_node_would_take_it(
    rack: str, token: str, message: str
) -> None:
    """A higher limit would not help it: that no node matches comes first."""
    bounded = builders.queue("bounded", gpu={"limit": 1})
    wanting = pod("g-0", spec={"nodeSelector": {"rack": rack}}, gpus=2)
    found = plan(node("n", gpus=2, labels={"rack": "r1"}), bounded, gang("g", queue="bounded"), wanting)
    (verdict,) = found.verdicts
    assert [reason.code for reason in verdict.reasons] == ["OverLimit"]
    assert verdict.dominant is not None
    assert verdict.dominant.token == token
    assert message in verdict.dominant.message
