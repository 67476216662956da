"""The one reconcile loop: keys go in, each key is worked on by one run at a time, failures are tried again ever later.

    loop = ReconcileLoop[tuple[str, str]]("binder", Pace(workers=10, first_seconds=1.0))
    watch.subscribe(lambda change: loop.add(change.key))
    await loop.run(reconcile)            # async (key) -> None, or seconds after which to look at the key again

Invariants
* A key is never in two runs at once. Added while it runs, it runs once more afterwards, however often it was added;
  added while it waits, it runs once, at the earliest of the times asked for.
* A run that raises counts as a failure of its key: the next run comes after a wait that doubles with every failure in a
  row, and news about the key do not shorten it (`forget` does). A run that returns forgets the failures.
* Nothing polls: without keys the loop costs nothing. Time comes from `Pace.timers`, chance from `Pace.jitter`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from pykai.kube import clock
from pykai.kube.errors import ApiError, Conflict

K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]

log = structlog.get_logger()


class RetryLater(Exception):  # noqa: N818 - it says what to do
    """What a run needs is not there yet: a failure like any other, told in one line."""


class Timer(Protocol):
    """A call that was booked for later."""

    def cancel(self) -> None:
        """Do not make the call."""
        ...


class Timers(Protocol):
    """A clock that can call back; an asyncio event loop is one. Times are seconds on a scale of its own."""

    def time(self) -> float:
        """Now."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Call `callback` at `when`."""
        ...


class Meter(Protocol):
    """Told what a loop does, for metrics; `result` is one of `success`, `requeue_after` and `error`."""

    def depth(self, ready: int, running: int) -> None:
        """How many keys wait for a worker, and how many are worked on."""
        ...

    def started(self, waited_seconds: float) -> None:
        """A run begins, of a key that was ready for so long."""
        ...

    def finished(self, took_seconds: float, result: str) -> None:
        """A run ended."""
        ...


class _Unmetered:
    def depth(self, ready: int, running: int) -> None: ...
    def started(self, waited_seconds: float) -> None: ...
    def finished(self, took_seconds: float, result: str) -> None: ...


UNMETERED: Meter = _Unmetered()
Meters = Callable[[str], Meter]


def unmetered(loop: str) -> Meter:
    """No metrics, whatever the loop."""
    return UNMETERED


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a loop goes: runs at once, and the wait after a first and after many failures, in seconds.

    `timers` None means the running event loop; `jitter` gives numbers in [0, 1).
    """

    workers: int = 10
    first_seconds: float = 0.2
    longest_seconds: float = 60.0
    timers: Timers | None = None
    jitter: Callable[[], float] = clock.jitter

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if not 0 < self.first_seconds <= self.longest_seconds:
            raise ValueError("0 < first_seconds <= longest_seconds must hold")

    def backoff(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row: doubling, of which half is left to chance."""
        longest = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures - 1, 60))
        return longest * (0.5 + self.jitter() / 2)


class ReconcileLoop(Generic[K]):
    """Keys to be worked on, and the runs that do it. `name` stands in logs."""

    def __init__(self, name: str, pace: Pace | None = None, meter: Meter = UNMETERED) -> None:
        self.name = name
        self._pace = pace or Pace()
        self._meter = meter
        self._reconcile: Reconcile[K] | None = None
        self._ready: dict[K, float] = {}
        self._waiting: dict[K, tuple[float, Timer]] = {}
        self._running: dict[K, asyncio.Task[None]] = {}
        self._again: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._stopped = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    # ---------------------------------------------------------------------------------------------- what to do
    def add(self, key: K) -> None:
        """Work on the key as soon as a worker is free; a key that failed keeps its wait."""
        self._book(key, self._timers.time())

    def add_after(self, key: K, seconds: float) -> None:
        """Work on the key after so many seconds, or earlier if it is booked earlier."""
        self._book(key, self._timers.time() + seconds)

    def forget(self, key: K) -> None:
        """Forget the key's failures: the next `add` works on it at once."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How many runs of the key failed in a row."""
        return self._failures.get(key, 0)

    # ------------------------------------------------------------------------------------------------ doing it
    async def run(self, reconcile: Reconcile[K]) -> None:
        """Work on keys until `stop`, then let the runs under way end; when cancelled they are cancelled too."""
        if self._reconcile is not None:
            raise RuntimeError(f"the loop {self.name} is already running")
        self._reconcile = reconcile
        try:
            self._pump()
            await self._stopped.wait()
            await self._quiet.wait()
        finally:
            self._reconcile = None
            await self._cancel()

    def stop(self) -> None:
        """Begin no more runs; `run` returns when those under way have ended."""
        self._stopped.set()
        self._drop()
        self._notice()

    async def quiet(self) -> None:
        """Return when no key is ready or worked on; keys may still wait for their time."""
        await self._quiet.wait()

    # ------------------------------------------------------------------------------------------------- booking
    @property
    def _timers(self) -> Timers:
        return self._pace.timers or asyncio.get_running_loop()

    def _book(self, key: K, when: float) -> None:
        if self._stopped.is_set() or key in self._ready:
            return
        if key in self._running:
            self._again[key] = min(when, self._again.get(key, when))
            return
        booked = self._waiting.get(key)
        if booked and (booked[0] <= when or key in self._failures):
            return
        self._wait(key, when)

    def _wait(self, key: K, when: float) -> None:
        self._unbook(key)
        if when > self._timers.time():
            self._waiting[key] = when, self._timers.call_at(when, lambda: self._ripe(key))
        else:
            self._ripe(key)

    def _unbook(self, key: K) -> None:
        booked = self._waiting.pop(key, None)
        if booked:
            booked[1].cancel()

    def _ripe(self, key: K) -> None:
        self._waiting.pop(key, None)
        self._ready[key] = self._timers.time()
        self._quiet.clear()
        self._pump()

    # ------------------------------------------------------------------------------------------------- running
    def _pump(self) -> None:
        while self._reconcile and self._ready and len(self._running) < self._pace.workers:
            key = next(iter(self._ready))
            waited = self._timers.time() - self._ready.pop(key)
            self._meter.started(waited)
            self._running[key] = asyncio.create_task(self._work(key, self._reconcile), name=f"{self.name} {key}")
        self._notice()

    async def _work(self, key: K, reconcile: Reconcile[K]) -> None:
        began = self._timers.time()
        try:
            after = await reconcile(key)
        except Exception as error:  # noqa: BLE001 - logged, counted and tried again
            self._done(key, began, "error")
            self._failed(key, error)
        else:
            self._done(key, began, "success" if after is None else "requeue_after")
            self._succeeded(key, after)
        self._pump()

    def _done(self, key: K, began: float, result: str) -> None:
        del self._running[key]
        self._meter.finished(self._timers.time() - began, result)

    def _succeeded(self, key: K, after: float | None) -> None:
        self._failures.pop(key, None)
        again = self._again.pop(key, None)
        if again is not None:
            self._book(key, again)
        if after is not None:
            self.add_after(key, after)

    def _failed(self, key: K, error: Exception) -> None:
        self._again.pop(key, None)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        asked = float(error.details.get("retryAfterSeconds") or 0) if isinstance(error, ApiError) else 0.0
        wait = max(asked, self._pace.backoff(failures))
        self._tell(key, error, wait)
        if not self._stopped.is_set():
            self._wait(key, self._timers.time() + wait)

    def _tell(self, key: K, error: Exception, wait: float) -> None:
        said: dict[str, Any] = {"loop": self.name, "key": key, "error": str(error), "retry_seconds": round(wait, 3)}
        if isinstance(error, Conflict):
            log.debug("changed meanwhile, trying again", **said)
        elif isinstance(error, ApiError | RetryLater):
            log.warning("reconcile failed", **said)
        else:
            log.error("reconcile failed", **said, exc_info=error)

    # ------------------------------------------------------------------------------------------------- the end
    def _notice(self) -> None:
        self._meter.depth(len(self._ready), len(self._running))
        if not self._ready and not self._running:
            self._quiet.set()

    def _drop(self) -> None:
        for key in list(self._waiting):
            self._unbook(key)
        self._ready.clear()
        self._again.clear()

    async def _cancel(self) -> None:
        self._drop()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        self._notice()
