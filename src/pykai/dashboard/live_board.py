"""A board of a live cluster: read-only informers fill a scheduler cache, on which plans are decided.

Nothing is listed twice and nothing is written. The board decides after changes, at most twice a second and with at most
a quarter of a core; searches have the scheduler's own time limits.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import structlog

from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.config import scheduler_config
from pykai.dashboard.board import (
    MOST_EVICTIONS,
    Board,
    BoardSample,
    DecidedMoment,
    HistoryLine,
    Samples,
    Title,
    from_object,
)
from pykai.engine.decide import decide
from pykai.explain.live_cluster import SchedulerSetting
from pykai.explain.source import Decided
from pykai.explain.views import EvictionView
from pykai.kube.api import Api, Object, Selection
from pykai.kube.api_resources import EVENT, NODE, POD, POD_GROUP, QUEUE
from pykai.kube.clock import wall
from pykai.kube.informer import InformerFactory, SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.model.plan import Key
from pykai.objects import names
from pykai.objects.kinds import PodGroup
from pykai.objects.units import parse_timestamp
from pykai.plugins import registry
from pykai.scheduler.informers import SOURCES, Informers, selection
from pykai.scheduler.process_memory import gc_disabled

POLL_SECONDS = 0.2
"""The time between checks for changes."""
PAUSE_FACTOR = 3.0
"""Seconds of pause per second of a decision."""
MIN_PAUSE = 0.4
SAMPLE_SECONDS = 5.0
SYNC_TIMEOUT_SECONDS = 10.0
"""How long to wait for optional kinds to sync."""
NEEDED = (NODE, POD, QUEUE, POD_GROUP)
MOST_EVENTS = 200
_EVICTED_POD = re.compile(r"(?:^Pod |pod: )(\S+)/(\S+)")

log = structlog.get_logger(component="dashboard")


class LiveBoard(Board):
    """The board of a live cluster, updated by `run`."""

    def __init__(self, title: Title, api: Api, setting: SchedulerSetting) -> None:
        super().__init__(title)
        self._gpu_sharing_mode = setting.gpu_sharing_mode
        self._policy = scheduler_config.policy(setting.config, registry.make, registry.BUILT_IN)
        params = scheduler_config.params_for(self._policy, setting.params)
        self.problems = self._notes = setting.notes
        self._watches = InformerFactory(api)
        self._cache = ClusterCache(params)
        self._informers = Informers(self._watches, self._cache, Assumptions(), lambda _: None)
        self._kinds: list[SharedInformer[Any]] = [
            self._watches.of(source.resource, source.kind, selection(source, params, True), optional=source.optional)
            for source in SOURCES
            if params.schedule_csi_storage or not source.for_csi
        ]
        self._events: SharedInformer[Object] = self._watches.of(
            EVENT, Object, Selection(fields=f"involvedObject.kind={POD_GROUP.kind}"), optional=True
        )
        self._events.subscribe(self._event_changed)
        self._recorded: dict[str, EvictionView] = {}
        self._by_gang: dict[Key, dict[str, HistoryLine]] = {}
        self._samples = Samples()
        self._last_sample = 0.0
        self._since = 0
        """Events since the last moment: they change pages, too."""

    async def run(self) -> None:
        """Follow the cluster until cancelled; raise the error that ends an informer, such as rejected credentials."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watches.run())
                await self._wait_for_sync()
                await self._decide_on_changes()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def first(self) -> DecidedMoment:
        """Return the first moment; `run` must be running."""
        await self.newer_than(0)
        moment = self.moment()
        assert moment is not None
        return moment

    async def _wait_for_sync(self) -> None:
        """Wait until all required kinds have synced; report optional kinds that cannot be listed."""
        began = asyncio.get_running_loop().time()
        while True:
            missing = [kind for kind in self._kinds if not kind.alive]
            in_time = asyncio.get_running_loop().time() - began < SYNC_TIMEOUT_SECONDS
            if not missing or (not in_time and not any(kind.resource in NEEDED for kind in missing)):
                break
            self._update_problems()
            await asyncio.sleep(POLL_SECONDS)
        self._informers.note_installed()
        self._update_problems()

    def _update_problems(self) -> None:
        lost = tuple(f"Not known: {kind.problem}" for kind in self._kinds if not kind.alive and kind.problem)
        found = (*self._notes, *lost)
        if found != self.problems:
            self.problems = found

    async def _decide_on_changes(self) -> NoReturn:
        seen, number = -1, 0
        while True:
            stamp = self._cache.revision + self._since
            self._update_problems()
            if stamp == seen:
                await asyncio.sleep(POLL_SECONDS)
                continue
            seen, number = stamp, number + 1
            self._informers.note_installed()
            view, now, began = self._cache.copy(), wall(), time.monotonic()
            try:
                moment = await asyncio.to_thread(self._decided, view, now, number)
            except Exception as error:
                log.warning("not decided", exc_info=error)
                self.problems = (f"The newest state could not be decided on: {error}",)
            else:
                if moment.at - self._last_sample >= SAMPLE_SECONDS:
                    self._last_sample = moment.at
                    self._samples.add(moment.sample)
                self.show(moment)
            await asyncio.sleep(max(MIN_PAUSE, PAUSE_FACTOR * (time.monotonic() - began)))

    @gc_disabled()
    def _decided(self, cache: ClusterCache, now: float, number: int) -> DecidedMoment:
        """Decide on a copy of the cache and compute what every page needs; runs in a thread."""
        taken = cache.snapshot(now)
        plan = decide(taken, self._policy, now, time.monotonic)
        decided = Decided(taken, plan, self._policy, now, cache, gpu_sharing_mode=self._gpu_sharing_mode)
        moment = DecidedMoment(decided, number)
        moment.sample  # noqa: B018 - queues and devices are computed here, not on the event loop
        return moment

    # ------------------------------------------------------------------------------------------------------------ past
    def samples(self) -> tuple[BoardSample, ...]:
        newest = self._moment.sample if self._moment else None
        kept = tuple(self._samples.all())
        return (*kept, newest) if newest is not None and (not kept or newest.at > kept[-1].at) else kept

    def evictions(self, until: float | None = None) -> tuple[EvictionView, ...]:
        return tuple(sorted(self._recorded.values(), key=lambda each: (-each.at, each.namespace, each.pod)))

    def history(self, gang: Key, until: float | None = None) -> list[HistoryLine]:
        known = from_object(self._moment, gang) if self._moment else []
        return sorted([*known, *self._by_gang.get(gang, {}).values()], key=lambda each: each.at)

    def _event_changed(self, change: WatchChange[Object]) -> None:
        """Record an event of a PodGroup; the API server forgets it after an hour, the board keeps it."""
        event, name = change.object, "/".join(change.key)
        about = event.get("involvedObject") or {}
        at = parse_timestamp(event.get("lastTimestamp") or event.get("eventTime")) or 0.0
        gang = about.get("namespace", ""), about.get("name", "")
        text = " ".join(str(event.get("message", "")).split())
        self._since += 1
        lines = self._by_gang.setdefault(gang, {})
        lines[name] = HistoryLine(at, str(event.get("reason", "")), text)
        while len(lines) > MOST_EVENTS:
            del lines[next(iter(lines))]
        if event.get("reason") == "Evict":
            self._recorded[name] = self._eviction(event, at, gang, text)
            while len(self._recorded) > MOST_EVICTIONS:
                del self._recorded[next(iter(self._recorded))]

    def _eviction(self, event: Object, at: float, gang: Key, text: str) -> EvictionView:
        annotations: Mapping[str, str] = (event.get("metadata") or {}).get("annotations") or {}
        pod = _EVICTED_POD.search(text)
        started = parse_timestamp(annotations.get(names.EVICTED_STARTED))
        evictor = annotations.get(names.EVICTOR_NAMESPACE, ""), annotations.get(names.EVICTOR_NAME, "")
        evicting = self._cache.of(PodGroup).get(evictor)
        return EvictionView(
            at=at,
            namespace=gang[0],
            pod=pod[2].rstrip(".") if pod else gang[1],
            workload=gang[1],
            queue=annotations.get(names.EVICTED_QUEUE, ""),
            action=annotations.get(names.EVICTOR_ACTION, ""),
            message=text,
            evictor_namespace=evictor[0],
            evictor=evictor[1],
            evictor_queue=evicting.spec.queue if evicting is not None else "",
            node=annotations.get(names.EVICTED_NODE, ""),
            gpus=_number(annotations.get(names.EVICTED_GPUS)) or 0.0,
            ran=None if started is None else max(at - started, 0.0),
        )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
