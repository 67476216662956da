"""What queues have held since the run began, as a usage database would answer."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.config.usage import UsageConfig, window_seconds
from pykai.kernels.fairshare import UsageRecord, normalised_use
from pykai.simulate.history import Sample, Triple


class PastUse:
    """The past of one run: a usage source of the scheduler."""

    def __init__(self, config: UsageConfig) -> None:
        self._config = config
        self._records: list[UsageRecord] = []

    def record(self, now: float, sample: Sample) -> None:
        """From `now` (seconds since 1970) on the queues hold what the sample says."""
        held = {name: queue.allocated for name, queue in sample.queues.items()}
        last = self._records[-1] if self._records else None
        if last is None or (last.capacity, last.allocated) != (sample.capacity, held):
            self._records.append(UsageRecord(now, sample.capacity, held))

    async def usage(self, now: float) -> Mapping[str, Triple]:
        """Each queue's use in the window that ends at `now` (1.0: the whole cluster, all the time)."""
        since = now - window_seconds(self._config.window, now)
        passed = sum(record.at <= since for record in self._records)
        del self._records[: max(passed - 1, 0)]
        return normalised_use(self._records, since, now, self._config.half_life)
