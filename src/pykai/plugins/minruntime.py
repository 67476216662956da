"""Minimum run times: how long a workload runs undisturbed after it started.

Queues may set one time against preemption (within a queue) and one against reclaim (between queues); unset values are
inherited from the ancestors, then from the configured default. For reclaim by the `lca` method the value is resolved
from the victim's ancestor just below the lowest queue it shares with the reclaimer. So all workloads of a department
are equally protected against another department, whatever its teams set.

A protected workload may still lose pods beyond its minimum: elastic gangs stay candidates, and a scenario is validated
against the minimum of each podset. Releasing pods do not count as surplus.

Times are in seconds; queues are rows of the queue table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from pykai.model.status import Status
from pykai.objects import units

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle
    from pykai.engine.scenario import Scenario
    from pykai.model.resources import Mask, Rows
    from pykai.model.snapshot import Snapshot

Method = Literal["lca", "queue"]
METHODS: Mapping[str, Method] = {"lca": "lca", "queue": "queue"}


@dataclass(frozen=True)
class MinRuntimePolicy:
    """What holds where no queue of the path sets a time, and which queue's path decides about a reclaim."""

    preempt: float = 0.0
    reclaim: float = 0.0
    method: Method = "lca"

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, str]) -> MinRuntimePolicy:
        """The policy of the plugin's arguments; a missing or unreadable one takes its default."""
        return cls(
            preempt=configured_seconds(arguments.get("defaultPreemptMinRuntime", "")),
            reclaim=configured_seconds(arguments.get("defaultReclaimMinRuntime", "")),
            method=METHODS.get(arguments.get("reclaimResolveMethod", ""), "lca"),
        )


def configured_seconds(text: str) -> float:
    """Seconds of a configured minimum (days and weeks allowed); 0 where it is negative or no duration."""
    try:
        return max(0.0, units.parse_long_duration(text))
    except units.DurationError:
        return 0.0


@dataclass(frozen=True)
class MinRuntimes:
    """The minimum run times of one queue tree; `parent` is -1 at the top, None in the others is "not set"."""

    parent: Sequence[int]
    preempt: Sequence[float | None]
    reclaim: Sequence[float | None]
    policy: MinRuntimePolicy
    _reclaim: dict[tuple[int, int], float] = field(default_factory=dict)

    def preempt_min_runtime(self, queue: int) -> float:
        """How long a workload of this queue is safe from others of the queue."""
        return self._nearest(self.preempt, queue, self.policy.preempt)

    def reclaim_min_runtime(self, reclaimer: int, victim: int) -> float:
        """How long a workload of the victim queue is safe from those of the reclaimer queue."""
        known = self._reclaim.get((reclaimer, victim))
        if known is None:
            known = self._reclaim[reclaimer, victim] = self._reclaim_min_runtime(reclaimer, victim)
        return known

    def _reclaim_min_runtime(self, reclaimer: int, victim: int) -> float:
        ours, theirs = self.path(reclaimer), self.path(victim)
        decides = victim
        if self.policy.method == "lca":
            shared = sum(a == b for a, b in zip(ours, theirs, strict=False))
            decides = theirs[min(shared, len(theirs) - 1)]
        return self._nearest(self.reclaim, decides, self.policy.reclaim)

    def path(self, queue: int) -> list[int]:
        """The queues from the top of the tree down to this one."""
        path: list[int] = []
        while queue >= 0:
            if queue in path:
                raise ValueError(f"parent: queue row {queue} is its own ancestor")
            path.append(queue)
            queue = self.parent[queue]
        if not path:
            raise ValueError(f"queue: {queue} is not a row of the queue table")
        return path[::-1]

    def _nearest(self, values: Sequence[float | None], queue: int, default: float) -> float:
        """The first value that is set from this queue up to the top."""
        upwards = (values[row] for row in reversed(self.path(queue)))
        return next((value for value in upwards if value is not None), default)


def protected(last_start: float, min_runtime: float, now: float) -> bool:
    """Whether a workload has not run for its minimum yet."""
    return now < last_start + min_runtime


def is_elastic(pods: Sequence[int], minimum: Sequence[int]) -> bool:
    """Whether some pod set has more pods than its minimum."""
    return any(have > need for have, need in zip(pods, minimum, strict=True))


def keeps_minimum(active: Sequence[int], victims: Sequence[int], minimum: Sequence[int]) -> bool:
    """Whether every pod set keeps its minimum of active pods without the victims: what protection demands."""
    return all(have - lost >= need for have, lost, need in zip(active, victims, minimum, strict=True))


@dataclass(frozen=True)
class MinRuntime:
    """The plugin: keeps workloads that have not run for their minimum from losing what they need."""

    policy: MinRuntimePolicy

    def run_times(self, snapshot: Snapshot) -> set[float]:
        """Every minimum run time that protects a gang in some case: those of queues and the defaults."""
        queues = snapshot.queues
        stated = [*queues.preempt_min_runtime, *queues.reclaim_min_runtime, self.policy.preempt, self.policy.reclaim]
        return {seconds for seconds in stated if seconds}

    def judges(self, cycle: Cycle, action: str) -> bool:
        """Only where a queue sets a minimum for this kind of eviction."""
        queues = cycle.snapshot.queues
        if action == "preempt":
            return self.policy.preempt > 0 or any(queues.preempt_min_runtime)
        return action == "reclaim" and (self.policy.reclaim > 0 or any(queues.reclaim_min_runtime))

    def may_evict(self, cycle: Cycle, action: str, gang: int, victim: int) -> bool:
        """Protected workloads are no candidates, unless they hold more than their minimum."""
        if not self._protected(cycle, action, gang, victim):
            return True
        return _has_surplus(cycle, victim)

    def may_evict_column(self, cycle: Cycle, action: str, gang: int, victims: Rows) -> Mask:
        """Return `may_evict` for many gangs."""
        gangs, runtimes = cycle.snapshot.gangs, cycle.state(self._runtimes)
        queues, of_queue = np.unique(gangs.columns.queue[victims], return_inverse=True)
        if action == "preempt":
            minimum = [runtimes.preempt_min_runtime(queue) for queue in queues.tolist()]
        else:
            minimum = [runtimes.reclaim_min_runtime(gangs.queue[gang], queue) for queue in queues.tolist()]
        seconds, started = np.array(minimum)[of_queue], gangs.columns.last_start[victims]
        allowed = (seconds <= 0) | (cycle.now >= started + seconds)
        allowed[~allowed] = [_has_surplus(cycle, victim) for victim in victims[~allowed].tolist()]
        return np.asarray(allowed)

    def justified(self, cycle: Cycle, scenario: Scenario) -> bool:
        """Of protected workloads only what is beyond the minimum may go, or move."""
        trial, cause = cycle.trial, scenario.cause
        lost: dict[int, list[int]] = {}
        for pod in scenario.victims:
            lost.setdefault(trial.gang[pod], []).append(pod)
        return all(
            not self._protected(cycle, cause.action, cause.gang, victim) or _keeps_minimum(cycle, victim, pods)
            for victim, pods in lost.items()
        )

    def _protected(self, cycle: Cycle, action: str, gang: int, victim: int) -> bool:
        return self.protected_until(cycle, action, gang, victim) is not None

    def protected_until(self, cycle: Cycle, action: str, gang: int, victim: int) -> float | None:
        """The end of the victim's minimum run time; None where it has passed, or there is none."""
        gangs = cycle.snapshot.gangs
        runtimes = cycle.state(self._runtimes)
        if action == "preempt":
            minimum = runtimes.preempt_min_runtime(gangs.queue[victim])
        elif action == "reclaim":
            minimum = runtimes.reclaim_min_runtime(gangs.queue[gang], gangs.queue[victim])
        else:
            return None
        started = gangs.last_start(victim) if minimum > 0 else None
        return started + minimum if started is not None and protected(started, minimum, cycle.now) else None

    def _runtimes(self, cycle: Cycle) -> MinRuntimes:
        queues = cycle.snapshot.queues
        return MinRuntimes(queues.parent, queues.preempt_min_runtime, queues.reclaim_min_runtime, self.policy)


def _has_surplus(cycle: Cycle, gang: int) -> bool:
    """Whether the gang has more pods than its minimum in some pod set."""
    active, gangs = cycle.trial.active_allocated, cycle.snapshot.gangs
    rows = gangs.podsets(gang)
    if len(rows) == 1:
        return bool(active[rows[0]] > gangs.podset_min[rows[0]])
    return is_elastic([active[row] for row in rows], [gangs.podset_min[row] for row in rows])


def _keeps_minimum(cycle: Cycle, gang: int, victims: Sequence[int]) -> bool:
    """Whether the gang keeps its minimum where it is, now that these pods are supposed to leave or to move."""
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    rows = gangs.podsets(gang)
    moving = Counter(trial.podset[pod] for pod in victims if trial.status[pod] != Status.RELEASING)
    return keeps_minimum(
        [trial.active_allocated[row] for row in rows],
        [moving[row] for row in rows],
        [gangs.podset_min[row] for row in rows],
    )
