"""Semi-preemptible gangs: their minimum counts against the quota and stays; what they have above it is preemptible."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.decide import decide
from pykai.model.plan import Plan
from pykai.verify.judge import verify
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING

from .clusters import PRIORITIES, bound, evicted, gang, node, plan, pod, promised

SEMI = "semi-preemptible"


def semi(name: str = "old", **spec: Any) -> Any:
    return gang(name, "low", age=9, preemptibility=SEMI, **spec)


def four(**asks: Any) -> list[Any]:
    return [pod(f"old-{number}", "n", gpus=1, **asks) for number in range(4)]


@pytest.mark.parametrize(
    ("minimum", "wanted", "gone"),
    [(2, 1, 1), (2, 2, 2), (2, 3, 0), (4, 1, 0), (0, 4, 4), (1, 3, 3), (1, 4, 0)],
)
def test_only_pods_above_the_minimum_are_evicted(minimum: int, wanted: int, gone: int) -> None:
    """Those to place last go first."""
    found = plan(node("n", 4), semi(minMember=minimum), gang("new"), *four(), pod("new-0", gpus=wanted))
    assert evicted(found) == {f"old-{number}" for number in range(4 - gone, 4)}
    assert promised(found) == ({"new-0": "n"} if gone else {})
    assert len(found.core_pods["ns", "old"]) == minimum


def reclaim_plan(*objects: Any) -> Plan:
    """Queue `q` has lent 4 GPUs; queue `owner` wants its quota of them back."""
    queues = [builders.queue("q", gpu={"quota": 2}), builders.queue("owner", gpu={"quota": 4})]
    snapshot = builders.snapshot([*queues, *PRIORITIES, *objects])
    found = decide(snapshot, PACKING, NOW)
    assert [str(violation) for violation in verify(snapshot, found)] == []
    return found


def test_reclaim_takes_the_surplus_and_leaves_the_minimum() -> None:
    wanting = [gang("new", queue="owner"), pod("new-0", gpus=2)]
    found = reclaim_plan(node("n", 4), semi(minMember=2), *four(), *wanting)
    assert evicted(found) == {"old-2", "old-3"}
    too_much = [gang("new", queue="owner"), pod("new-0", gpus=3)]
    assert evicted(reclaim_plan(node("n", 4), semi(minMember=2), *four(), *too_much)) == set()


@pytest.mark.parametrize(("minimum", "placed"), [(2, 4), (1, 4), (0, 4), (3, 0)])
def test_the_minimum_must_fit_the_quota_and_the_rest_need_not(minimum: int, placed: int) -> None:
    found = reclaim_plan(node("n", 4), semi(minMember=minimum), *[pod(f"old-{n}", gpus=1) for n in range(4)])
    assert len(bound(found)) == placed
    codes = [reason.code for verdict in found.verdicts for reason in verdict.reasons]
    assert codes == ([] if placed else ["NonPreemptibleOverQuota"])


def test_only_the_minimum_uses_up_the_quota() -> None:
    """Two running pods, one of them core: one GPU of the quota of two is left for non-preemptible work, not two."""
    running = [pod("old-0", "n", gpus=1), pod("old-1", "n", gpus=1)]
    fixed = gang("new", preemptibility="non-preemptible", minMember=1)
    one = reclaim_plan(node("n", 4), semi(minMember=1), *running, fixed, pod("new-0", gpus=1))
    assert bound(one) == {"new-0": "n"}
    two = reclaim_plan(node("n", 4), semi(minMember=1), *running, fixed, pod("new-0", gpus=2))
    assert (bound(two), evicted(two)) == ({}, set())


PARTS = [{"name": name, "minMember": 2} for name in ("a", "b", "c")]


def parts(*sizes: int) -> list[Any]:
    rows = [(part, number) for part, size in zip("abc", sizes, strict=True) for number in range(size)]
    return [pod(f"old-{part}{number}", "n", gpus=1, part=part) for part, number in rows]


@pytest.mark.parametrize(
    ("sizes", "enough", "core"),
    [
        ((2, 2, 2), 1, {"a0", "a1"}),
        ((1, 2, 2), 1, {"b0", "b1"}),
        ((1, 2, 2), 2, {"b0", "b1", "c0", "c1"}),
        ((1, 2, 1), 2, {"a0", "b0", "b1"}),
        ((3, 2, 2), None, {"a0", "a1", "b0", "b1", "c0", "c1"}),
        ((3, 0, 0), 0, set()),
    ],
)
def test_the_core_is_of_satisfied_sub_groups_then_by_name(sizes: Any, enough: int | None, core: set[str]) -> None:
    group = semi(minMember=None, minSubGroup=enough, subGroups=PARTS, stalenessGracePeriod="-1s")
    found = plan(node("n", 8), group, *parts(*sizes))
    assert found.core_pods == {("ns", "old"): tuple(sorted(f"old-{name}" for name in core))}


@pytest.mark.parametrize(
    ("wanted", "gone"),
    [(1, {"c2"}), (2, {"c0", "c1", "c2"}), (4, {"b0", "b1", "c0", "c1", "c2"}), (6, set())],
)
def test_an_elastic_sub_group_shrinks_to_its_minimum_and_then_goes_whole(wanted: int, gone: set[str]) -> None:
    group = semi(minMember=None, minSubGroup=1, subGroups=PARTS)
    found = plan(node("n", 7), group, *parts(2, 2, 3), gang("new"), pod("new-0", gpus=wanted))
    assert evicted(found) == {f"old-{name}" for name in gone}


BRANCHES = [
    {"name": "x", "minSubGroup": 1},
    {"name": "y", "minSubGroup": 1},
    *({"name": f"{branch}{number}", "parent": branch, "minMember": 1} for branch in "xy" for number in (1, 2)),
]


@pytest.mark.parametrize(
    ("enough", "running", "order"),
    [
        (1, "x1a x2a y1a y2a", "y2a x2a y1a"),  # y shrinks to its minimum; then x, its core aside; y goes last
        (2, "x1a x2a y1a y2a", "y2a x2a"),
        (1, "x1a y1a y1b y2a", "y1b y2a y1a"),
        (2, "x1a x1b y1a", "x1b"),  # y is core: nothing of it goes
        (2, "x1a x1b x1c y1a", "x1c x1b"),
        (2, "x1a y1a", ""),
    ],
)
def test_branches_outside_the_core_shrink_to_their_minimum_before_they_go(
    enough: int, running: str, order: str
) -> None:
    """Members with more than their minimum go first, the last of those first."""
    group = semi(minMember=None, minSubGroup=enough, subGroups=BRANCHES)
    pods = [pod(f"old-{name}", "n", gpus=1, part=name[:2]) for name in running.split()]
    for wanted in range(1, len(pods) + 1):
        found = plan(node("n", len(pods)), group, *pods, gang("new"), pod("new-0", gpus=wanted))
        gone = {f"old-{name}" for name in order.split()[:wanted]}
        assert evicted(found) == (gone if len(gone) == wanted else set())


def test_a_sub_group_below_its_minimum_is_no_part_of_the_core() -> None:
    group = semi(minMember=None, minSubGroup=1, subGroups=PARTS)
    found = plan(node("n", 3), group, *parts(2, 1, 0), gang("new"), pod("new-0", gpus=1))
    assert evicted(found) == {"old-b0"}


def test_consolidation_moves_no_part_of_it() -> None:
    def told(preemptibility: str) -> Plan:
        group = gang("old", age=9, minMember=0, preemptibility=preemptibility)
        pods = [pod("old-0", "a", gpus=1), pod("old-1", "b", gpus=1), pod("new-0", gpus=2)]
        return plan(node("a", 2), node("b", 2), group, gang("new"), *pods)

    assert evicted(told("preemptible"))
    assert evicted(told(SEMI)) == set()


def test_a_gang_that_lost_its_minimum_is_stale_like_any_other() -> None:
    found = plan(node("n", 4), semi(minMember=3, stalenessGracePeriod="0s"), pod("old-0", "n", gpus=1))
    assert evicted(found) == {"old-0"}


def test_it_grows_as_preemptible_work_once_it_has_its_minimum() -> None:
    """Beyond the quota of the queue, within one cycle."""
    group = decoded(builders.pod_group("old", min_member=2, preemptibility=SEMI))
    pods = [pod(f"old-{number}", gpus=1) for number in range(4)]
    found = reclaim_plan(node("n", 3), group, *pods)
    assert len(bound(found)) == 3
    assert len(found.core_pods["ns", "old"]) == 2
