"""Looks after an external Prometheus: asks it now and then whether it answers, and says so when that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykai.objects.config_kinds import HealthProbe, Prometheus

Ping = Callable[[str, float], Awaitable[str]]
"""(address, seconds to wait) -> what went wrong, empty if it answered."""


class DatabaseProbe:
    """`outcome` is what the last look gave: None before the first and without a target, empty when all is well."""

    def __init__(self, ping: Ping, changed: Callable[[], None]) -> None:
        self.outcome: str | None = None
        self._ping = ping
        self._changed = changed
        self._target: tuple[str, HealthProbe] | None = None
        self._aimed = asyncio.Event()

    def aim(self, asked: Prometheus | None) -> None:
        """Look after this one from now on; None, or one that is ours, ends it."""
        external = asked is not None and asked.enabled and asked.external_prometheus_url
        target = (asked.external_prometheus_url, asked.external_prometheus_health_probe) if asked and external else None
        if target != self._target:
            self._target, self.outcome = target, None
            self._aimed.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            target = self._target
            self._aimed.clear()
            if target is not None:
                outcome = await self._look(*target)
                if target == self._target and outcome != self.outcome:
                    self.outcome = outcome
                    self._changed()
            await self._rest(target[1].interval if target else None)

    async def _look(self, url: str, how: HealthProbe) -> str:
        """What went wrong after all tries; each waits a second longer than the one before."""
        outcome = ""
        for attempt in range(1, max(how.max_retries, 1) + 1):
            outcome = await self._ping(f"{url.rstrip('/')}/api/v1/status/config", how.timeout)
            if not outcome or attempt == max(how.max_retries, 1):
                break
            await asyncio.sleep(attempt)
        return outcome

    async def _rest(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._aimed.wait()
        except TimeoutError:
            pass
