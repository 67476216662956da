"""The parts of a live scheduler, put together on one connection and one set of watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.kube.api import Api
from pykai.kube.backoff import Backoff, ItemBackoff
from pykai.kube.clock import wall
from pykai.kube.events import EventRecorder
from pykai.kube.watches import Watches
from pykai.model.params import SchedulerParams
from pykai.observe.metrics import SCHEDULER, Metric, Metrics
from pykai.scheduler.agenda import Agenda, Rhythm
from pykai.scheduler.feed import Feed
from pykai.scheduler.hands import Colocated, Hands
from pykai.scheduler.loop import Memory, Mind, Scheduler
from pykai.scheduler.outbox import Loop, Outbox, Spacing
from pykai.scheduler.telling import Outlets, Teller
from pykai.scheduler.writer import Reach, Writer


@dataclass(frozen=True)
class Options:
    """How a scheduler runs. `selective`: ask the server only for what the partition needs (watches not shared)."""

    params: SchedulerParams = field(default_factory=SchedulerParams)
    rhythm: Rhythm = field(default_factory=Rhythm)
    reach: Reach = field(default_factory=Reach)
    backoff: Backoff = Backoff()
    spacing: Spacing = field(default_factory=Spacing)
    selective: bool = True
    metrics_namespace: str = "kai"
    more_metrics: tuple[Metric, ...] = ()
    clock: Callable[[], float] = wall


ALONE = Colocated()


class LiveScheduler:
    """A scheduler on a cluster. Make it before the watches run; `loop` carries out writes that may wait.

    `colocated` are other components in the same process.
    """

    def __init__(  # noqa: PLR0913 - the parts of a scheduler, put together here only
        self, api: Api, watches: Watches, mind: Mind, loop: Loop, options: Options, colocated: Colocated = ALONE
    ) -> None:
        steady = asyncio.get_running_loop().time
        self._api = api
        self.metrics = Metrics((*SCHEDULER, *options.more_metrics), options.metrics_namespace)
        cache, assumptions = ClusterCache(options.params), Assumptions()
        agenda = Agenda(options.rhythm, steady)
        self._outbox = Outbox(loop, steady, options.spacing)
        self._recorder = EventRecorder(api, options.params.scheduler_name, options.clock)
        outlets = Outlets(api, self._recorder, self._outbox, options.clock)

        def wanted(instant: float) -> None:
            agenda.at_latest(steady() + instant - options.clock())

        teller = Teller(outlets, cache, assumptions)
        hands = Hands(
            outlets, teller, assumptions, self.metrics, wanted, ItemBackoff(options.backoff), colocated.direct
        )
        feed = Feed(watches, cache, assumptions, agenda.heed, selective=options.selective, expected=colocated.expected)
        self.scheduler = Scheduler(mind, Memory(cache, assumptions, feed), agenda, hands, Writer(hands, options.reach))

    @property
    def params(self) -> SchedulerParams:
        """The parameters as the cluster shaped them (whether it serves DRA)."""
        return self.scheduler.params

    async def run(self, ready: asyncio.Event | None = None, takes_over: bool = False) -> None:
        """Schedule until cancelled; the watches must run beside. `ready` is set once everything is known.

        `takes_over`: another replica led before.
        """
        if takes_over:
            await self.scheduler.take_over(self._api)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._outbox.run())
            group.create_task(self.scheduler.run(ready))
