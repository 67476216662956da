"""What must hold for a pod before any node is looked at (spec/scheduling.md §6.1), told as one refusal.

A condition speaks of the class of a pod, not of the pod: what one pod of a class passed, all of them pass. None of
these conditions changes when somebody is evicted, so every refusal is lasting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from pykai.engine.cycle import Cycle
from pykai.engine.points import Refusal


class Condition(Protocol):
    """One thing that must hold; `name` is how it appears in the refusal."""

    @property
    def name(self) -> str: ...

    def problem(self, cycle: Cycle, pod: int) -> str | None:
        """What is wrong, in one sentence without the full stop; None where nothing is."""
        ...


@dataclass(frozen=True)
class SchedulingConditions:
    """All conditions must hold; the refusal names every one that does not."""

    by_class: ClassVar[bool] = True
    conditions: tuple[Condition, ...]

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None:
        passed: set[int] = cycle.memo.setdefault("scheduling_conditions", set())
        row = cycle.trial.klass[pod]
        if row in passed:
            return None
        lines = [f"{c.name}: {problem}." for c in self.conditions if (problem := c.problem(cycle, pod)) is not None]
        if not lines:
            passed.add(row)
            return None
        title = cycle.snapshot.pods.title(pod)
        return Refusal("\n".join([f"Scheduling conditions were not met for pod {title}:", *lines]), lasting=True)
