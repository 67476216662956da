"""An asyncio event loop in virtual time: when nothing is ready, time advances to the next timer.

Components run on it unchanged. The loop provides `loop.time()`, the wall clock and the jitter of `pykai.kube.clock`;
executor calls run inline, and callbacks run in the order in which they were scheduled, so that the same seed gives the
same run. Sockets, processes and signals are not supported; a run that waits only for them is an error.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from pykai.kube.clock import Clock

T = TypeVar("T")


@dataclass
class Skew:
    """The offset of the wall clock of some tasks from the loop's."""

    seconds: float = 0.0


_NONE = Skew()
SKEW: ContextVar[Skew] = ContextVar("SKEW")
"""The skew of the current task, inherited by tasks it starts; by default none."""


class StalledError(RuntimeError):
    """The run is stuck: all tasks wait without a timer, or tasks run without time advancing."""


MOST_STEPS = 300_000
"""Loop iterations at the same time that count as a livelock."""
_RESOLUTION = 1e-9
"""How early timers may fire, in seconds. A task that wakes before its deadline and waits for the remainder must see
time advance, even if the remainder is below the precision of a float."""
_TIMELESS_STEPS = 2_000
"""Loop iterations that take no time; each further one advances time by `_RESOLUTION`."""


class _JumpingSelector(selectors.SelectSelector):
    """Advances `now` by the time that the loop would have waited."""

    now = 0.0
    steps = 0
    """Loop iterations since time last advanced."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StalledError("every task waits, and none for a time")
        self.steps = self.steps + 1 if timeout <= 0.0 else 0
        if self.steps > MOST_STEPS:
            self.steps = 0
            raise StalledError(f"time stands still at {self.now:g} s: tasks run, and none waits for a time")
        self.now += max(timeout, _RESOLUTION if self.steps > _TIMELESS_STEPS else 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Seconds count from 0; the wall clock begins at `start` (seconds since 1970), jitter comes from `seed`."""

    def __init__(self, start: float = 0.0, seed: int = 0) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = _RESOLUTION
        self.clock = Clock(
            lambda: start + self._jumping.now + SKEW.get(_NONE).seconds, self.time, Random(f"{seed}/jitter").random
        )

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function now; it takes no virtual time."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


def run(main: Coroutine[Any, Any, T], start: float = 0.0, seed: int = 0) -> T:
    """Run a coroutine to its end in virtual time.

    Its result is no task's: asyncio formats that, whatever its size, when it takes its signal handler back.
    """
    results: list[T] = []

    async def run_main() -> None:
        results.append(await main)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start, seed)) as runner:
        runner.run(run_main())
    return results[0]
