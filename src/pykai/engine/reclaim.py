"""The reclaim action: a queue takes back its fair share from queues above theirs (spec/scheduling.md §16.7)."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.engine import evict
from pykai.engine.capacity import human
from pykai.engine.cycle import Cycle
from pykai.engine.entitlement import Claim, may_lose
from pykai.engine.line import VictimLine
from pykai.engine.order import next_request
from pykai.engine.pool import VictimPool
from pykai.engine.prospects import Prospects
from pykai.engine.quota import QueueBook
from pykai.engine.scenario import Cause, Scenario
from pykai.engine.search import Search


def reclaim(cycle: Cycle) -> None:
    evict.run(cycle, RECLAIM)


def _may(cycle: Cycle, gang: int) -> bool:
    """Whether the gang's queues stay within their fair share with it."""
    return cycle.quota is not None and cycle.quota.can_reclaim(cycle, gang, next_request(cycle, gang))


def _may_help(cycle: Cycle, _: VictimPool, gangs: Sequence[int]) -> bool:
    return any(_may(cycle, gang) for gang in gangs)


def _search(cycle: Cycle, cause: Cause, pool: VictimPool) -> Search | None:
    gangs = cycle.snapshot.gangs
    claim = Claim(gangs.queue[cause.gang], cause.request, gangs.preemptible[cause.gang])
    queues = _losing(pool, claim)
    if not queues:
        return None
    leaves = {queue: pool.leaf(queue) for queue in queues}
    line = VictimLine(pool, leaves, evict.filtered(cycle, cause, pool), cause.request)
    return Search(cycle, cause, line, Prospects(pool, cause.waiting, cause.gang) if _within_limits(pool) else None)


def _losing(pool: VictimPool, claim: Claim) -> list[int]:
    """The other leaf queues from which the claim may take something; those of a branch are alike."""
    book, branches = pool.cycle.book, pool.branches(claim.queue)[1]
    may = {-1: False}
    found = []
    for queue, branch in zip(pool.queues, branches[pool.queues].tolist(), strict=True):
        if branch not in may:
            may[branch] = may_lose(book, claim, queue)
        if may[branch]:
            found.append(queue)
    return found


def _within_limits(pool: VictimPool) -> bool:
    """Whether victims that are served first return: a queue beyond its limit may not have them back, and what they
    count against their queue must not depend on where they go."""
    return pool.cycle.counts_alike and pool.within_limits


def _messages(cycle: Cycle, scenario: Scenario) -> dict[int, str]:
    """Who lost to whom, and how the two queues stood: siblings, or the branches in which they compete."""
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
    used, quota, fair = (_amounts(x[queue]) for x in (book.allocated, book.deserved, book.fair))
    return (
        f"{book.titles[queue]} uses <{used}> with a quota of <{quota}>, "
        f"fair-share of <{fair}> and queue priority of <{book.priority[queue]}>"
    )


def _amounts(amount: tuple[float, float, float]) -> str:
    cpu, memory, gpu = amount
    return f"GPU: {human(gpu)}, CPU: {human(cpu, 1e3)} (cores), memory: {human(memory, 1e9)} (GB)"


RECLAIM = evict.Eviction("reclaim", lambda cycle, _: cycle.quota is not None, _search, _messages, _may, _may_help)
