"""An asyncio event loop in virtual time: when nothing is ready, time jumps to the next timer.

Components run on it unchanged. `loop.time()`, the wall clock and the jitter of `pykai.kube.clock` are the loop's own,
work for threads runs inline, and callbacks run in the order in which they were scheduled: the same seed gives the same
run. Sockets, processes and signals are not served; a run that waits for nothing but them is an error.
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
    """How far the wall clock of some tasks is from the true one."""

    seconds: float = 0.0


_NONE = Skew()
SKEW: ContextVar[Skew] = ContextVar("SKEW")
"""The skew of the task that asks, if it has one: those it starts inherit it."""


class StalledError(RuntimeError):
    """The run can never go on: every task waits, and none for a time; or time stands still while tasks run."""


MOST_STEPS = 300_000
"""So many steps of the loop at one instant are no progress: tasks wake each other, or wait for no time at all."""
_RESOLUTION = 1e-9
"""Timers fire so much too early at most. A task that is woken before its deadline and waits for the rest must see time
pass, also where the rest is too short for the floats of the clock."""
_TIMELESS_STEPS = 2_000
"""So many steps at one instant take no time; each further one takes as much as timers are early."""


class _JumpingSelector(selectors.SelectSelector):
    """Moves `now` to where the loop would have waited."""

    now = 0.0
    steps = 0
    """Steps of the loop since time last passed."""

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
        """Virtual seconds since the loop was made."""
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function now: virtual time does not pass while it works."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


def run(main: Coroutine[Any, Any, T], start: float = 0.0, seed: int = 0) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start, seed)) as runner:
        return runner.run(main)
