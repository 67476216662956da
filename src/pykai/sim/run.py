"""The run: virtual time moves from change to change, and the scheduler of the product looks on and decides.

Events -> cache -> snapshot -> decide -> plan -> world -> events. A change starts a cycle at once, or as soon as the
last one is `debounce` seconds ago; while pods wait there is one at least every `period` seconds. Where past use counts,
time alone changes who may have what: such a run is never quiet while pods wait, and has to be told its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykai.cache.cluster import ClusterCache
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.model.snapshot import Snapshot
from pykai.sim.admission import Admitted
from pykai.sim.agenda import NEVER, Agenda
from pykai.sim.history import Outcome
from pykai.sim.past_use import PastUse
from pykai.sim.sampling import sample
from pykai.sim.setting import Setting
from pykai.sim.stage import Stage
from pykai.sim.world import World

Progress = Callable[[float, int, int], None]
"""Told of the seconds simulated so far, the pods that have ended, and the pods there have been."""


class Simulation:
    """One run; `policy` and `params` are those of the scheduler."""

    def __init__(self, objects: Iterable[Admitted], policy: Policy, params: SchedulerParams, setting: Setting) -> None:
        self.agenda = Agenda(setting.start)
        self._stage = Stage(self.agenda, setting)
        self.store = self._stage.store
        self.world = World(self._stage)
        self.setting = setting
        self._policy = policy
        self._cache = ClusterCache(params)
        self._past = PastUse(setting.usage, setting.start) if setting.usage else None
        self._last_cycle = -NEVER
        self._last_change = setting.start
        self._unseen = False
        """Whether the cache knows of changes that no cycle has seen."""
        for obj in objects:
            self.world.expect(obj)
            for remark in obj.remarks:
                self._stage.history.remark(remark)

    def run(self, until: float | None = None, progress: Progress = lambda *_: None) -> Outcome:
        """Run for so many seconds, or until nothing happens any more; ValueError where that may be never."""
        if until is None and self._past is not None:
            raise ValueError("where past use counts, a run has no end of its own")
        end = NEVER if until is None else self.setting.start + until
        while (instant := min(self.agenda.next(), self._next_cycle())) <= end and instant < NEVER:
            self.agenda.advance(instant)
            if self._next_cycle() <= self.agenda.now:
                self._cycle()
            progress(self.agenda.now - self.setting.start, self.world.kubelets.ended, len(self._stage.history.lives))
        return self._finish(end)

    def _next_cycle(self) -> float:
        """When the scheduler looks again; NEVER while there is nothing to look for."""
        now, last = self.agenda.now, self._last_cycle
        if self._unseen or self.store.changed():
            return max(now, last + self.setting.debounce)
        quiet = self.agenda.next() == NEVER and now - self._last_change >= self.setting.settled
        alive = self._past is not None or not quiet
        return last + self.setting.period if alive and self.world.waiting else NEVER

    def _cycle(self) -> None:
        now = self._last_cycle = self.agenda.now
        snapshot = self._snapshot(now)
        self._unseen = False
        self.world.execute(snapshot, decide(snapshot, self._policy, now))
        self._stage.history.cycles += 1
        if self.store.changed():
            snapshot = self._snapshot(now)
        self._sample(snapshot, now)

    def _snapshot(self, now: float) -> Snapshot:
        """The cluster as it is now."""
        for change in self.store.drain():
            self._cache.apply(change)
            self._unseen, self._last_change = True, now
        return self._cache.snapshot(now, self._past.current(now) if self._past else None)

    def _sample(self, snapshot: Snapshot, now: float) -> None:
        found = sample(snapshot, self._policy, now, self.setting)
        self._stage.history.samples.append(found)
        if self._past is not None:
            self._past.record(now, found)

    def _finish(self, end: float) -> Outcome:
        history = self._stage.history
        if end < NEVER:
            self.agenda.advance(end)
        now = self.agenda.now
        last = self._snapshot(now)
        self._sample(last, now)
        history.ended_at = round(now - self.setting.start, 3)
        return Outcome(history, last.queues, self.world.kubelets.devices.nodes)
