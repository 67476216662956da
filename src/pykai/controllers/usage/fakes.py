"""Sources of past use without a database: one that answers what it was told, one that was told what queues held."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.config.usage import UsageConfig, window_seconds
from pykai.kernels.usage import Amounts, UsageRecord, normalised_use


class FakeSource:
    """Answers `answer`, or raises it."""

    def __init__(self, answer: Mapping[str, Amounts] | Exception | None = None) -> None:
        self.answer = answer or {}

    async def usage(self, now: float) -> Mapping[str, Amounts]:
        """See `UsageSource.usage`."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class HistorySource:
    """Use from records that were appended in order of time."""

    def __init__(self, config: UsageConfig) -> None:
        self._config = config
        self._records: list[UsageRecord] = []

    def append(self, record: UsageRecord) -> None:
        """Remember what is held from a moment on."""
        self._records.append(record)

    async def usage(self, now: float) -> Mapping[str, Amounts]:
        """See `UsageSource.usage`."""
        since = now - window_seconds(self._config.window, now)
        return normalised_use(self._records, since, now, self._config.half_life)
