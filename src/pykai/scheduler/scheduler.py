"""The scheduling loop and its assembly: wait until a cycle is due, decide in a thread, start the writes.

A cycle decides on a copy of the cache; watch events that arrive meanwhile are seen by the next cycle. A failed cycle
is logged and retried with backoff; a plan that the judge rejects is not written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NoReturn

import structlog

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.engine.policy import Policy
from pykai.kube.api import Api
from pykai.kube.backoff import Backoff, ItemBackoff
from pykai.kube.clock import steady, wall
from pykai.kube.events import EventRecorder
from pykai.kube.informer import InformerFactory
from pykai.kube.workqueue import ReconcileLoop
from pykai.model.params import SchedulerParams
from pykai.model.plan import Key, Plan, Verdict
from pykai.objects.kinds import Pod
from pykai.observe.metrics import SCHEDULER, WORKLOAD_EVICTIONS, Metric, Metrics
from pykai.scheduler.binds import DirectBind, Takeover, WriterContext
from pykai.scheduler.cycle_metrics import record
from pykai.scheduler.decision import Decision, Judge, RefusedPlanError, SearchBackoff, Usage, make_decision, no_judge
from pykai.scheduler.group_membership import ExpectedGroups
from pykai.scheduler.informers import Informers
from pykai.scheduler.queueing_hints import CycleTrigger, Debounce
from pykai.scheduler.status_updater import Spacing, StatusUpdater, WriteAccess, WriteQueue
from pykai.scheduler.writer import Writer

log = structlog.get_logger(component="scheduler")


def no_usage() -> Usage:
    """Return no historical usage."""
    return {}


def unobserved(_: Decision) -> None:
    """Ignore the decision."""


@dataclass(frozen=True)
class Policies:
    """How to decide. `usage` returns the queues' past usage; `observe` gets every decision once its writes started."""

    policy: Policy
    judge: Judge = no_judge
    usage: Callable[[], Usage] = no_usage
    observe: Callable[[Decision], None] = unobserved


@dataclass(frozen=True)
class SchedulerOptions:
    """How a scheduler runs. `selective`: list and watch only the objects of the partition (informers not shared)."""

    params: SchedulerParams = field(default_factory=SchedulerParams)
    debounce: Debounce = field(default_factory=Debounce)
    backoff: Backoff = Backoff()
    spacing: Spacing = field(default_factory=Spacing)
    selective: bool = True
    metrics_namespace: str = "kai"
    more_metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True)
class Colocated:
    """Other components in the same process: the binder and the groups its pod grouper expects; None if not there."""

    direct: DirectBind | None = None
    expected: ExpectedGroups | None = None


ALONE = Colocated()


class Scheduler:
    """A scheduler on a cluster. Create it before the informers run; `loop` runs the low-priority writes.

    `colocated` are the other components in the same process. `last` is the decision of the latest cycle, None before
    the first.
    """

    def __init__(  # noqa: PLR0913 - the parts of a scheduler, put together here only
        self,
        api: Api,
        watches: InformerFactory,
        policies: Policies,
        loop: ReconcileLoop[Hashable],
        options: SchedulerOptions,
        colocated: Colocated = ALONE,
    ) -> None:
        params = options.params
        self.last: Decision | None = None
        self.cycles = 0
        of_evictions = WORKLOAD_EVICTIONS if params.workload_eviction_metrics else ()
        self.metrics = Metrics((*SCHEDULER, *of_evictions, *options.more_metrics), options.metrics_namespace)
        self._api, self._policies = api, policies
        self._cache, self._assumptions = ClusterCache(params), Assumptions()
        self._trigger = trigger = CycleTrigger(options.debounce)
        self._informers = Informers(
            watches,
            self._cache,
            self._assumptions,
            trigger.hint,
            selective=options.selective,
            expected=colocated.expected,
        )
        self._queue = WriteQueue(loop, options.spacing)
        self._recorder = EventRecorder(api, params.scheduler_name)

        def request_cycle(instant: float) -> None:
            trigger.request_by(steady() + instant - wall())

        access = WriteAccess(api, self._recorder, self._queue)
        status, backoff = StatusUpdater(access, self._cache, self._assumptions), ItemBackoff(options.backoff)
        self._context = WriterContext(
            access, status, self._assumptions, self.metrics, request_cycle, backoff, colocated.direct
        )
        self._writer = Writer(self._context)
        self._failures, self._backoff = 0, Backoff()
        self._logged: dict[Key, Verdict] = {}
        self._search_backoff = SearchBackoff(policies.policy.budgets)

    @property
    def params(self) -> SchedulerParams:
        """The parameters, with what was discovered from the cluster (whether it serves DRA)."""
        return self._cache.params

    async def run(self, ready: asyncio.Event | None = None, takes_over: bool = False) -> None:
        """Schedule until cancelled while the informers run; set `ready` once they have synced.

        `takes_over`: another replica was leader before, whose last writes the watches may not show yet.
        """
        if takes_over:
            await self._informers.synced()
            await Takeover(self._api, self._cache, self._backoff).take(self._assumptions, self._context)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._queue.run())
            group.create_task(self._run_cycles(ready))

    async def _run_cycles(self, ready: asyncio.Event | None) -> NoReturn:
        await self._informers.synced()
        if ready is not None:
            ready.set()
        self._trigger.request()
        try:
            while True:
                await self._trigger.wait()
                await self.cycle()
        finally:
            await self._writer.in_flight.close()

    async def cycle(self) -> None:
        """Run one cycle: decide and start the writes."""
        began = steady()
        self._trigger.begin()
        self._tidy()
        policies = self._policies
        try:
            now, view = wall(), self._cache.copy()
            self._assumptions.lay_over(view)
            held, usage = self._search_backoff.held(now), policies.usage()
            decision = await asyncio.to_thread(
                make_decision, view, policies.policy, policies.judge, now, usage, backoff=held
            )
        except RefusedPlanError as error:
            self._context.metrics.add("refused_plans_total")
            self._failed("plan refused", error=str(error))
        except Exception as error:  # noqa: BLE001 - a failed cycle is logged, the next one runs
            self._context.metrics.add("failed_cycles_total")
            self._failed("cycle failed", exc_info=error)
        else:
            self._failures = 0
            self._writer.carry_out(decision)
            self._remember(decision)
        self._trigger.end(steady() - began)

    def _tidy(self) -> None:
        """Before a cycle, delete failed bind requests and drop what has expired: unconfirmed assumptions, failures."""
        pods = self._cache.of(Pod)
        self._writer.delete_failed(
            (request, pods.get((request.metadata.namespace, request.spec.pod_name)))
            for request in self._informers.take_failed()
        )
        self._informers.note_observed_pods()
        now, assumptions = wall(), self._assumptions
        self._writer.confirm(assumptions.overdue(now))
        for lost in assumptions.expire(now):
            log.warning("assumption expired unconfirmed", object=lost)
        self._informers.note_installed()
        self._context.backoff.expire(now)

    def _remember(self, decision: Decision) -> None:
        plan, self.last = decision.plan, decision
        self.cycles += 1
        held = self._assumptions.next_end()
        searched_again = self._search_backoff.note(plan, decision.snapshot.observed_at)
        self._trigger.pods_wait = bool(plan.pending or plan.nominations)
        for instant in (plan.deadline, held, searched_again):
            if instant is not None:
                self._context.request_cycle(instant)
        record(decision, self._context.metrics)
        self._policies.observe(decision)
        self._log_verdicts(plan)
        log.debug(
            "cycle",
            took_ms=round(decision.timings.whole, 1),
            binds=len(plan.binds),
            evictions=len(plan.evictions),
            pending=plan.pending,
        )

    def _log_verdicts(self, plan: Plan) -> None:
        """At `-v 4` and above, log why each considered gang is pending, whenever that changes."""
        if not log.is_enabled_for(logging.DEBUG):
            return
        waiting = {verdict.gang: verdict for verdict in plan.verdicts}
        for gang, verdict in waiting.items():
            if self._logged.get(gang) != verdict:
                reason = " ".join((verdict.not_ready or verdict.message).split())
                pods = [name for _, name in verdict.pods]
                log.debug("gang waits", gang="/".join(gang), pods=pods, ready=verdict.ready, reason=reason)
        for gang in self._logged.keys() - waiting.keys():
            log.debug("gang does not wait any more", gang="/".join(gang))
        self._logged = waiting

    def _failed(self, what: str, **facts: object) -> None:
        self._failures += 1
        wait = self._backoff.after(self._failures)
        log.error(what, next_try_seconds=wait, **facts)
        self._context.request_cycle(wall() + wait)
