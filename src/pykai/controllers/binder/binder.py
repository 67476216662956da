"""The binder: two loops on the same watched state, one keyed by pod (bind requests), one by shared device.

Both read from the shared watches and are woken by the book; neither polls. A third writes outcomes that nobody waits
for. Loops start when the watches are complete, so the first look after a start is a look at everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from pykai.controllers.binder.book import Bells, Book, Places
from pykai.controllers.binder.direct import DirectBinder
from pykai.controllers.binder.groups import GroupKey, Key
from pykai.controllers.binder.lookup import Lookup
from pykai.controllers.binder.outcomes import Outcomes
from pykai.controllers.binder.plugins import DEFAULTS, Plugin, Tools, build_steps
from pykai.controllers.binder.requests import Requests, Rules, Sources
from pykai.controllers.binder.reservation_pod import ReservationTemplate
from pykai.controllers.binder.reservations import Reservations, Surroundings
from pykai.controllers.loop import UNMETERED, Meter, Pace, ReconcileLoop
from pykai.kube import clock
from pykai.kube.api import Api
from pykai.kube.events import EventRecorder
from pykai.kube.resources import BIND_REQUEST, NODE, POD
from pykai.kube.watches import Watches
from pykai.objects import names
from pykai.objects.kinds import BindRequest, Node, Pod

COMPONENT = "binder"

log = structlog.get_logger(COMPONENT)


@dataclass(frozen=True, slots=True)
class BinderSettings:
    """How the binder behaves; defaults are those of its command."""

    rules: Rules = field(default_factory=Rules)
    reservations: ReservationTemplate = field(default_factory=ReservationTemplate)
    scaling_namespace: str = names.SCALING_NAMESPACE
    plugins: Mapping[str, Plugin] = field(default_factory=lambda: DEFAULTS)
    pace: Pace = field(default_factory=lambda: Pace(workers=10, first_seconds=1.0, longest_seconds=60.0))


class Binder:
    """Made before its watches run, so that they are started with the others of the process.

    `meters` are told what the loops `bindrequest` and `reservation` do; `wall` gives seconds since 1970.
    `direct` is for a scheduler in the same process.
    """

    def __init__(
        self,
        api: Api,
        watches: Watches,
        settings: BinderSettings | None = None,
        meters: Mapping[str, Meter] | None = None,
        wall: Callable[[], float] = clock.wall,
    ) -> None:
        settings, meters = settings or BinderSettings(), meters or {}
        self._pace = settings.pace
        self._pods = watches.of(POD, Pod)
        self._nodes = watches.of(NODE, Node)
        self._bind_requests = watches.of(BIND_REQUEST, BindRequest)
        self._pods_loop = ReconcileLoop[Key]("bindrequest", settings.pace, meters.get("bindrequest", UNMETERED))
        self._groups_loop = ReconcileLoop[GroupKey]("reservation", settings.pace, meters.get("reservation", UNMETERED))
        self._recorder = EventRecorder(api, COMPONENT, wall)
        self._book = Book(
            self._pods, self._bind_requests, Places(settings.reservations.namespace, settings.scaling_namespace)
        )
        around = Surroundings(api, self._recorder, self._nodes, self._clock)
        self._reservations = Reservations(around, self._book, settings.reservations, self._pods_loop.add)
        self._steps = build_steps(settings.plugins, Tools(api, watches, self._pods_loop.add))
        lookup = Lookup(api, self._pods, self._nodes, self._reservations, settings.rules.allocation_seconds)
        sources = Sources(api, self._book, lookup, self._pods_loop.failures, self._clock)
        self._outcomes_loop = ReconcileLoop[Key]("bind-outcome", settings.pace)
        self._outcomes = Outcomes(api, self._recorder, wall, self._outcomes_loop.add)
        self._requests = Requests(sources, self._steps, self._outcomes, settings.rules)
        self.direct = DirectBinder(api, watches, self._outcomes)
        self._watches = watches

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Bind pods until cancelled; the watches must run beside. `ready` is set when everything is known."""
        await self._watches.synced()
        if ready is not None:
            ready.set()
        self._book.open(Bells(self._pods_loop.add, self._groups_loop.add))
        log.info("binder started", bind_requests=len(self._bind_requests), plugins=[step.name for step in self._steps])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._groups_loop.run(self._reservations.reconcile))
            group.create_task(self._pods_loop.run(self._requests.reconcile))
            group.create_task(self._outcomes_loop.run(self._outcomes.write_success))

    def _clock(self) -> float:
        timers = self._pace.timers
        return timers.time() if timers else asyncio.get_running_loop().time()
