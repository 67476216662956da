"""Exponential backoff: the one formula for waiting after failures, and failure counts per item.

    backoff = Backoff(initial=1.0, maximum=60.0)
    await asyncio.sleep(backoff.after(failures))

`ItemBackoff` counts the failures of each item by itself, as client-go's item exponential failure rate limiter does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pykai.kube import clock

_MAX_EXPONENT = 60
"""Beyond this power of any useful factor the maximum is reached; larger ones overflow."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait after failures in a row: `initial` times `factor` for each further failure, up to `maximum`.

    `jitter` is the part of a delay that is left to chance, from 0 (none) to 1 (all of it), so that many clients that
    failed together do not come back together. `random` gives numbers in [0, 1).
    """

    initial: float = 1.0
    maximum: float = 60.0
    factor: float = 2.0
    jitter: float = 0.0
    random: Callable[[], float] = clock.jitter

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.maximum:
            raise ValueError(f"0 < initial <= maximum must hold, got {self.initial} and {self.maximum}")
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"factor >= 1 and 0 <= jitter <= 1 must hold, got {self.factor} and {self.jitter}")

    def after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row; none after no failure."""
        if failures < 1:
            return 0.0
        delay = min(self.maximum, self.initial * self.factor ** min(failures - 1, _MAX_EXPONENT))
        return delay * (1.0 - self.jitter * (1.0 - self.random())) if self.jitter else delay


class ItemBackoff:
    """Failures in a row per item. An item without a failure for twice the maximum delay starts anew."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._failures: dict[Hashable, tuple[int, float]] = {}
        """Item -> failures in a row, and the end of the newest delay; the one that failed longest ago is first."""

    def failed(self, item: Hashable, now: float) -> float:
        """Count a failure of the item; returns the instant before which there should be no other attempt."""
        since = now - 2 * self._backoff.maximum
        self._forget(since)
        before, ended = self._failures.pop(item, (0, since))
        failures = before + 1 if ended > since else 1
        until = now + self._backoff.after(failures)
        self._failures[item] = (failures, until)
        return until

    def _forget(self, since: float) -> None:
        """Drop items whose delay ended so long ago, up to the first that did not: each costs its own removal alone."""
        while self._failures:
            item, (_, until) = next(iter(self._failures.items()))
            if until > since:
                break
            del self._failures[item]
