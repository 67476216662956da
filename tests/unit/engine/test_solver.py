"""The search for victims: which generators are asked, when time ends it, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pykai.engine import reclaim_bound, solver
from pykai.engine.accumulated import Accumulated
from pykai.engine.budgets import SearchBudgets
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.engine.scenario import simulate
from pykai.engine.solver import Leaps, Probe
from pykai.model.plan import Plan, ScenarioState, SearchResult
from pykai.model.snapshot import Snapshot
from pykai.plugins.registry import BUILT_IN, make_all
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import gang, node, pod, reservation, seen
from .test_budgets import Clock

GREEDY, MULTI = "sg-nodelocalgreedy", "sg-multinodegang"
PART = {GREEDY: "NodeLocalGreedy", MULTI: "MultiNodeGang"}
STEP = 10.0
"""Seconds that a simulation takes here."""


@dataclass(frozen=True)
class Slow:
    """A validator that takes its time, and agrees or not."""

    clock: Clock
    agrees: bool

    def justified(self, cycle: Any, scenario: Any) -> bool:
        self.clock.now += STEP
        return self.agrees


def policy(*generators: str, **budgets: Any) -> Policy:
    """The built-in plugins with these generators; only preempt is an action."""
    names = [*(name for name in BUILT_IN if name not in PART), *generators]
    return Policy(make_all([(name, {}) for name in names]), ("preempt",), budgets=SearchBudgets(**budgets))


def full_house(nodes: int = 1, wishes: tuple[str, ...] = ("8",), *more: Any) -> Snapshot:
    """Nodes of 8 cores, each held by a gang of low priority; gangs of high priority that ask for cores; and more."""
    held = [
        item
        for n in range(nodes)
        for item in (node(f"n{n}"), gang(f"low{n}", "low"), pod(f"low{n}-0", f"n{n}", cpu="8"))
    ]
    waiting = [
        item for n, cpu in enumerate(wishes) for item in (gang(f"new{n}", age=100 - n), pod(f"new{n}-0", cpu=cpu))
    ]
    return seen(*held, *waiting, *more)


def searched(snapshot: Snapshot, chosen: Policy, agrees: bool | None = None) -> Plan:
    """The plan of a cycle whose simulations take STEP seconds each; `agrees` None: they take no time."""
    clock = Clock()
    slow = () if agrees is None else (Slow(clock, agrees),)
    return decide(snapshot, replace(chosen, plugins=(*chosen.plugins, *slow)), NOW, clock)


def results(plan: Plan) -> list[SearchResult]:
    return [search.result for search in plan.searches]


def asked(plan: Plan) -> list[list[tuple[str, SearchResult]]]:
    return [[(part.generator, part.result) for part in search.generators] for search in plan.searches]


def for_single(order: tuple[str, ...]) -> tuple[str, ...]:
    """The generators that are asked for a single pod: those for gangs only where there is no other."""
    return tuple(name for name in order if name == GREEDY) or order


# ----------------------------------------------------------------------------------------------------------- generators
@pytest.mark.parametrize("order", [(GREEDY,), (MULTI,), (GREEDY, MULTI), (MULTI, GREEDY)])
def test_the_first_generator_that_finds_victims_is_the_last_that_is_asked(order: tuple[str, ...]) -> None:
    plan = searched(full_house(), policy(*order))
    assert asked(plan) == [[(PART[for_single(order)[0]], SearchResult.SOLVED)]]
    assert len(plan.evictions) == 1


@pytest.mark.parametrize("order", [(GREEDY,), (MULTI,), (GREEDY, MULTI), (MULTI, GREEDY)])
def test_generators_are_asked_in_the_order_of_the_configuration(order: tuple[str, ...]) -> None:
    plan = searched(full_house(), policy(*order), agrees=False)
    assert asked(plan) == [[(PART[name], SearchResult.VALIDATOR_REJECTED) for name in for_single(order)]]
    pair = [gang("new", minMember=2), *(pod(f"new-{n}", cpu="4") for n in range(2))]
    assert asked(searched(full_house(1, (), *pair), policy(*order), agrees=False)) == [
        [(PART[name], SearchResult.VALIDATOR_REJECTED) for name in order]
    ]
    assert results(plan) == [SearchResult.VALIDATOR_REJECTED]
    assert not plan.evictions


def test_without_a_generator_nobody_is_evicted() -> None:
    plan = searched(full_house(), policy())
    assert (results(plan), asked(plan)) == ([SearchResult.NO_GENERATOR], [[]])
    assert not plan.evictions


GANG_OF_SIX = [
    (("sg-nodelocalgreedy",), [SearchResult.GENERATORS_EXHAUSTED], 0),
    (("sg-multinodegang",), [SearchResult.SOLVED], 6),
    (("sg-nodelocalgreedy", "sg-multinodegang"), [SearchResult.SOLVED], 6),
]


@pytest.mark.parametrize(("order", "expected", "gone"), GANG_OF_SIX)
def test_a_gang_for_many_nodes_needs_the_generator_for_many(
    order: tuple[str, ...], expected: list[SearchResult], gone: int
) -> None:
    """Node by node, room can be made for half of it; what is left needs several nodes at once."""
    wish = [gang("new", minMember=6), *(pod(f"new-{n}", cpu="8") for n in range(6))]
    plan = searched(full_house(6, (), *wish), policy(*order))
    assert (results(plan), len(plan.evictions)) == (expected, gone)


# ---------------------------------------------------------------------------------------------------------------- time
def test_a_gang_that_meets_its_deadline_ends_the_action() -> None:
    plan = searched(full_house(4, ("8", "7")), policy(GREEDY, MULTI, job=25.0), agrees=False)
    assert asked(plan) == [[("NodeLocalGreedy", SearchResult.DEADLINE_EXHAUSTED)]]
    (search,) = plan.searches
    assert (search.result, search.reduced_budget) == (SearchResult.DEADLINE_EXHAUSTED, False)
    assert search.generators[0].seconds == 30.0
    assert search.generators[0].states[ScenarioState.SIMULATED] == 3
    assert plan.actions["preempt"].tried == 1
    assert not plan.actions["preempt"].budget_exhausted


def test_an_action_without_time_ends_the_search() -> None:
    limits = {"actions": {"preempt": 25.0}, "job": 0.0}
    plan = searched(full_house(4, ("8", "7")), policy(GREEDY, MULTI, **limits), agrees=False)
    (search,) = plan.searches
    assert (search.result, search.reduced_budget) == (SearchResult.DEADLINE_EXHAUSTED, True)
    assert plan.actions["preempt"].budget_exhausted


def test_a_generator_without_time_hands_over_to_the_next() -> None:
    pair = [gang("new", minMember=2), *(pod(f"new-{n}", cpu="4") for n in range(2))]
    budgets = {"NodeLocalGreedy": 15.0}
    plan = searched(full_house(4, (), *pair), policy(GREEDY, MULTI, generators=budgets), agrees=False)
    ends = [("NodeLocalGreedy", SearchResult.DEADLINE_EXHAUSTED), ("MultiNodeGang", SearchResult.VALIDATOR_REJECTED)]
    assert asked(plan) == [ends]
    assert results(plan) == [SearchResult.VALIDATOR_REJECTED]


def test_generators_without_time_do_not_end_the_action() -> None:
    limits = {"generators": {"default": 15.0}}
    plan = searched(full_house(4, ("8", "7")), policy(GREEDY, MULTI, **limits), agrees=False)
    assert results(plan) == [SearchResult.GENERATORS_EXHAUSTED] * 2


def test_what_was_found_in_time_is_kept_and_the_rest_is_not_attempted() -> None:
    plan = searched(full_house(4, ("8", "8", "8")), policy(GREEDY, actions={"default": 20.0}), agrees=True)
    assert results(plan) == [SearchResult.SOLVED, SearchResult.SOLVED, SearchResult.NOT_ATTEMPTED]
    assert [search.reduced_budget for search in plan.searches] == [True, True, True]
    assert len(plan.evictions) == 2
    assert plan.actions["preempt"].budget_exhausted


def test_nobody_is_looked_at_once_there_is_no_time() -> None:
    plan = searched(full_house(4, ("8", "8", "8")), policy(GREEDY, actions={"default": 10.0}), agrees=True)
    assert results(plan) == [SearchResult.SOLVED, SearchResult.NOT_ATTEMPTED]
    assert plan.actions["preempt"].tried == 2


def test_every_gang_gets_the_least_time() -> None:
    limits = {"actions": {"default": 20.0}, "least_job": 5.0}
    plan = searched(full_house(4, ("8", "8", "8", "8")), policy(GREEDY, **limits), agrees=True)
    assert results(plan) == [SearchResult.SOLVED] * 4
    assert plan.actions["preempt"].budget_exhausted


def test_zero_is_unlimited() -> None:
    limits = {"actions": {"default": 0.0}, "job": 0.0, "generators": {"default": 0.0}}
    plan = searched(full_house(40), policy(GREEDY, MULTI, **limits), agrees=False)
    assert results(plan) == [SearchResult.VALIDATOR_REJECTED]
    assert sum(part.seconds for part in plan.searches[0].generators) > 300
    assert not plan.searches[0].reduced_budget


def test_without_a_clock_budgets_change_nothing() -> None:
    snapshot = full_house(4, ("8", "7", "6"))
    none = SearchBudgets({"default": 1e-9}, 1e-9, 0.0, {"default": 1e-9})
    assert decide(snapshot, replace(PACKING, budgets=none), NOW) == decide(snapshot, PACKING, NOW)
    assert len(decide(snapshot, PACKING, NOW).evictions) == 3


# ------------------------------------------------------------------------------------------------------------ scenarios
def test_scenarios_are_counted_by_what_became_of_them() -> None:
    unlimited = {"default": 0.0}
    (greedy,) = searched(full_house(4), policy(GREEDY, generators=unlimited), agrees=False).searches[0].generators
    (multiple,) = searched(full_house(4), policy(MULTI, generators=unlimited), agrees=False).searches[0].generators
    multi = multiple.states
    assert greedy.states == {
        ScenarioState.FILTERED: 0,
        ScenarioState.EMITTED: 4,
        ScenarioState.SIMULATED: 4,
        ScenarioState.VALIDATOR_REJECTED: 4,
    }
    assert multi[ScenarioState.EMITTED] == multi[ScenarioState.SIMULATED] + multi[ScenarioState.DUPLICATE]
    assert multi[ScenarioState.DUPLICATE] > 0


def test_what_figures_rule_out_is_not_simulated() -> None:
    """Whoever goes, the other half of the node is held by somebody who stays."""
    halves = [gang("low", "low"), pod("low-0", "n", cpu="4"), gang("high"), pod("high-0", "n", cpu="4")]
    snapshot = seen(node("n"), *halves, gang("new"), pod("new-0", cpu="8"))
    for generator in PART:
        plan = searched(snapshot, policy(generator))
        assert [part.states for part in plan.searches[0].generators] == [{ScenarioState.FILTERED: 1}]
        assert asked(plan) == [[(PART[generator], SearchResult.UNSOLVED)]]
        assert results(plan) == [SearchResult.GENERATORS_EXHAUSTED]


def queue(name: str, gpus: int) -> Any:
    return builders.queue(name, gpu={"quota": gpus})


def test_figures_may_tell_before_any_generator_is_asked() -> None:
    """6 GPUs are missing, and 3 is more than can be taken: the one queue is 2 above its quota, the other not at all."""
    held = [("theirs", f"t{n}") for n in range(9)] + [("others", f"o{n}") for n in range(5)]
    running = [
        item
        for at, (owner, name) in enumerate(held)
        for item in (gang(name, "low", queue=owner), pod(f"{name}-0", f"n{at // 8}", gpus=1))
    ]
    queues = [queue("mine", 8), queue("theirs", 7), queue("others", 5)]
    nodes = [node("n0", gpus=8, pods=20), node("n1", gpus=8, pods=20)]
    snapshot = seen(*queues, *nodes, *running, gang("new", queue="mine"), pod("new-0", gpus=8))
    plan = searched(snapshot, replace(policy(GREEDY, MULTI), actions=("reclaim",)))
    assert (results(plan), asked(plan)) == ([SearchResult.UNSOLVED], [[]])


def test_what_the_last_search_found_at_once_is_simulated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three gangs that ask for the same: the first proves by bounds that one victim may do, the others try it."""
    asked: list[list[int]] = []
    bounds = Accumulated.effective

    def counted(found: Accumulated, numbers: list[int]) -> list[int]:
        asked.append(numbers)
        return bounds(found, numbers)

    monkeypatch.setattr(Accumulated, "effective", counted)
    nodes = [node(f"n{n}", gpus=1) for n in range(4)]
    held = [each for n in range(4) for each in (gang(f"v{n}", "low"), pod(f"v{n}-0", f"n{n}", gpus=1))]
    new = [each for n in range(3) for each in (gang(f"new{n}"), pod(f"new{n}-0", gpus=1))]
    found = decide(seen(*nodes, *held, *new), PACKING, NOW)
    assert (len(found.evictions), len(found.nominations), len(asked)) == (3, 3, 1)
    assert [each.result for each in found.searches] == [SearchResult.SOLVED] * 3


def test_a_choice_that_bounds_refute_counts_as_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second gang tries at once what a validator rejects: only if bounds had let it pass it counts as rejected."""
    agreed: list[bool] = []

    @dataclass(frozen=True)
    class Once:
        def justified(self, cycle: Any, scenario: Any) -> bool:
            agreed.append(not agreed)
            return agreed[-1]

    nodes = [node(f"n{n}", gpus=1) for n in range(2)]
    held = [each for n in range(2) for each in (gang(f"v{n}", "low"), pod(f"v{n}-0", f"n{n}", gpus=1))]
    new = [each for n in range(2) for each in (gang(f"new{n}"), pod(f"new{n}-0", gpus=1))]
    snapshot, policy = seen(*nodes, *held, *new), replace(PACKING, plugins=(*PACKING.plugins, Once()))
    assert decide(snapshot, policy, NOW).searches[-1].result is SearchResult.VALIDATOR_REJECTED
    agreed.clear()
    monkeypatch.setattr(Probe, "_could_work", lambda *_: not agreed)
    assert decide(snapshot, policy, NOW).searches[-1].result is SearchResult.GENERATORS_EXHAUSTED


@pytest.mark.parametrize(("most", "columns"), [(solver.MOST_IN_TURN, 1), (0, 2)])
def test_after_one_was_solved_the_first_victims_are_tried_before_columns_are_made(
    most: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Accumulated] = []

    def counted(*arguments: Any) -> Accumulated:
        made.append(Accumulated(*arguments))
        return made[-1]

    monkeypatch.setattr(solver, "MOST_IN_TURN", most)
    monkeypatch.setattr(solver, "Accumulated", counted)
    plan = decide(full_house(2, ("8", "8")), policy(GREEDY, MULTI), NOW)
    assert {each.pod[1] for each in plan.evictions} == {"low0-0", "low1-0"}
    assert len(made) == columns


def test_victims_of_a_prefix_are_such_that_all_of_the_gang_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 GPUs department `rich` uses 5, `poor` 3, and each has a share of 4. One pod of the new gang in `poor` could
    have a GPU of `rich`, two only if `poor` loses one itself: that is the one the first pod gets."""
    departments = [builders.queue(name, gpu={"quota": 4}) for name in ("poor", "rich")]
    leaves = [("mine", "poor", 2), ("beside", "poor", 2), ("theirs", "rich", 4)]
    queues = [builders.queue(name, above, gpu={"quota": gpus}) for name, above, gpus in leaves]
    held = [("beside", f"b{n}") for n in range(3)] + [("theirs", f"t{n}") for n in range(5)]
    running = [
        item
        for at, (owner, name) in enumerate(held)
        for item in (node(f"n{at}", gpus=1), gang(name, "low", queue=owner), pod(f"{name}-0", f"n{at}", gpus=1))
    ]
    new = [gang("new", queue="mine", minMember=2), pod("new-0", gpus=1), pod("new-1", gpus=1)]
    supposed: list[str] = []

    def recorded(cycle: Any, cause: Any, pods: Any, batches: Any, states: Any) -> Any:
        supposed.append("".join(sorted(cycle.snapshot.gangs.title(batch.gang)[-2] for batch in batches)))
        return simulate(cycle, cause, pods, batches, states)

    monkeypatch.setattr(solver, "simulate", recorded)
    chosen = replace(policy(GREEDY), actions=("reclaim",))
    plan = decide(seen(*departments, *queues, *running, *new), chosen, NOW)
    assert results(plan) == [SearchResult.SOLVED]
    assert supposed == ["b", "bt"]
    assert sorted(eviction.pod[1][0] for eviction in plan.evictions) == ["b", "t"]


# --------------------------------------------------------------------------------------- after a search that was solved
@dataclass(frozen=True)
class Few:
    """A validator that agrees to the first scenarios only; `asked`: one entry for each."""

    agrees: int
    asked: list[bool]

    def justified(self, cycle: Any, scenario: Any) -> bool:
        self.asked.append(len(self.asked) < self.agrees)
        return self.asked[-1]


@pytest.mark.parametrize("wishes", [("8", "8"), ("8", "7")])
def test_where_the_first_victims_do_not_do_after_all_all_are_looked_at(wishes: tuple[str, str]) -> None:
    """The search before found its victim at once. This one looks at a few in turn, then at columns of all: none is
    simulated twice."""
    asked: list[bool] = []
    plan = decide(full_house(8, wishes), with_validator(Few(1, asked)), NOW)
    assert results(plan) == [SearchResult.SOLVED, SearchResult.VALIDATOR_REJECTED]
    assert asked == [True] + [False] * 7
    states = plan.searches[1].generators[0].states
    assert (states[ScenarioState.SIMULATED], states[ScenarioState.VALIDATOR_REJECTED]) == (7, 7)


def with_validator(validator: object) -> Policy:
    found = policy(GREEDY)
    return replace(found, plugins=(*found.plugins, validator))


@pytest.mark.parametrize(("most", "simulated"), [(solver.MOST_IN_TURN, 1), (16, 1), (0, 0)])
def test_victims_that_are_of_no_use_are_looked_at_in_turn_up_to_a_number(
    most: int, simulated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gang takes the one GPU that the other queue has beyond its quota. For the second one every victim would
    free a GPU, and none may be had: it tries at once what did for the first one; of the others that is known."""
    monkeypatch.setattr(solver, "MOST_IN_TURN", most)
    held = [
        item
        for n in range(20)
        for item in (node(f"n{n}", gpus=1), gang(f"t{n}", "low", queue="theirs"), pod(f"t{n}-0", f"n{n}", gpus=1))
    ]
    new = [item for n in range(2) for item in (gang(f"new{n}", age=9 - n, queue="mine"), pod(f"new{n}-0", gpus=1))]
    snapshot = seen(queue("mine", 2), queue("theirs", 19), *held, *new)
    plan = decide(snapshot, replace(policy(GREEDY, MULTI), actions=("reclaim",)), NOW)
    assert len(plan.evictions) == 1
    assert results(plan) == [SearchResult.SOLVED, SearchResult.UNSOLVED]
    assert plan.searches[1].generators[0].states[ScenarioState.SIMULATED] == simulated


def test_after_one_victim_did_a_pod_that_needs_two_gets_two() -> None:
    """They are looked at in turn all the same, and proved by bounds before they are simulated."""
    objects = [node(f"n{n}", gpus=2) for n in range(3)]
    objects += [item for n in range(6) for item in (gang(f"v{n}", "low", age=n), pod(f"v{n}-0", f"n{n // 2}", gpus=1))]
    new = [gang("one", age=9), pod("one-0", gpus=1), gang("two"), pod("two-0", gpus=2)]
    plan = decide(seen(*objects, *new), policy(GREEDY), NOW)
    assert results(plan) == [SearchResult.SOLVED] * 2
    assert [sum(part.states[ScenarioState.SIMULATED] for part in each.generators) for each in plan.searches] == [1, 1]
    assert len(plan.evictions) == 3


def test_the_same_victims_are_simulated_once_whichever_choice_leads_to_them() -> None:
    """The gang would be torn by the choice of one node, so all of it is tried; two nodes are all of it, too."""
    asked: list[bool] = []
    victim = [gang("v", "low", minMember=2), *(pod(f"v-{n}", "n", gpus=1) for n in range(2)), pod("v-2", "m", gpus=4)]
    new = [gang("new"), pod("new-0", gpus=2, cpu="2")]
    chosen = policy(MULTI)
    chosen = replace(chosen, plugins=(*chosen.plugins, Few(0, asked)))
    plan = decide(seen(node("n", gpus=2), node("m", gpus=4, cpu="1"), *victim, *new), chosen, NOW)
    states = plan.searches[0].generators[0].states
    assert (results(plan), plan.evictions) == ([SearchResult.VALIDATOR_REJECTED], ())
    assert (states[ScenarioState.EMITTED], states[ScenarioState.SIMULATED], states[ScenarioState.DUPLICATE]) == (
        3,
        2,
        1,
    )
    assert asked == [False]


@pytest.mark.parametrize("few", [reclaim_bound.FEW, 0])
def test_a_few_victims_are_judged_one_by_one_as_all_are_in_columns(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A department gets GPUs back, in part from itself."""
    for module in (solver, reclaim_bound):
        monkeypatch.setattr(module, "FEW", few)
    departments = [queue("poor", 4), queue("rich", 4)]
    leaves = [("mine", "poor", 2), ("beside", "poor", 2), ("theirs", "rich", 4)]
    queues = [builders.queue(name, above, gpu={"quota": gpus}) for name, above, gpus in leaves]
    held = [("beside", f"b{n}") for n in range(3)] + [("theirs", f"t{n}") for n in range(5)]
    running = [
        item
        for at, (owner, name) in enumerate(held)
        for item in (node(f"n{at}", gpus=1), gang(name, "low", queue=owner), pod(f"{name}-0", f"n{at}", gpus=1))
    ]
    new = [gang("new", queue="mine", minMember=2), pod("new-0", gpus=1), pod("new-1", gpus=1)]
    snapshot = seen(*departments, *queues, *running, *new)
    plan = decide(snapshot, replace(policy(GREEDY), actions=("reclaim",)), NOW)
    assert results(plan) == [SearchResult.SOLVED]
    assert sorted(eviction.pod[1][0] for eviction in plan.evictions) == ["b", "t"]


# -------------------------------------------------------------------------------------------------------------- devices
@pytest.mark.parametrize(("beside", "simulated"), [({"share": "0.6"}, 1), ({"gpus": 1}, 0)])
def test_victims_that_leave_no_whole_device_are_not_simulated_for_one(beside: dict[str, Any], simulated: int) -> None:
    """Without the victim half of one device is free, and 0.6 of the other: a GPU in all, and no device."""
    held = [("stay", "high", "d0", "0.5"), ("beside", "high", "d1", "0.4"), ("old", "low", "d0", "0.5")]
    running = [
        item
        for name, rank, device, share in held
        for item in (gang(name, rank), pod(f"{name}-0", "n", share=share, device=device))
    ]
    new = [gang("new", minMember=2), pod("new-0", share="0.5"), pod("new-1", **beside)]
    devices = [reservation("n", f"d{n}") for n in range(2)]
    plan = decide(seen(node("n", gpus=2), *running, *devices, *new), policy(MULTI), NOW)
    (search,) = plan.searches
    assert len(plan.evictions) == simulated
    assert sum(part.states[ScenarioState.SIMULATED] for part in search.generators) == simulated


@dataclass(frozen=True)
class Room:
    """Nodes of two domains."""

    domains: Any


@dataclass(frozen=True)
class Known:
    """Batches of one pod, each on a node of its own."""

    room: Room
    nodes: Any
    batch_of: Any


def looked_at(batches: int, for_gangs: bool, domains: int = 1) -> list[int]:
    numbers = np.arange(batches)
    found: Any = Known(Room(numbers % domains), numbers, numbers)
    return list(Leaps(for_gangs).over(found, numbers))


def test_after_many_victims_in_vain_ever_more_are_added_at_once() -> None:
    looked = looked_at(1000, for_gangs=True)
    assert looked[:33] == [*range(32), 35]
    assert looked[-1] == 999
    assert len(looked) < 80
    steps = np.diff(looked[32:-1]).tolist()
    assert steps == sorted(steps)


def test_the_latest_victims_of_each_domain_are_looked_at() -> None:
    looked = looked_at(1000, for_gangs=True, domains=2)
    assert looked[:64] == list(range(64))
    assert {998, 999} < set(looked)


def test_victims_of_one_node_are_looked_at_one_by_one() -> None:
    assert looked_at(1000, for_gangs=False) == list(range(1000))
