"""PodDisruptionBudgets: how many pods of an application evictions may take at a time.

A budget allows what its status says (`disruptionsAllowed`), and never more than the healthy pods it selects exceed
`desiredHealthy`: pods that are leaving, or were evicted a moment ago, no longer count as healthy here, so that an
eviction uses the budget up before its status shows it. A status of an older spec allows nothing. Without a status, as
in simulations and files, the allowance is computed from the spec.

Every evicted pod counts, also one that moves. As in the eviction API, a pod that is not ready does not count if the
budget is met, or states `unhealthyPodEvictionPolicy: AlwaysAllow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.scenario import Scenario
from pykai.kernels.selectors import selects
from pykai.model.snapshot import Snapshot
from pykai.model.status import ACTIVE_ALLOCATED
from pykai.objects.kinds import Pod, PodDisruptionBudget

MODES = ("ignore", "prefer", "respect")
NOTHING: dict[str, str] = {}


@dataclass(frozen=True)
class Budget:
    """A budget, and how many of its healthy pods may be evicted in this cycle."""

    title: str
    allowed: int
    pods: frozenset[int]
    """The active pods that count when they are evicted."""


class Budgets:
    """The budgets of a snapshot, and by pod those that select it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.of_pod: dict[int, list[Budget]] = {}
        by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for (namespace, _), stated in snapshot.objects.disruption_budgets.items():
            by_namespace.setdefault(namespace, []).append(stated)
        found: dict[int, list[int]] = {}
        """By identity of a budget."""
        pods = snapshot.pods
        for row, pod in enumerate(pods.objects):
            for stated in by_namespace.get(pod.metadata.namespace, ()):
                if selects(stated.spec.selector, pod.metadata.labels or NOTHING):
                    found.setdefault(id(stated), []).append(row)
        active = np.isin(pods.status, [int(status) for status in ACTIVE_ALLOCATED])
        for some in by_namespace.values():
            for stated in some:
                rows = found.get(id(stated), [])
                self._add(stated, rows, [row for row in rows if active[row]], pods.objects)

    def _add(
        self, stated: PodDisruptionBudget, rows: Sequence[int], active: Sequence[int], objects: Sequence[Pod]
    ) -> None:
        healthy = [row for row in active if _ready(objects[row])]
        desired = _desired(stated, len(rows))
        allowed = max(0, min(len(healthy) - desired, _stated(stated)))
        lenient = stated.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or 0 < desired <= len(healthy)
        counted = frozenset(healthy if lenient else active)
        budget = Budget(f"{stated.metadata.namespace}/{stated.metadata.name}", allowed, counted)
        for row in counted:
            self.of_pod.setdefault(row, []).append(budget)


def _ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())


def _stated(budget: PodDisruptionBudget) -> int:
    """What the status allows; as many as there are where there is none."""
    if budget.status is None:
        return 2**31
    return budget.status.disruptions_allowed if budget.status.observed_generation >= budget.metadata.generation else 0


def _desired(budget: PodDisruptionBudget, expected: int) -> int:
    """How many pods must stay healthy."""
    if budget.status is not None:
        return budget.status.desired_healthy
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(0, expected - _amount(spec.max_unavailable, expected))
    return _amount(0 if spec.min_available is None else spec.min_available, expected)


def _amount(text: int | str, of: int) -> int:
    """A number, or a part of all in per cent, rounded up; what cannot be read allows nothing to go."""
    try:
        return text if isinstance(text, int) else ceil(int(text.removesuffix("%")) * of / 100)
    except ValueError:
        return of


@dataclass(frozen=True)
class DisruptionBudgets:
    """Victims per PodDisruptionBudget are at most what it allows; `preference`: ignored if no other search succeeds."""

    preference: bool = False

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, str]) -> tuple[DisruptionBudgets, ...]:
        mode = arguments.get("mode", "ignore")
        if mode not in MODES:
            raise ValueError(f"arguments.mode: must be {', '.join(MODES[:-1])} or {MODES[-1]}, not {mode!r}")
        return () if mode == "ignore" else (cls(mode == "prefer"),)

    def judges(self, cycle: Cycle, action: str) -> bool:
        return bool(cycle.snapshot.objects.disruption_budgets)

    def may_evict(self, cycle: Cycle, action: str, gang: int, victim: int) -> bool:
        """Whether budgets allow evicting the whole gang or, if it has surplus, at least one of its pods."""
        trial, gangs = cycle.trial, cycle.snapshot.gangs
        of_pod = cycle.snapshot.derived(Budgets).of_pod
        pods = [pod for pod in gangs.pods(victim) if trial.status[pod] in ACTIVE_ALLOCATED]
        if not any(pod in of_pod for pod in pods):
            return True
        spare = gangs.trees.get(victim) is not None or any(
            trial.active_allocated[row] > gangs.podset_min[row] for row in gangs.podsets(victim)
        )
        if not spare:
            return not self._exceeded(cycle, gang, pods)
        return any(not self._exceeded(cycle, gang, [pod]) for pod in pods)

    def justified(self, cycle: Cycle, scenario: Scenario) -> bool:
        if not cycle.snapshot.objects.disruption_budgets:
            return True
        return not self._exceeded(cycle, scenario.cause.gang, scenario.victims)

    def blocking(self, cycle: Cycle, gang: int) -> Sequence[str]:
        return sorted(f"PodDisruptionBudget {title}" for title in cycle.state(_blocked).get(gang, ()))

    def _exceeded(self, cycle: Cycle, gang: int, victims: Iterable[int]) -> bool:
        """Whether some budget does not allow these victims beside those of the cycle; noted for the gang."""
        of_pod, evicted = cycle.snapshot.derived(Budgets).of_pod, cycle.trial.evicted
        asked = Counter(budget for pod in victims for budget in of_pod.get(pod, ()) if pod not in evicted)
        over = [b for b, number in asked.items() if number + len(b.pods & evicted.keys()) > b.allowed]
        if over:
            cycle.state(_blocked).setdefault(gang, set()).update(budget.title for budget in over)
        return bool(over)


def _blocked(_: Cycle) -> dict[int, set[str]]:
    """Return the map of gangs to the budgets that prevented evictions for them in this cycle."""
    return {}
