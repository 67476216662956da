"""Sources of past use without a database: one that answers what it was told, one that remembers samples.

The second is what simulations over time use: allocations go in as time passes, use comes out, weighted and windowed as
Prometheus would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykai.controllers.usage.config import UsageConfig
from pykai.controllers.usage.queries import window_seconds

Amounts = tuple[float, float, float]
"""(cpu, memory, gpu)"""


class FakeSource:
    """Answers `answer`, or raises it."""

    def __init__(self, answer: Mapping[str, Amounts] | Exception | None = None) -> None:
        self.answer = answer or {}

    async def usage(self, now: float) -> Mapping[str, Amounts]:
        """See `UsageSource.usage`."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass(frozen=True)
class Sample:
    """What queues held of which capacity at one moment (seconds since 1970)."""

    at: float
    capacity: Amounts
    allocated: Mapping[str, Amounts] = field(default_factory=dict)


class HistorySource:
    """Use from samples that were appended in order of time."""

    def __init__(self, config: UsageConfig) -> None:
        self._config = config
        self._samples: list[Sample] = []

    def append(self, sample: Sample) -> None:
        """Remember what was held at a moment."""
        self._samples.append(sample)

    async def usage(self, now: float) -> Mapping[str, Amounts]:
        """See `UsageSource.usage`."""
        begin = now - window_seconds(self._config.window, now)
        weighted = [(self._weight(now - each.at), each) for each in self._samples if begin < each.at <= now]
        capacity = [sum(weight * each.capacity[at] for weight, each in weighted) for at in range(3)]
        queues = {queue for _, each in weighted for queue in each.allocated}
        return {queue: self._share(queue, weighted, capacity) for queue in sorted(queues)}

    def _share(self, queue: str, weighted: list[tuple[float, Sample]], capacity: list[float]) -> Amounts:
        nothing = (0.0, 0.0, 0.0)
        held = [sum(weight * each.allocated.get(queue, nothing)[at] for weight, each in weighted) for at in range(3)]
        cpu, memory, gpu = (part / whole if whole else 0.0 for part, whole in zip(held, capacity, strict=True))
        return cpu, memory, gpu

    def _weight(self, age: float) -> float:
        half_life = self._config.half_life
        return 1.0 if half_life is None else float(0.5 ** (age / half_life))
