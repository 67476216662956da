"""The data behind the pages: decided moments of a cluster, and its history.

A board has one moment (a snapshot file), the latest one (a live cluster) or a selection (a simulation). Pages only
read it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import msgspec

from pykai.cache.cluster import KINDS, ClusterCache
from pykai.explain.device_map import DeviceMap, device_map
from pykai.explain.source import Decided
from pykai.explain.views import EvictionView, Overview
from pykai.model.plan import Key

MOST_SAMPLES = 720
MOST_EVICTIONS = 5_000


class QueueUse(msgspec.Struct, frozen=True, rename="camel"):
    """GPUs of a queue at one time; -1 is unlimited."""

    allocated: float
    fair_share: float
    quota: float
    requested: float


class BoardSample(msgspec.Struct, frozen=True, rename="camel"):
    """All queues at one time, in seconds since the epoch. `gpus`: the GPUs of the cluster."""

    at: float
    gpus: float
    queues: Mapping[str, QueueUse]


class HistoryLine(msgspec.Struct, frozen=True, rename="camel"):
    """One entry in a workload's history."""

    at: float
    what: str
    message: str = ""
    pod: str = ""


class DecidedMoment:
    """A decided state; derived values are computed once, on first access."""

    def __init__(self, decided: Decided, revision: int = 0) -> None:
        self.decided = decided
        self.revision = revision
        self.questions = Lock()

    @property
    def at(self) -> float:
        return self.decided.now

    @cached_property
    def overview(self) -> Overview:
        return Overview(self.decided)

    @cached_property
    def devices(self) -> DeviceMap:
        return device_map(self.decided.snapshot)

    @cached_property
    def own(self) -> Decided:
        """Return the same state with its own copy of the cache, for requests to the engine.

        Copies share decoded objects, and only one may create a snapshot at a time: hold `questions` while using it.
        """
        found = ClusterCache(self.decided.cache.params)
        for kind in KINDS:
            found.load(self.decided.cache.of(kind).values())
        return replace(self.decided, cache=found)

    @cached_property
    def sample(self) -> BoardSample:
        """Return the queues of this moment."""
        uses = {
            queue.name: QueueUse(queue.allocated.gpu, queue.fair_share.gpu, queue.quota.gpu, queue.requested.gpu)
            for queue in self.overview.queues
        }
        return BoardSample(self.at, self.devices.totals.gpus, uses)


class Samples:
    """Samples over time. At the limit, every second sample of the older half is dropped."""

    def __init__(self) -> None:
        self._kept: list[BoardSample] = []

    def add(self, sample: BoardSample) -> None:
        self._kept.append(sample)
        if len(self._kept) > MOST_SAMPLES:
            half = len(self._kept) // 2
            self._kept = self._kept[:half:2] + self._kept[half:]

    def all(self) -> Sequence[BoardSample]:
        return tuple(self._kept)


@dataclass(frozen=True)
class Title:
    """The title of a board: `kind` is live, snapshot or simulation, `name` a file, a context or a directory."""

    kind: str
    name: str


class Board:
    """A board of one moment, and the base class of the others. `changed` is notified of newer revisions."""

    def __init__(self, title: Title, moment: DecidedMoment | None = None) -> None:
        self.title = title
        self.problems: tuple[str, ...] = ()
        """Return why the newest moment may be outdated or is missing."""
        self._moment = moment
        self._evictions: deque[EvictionView] = deque(maxlen=MOST_EVICTIONS)
        self._waiters: set[asyncio.Event] = set()

    async def run(self) -> None:
        """Keep the board up to date until cancelled; only a live one changes."""
        await asyncio.Event().wait()

    @property
    def moments(self) -> Sequence[float]:
        """Return the selectable times, in seconds since the epoch."""
        return () if self._moment is None else (self._moment.at,)

    def moment(self, at: float | None = None) -> DecidedMoment | None:
        """Return the moment at a time, or the latest one; None before the first."""
        return self._moment

    def samples(self) -> Sequence[BoardSample]:
        """Return the samples of all queues, oldest first."""
        return () if self._moment is None else (self._moment.sample,)

    def evictions(self, until: float | None = None) -> Sequence[EvictionView]:
        """Return past evictions, newest first; for a snapshot file those of its plan."""
        return () if self._moment is None else self._moment.overview.evictions

    def history(self, gang: Key, until: float | None = None) -> Sequence[HistoryLine]:
        """Return the history of a workload, oldest first."""
        return () if self._moment is None else from_object(self._moment, gang)

    async def newer_than(self, revision: int) -> int:
        """Wait for a newer revision and return it."""
        woken = asyncio.Event()
        self._waiters.add(woken)
        try:
            while True:
                current = self._moment.revision if self._moment else 0
                if current > revision:
                    return current
                await woken.wait()
                woken.clear()
        finally:
            self._waiters.discard(woken)

    def show(self, moment: DecidedMoment) -> None:
        """Replace the moment by a newer one."""
        self._moment = moment
        for woken in self._waiters:
            woken.set()


def from_object(moment: DecidedMoment, gang: Key) -> list[HistoryLine]:
    """Return the history that the PodGroup itself records: creation, last start, last eviction, staleness."""
    gangs = moment.decided.snapshot.gangs
    row = gangs.rows_of([gang]).get(gang)
    if row is None:
        return []
    found = [HistoryLine(gangs.created(row), "Created")]
    if (started := gangs.last_start(row)) is not None:
        found.append(HistoryLine(started, "Started", "All its required pods were bound."))
    if (evicted := gangs.last_eviction.get(row)) is not None:
        found.append(HistoryLine(evicted, "Evicted"))
    if (stale := gangs.stale_since.get(row)) is not None:
        found.append(HistoryLine(stale, "Stale", "Fewer pods run than its minimum."))
    return sorted(found, key=lambda each: each.at)


class RecordedBoard(Board):
    """The board of a finished run, with many moments.

    `history`: the entries of each workload, by namespace and name of its PodGroup.
    """

    def __init__(
        self,
        title: Title,
        moments: Sequence[DecidedMoment],
        samples: Iterable[BoardSample],
        evictions: Iterable[EvictionView] = (),
        history: Callable[[Key], Sequence[HistoryLine]] = lambda _: (),
    ) -> None:
        super().__init__(title, moments[-1] if moments else None)
        self._moments = list(moments)
        self._instants = [moment.at for moment in moments]
        self._samples = tuple(samples)
        self._evictions.extend(sorted(evictions, key=lambda each: -each.at))
        self._history = history

    @property
    def moments(self) -> Sequence[float]:
        return self._instants

    def moment(self, at: float | None = None) -> DecidedMoment | None:
        if at is None or not self._moments:
            return self._moment
        return self._moments[max(bisect_right(self._instants, at + 1e-3) - 1, 0)]

    def samples(self) -> Sequence[BoardSample]:
        return self._samples

    def evictions(self, until: float | None = None) -> Sequence[EvictionView]:
        return [each for each in self._evictions if until is None or each.at <= until]

    def history(self, gang: Key, until: float | None = None) -> Sequence[HistoryLine]:
        return [each for each in self._history(gang) if until is None or each.at <= until]
