"""How a simulation is set: times, the seed, which past counts, and the two parts that are plugged in from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pykai.config.usage import UsageConfig
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.sim.manifests import Object
from pykai.sim.store import Store


class Grouped(NamedTuple):
    """A pod that knows its group, and the PodGroup to write for it; None where nothing is to be written.

    `problem`: why the pod could not be put into a group; `remarks`: wishes of the user that had no effect.
    """

    pod: Object
    group: Object | None = None
    problem: str = ""
    remarks: Sequence[str] = ()


Grouper = Callable[[Object, Store], Grouped]
"""Puts a new pod into its group, as the pod grouper does; may ask the store for owners and existing groups."""
Judge = Callable[[Snapshot, Plan], Sequence[str]]
"""What is wrong with a plan, in plain words; nothing where it is right."""


def no_grouping(pod: Object, _: Store) -> Grouped:
    """Leave pods alone: their PodGroups are in the manifests."""
    return Grouped(pod)


def no_judge(_: Snapshot, __: Plan) -> Sequence[str]:
    """Every plan is right."""
    return ()


@dataclass(frozen=True)
class Setting:
    """Times in seconds. The same setting and the same manifests give the same history."""

    seed: int = 0
    start: float = 1_767_225_600.0
    """When the story begins: 2026-01-01T00:00:00Z."""
    starting: float = 2.0
    """From the bind of a pod until it runs."""
    stopping: float = 5.0
    """From the eviction of a pod until it is gone, where it does not say itself."""
    job_runs: float = 60.0
    """How long a Job's pod runs where it does not say itself; other pods run for ever."""
    debounce: float = 1.0
    """Cycles are at least so far apart."""
    period: float = 10.0
    """While something waits, cycles are at most so far apart: some rules depend on time alone."""
    settled: float = 120.0
    """A run without an end stops when nothing has happened for so long."""
    usage: UsageConfig | None = None
    """Which past use counts for fair shares; None: none does. The database it names is not asked."""
    group: Grouper = no_grouping
    judge: Judge = no_judge
