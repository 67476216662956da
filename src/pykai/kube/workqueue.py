"""The workqueue and reconcile loop of all controllers: deduplicated keys, workers, rate-limited requeue per key.

    loop = ReconcileLoop[tuple[str, str]]("binder", Pace(workers=10, first_seconds=1.0))
    watch.subscribe(lambda change: loop.add(change.key))
    await loop.run(reconcile)            # async (key) -> None, or seconds until the next reconcile of the key

Invariants
* A key is never reconciled concurrently. Added during its reconcile, however often, it is reconciled once more
  afterwards; added while it is queued, it is reconciled once, at the earliest of the requested times.
* An exception is a failure of its key: the next reconcile waits for the backoff, and further `add` calls do not shorten
  it (`forget` does). A reconcile that returns resets the failure count.
* Nothing polls: without keys the loop is idle. Time and jitter are those of the running event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from pykai.kube.api import Object
from pykai.kube.backoff import Backoff
from pykai.kube.errors import ApiError, Conflict

K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]

log = structlog.get_logger()


class RetryLater(Exception):  # noqa: N818 - an instruction, not an error
    """A prerequisite does not exist yet: the key is requeued with backoff and logged without a traceback."""


class Meter(Protocol):
    """Receives the measurements of a loop; `result` is `success`, `requeue_after` or `error`."""

    def depth(self, ready: int, running: int) -> None:
        """The number of keys that wait for a worker, and of keys in progress."""
        ...

    def started(self, waited_seconds: float) -> None:
        """A reconcile starts after its key waited for a worker."""
        ...

    def finished(self, took_seconds: float, result: str) -> None:
        """A reconcile ended."""
        ...


class _Unmetered:
    def depth(self, ready: int, running: int) -> None: ...
    def started(self, waited_seconds: float) -> None: ...
    def finished(self, took_seconds: float, result: str) -> None: ...


UNMETERED: Meter = _Unmetered()
Meters = Callable[[str], Meter]


def unmetered(loop: str) -> Meter:
    """Return a meter that records nothing."""
    return UNMETERED


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of workers, and the first and longest backoff of a failed key, in seconds."""

    workers: int = 10
    first_seconds: float = 0.2
    longest_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if not 0 < self.first_seconds <= self.longest_seconds:
            raise ValueError("0 < first_seconds <= longest_seconds must hold")

    def backoff(self, failures: int) -> float:
        """Return the delay after this many consecutive failures; half of it is random."""
        return Backoff(self.first_seconds, self.longest_seconds, jitter=0.5).after(failures)


def _now() -> float:
    return asyncio.get_running_loop().time()


class ReconcileLoop(Generic[K]):
    """The keys to reconcile and their workers; `name` appears in logs."""

    def __init__(self, name: str, pace: Pace | None = None, meter: Meter = UNMETERED) -> None:
        self.name = name
        self._pace = pace or Pace()
        self._meter = meter
        self._reconcile: Reconcile[K] | None = None
        self._ready: dict[K, float] = {}
        self._waiting: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._running: dict[K, asyncio.Task[None]] = {}
        self._dirty: dict[K, float] = {}  # added while in progress: key -> when to reconcile it again
        self._failures: dict[K, int] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    # ------------------------------------------------------------------------------------------------ the queue
    def add(self, key: K) -> None:
        """Reconcile the key as soon as a worker is free; a failed key keeps its backoff."""
        self._schedule(key, _now())

    def add_after(self, key: K, seconds: float) -> None:
        """Reconcile the key after this delay, or earlier if it is already scheduled earlier."""
        self._schedule(key, _now() + seconds)

    def forget(self, key: K) -> None:
        """Reset the key's failures: the next `add` reconciles it at once."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the number of consecutive failures of the key."""
        return self._failures.get(key, 0)

    # ---------------------------------------------------------------------------------------------- the workers
    async def run(self, reconcile: Reconcile[K]) -> None:
        """Reconcile keys until cancelled, which cancels the running reconciles."""
        if self._reconcile is not None:
            raise RuntimeError(f"the loop {self.name} is already running")
        self._reconcile = reconcile
        try:
            self._start_workers()
            await asyncio.Event().wait()
        finally:
            self._reconcile = None
            for key in list(self._waiting):
                self._unschedule(key)
            self._ready.clear()
            self._dirty.clear()
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running.clear()
            self._report()

    async def quiet(self) -> None:
        """Return once no key is ready or being reconciled; keys may still wait for their delay."""
        await self._quiet.wait()

    # ---------------------------------------------------------------------------------------------- scheduling
    def _schedule(self, key: K, when: float) -> None:
        if key in self._ready:
            return
        if key in self._running:
            self._dirty[key] = min(when, self._dirty.get(key, when))
            return
        scheduled = self._waiting.get(key)
        if scheduled and (scheduled[0] <= when or key in self._failures):
            return
        self._wait(key, when)

    def _wait(self, key: K, when: float) -> None:
        self._unschedule(key)
        if when > _now():
            self._waiting[key] = when, asyncio.get_running_loop().call_at(when, self._make_ready, key)
        else:
            self._make_ready(key)

    def _unschedule(self, key: K) -> None:
        scheduled = self._waiting.pop(key, None)
        if scheduled:
            scheduled[1].cancel()

    def _make_ready(self, key: K) -> None:
        self._waiting.pop(key, None)
        self._ready[key] = _now()
        self._quiet.clear()
        self._start_workers()

    # ------------------------------------------------------------------------------------------------- running
    def _start_workers(self) -> None:
        while self._reconcile and self._ready and len(self._running) < self._pace.workers:
            key = next(iter(self._ready))
            waited = _now() - self._ready.pop(key)
            self._meter.started(waited)
            self._running[key] = asyncio.create_task(self._work(key, self._reconcile), name=f"{self.name} {key}")
        self._report()

    async def _work(self, key: K, reconcile: Reconcile[K]) -> None:
        began = _now()
        try:
            after = await reconcile(key)
        except Exception as error:  # noqa: BLE001 - logged, counted and retried
            self._done(key, began, "error")
            self._failed(key, error)
        else:
            self._done(key, began, "success" if after is None else "requeue_after")
            self._failures.pop(key, None)
            if (again := self._dirty.pop(key, None)) is not None:
                self._schedule(key, again)
            if after is not None:
                self.add_after(key, after)
        self._start_workers()

    def _done(self, key: K, began: float, result: str) -> None:
        del self._running[key]
        self._meter.finished(_now() - began, result)

    def _failed(self, key: K, error: Exception) -> None:
        self._dirty.pop(key, None)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        requested = error.retry_after if isinstance(error, ApiError) else 0.0
        wait = max(requested, self._pace.backoff(failures))
        fields: Object = {"loop": self.name, "key": key, "error": str(error), "retry_seconds": round(wait, 3)}
        if isinstance(error, Conflict):
            log.debug("conflict, retrying", **fields)
        elif isinstance(error, ApiError | RetryLater):
            log.warning("reconcile failed", **fields)
        else:
            log.error("reconcile failed", **fields, exc_info=error)
        self._wait(key, _now() + wait)

    def _report(self) -> None:
        self._meter.depth(len(self._ready), len(self._running))
        if not self._ready and not self._running:
            self._quiet.set()
