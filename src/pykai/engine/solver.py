"""The victim solver: bounds first, simulation to confirm.

A scenario costs a simulation, and most cannot work: bounds on capacity (`feasibility`) and on what reclaim may take
(`reclaim_bound`) reject them before. Ways of choosing among the accumulated victims are plugins
(`plugin_api.VictimChoice`), tried in turn. A generator that chooses on one node solves for growing prefixes of the gang
(1, 2, 4 ... then bisection) and keeps the victims of each; one that chooses among several nodes solves for all pods at
once. Counts bound each search; a live scheduler adds a deadline, which is read before every choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pykai.engine.accumulated import Accumulated
from pykai.engine.budgets import Deadline
from pykai.engine.cycle import Cycle
from pykai.engine.device_room import Leaving
from pykai.engine.feasibility import FeasibilityBound, SinglePodFit, grows_to, next_size
from pykai.engine.node_room import cumulated
from pykai.engine.plugin_api import NodeSubsets, VictimChoice
from pykai.engine.queues import OVER_LIMIT, OverCapacity, Triple, triple
from pykai.engine.reclaim_bound import FEW, SLACKS, ReclaimBound, VictimLosses
from pykai.engine.scenario import Cause, Scenario, simulate
from pykai.engine.victim_order import VictimOrder, summed_by
from pykai.engine.victims import Batch
from pykai.model.plan import GeneratorStatistics, ScenarioState, SearchResult, SearchStatistics
from pykai.model.resources import GPU, QUEUE_RESOURCES, Column, Mask, Rows

_SLACK = 1e-4
MOST_UNPROVED = 4
"""Victims that a search looks at one by one before it works out which of all of them could help."""
FAILED_ONE_BY_ONE, LEAP = 32, 8
"""So many latest victims of a domain are looked at one after the other; from then on each time one more for so many."""
MOST_IN_TURN = 512
"""Victims that are looked at in turn at most, before columns are made of all: more take longer than columns."""


@dataclass
class Search:
    """One gang's search along an order of victims."""

    cycle: Cycle
    cause: Cause
    order: VictimOrder
    prospects: ReclaimBound | None = None
    """What victims can be of use; None: all of them."""
    spent: int = 0
    looked: int = 0
    """The most choices that were looked at for a prefix of the gang."""

    @property
    def _kind(self) -> Hashable:
        """Searches of the same kind tend to be solved in the same way."""
        return self.cycle.snapshot.gangs.queue[self.cause.gang], self.cause.request

    @cached_property
    def first_will_do(self) -> bool:
        """Whether the first choice solved the last search of this kind."""
        return self._kind in self.order.pool.first_did and not self.order.in_parts

    @cached_property
    def room(self) -> FeasibilityBound:
        """The bound for all pods as things are, before anything is simulated."""
        return FeasibilityBound(self.order.pool, self.cause.pods, (), self.domains)

    @cached_property
    def domains(self) -> Rows | None:
        """By node: the domain that all pods of the gang must share; None: they need not."""
        tree = self.cycle.snapshot.gangs.trees.get(self.cause.gang)
        if tree is None:
            return None
        found = [plugin.domains(self.cycle, self.cause.gang, tree) for plugin in self.cycle.policy.of(NodeSubsets)]
        return next((domains for domains in found if domains is not None), None)

    def solve(self, deadline: Deadline) -> tuple[Scenario | None, SearchStatistics]:
        """The scenario that gives the gang all it needs next, None where there is none within the limits; and how the
        search went."""
        scenario, statistics = self._solve(deadline)
        pool = self.order.pool
        pool.likely = scenario is not None
        if scenario is not None and self.looked == self.spent == 1:
            pool.first_did.add(self._kind)
        else:
            pool.first_did.discard(self._kind)
        return scenario, statistics

    def _solve(self, deadline: Deadline) -> tuple[Scenario | None, SearchStatistics]:
        likely = self.order.pool.likely or self.first_will_do
        result, attempts = self._before_trying(proved=not likely), list[Attempt]()
        for choice in self._choices() if result is None else ():
            limit = self.cycle.policy.budgets.of_generator(choice.generator)
            attempts.append(Attempt(self, choice, deadline.within(limit), likely))
            scenario = attempts[-1].make()
            if scenario is not None:
                return scenario, self._effort(SearchResult.SOLVED, deadline, attempts)
            if attempts[-1].cut and deadline.over:
                return None, self._effort(SearchResult.DEADLINE_EXHAUSTED, deadline, attempts)
            if not self.hopeful:
                return None, self._effort(SearchResult.UNSOLVED, deadline, attempts)
        return None, self._effort(result or _without_success(attempts), deadline, attempts)

    def _choices(self) -> Sequence[VictimChoice]:
        """The ways of choosing to try: for a single pod, if there is another, none that is for gangs. What it gets on
        one node the victims of other nodes add nothing to, they would only be moved around."""
        choices = self.cycle.policy.of(VictimChoice)
        return [c for c in choices if not c.for_gangs] or choices if len(self.cause.pods) == 1 else choices

    def _before_trying(self, proved: bool) -> SearchResult | None:
        """Why no generator need be asked; None: they must. What takes longer is asked only if `proved`."""
        if not self.cycle.policy.of(VictimChoice):
            return SearchResult.NO_GENERATOR
        if not self.cause.pods or not self._limits_can_hold():
            return SearchResult.UNSOLVED
        return None if not proved or self.hopeful else SearchResult.UNSOLVED

    def _limits_can_hold(self) -> bool:
        """Whether evictions could bring the queues of the gang below the limits that it would exceed."""
        over = over_limits(self.cycle, self.cause.gang, self.cause.pods)
        if over is None:
            return True
        paths = self.cycle.snapshot.queues.paths
        below = any(over.queue in paths[leaf] for leaf in self.order.leaves)
        return below and over.reason == OVER_LIMIT and not self.cause.keep_all

    @cached_property
    def hopeful(self) -> bool:
        """Whether what is free and what could be taken covers the need."""
        if self.prospects is None:
            return True
        trial, pods, reach = self.cycle.trial, self.cause.pods, self.room.reach
        free = np.maximum(trial.idle[:QUEUE_RESOURCES] + trial.releasing[:QUEUE_RESOURCES], 0)[:, reach].sum(axis=1)
        free[GPU] += sum(len(shares) for node, shares in trial.shares.items() if reach[node])
        need = sum(trial.of_class(pod).request[:QUEUE_RESOURCES] for pod in pods) - free
        return self.prospects.enough(self.cause.request, self.order.leaves, triple((need - SLACKS).tolist()))

    def _effort(self, result: SearchResult, deadline: Deadline, attempts: Sequence[Attempt]) -> SearchStatistics:
        return SearchStatistics(self.cause.action, result, deadline.reduced, tuple(each.effort() for each in attempts))


def _without_success(attempts: Sequence[Attempt]) -> SearchResult:
    rejected = any(attempt.result is SearchResult.VALIDATOR_REJECTED for attempt in attempts)
    return SearchResult.VALIDATOR_REJECTED if rejected else SearchResult.GENERATORS_EXHAUSTED


@dataclass
class Attempt:
    """One way of choosing victims, tried until it finds some, has no more to try, or is out of time (`cut`)."""

    search: Search
    choice: VictimChoice
    deadline: Deadline
    likely: bool = False
    """Whether some of the first victims will probably do."""
    states: Counter[ScenarioState] = field(default_factory=Counter)
    cut: bool = False
    result: SearchResult = SearchResult.UNSOLVED
    seconds: float = 0.0

    def make(self) -> Scenario | None:
        """The scenario this way finds for all of the gang's pods; it is left in the trial."""
        began = self.deadline.clock()
        scenario = self._grow(self.search.cause.pods)
        self.seconds = self.deadline.clock() - began
        if scenario is not None:
            self.result = SearchResult.SOLVED
        elif self.cut:
            self.result = SearchResult.DEADLINE_EXHAUSTED
        elif self.states[ScenarioState.VALIDATOR_REJECTED]:
            self.result = SearchResult.VALIDATOR_REJECTED
        return scenario

    def effort(self) -> GeneratorStatistics:
        return GeneratorStatistics(self.choice.generator, self.result, self.seconds, self.states)

    def out_of_time(self) -> bool:
        """Whether to stop; reads the clock."""
        self.cut = self.cut or self.deadline.over
        return self.cut

    @property
    def ended(self) -> bool:
        """Whether a limit was met, of time or of scenarios."""
        return self.cut or self.search.spent >= self.search.cycle.policy.limits.scenarios_per_gang

    def _grow(self, pods: Sequence[int]) -> Scenario | None:
        """Solve for longer and longer prefixes, keeping the victims found; the whole must be solved in the end, once
        more where some move and others stay: with fewer victims fewer may have to move."""
        cycle = self.search.cycle
        if not self.choice.for_gangs and not self._within_reach(pods):
            return None
        total, solved, size = len(pods), 0, len(pods) if self.choice.for_gangs else 1
        possible = total
        recorded: list[Batch] = []
        while solved < possible and not self.out_of_time():
            mark = cycle.trial.mark()
            probe = Probe(self, pods[:size], recorded)
            found = probe.run()
            if found is None:
                possible = 0 if self.choice.for_gangs else size - 1
            elif size == total and (probe.supposed == set(found.victims) or probe.settled(found)):
                return found
            else:
                recorded, solved = batches_of(cycle, found), size
                cycle.trial.undo_to(mark)
            size = next_size((solved, possible, total), size)
        return Probe(self, pods, recorded).run() if solved and not self.cut else None

    def _within_reach(self, pods: Sequence[int]) -> bool:
        """Whether victims on one more node for each prefix that is solved could make room for all pods."""
        pool, total = self.search.order.pool, len(pods)
        if total <= 2 or pool.spread:
            return True
        room = FeasibilityBound(pool, pods, (), self.search.domains)
        return any(grows_to(total, fit, more) for fit, more in room.node_by_node())


def batches_of(cycle: Cycle, scenario: Scenario) -> list[Batch]:
    """The victims of a scenario, by gang."""
    by_gang: dict[int, list[int]] = {}
    for pod in scenario.victims:
        by_gang.setdefault(cycle.trial.gang[pod], []).append(pod)
    return [Batch(gang, tuple(pods)) for gang, pods in by_gang.items()]


def over_limits(cycle: Cycle, gang: int, pods: Sequence[int]) -> OverCapacity | None:
    """The first limit or quota that the gang would exceed with these pods; None also where moves change use."""
    if cycle.quota is None or not cycle.counts_alike:
        return None
    return cycle.quota.over_capacity(cycle, gang, cycle.queue_request(pods, cycle.snapshot.max_gpu_memory))


def victims_of(cycle: Cycle, batches: Sequence[Batch]) -> VictimLosses:
    """The pods of batches, as victims."""
    trial, queue_of = cycle.trial, cycle.snapshot.gangs.queue
    pods = [pod for batch in batches for pod in batch.pods]
    losses = [trial.quota_amounts(trial.of_class(pod), trial.node[pod]) for pod in pods]
    amounts = np.array(losses).reshape(-1, 3).T
    gangs = np.array([trial.gang[pod] for pod in pods], dtype=np.int64)
    queues = np.array([queue_of[gang] for gang in gangs.tolist()], dtype=np.int64)
    return VictimLosses(gangs, queues, amounts, summed_by(gangs, amounts))


class Leaps:
    """How far a search for a gang goes on after victims that did not help: by one, later by ever more at once.

    A choice among the victims of several nodes differs little from the one before, which had a victim less: where many
    failed in a domain, the next ones will as well. That is a prediction, not a proof; each domain is looked at once
    more with all of its victims that are known.
    """

    def __init__(self, leaps: bool) -> None:
        self._leaps = leaps
        self._failed: Counter[int] = Counter()
        """By domain: the latest victims with which nothing was found."""
        self._resume: dict[int, int] = {}
        """By domain: the batch from which the next one is."""

    def over(self, found: Accumulated, promising: Rows) -> Iterator[int]:
        """Those of some batches to look at, each as the latest victim; the next is asked for when one did not help."""
        if not self._leaps or not len(promising):
            yield from promising.tolist()
            return
        domains = found.room.domains[found.nodes[np.searchsorted(found.batch_of, promising)]]
        last = dict(zip(domains.tolist(), promising.tolist(), strict=True))
        for latest, domain in zip(promising.tolist(), domains.tolist(), strict=True):
            if latest >= self._resume.get(domain, 0) or latest == last[domain]:
                yield latest
                self._failed[domain] += 1
                if self._failed[domain] >= FAILED_ONE_BY_ONE:
                    self._resume[domain] = latest + 1 + latest // LEAP


class Probe:
    """One try to make room for a prefix of the gang's pods, on top of victims recorded before."""

    def __init__(self, attempt: Attempt, pods: Sequence[int], recorded: Sequence[Batch]) -> None:
        self.attempt = attempt
        self.search = attempt.search
        self.cycle = attempt.search.cycle
        self.pods = pods
        self.recorded = list(recorded)
        if recorded or self.search.spent or len(pods) < len(self.search.cause.pods):
            self.room = FeasibilityBound(self.search.order.pool, pods, _pods(recorded), self.search.domains)
        else:
            self.room = self.search.room
        self.known = {pod for batch in recorded for pod in batch.pods}
        self.needs = [float(self.cycle.trial.of_class(pod).request[GPU]) for pod in pods]
        self._fit = SinglePodFit(self.search.order.pool, pods[0]) if len(pods) == 1 and not recorded else None
        self._looked = 0
        """How many latest victims were looked at."""
        self._in_turn = 0
        """How many victims were looked at in turn."""
        self._leaps = Leaps(self.attempt.choice.for_gangs)
        self.seen: set[frozenset[int]] = set()
        """Batches that were chosen together before."""
        self.tried: set[frozenset[int]] = set()
        self.supposed: frozenset[int] = frozenset()
        """The victims of the scenario that was tried last."""

    def judge(self, victims: VictimLosses, nodes: Rows | None) -> tuple[Mask, Mask]:
        """Which victims are served after the gang, and of those which the pods could gain from."""
        if self.search.prospects is None:
            every = np.ones(len(victims.queues), dtype=bool)
            return every, every
        return self.search.prospects.judge(self.request, self.taken, victims, nodes)

    def lost(self, victims: VictimLosses) -> Mask:
        """Which of a few victims could lose their place if all of them go."""
        if self.search.prospects is None:
            return np.ones(len(victims.queues), dtype=bool)
        return self.search.prospects.lost(victims)

    def returning(self, pods: Sequence[int], victims: VictimLosses) -> list[int]:
        """If all of these pods go: those with the fewest GPUs, as many as have to get a place again. None where some
        take parts of several devices, or other devices than those that count against queues: what is less is unclear.
        """
        trial, taken = self.cycle.trial, _pods(self.recorded)
        if self.search.prospects is None:
            return []
        found = self.search.prospects.returning(self.request, self.taken, victims)
        gone = [(pod, trial.of_class(pod)) for pod in ((*taken, *pods) if found else ())]
        one_device = all(not c.shared or c.devices == 1 for _, c in gone)
        as_counted = all(trial.accepted_gpus(pod) == trial.quota_amounts(c, trial.node[pod])[GPU] for pod, c in gone)
        return [pods[at] if at >= 0 else taken[at] for at in found] if one_device and as_counted else []

    def opening(self, leaving: Leaving) -> Mask:
        """After which pods a node is open to a single pod, if only those of one node go."""
        return np.ones(len(leaving.pods), dtype=bool) if self._fit is None else self._fit.opening(leaving)

    @cached_property
    def taken(self) -> VictimLosses:
        return victims_of(self.cycle, self.recorded)

    @cached_property
    def _over(self) -> OverCapacity | None:
        return over_limits(self.cycle, self.search.cause.gang, self.pods)

    def within_limits(self, victims: VictimLosses) -> Mask:
        """Whether the queues of the gang could stay within their limits when the victims go one after the other."""
        over = self._over
        if over is None:
            return np.ones(len(victims.queues), dtype=bool)
        paths, row = self.cycle.snapshot.queues.paths, over.resource
        below = np.array([over.queue in path for path in paths])
        taken = float(self.taken.losses[row][below[self.taken.queues]].sum())
        lost = np.cumsum(np.where(below[victims.queues], victims.losses[row], 0.0)) + taken
        return np.asarray(over.used[row] + over.request[row] - lost <= over.bound[row] + _SLACK)

    def obtainable(self, victims: VictimLosses) -> Column:
        """[resource, victim]: what the pods could get at most when the victims go one after the other."""
        if self.search.prospects is None:
            return _any_gpus(np.cumsum(victims.losses, axis=1))
        return self.search.prospects.obtainable(self.request, self.taken, victims)

    def obtainable_on_node(self, victims: VictimLosses, nodes: Rows) -> Column:
        """The same if only those of one node go."""
        if self.search.prospects is None:
            return _any_gpus(np.array([cumulated(nodes, amounts) for amounts in victims.losses]))
        return self.search.prospects.obtainable_on_node(self.request, self.taken, victims, nodes)

    def obtainable_together(self, victims: VictimLosses) -> Column:
        """[resource]: what the pods could get at most when all of the victims go."""
        if self.search.prospects is None:
            return _any_gpus(victims.losses.sum(axis=1))
        if len(victims.queues) + len(self.taken.queues) > FEW:
            return self.obtainable(victims)[:, -1]
        return np.array(self.search.prospects.obtainable_together(self.request, self.taken, victims))

    @property
    def request(self) -> Triple:
        """What the whole gang would take of its queues: victims of a prefix are kept for all of it."""
        return self.search.cause.request

    def run(self) -> Scenario | None:
        """The first scenario that works; it is left in the trial."""
        if (self.recorded or len(self.pods) < len(self.search.cause.pods)) and self._could_work([]):
            scenario = self._try([])
            if scenario is not None:
                return scenario
        order, states, done = self.search.order, self.attempt.states, 0
        found: Accumulated | None = None
        scenario = self._one_by_one()
        if scenario is not None:
            return scenario
        while (done < len(order) or order.extend()) and not self.attempt.out_of_time():
            found = self._accumulated(found)
            if found.proved and not self.search.hopeful:
                return None
            promising = self.attempt.choice.worth_a_look(found)
            for latest in self._leaps.over(found, promising[promising >= done]):
                if not found.proved and self._looked == MOST_UNPROVED:
                    break
                states[ScenarioState.FILTERED] += latest - done
                done, self._looked = latest + 1, self._looked + 1
                self.search.looked = max(self.search.looked, self._looked)
                scenario = self._choices(found, latest)
                if scenario is not None:
                    order.needed(done)
                if scenario is not None or self.attempt.ended:
                    return scenario
            else:
                states[ScenarioState.FILTERED] += len(order) - done
                done = len(order)
        return None

    def _one_by_one(self) -> Scenario | None:
        """If it is likely that some of the first victims will do for a single pod, look at them in turn before columns
        are made of all: the first scenario that works, of few that bounds do not refute."""
        order, one_by_one = self.search.order, getattr(self.attempt.choice, "one_by_one", None)
        in_turn = self.attempt.likely and order.expected <= MOST_IN_TURN
        if one_by_one is None or self._fit is None or not in_turn or self._fit.possible(()):
            return None
        states = self.attempt.states
        for looked, chosen in enumerate(one_by_one(order, self._opens), start=1):
            if looked > MOST_UNPROVED or self.attempt.out_of_time():
                return None
            self.search.looked = max(self.search.looked, looked)
            scenario = self._alone(chosen)
            if scenario is not None:
                states[ScenarioState.FILTERED] += chosen[-1] + 1 - looked
                order.needed(chosen[-1] + 1)
                return scenario
        return None

    def _opens(self, node: int, gone: list[int]) -> bool | None:
        """Whether a node could take a single pod without these pods of it, of which one at least is of use. The first
        is simulated at once where that did for the last search of this kind: it proves more than bounds do. None: it
        takes more victims than are worth looking at in turn."""
        at_once, fit = self.search.first_will_do and not self.search.looked, self._fit
        self._in_turn += 1
        if self._in_turn > MOST_IN_TURN:
            return None
        if not at_once and self._refuted(gone):
            return False
        return fit is not None and fit.on_node(node, gone)

    def _refuted(self, gone: Sequence[int]) -> bool:
        """Whether arithmetic on queues shows that none of these victims is of use; what policies reject then does not
        count as rejected by them."""
        prospects = self.search.prospects
        return prospects is not None and self.room.in_need and not prospects.any_useful(self.request, gone)

    def _alone(self, chosen: list[int]) -> Scenario | None:
        """A choice of which nothing is refuted yet; for one pod that is of use there is nothing else to ask."""
        batches, prospects = [self.search.order.batch(number) for number in chosen], self.search.prospects
        of_use = prospects is None or self.room.in_need or prospects.any_useful(self.request, batches[0].pods)
        if len(chosen) == len(batches[0].pods) == 1 and self._over is None and of_use:
            self.seen.add(frozenset(chosen))
            bounded = self.search.cause.keep_all and not self.search.first_will_do
            scenario = self._chosen(batches) if bounded else self._try(batches)
            if scenario is None and (self._refuted(batches[0].pods) or not self._could_work(batches)):
                self.attempt.states.pop(ScenarioState.VALIDATOR_REJECTED, None)
            return scenario
        return self._choice(self._accumulated(None), chosen)

    def _accumulated(self, found: Accumulated | None) -> Accumulated:
        """The victims known so far, made of those known before; the probe does not keep them, because they refer to it.

        If it is likely that some of the first will do, what takes longer is not worked out for all of them.
        """
        if found is None or found.size != len(self.search.order):
            found = Accumulated(self.search.order, self.known, self.room, self)
        found.proved = not self.attempt.likely or self.attempt.choice.for_gangs or self._looked >= MOST_UNPROVED
        return found

    def settled(self, found: Scenario) -> bool:
        """Whether the same is decided if only those go that have to: a single pod gets whole devices of the one node
        that is left, and no pod moves."""
        trial = self.cycle.trial
        if len(self.pods) > 1 or found.moved or trial.of_class(self.pods[0]).shared:
            return False
        return {trial.node[pod] for pod in self.supposed} == {trial.node[self.pods[0]]}

    def _choices(self, found: Accumulated, latest: int) -> Scenario | None:
        """The first choice that works; one that would tear a gang apart is tried again with all of the gang."""
        for chosen in self.attempt.choice.choices(found, latest, self.needs):
            scenario = self._choice(found, chosen)
            if scenario is not None or self.attempt.cut:
                return scenario
        return None

    def _choice(self, found: Accumulated, chosen: list[int]) -> Scenario | None:
        """One choice, if it is new and bounds allow it."""
        key, states = frozenset(chosen), self.attempt.states
        if key in self.seen:
            states.update((ScenarioState.EMITTED, ScenarioState.DUPLICATE))
            return None
        self.seen.add(key)
        numbers = found.effective(chosen) if self._possible(found, chosen) else []
        if not numbers:
            states[ScenarioState.FILTERED] += 1
            return None
        complete = found.whole_gangs(numbers)
        for some in (numbers, complete) if complete != numbers else (numbers,):
            if self.attempt.out_of_time():
                return None
            scenario = self._chosen([batch for number in some if (batch := found.batch(number)).pods])
            if scenario is not None:
                return scenario
        return None

    def _possible(self, found: Accumulated, numbers: Sequence[int]) -> bool:
        """Whether a single pod, or sub-groups with domains of their own, would find a place if all of these batches
        went; asked first, because it costs least."""
        pods = found.pods(numbers)
        return self.room.sub_groups_fit(pods) if self._fit is None else self._fit.possible(pods)

    def _chosen(self, batches: Sequence[Batch]) -> Scenario | None:
        if self._could_work(batches):
            return self._try(batches)
        self.attempt.states[ScenarioState.FILTERED] += 1
        return None

    def _could_work(self, batches: Sequence[Batch]) -> bool:
        """Whether bounds allow that these batches make room."""
        if not self.room.enough(batches) or not (self._fit is None or self._fit.possible(_pods(batches))):
            return False
        more, gone = _pods(batches), _pods([*self.recorded, *batches])
        if self._fit is None and not (self.room.enough_devices(gone) and self.room.sub_groups_fit(more)):
            return False  # of a single pod `_fit` knows more
        return not self.search.cause.keep_all or self.room.packs(gone, gone)

    def _try(self, chosen: Sequence[Batch]) -> Scenario | None:
        batches = [*self.recorded, *chosen]
        key = frozenset(_pods(batches))
        self.attempt.states[ScenarioState.EMITTED] += 1
        if key in self.tried:
            self.attempt.states[ScenarioState.DUPLICATE] += 1
            return None
        self.tried.add(key)
        self.supposed = key
        self.search.spent += 1
        return simulate(self.cycle, self.search.cause, self.pods, batches, self.attempt.states)


def _any_gpus(amounts: Column) -> Column:
    """Amounts, with no bound of GPUs."""
    amounts[GPU] = np.inf
    return amounts


def _pods(batches: Sequence[Batch]) -> list[int]:
    return [pod for batch in batches for pod in batch.pods]
