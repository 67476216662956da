"""Conditions on a pod before any node is filtered, as one gate: it fits on some empty node, its ConfigMaps and claims
exist.

A condition depends on the class only: if one pod of a class passes, all do. Evictions change none of them, so every
refusal is lasting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import Refusal
from pykai.engine.queues import human
from pykai.engine.reasons import Token, rank
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, PODS, scale
from pykai.model.snapshot import Snapshot

CORE = 1e3
GIGABYTE = 1e9

_TITLES = {GPU: ("GPU", 1.0, ""), CPU: ("CPU", CORE, " cores"), MEMORY: ("memory", GIGABYTE, " GB")}
_STORAGE = ("storage", "ephemeral-storage")


class Condition(Protocol):
    """One condition; `name`: its name in the refusal, `token`: the kind of reason."""

    @property
    def name(self) -> str: ...

    @property
    def token(self) -> str: ...

    def problem(self, cycle: Cycle, pod: int) -> str | None:
        """Return what is wrong, as one sentence without the full stop; None: the condition holds."""
        ...


@dataclass(frozen=True)
class SchedulingConditions:
    """All conditions must hold; the refusal names every one that does not."""

    by_class: ClassVar[bool] = True
    conditions: tuple[Condition, ...]

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None:
        passed = cycle.state(_passed_classes)
        row = cycle.trial.klass[pod]
        if row in passed:
            return None
        problems = [(c, problem) for c in self.conditions if (problem := c.problem(cycle, pod)) is not None]
        if not problems:
            passed.add(row)
            return None
        title = cycle.snapshot.pods.title(pod)
        lines = [f"{c.name}: {problem}." for c, problem in problems]
        token = min([c.token for c, _ in problems], key=rank)
        return Refusal("\n".join([f"Scheduling conditions were not met for pod {title}:", *lines]), True, token)


def _passed_classes(_: Cycle) -> set[int]:
    """Rows of classes that met all conditions."""
    return set()


@dataclass(frozen=True)
class MaxNodePoolResources:
    """Some node of the pool has enough allocatable for the pod, checked for each resource separately."""

    name: str = "MaxNodePoolResources"
    token: ClassVar[str] = Token.TOO_LARGE

    def problem(self, cycle: Cycle, pod: int) -> str | None:
        snapshot, c = cycle.snapshot, cycle.trial.of_class(pod)
        most = snapshot.derived(_largest)
        if not c.shared and not [row for row, need in c.demand if need > most[row]]:
            return None
        least = cycle.node_facts.least(c)
        short = next((row for row in _order(c) if least[row] > most[row]), None)
        if short is None:
            return None
        wanted = ", ".join(_wanted(snapshot, c))
        return f"The pod {snapshot.pods.title(pod)} requires {wanted}. {_shortage(snapshot, short, most[short])}"


def _largest(snapshot: Snapshot) -> list[float]:
    """Per resource the most that any node of the pool has."""
    return snapshot.nodes.allocatable.max(axis=1, initial=0.0).tolist()  # type: ignore[no-any-return]


def _order(c: PodClass) -> Iterator[int]:
    yield from (GPU, CPU, MEMORY)
    yield from range(PODS, len(c.request))


def _wanted(snapshot: Snapshot, c: PodClass) -> Iterator[str]:
    yield f"GPU: {human(c.request[GPU])}"
    yield f"CPU: {human(c.request[CPU], CORE)} (cores)"
    yield f"memory: {human(c.request[MEMORY], GIGABYTE)} (GB)"
    others = [(name, row) for row, name in enumerate(snapshot.space.names) if row > PODS and c.request[row] > 0]
    for name, row in sorted(others, key=lambda other: (other[0].startswith(MIG_PREFIX), other[0])):
        yield f"{'mig ' if name.startswith(MIG_PREFIX) else ''}{name}: {human(c.request[row], scale(name))}"


def _shortage(snapshot: Snapshot, row: int, most: float) -> str:
    name, pool = snapshot.space.names[row], snapshot.params.pool_title
    title, unit, suffix = _TITLES.get(row, (name, GIGABYTE, " GB"))
    if most <= 0 or (row not in _TITLES and name not in _STORAGE):
        return f"No node in the {pool} node-pool has {title} resources"
    return (
        f"Max {title} resources available in a single node in the {pool} node-pool is topped at "
        f"{human(most, unit)}{suffix}"
    )


@dataclass(frozen=True)
class ConfigMaps:
    """Every ConfigMap the pod cannot start without exists; those made for its GPU share come with the binding."""

    name: str = "ConfigMap"
    token: ClassVar[str] = Token.MISSING_OBJECT

    def problem(self, cycle: Cycle, pod: int) -> str | None:
        c = cycle.trial.of_class(pod)
        if not c.config_maps:
            return None
        known = cycle.snapshot.objects.config_maps
        missing = sorted(name for name in c.config_maps if (c.namespace, name) not in known)
        return f"Missing required configmaps: [{' '.join(missing)}]" if missing else None
