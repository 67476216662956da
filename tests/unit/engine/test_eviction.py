"""The frame of the actions that evict: who gets a search, who shares the outcome of another, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.plugin_api import Refusal
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects.units import rfc3339
from pykai.plugins.registry import BUILT_IN, make_all
from tests import builders
from tests.builders import NOW
from tests.properties.small_world import PACKING

from .clusters import PRIORITIES, evicted, gang, node, pod, promised, seen

HELD = [node("n"), gang("old", "low"), pod("old-0", "n", cpu="8")]
WANTED = [gang("new"), pod("new-0", cpu="8")]


def said(plan: Plan, name: str, action: str) -> tuple[str, str]:
    """The code and message of an action for a pending gang."""
    (found,) = [
        (each.code, each.message)
        for v in plan.verdicts
        if v.gang[1] == name
        for each in v.actions
        if each.action == action
    ]
    return found


def with_params(*objects: Any, **params: Any) -> Snapshot:
    chosen = SchedulerParams(partitioned=False, **params)
    return builders.snapshot([builders.queue(), *PRIORITIES, *objects], params=chosen)


# -------------------------------------------------------------------------------------------------------------- backoff
@pytest.mark.parametrize(
    ("action", "seconds", "gone", "deadline"),
    [
        ("preempt", 5.0, False, 5.0),
        ("preempt", 0.0, True, None),
        ("preempt", -5.0, True, None),
        ("reclaim", 5.0, True, 5),
    ],
)
def test_a_gang_backs_off_until_its_next_search_is_due(
    action: str, seconds: float, gone: bool, deadline: float | None
) -> None:
    """Each action has a backoff of its own; what is pipelined waits for the deadline, too."""
    snapshot = replace(seen(*HELD, *WANTED), search_backoff={(("ns", "new"), action): NOW + seconds})
    found = decide(snapshot, PACKING, NOW)
    assert evicted(found) == ({"old-0"} if gone else set())
    assert found.deadline == (None if deadline is None else NOW + deadline)
    if not gone:
        message = f"the last search found no evictions that help, the next one is made at {rfc3339(NOW + seconds)}"
        assert said(found, "new", "preempt") == ("PreemptSearchBackoff", message)


# ---------------------------------------------------------------------------------------------------------------- gates
@dataclass(frozen=True)
class Alone:
    """A gate: a pod starts only when all others have been evicted."""

    said: dict[str, Any]

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None:
        others = [row for row, node in enumerate(cycle.trial.node) if node >= 0 and row not in cycle.trial.virtual]
        return Refusal("it would not be alone", **self.said) if others else None


@pytest.mark.parametrize(("said", "gone"), [({}, True), ({"lasting": False}, True), ({"lasting": True}, False)])
def test_a_refusal_ends_the_search_for_victims_where_it_is_lasting(said: dict[str, Any], gone: bool) -> None:
    """What plugins say is not lasting, unless they say so."""
    policy = replace(PACKING, plugins=(*PACKING.plugins, Alone(said)))
    found = decide(seen(*HELD, *WANTED), policy, NOW)
    assert evicted(found) == ({"old-0"} if gone else set())


# ----------------------------------------------------------------------------------------------------------- signatures
@pytest.mark.parametrize(("use_signatures", "searches"), [(True, 1), (False, 3)])
def test_without_signatures_every_gang_has_a_search_of_its_own(use_signatures: bool, searches: int) -> None:
    """What holds half of the node cannot be evicted: no gang that wants all of it finds victims."""
    fixed = [node("n"), gang("low", "low"), pod("low-0", "n", cpu="4"), gang("top"), pod("top-0", "n", cpu="4")]
    alike = [item for name in ("a", "b", "c") for item in (gang(name), pod(f"{name}-0", cpu="8"))]
    found = decide(with_params(*fixed, *alike, use_signatures=use_signatures), PACKING, NOW)
    assert [search.action for search in found.searches].count("preempt") == searches
    assert {said(found, name, "preempt")[0] for name in ("a", "b", "c")} == {"PreemptNoSolutionFound"}


# ---------------------------------------------------------------------------------------------------- actions in detail
APART = [node("a", gpus=2), node("b", gpus=2), gang("x"), pod("x-0", "a", gpus=1), gang("y"), pod("y-0", "b", gpus=1)]


@pytest.mark.parametrize(("most", "moved"), [(-1, 1), (1, 1), (0, 0)])
def test_consolidation_may_be_switched_off(most: int, moved: int) -> None:
    objects = [*APART, gang("new"), pod("new-0", gpus=2)]
    found = decide(with_params(*objects, max_consolidation_victims=most), PACKING, NOW)
    assert len(evicted(found)) == moved
    if not moved:
        off = ("ConsolidationDisabled", "--max-consolidation-preemptees is 0")
        assert said(found, "new", "consolidation") == off


def test_a_gang_above_nobody_has_no_search_where_others_have_one() -> None:
    lowest = [gang("least", "low"), pod("least-0", cpu="8")]
    found = decide(seen(*HELD, *WANTED, *lowest), PACKING, NOW)
    assert (evicted(found), promised(found)) == ({"old-0"}, {"new-0": "n"})
    assert [search.action for search in found.searches if search.action == "preempt"] == ["preempt"]
    message = "its queue runs no preemptible workload of lower priority, or not enough"
    assert said(found, "least", "preempt") == ("PreemptNoEligibleVictims", message)


@pytest.mark.parametrize(
    ("fixed", "asked", "gone"),
    [
        (False, 2, True),
        (True, 1, True),
        (True, 2, False),
    ],
)
def test_what_cannot_be_evicted_again_preempts_within_its_quota(fixed: bool, asked: int, gone: bool) -> None:
    held = [node("n", gpus=2), gang("old", "low", queue="small"), pod("old-0", "n", gpus=2)]
    spec: dict[str, Any] = {"preemptibility": "non-preemptible"} if fixed else {}
    new = [gang("new", queue="small", **spec), pod("new-0", gpus=asked)]
    found = decide(seen(builders.queue("small", gpu={"quota": 1}), *held, *new), PACKING, NOW)
    assert evicted(found) == ({"old-0"} if gone else set())
    if not gone:
        assert said(found, "new", "preempt")[0] == "PreemptOverQueueQuota"


# ------------------------------------------------------------------------------------------------------- without quotas
WITHOUT_QUOTAS = Policy(make_all([(name, {}) for name in BUILT_IN if name != "proportion"]))


@pytest.mark.parametrize("minimum", [1, 2])
def test_without_a_policy_for_quotas_the_youngest_queue_loses_first(minimum: int) -> None:
    """By moves: none is evicted for another queue. Two running gangs of each queue stand in the way of one that wants
    a whole node; what moves is of the queue made last."""
    queues = [
        {**builders.queue(name), "metadata": {"name": name, "creationTimestamp": rfc3339(NOW - age)}}
        for name, age in (("young", 1), ("old", 9), ("middle", 5))
    ]
    nodes = [node(name, gpus=3) for name in ("n0", "n1", "n2")]
    held = [
        item
        for at, queue in enumerate(("old", "young", "middle"))
        for item in (
            gang(queue, queue=queue, minMember=minimum),
            *(pod(f"{queue}-{number}", f"n{at}", gpus=1) for number in range(2)),
        )
    ]
    found = decide(seen(*queues, *nodes, *held, gang("new"), pod("new-0", gpus=3)), WITHOUT_QUOTAS, NOW)
    assert evicted(found) == {"young-0", "young-1"}
    assert promised(found)["new-0"] == "n1"
