"""Exponential backoff: the delay after a number of consecutive failures, and failure counts per item.

    backoff = Backoff(initial=1.0, maximum=60.0)
    await asyncio.sleep(backoff.after(failures))

`ItemBackoff` counts failures per item, as client-go's item exponential failure rate limiter does.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from pykai.kube import clock

_MAX_EXPONENT = 60
"""Two to this power exceeds any useful maximum; larger powers overflow."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay in seconds: `initial`, doubled for each further consecutive failure, up to `maximum`.

    `jitter` is the random part of a delay, from 0 (none) to 1 (all of it); it spreads the retries of clients that fail
    at the same time.
    """

    initial: float = 1.0
    maximum: float = 60.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.maximum:
            raise ValueError(f"0 < initial <= maximum must hold, got {self.initial} and {self.maximum}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"0 <= jitter <= 1 must hold, got {self.jitter}")

    def after(self, failures: int) -> float:
        """Return the delay after this many consecutive failures; 0 without a failure."""
        if failures < 1:
            return 0.0
        delay = min(self.maximum, self.initial * 2.0 ** min(failures - 1, _MAX_EXPONENT))
        return delay * (1.0 - self.jitter * (1.0 - clock.jitter())) if self.jitter else delay


class ItemBackoff:
    """Consecutive failures per item; the count resets after twice the maximum delay without a failure."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._failures: dict[Hashable, tuple[int, float]] = {}
        """Item -> consecutive failures and the end of its delay; the item that failed longest ago is first."""

    def failed(self, item: Hashable, now: float) -> float:
        """Count a failure of the item; return the earliest time of its next attempt."""
        self.expire(now)
        since = now - 2 * self._backoff.maximum
        before, ended = self._failures.pop(item, (0, since))
        failures = before + 1 if ended > since else 1
        until = now + self._backoff.after(failures)
        self._failures[item] = (failures, until)
        return until

    def expire(self, now: float) -> None:
        """Forget items whose counts are reset."""
        since = now - 2 * self._backoff.maximum
        while self._failures:  # from the front, so that each item costs only its own removal
            oldest, (_, until) = next(iter(self._failures.items()))
            if until > since:
                break
            del self._failures[oldest]
