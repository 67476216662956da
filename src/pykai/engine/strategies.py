"""How preempt, reclaim and consolidation differ: which gangs may evict which victims, and the texts of evictions.

* *preempt*: within a queue, higher priority takes the place of lower;
* *reclaim*: a queue takes back its fair share from queues above theirs;
* *consolidation*: running pods move together so that a pending gang fits, and none of them loses its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.eviction import Eviction, filtered, run
from pykai.engine.gang import pods_to_place
from pykai.engine.order import EquivalenceClasses, next_request, runs
from pykai.engine.queues import (
    Claim,
    QueueBook,
    Triple,
    fits,
    human,
    less,
    may_lose_some,
    over_non_preemptible_quota,
    plus,
)
from pykai.engine.reasons import AT_FAIR_SHARE, Outcome, SearchToken
from pykai.engine.reclaim_bound import ReclaimBound
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.solver import Search
from pykai.engine.victim_order import Branches, VictimOrder, every_gang
from pykai.engine.victims import Passes, VictimPool
from pykai.model.resources import GPU, Mask, Rows
from pykai.model.status import IS_ACTIVE_USED


def reclaim(cycle: Cycle) -> None:
    run(cycle, RECLAIM)


def _may_reclaim(cycle: Cycle, gang: int) -> bool:
    """Whether the gang's queues stay within their fair share with it."""
    return cycle.quota is not None and cycle.quota.can_reclaim(cycle, gang, next_request(cycle, gang))


def _can_reclaim_help(cycle: Cycle, _: VictimPool, gangs: Sequence[int]) -> bool:
    return any(_may_reclaim(cycle, same[0]) for same in EquivalenceClasses.of(cycle).alike(cycle, gangs))


def _at_fair_share(cycle: Cycle, gang: int) -> Outcome | None:
    """Why a gang may not reclaim: what its queue would use beyond its share; None: it may. It matters only where other
    queues use some of that, or there would be nothing to reclaim."""
    if _may_reclaim(cycle, gang):
        return None
    book, queue, request = cycle.book, cycle.snapshot.gangs.queue[gang], next_request(cycle, gang)
    used, fair, quota = book.allocated[queue], book.fair[queue], book.deserved[queue]
    held = book.allocated_non_preemptible[queue]
    if not cycle.trial.adds_preemptible(gang) and not fits(plus(held, request), quota):
        return RECLAIM.outcome(
            SearchToken.OVER_QUOTA, _exceeding(book.titles[queue], "quota", (held, request, quota))[0]
        )
    message, resource = _exceeding(book.titles[queue], "fair share", (used, request, fair))
    tops = {path[-1] for path in book.paths}
    elsewhere = sum(book.allocated[top][resource] for top in tops) - used[resource] > 0
    return Outcome(AT_FAIR_SHARE, f"{message}, so it may not reclaim from other queues", elsewhere)


def _exceeding(title: str, bound: str, amounts: tuple[Triple, Triple, Triple]) -> tuple[str, int]:
    """The first resource, GPUs before others, of which use and request exceed a bound, as a text and by its number."""
    used, request, most = amounts
    over = [r for r in (GPU, 0, 1) if request[r] > 0 and less(most[r], used[r] + request[r])]
    at = over[0] if over else GPU
    name, scale = (("CPU cores", 1e3), ("GB of memory", 1e9), ("GPUs", 1.0))[at]
    figures = [human(amount[at], scale) for amount in (used, most, request)]
    text = "queue {} uses {} of its {} of {} {} and the workload requests {}"
    return text.format(title, figures[0], bound, figures[1], name, figures[2]), at


def _reclaim_search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    gangs = cycle.snapshot.gangs
    claim = Claim(gangs.queue[cause.gang], cause.request, cycle.trial.adds_preemptible(cause.gang))
    losing = may_lose_some(cycle.book, claim, pool.competing(claim.queue))
    if not losing:
        return None
    branches = Branches.of(pool, claim.queue, losing)
    order = VictimOrder(pool, branches, filtered(cycle, cause, pool), cause.request)
    search = Search(cycle, cause, order)
    if cause.pods and _bounded(pool):
        search.prospects = ReclaimBound(pool, cause.waiting, cause.gang, search.room.bounding)
    return search


def _bounded(pool: VictimPool) -> bool:
    """Whether arithmetic on queues bounds what victims leave.

    It does not where a victim counts less on another node than it did: then a move makes room that its queue does not
    lose. Nor where a gang could return with more than it had: then limits decide what it may have.
    """
    return pool.counts_alike and not pool.return_with_more


def _reclaim_messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    """Evictor and victim, and the use of both queues: siblings, or the branches in which they compete."""
    cause, gangs, title = scenario.cause, cycle.snapshot.gangs, cycle.snapshot.pods.title
    ours, evictor = gangs.queue[cause.gang], gangs.title(cause.gang)
    standing: dict[int, str] = {}
    found = {}
    for pod in scenario.victims:
        queue = gangs.queue[cycle.trial.gang[pod]]
        if queue not in standing:
            standing[queue] = _standing(cause.book, ours, queue)
        found[pod] = f"Pod {title(pod)} was preempted by workload {evictor}.\n{standing[queue]}"
    return found


def _standing(book: QueueBook, ours: int, theirs: int) -> str:
    if book.paths[ours][1:2] != book.paths[theirs][1:2]:
        ours, theirs = (book.paths[q][1] if len(book.paths[q]) > 1 else q for q in (ours, theirs))
    return f"{_use(book, theirs)}.\n{_use(book, ours)}."


def _use(book: QueueBook, queue: int) -> str:
    used, quota, fair = (_amounts_text(x[queue]) for x in (book.allocated, book.deserved, book.fair))
    return (
        f"{book.titles[queue]} uses <{used}> with a quota of <{quota}>, "
        f"fair-share of <{fair}> and queue priority of <{book.priority[queue]}>"
    )


@lru_cache(maxsize=1024)
def _amounts_text(amount: tuple[float, float, float]) -> str:
    cpu, memory, gpu = amount
    return f"GPU: {human(gpu)}, CPU: {human(cpu, 1e3)} (cores), memory: {human(memory, 1e9)} (GB)"


RECLAIM = Eviction(
    "reclaim",
    lambda cycle, _: cycle.quota is not None,
    _reclaim_search,
    _reclaim_messages,
    _at_fair_share,
    _can_reclaim_help,
    may_help_entitled=True,
    barred=(SearchToken.DISABLED, "no plugin divides resources among queues"),
    no_victims=(SearchToken.NO_VICTIMS, "no other queue uses more than its share, or not enough more"),
)


def preempt(cycle: Cycle) -> None:
    run(cycle, PREEMPT)


def _over_quota(cycle: Cycle, gang: int) -> Outcome | None:
    """Why a gang that could not be evicted again may not preempt: it would exceed the quota of its queues; None: it
    would not."""
    if cycle.quota is None or cycle.trial.adds_preemptible(gang):
        return None
    request = cycle.queue_request(pods_to_place(cycle.trial, cycle.orders, gang), cycle.snapshot.max_gpu_memory)
    over = over_non_preemptible_quota(cycle.book, cycle.snapshot.gangs.queue[gang], request)
    return None if over is None else PREEMPT.outcome(SearchToken.OVER_QUOTA, over.message)


def _can_preempt_help(cycle: Cycle, pool: VictimPool, gangs: Sequence[int]) -> bool:
    table = cycle.snapshot.gangs
    return any(table.priority[gang] > pool.lowest_priority(table.queue[gang]) for gang in gangs)


def _preempt_search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    gangs = cycle.snapshot.gangs
    queue, priority = gangs.queue[cause.gang], gangs.priority[cause.gang]
    if pool.lowest_priority(queue) >= priority:
        return None
    passes = filtered(cycle, cause, pool)
    below = pool.leaf(queue)
    leaves = {queue: below[pool.priority[below] < priority]}
    return Search(cycle, cause, VictimOrder(pool, leaves, passes, cause.request))


def _preempt_messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    title, evictor = cycle.snapshot.pods.title, cycle.snapshot.gangs.title(scenario.cause.gang)
    return {pod: f"Pod {title(pod)} was preempted by higher priority workload {evictor}" for pod in scenario.victims}


PREEMPT = Eviction(
    "preempt",
    lambda cycle, gang: gang not in cycle.snapshot.gangs.never_preempts,
    _preempt_search,
    _preempt_messages,
    _over_quota,
    _can_preempt_help,
    no_victims=(
        SearchToken.NO_VICTIMS,
        "its queue runs no preemptible workload of lower priority, or not enough",
    ),
    barred=(SearchToken.DISABLED, "its priority class says preemptionPolicy: Never"),
)


def consolidate(cycle: Cycle) -> None:
    if cycle.snapshot.params.max_consolidation_victims != 0:
        run(cycle, CONSOLIDATION)
    else:
        off = CONSOLIDATION.outcome(SearchToken.DISABLED, "--max-consolidation-preemptees is 0")
        cycle.reasons.passed_over[CONSOLIDATION.name] = off


_FEWER_GPUS = (SearchToken.INSUFFICIENT_GPUS, "the cluster has fewer free GPUs than the workload requests")


def _can_consolidation_help(cycle: Cycle, _: VictimPool, gangs: Sequence[int]) -> bool:
    free = _free_gpus(cycle)
    firsts = [same[0] for same in EquivalenceClasses.of(cycle).alike(cycle, gangs)]
    return any(_gpus(cycle, pods_to_place(cycle.trial, cycle.orders, gang)) <= free for gang in firsts)


def _consolidation_search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    if _gpus(cycle, cause.pods) > _free_gpus(cycle):
        return None
    passes = _movable(cycle, cause, pool)
    most = cycle.snapshot.params.max_consolidation_victims
    if most < 0:
        return Search(cycle, cause, VictimOrder(pool, dict(pool.leaves()), passes))
    sample: dict[int, list[int]] = {}
    for gang in sorted(_sample(cycle, pool, most + 1), key=cycle.gang_key, reverse=True):
        sample.setdefault(cycle.snapshot.gangs.queue[gang], []).append(gang)
    leaves = {queue: np.array(mine) for queue, mine in sample.items()}
    return Search(cycle, cause, VictimOrder(pool, leaves, passes or every_gang))


def _consolidation_ruled_out(cycle: Cycle, gang: int) -> tuple[SearchToken, str]:
    """Whether it is GPUs that lack: moves change nothing where a limit of its queue is reached, either."""
    if _gpus(cycle, pods_to_place(cycle.trial, cycle.orders, gang)) > _free_gpus(cycle):
        return _FEWER_GPUS
    return SearchToken.NO_SOLUTION, "no moves of running workloads make room for it"


def _movable(cycle: Cycle, cause: Cause, pool: VictimPool) -> Passes | None:
    """Which gangs may be moved: none that is not safe to or only in part preemptible, and none that was evicted since
    the pending gang arrived, or moves would repeat in circles.

    An evicted pod is created again and placed by the ordinary rules, which may lead it back to where it was. A gang
    that is only pipelined may be moved: no pod has to leave for it.
    """
    passes, gangs, before = filtered(cycle, cause, pool), cycle.snapshot.gangs, cycle.snapshot.pods.status
    evicted, came = gangs.last_eviction, gangs.created(cause.gang)
    fixed = gangs.immovable | gangs.semi_preemptible

    def protected(gang: int) -> bool:
        if gang in fixed:
            return True
        return gang in evicted and evicted[gang] >= came and any(IS_ACTIVE_USED[before[p]] for p in gangs.pods(gang))

    if not evicted and not fixed:
        return passes

    def may_move(rows: Rows) -> Mask:
        allowed = np.array([not protected(gang) for gang in rows.tolist()], dtype=bool)
        return allowed if passes is None else allowed & passes(rows)

    return may_move


def _evicted_since(cycle: Cycle, gang: int) -> int:
    """How many gangs were evicted since a gang arrived: where as many were, they are the same."""
    times = cycle.state(_eviction_times)
    return len(times) - bisect_left(times, cycle.snapshot.gangs.created(gang)) if times else 0


def _eviction_times(cycle: Cycle) -> list[float]:
    return sorted(cycle.snapshot.gangs.last_eviction.values())


def _gpus(cycle: Cycle, pods: Sequence[int]) -> float:
    """GPUs that pods request together, without errors of floating point."""
    classes, klass = cycle.snapshot.pods.classes, cycle.trial.klass
    return round(sum(float(classes[klass[pod]].request[GPU]) for pod in pods), 4)


def _free_gpus(cycle: Cycle) -> float:
    """Return the GPUs that are idle or releasing on ready nodes, with the free memory of shared devices in GPUs."""
    trial, ready = cycle.trial, cycle.snapshot.nodes.ready
    free = (trial.idle[GPU] + trial.releasing[GPU])[ready].sum()
    for node, shares in trial.shares.items():
        if ready[node]:
            capacity = float(cycle.snapshot.nodes.gpu_memory[node])
            free += sum((capacity - s.allocated + s.releasing) / capacity for s in shares.values() if s.used > 0)
    return round(float(free), 4)


def _sample(cycle: Cycle, pool: VictimPool, size: int) -> list[int]:
    """A few candidates from all over the cluster, other ones for each gang that asks; no pod is moved twice."""
    rings = cycle.state(_rings)
    if not rings:
        rings.append(CandidateSampler(cycle, pool))
    return rings[0].take(size, {cycle.trial.gang[pod] for pod in cycle.trial.evicted})


def _rings(_: Cycle) -> list[CandidateSampler]:
    """The ring of the cycle, made with the pool of the first gang that asks."""
    return []


def _consolidation_messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    title = cycle.snapshot.pods.title
    reason = "was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    return {pod: f"Pod {title(pod)} {reason}" for pod in scenario.victims}


CONSOLIDATION = Eviction(
    "consolidation",
    lambda cycle, gang: cycle.snapshot.gangs.preemptible[gang],
    _consolidation_search,
    _consolidation_messages,
    may_help=_can_consolidation_help,
    keep_all=True,
    distinguish=_evicted_since,
    barred=(SearchToken.NOT_PREEMPTIBLE, "workloads move only for one that is preemptible itself"),
    no_victims=_FEWER_GPUS,
    ruled_out=_consolidation_ruled_out,
)


PIECE = 1024
"""Number of gangs sorted at once: most cycles need a few hundred of many thousands."""


class CandidateSampler:
    """Candidates of consolidation in a scattered but fixed order, of which each search takes the next few.

    The order depends neither on what the candidates are or where they run, so that no node or queue is favoured, nor on
    the order of input, so that the same cluster gives the same sample.
    """

    def __init__(self, cycle: Cycle, pool: VictimPool) -> None:
        self._gangs = cycle.snapshot.gangs
        rows = pool.rows()
        self._size = len(rows)
        self._pieces = pieces(rows, pool.members.leftmost(rows))
        self._known: list[int] = []
        self._at = 0

    def take(self, count: int, without: Container[int]) -> list[int]:
        """The next gangs but for some; fewer only where there are no more."""
        chosen: list[int] = []
        for _ in range(self._size):
            if len(chosen) == count:
                break
            gang = self._next()
            if gang not in without:
                chosen.append(gang)
        return chosen

    def _next(self) -> int:
        while self._at == len(self._known):
            piece = next(self._pieces, None)
            if piece is None:
                self._at = 0
            else:
                self._known.extend(self._scattered(piece))
        self._at += 1
        return self._known[self._at - 1]

    def _scattered(self, rows: Rows) -> list[int]:
        """Gangs by a hash of when they were made, then by name."""
        gangs = self._gangs
        mixed = _mixed(np.array([int(gangs.created(row)) for row in rows.tolist()]))
        order = np.argsort(mixed, kind="stable")
        result: list[int] = rows[order].tolist()
        ranked = mixed[order]
        for start, end in runs(np.flatnonzero(ranked[1:] == ranked[:-1]).tolist()):
            result[start:end] = sorted(result[start:end], key=gangs.title)
        return result


def pieces(rows: Rows, nodes: Rows) -> Iterator[Rows]:
    """Rows cut into pieces of about the same size: those at some nodes, taken from everywhere, go together."""
    count = -(-len(rows) // PIECE)
    piece = _mixed(nodes) % np.uint64(count) if count > 1 else np.zeros(len(rows), dtype=np.uint64)
    for number in range(count):
        yield rows[piece == number]


def _mixed(numbers: Rows) -> np.ndarray:
    """A hash that scatters numbers that are close."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))
