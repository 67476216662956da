"""The scheduler's loop: wait until a cycle is due, decide on a copy of the cache in a thread, begin to write.

While a cycle decides, watches go on; what they bring is seen by the next one. A cycle that fails is reported and tried
again ever later; a plan the judge refuses is not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import structlog

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.engine.policy import Policy
from pykai.kube.api import Api
from pykai.kube.backoff import Backoff
from pykai.model.params import SchedulerParams
from pykai.objects.kinds import Pod
from pykai.scheduler.agenda import Agenda
from pykai.scheduler.decision import Decision, Judge, RefusedPlanError, Usage, make_decision, no_judge
from pykai.scheduler.feed import Feed
from pykai.scheduler.figures import record
from pykai.scheduler.hands import Hands
from pykai.scheduler.takeover import Takeover
from pykai.scheduler.writer import Writer

log = structlog.get_logger(component="scheduler")


def no_usage() -> Usage:
    """No history of the queues' use."""
    return {}


def unobserved(_: Decision) -> None:
    """No observer."""


@dataclass(frozen=True)
class Mind:
    """How to decide: `usage` gives the queues' use over time; `observe` sees every decision once its writes began."""

    policy: Policy
    judge: Judge = no_judge
    usage: Callable[[], Usage] = no_usage
    observe: Callable[[Decision], None] = unobserved


@dataclass(frozen=True)
class Memory:
    """What is known: the objects that were watched, how they are, and what was begun since."""

    cache: ClusterCache
    assumptions: Assumptions
    feed: Feed


class Scheduler:
    """Runs cycles. `last` is the decision of the newest one, None before the first."""

    def __init__(self, mind: Mind, memory: Memory, agenda: Agenda, hands: Hands, writer: Writer) -> None:
        self.last: Decision | None = None
        self.cycles = 0
        self._mind = mind
        self._memory = memory
        self._agenda = agenda
        self._hands = hands
        self._writer = writer
        self._failures = 0
        self._backoff = Backoff()

    @property
    def params(self) -> SchedulerParams:
        """The parameters as the cluster shaped them."""
        return self._memory.cache.params

    async def run(self, ready: asyncio.Event | None = None) -> NoReturn:
        """Schedule for ever; `ready` is set once everything is known."""
        await self._memory.feed.synced()
        if ready is not None:
            ready.set()
        self._agenda.call()
        try:
            while True:
                await self._agenda.wait()
                await self.cycle()
        finally:
            await self._writer.errands.close()

    async def take_over(self, api: Api) -> None:
        """Count what an earlier leader wrote last, even if the watch has not shown it yet."""
        await self._memory.feed.synced()
        takeover = Takeover(api, self._memory.cache, self._backoff)
        await takeover.take(self._memory.assumptions, self._hands)

    async def cycle(self) -> None:
        """One cycle: decide, and begin to write."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._agenda.begin()
        self._tidy()
        try:
            decision = await self._decide()
        except RefusedPlanError as error:
            self._hands.metrics.add("refused_plans_total")
            self._failed("plan refused", error=str(error))
        except Exception as error:  # noqa: BLE001 - a failed cycle is logged, the next one runs
            self._hands.metrics.add("failed_cycles_total")
            self._failed("cycle failed", exc_info=error)
        else:
            self._failures = 0
            self._writer.carry_out(decision)
            self._remember(decision)
        self._agenda.end(loop.time() - began)

    def _tidy(self) -> None:
        """Drop what is over before the cycle looks: requests that failed, assumptions that were not confirmed."""
        pods = self._memory.cache.of(Pod)
        self._writer.give_up(
            (request, pods.get((request.metadata.namespace, request.spec.pod_name)))
            for request in self._memory.feed.take_failed()
        )
        now, assumptions = self._hands.out.clock(), self._memory.assumptions
        self._writer.confirm(assumptions.overdue(now))
        for lost in assumptions.expire(now):
            log.warning("never seen in a watch", what=lost)
        self._memory.feed.note_installed()

    async def _decide(self) -> Decision:
        now, view = self._hands.out.clock(), self._memory.cache.copy()
        self._memory.assumptions.lay_over(view)
        mind = self._mind
        return await asyncio.to_thread(make_decision, view, mind.policy, mind.judge, now, mind.usage())

    def _remember(self, decision: Decision) -> None:
        plan, self.last = decision.plan, decision
        self.cycles += 1
        held = self._memory.assumptions.next_end()
        self._agenda.somebody_waits = bool(plan.pending or plan.nominations)
        for instant in (plan.deadline, held):
            if instant is not None:
                self._hands.wanted(instant)
        record(decision, self._hands.metrics)
        self._mind.observe(decision)
        log.debug(
            "cycle",
            took_ms=round(decision.timings.whole, 1),
            binds=len(plan.binds),
            evictions=len(plan.evictions),
            pending=plan.pending,
        )

    def _failed(self, what: str, **facts: object) -> None:
        self._failures += 1
        wait = self._backoff.after(self._failures)
        log.error(what, next_try_seconds=wait, **facts)
        self._hands.wanted(self._hands.out.clock() + wait)
