"""What queues have held since the run began, told to the scheduler as a usage database would tell it.

A live scheduler asks its database every fetch interval and works with the last answer in between; so does this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pykai.config.usage import UsageConfig, window_seconds
from pykai.kernels.usage import UsageRecord, normalised_use
from pykai.sim.history import Sample, Triple


class PastUse:
    """The past of one run; `start`: when it began, seconds since the epoch."""

    def __init__(self, config: UsageConfig, start: float) -> None:
        self._config = config
        self._start = start
        self._records: list[UsageRecord] = []
        self._fetched: float | None = None
        self._answer: Mapping[str, Triple] = {}

    def record(self, now: float, sample: Sample) -> None:
        """From now on the queues hold what the sample says."""
        held = {name: queue.allocated for name, queue in sample.queues.items()}
        last = self._records[-1] if self._records else None
        if last is None or (last.capacity, last.allocated) != (sample.capacity, held):
            self._records.append(UsageRecord(now, sample.capacity, held))

    def current(self, now: float) -> Mapping[str, Triple]:
        """Each queue's use in the window (1.0: the whole cluster, all the time), as it was at the last fetch."""
        interval = self._config.fetch_interval
        due = self._start + math.floor((now - self._start) / interval) * interval
        if self._fetched != due:
            self._fetched, self._answer = due, self._fetch(due)
        return self._answer

    def _fetch(self, now: float) -> Mapping[str, Triple]:
        since = now - window_seconds(self._config.window, now)
        passed = sum(record.at <= since for record in self._records)
        del self._records[: max(passed - 1, 0)]
        return normalised_use(self._records, since, now, self._config.half_life)
