"""One cycle on a variant of the benchmark clusters: full, unequal, mixed, as clusters with a backlog are.

Which variants there are, the generator beside the project says. Every cycle is cold, the first of a new process: so are
KAI's. A process that uses up its CPU is ended, and counts as not finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.measure import BenchError, Files, OutOfTimeError, checked, description, replay

SIZES = (96, 320, 1_000)
SEED = 7
"""KAI's figures are for this one."""
CPU_SECONDS = 40
"""Of the whole process, reading the file included; KAI's cycles were cut there."""


@dataclass(frozen=True)
class Variant:
    """A kind of cluster, and what is in it."""

    name: str
    what: str


@dataclass(frozen=True)
class VariantCase:
    """A variant at one nominal size: the generator may round it."""

    variant: Variant
    size: int
    seed: int = SEED

    @property
    def key(self) -> tuple[str, int, int]:
        """What KAI's figures are filed under."""
        return self.variant.name, self.size, self.seed


class Searches(msgspec.Struct, frozen=True):
    """Searches for victims that asked a generator; `most`: simulations of one search."""

    searched: int = 0
    solved: int = 0
    simulated: int = 0
    failed: int = 0
    most: int = 0


class ActionCpu(msgspec.Struct, frozen=True):
    """What one action took."""

    cpu_ms: float


class VariantCycle(msgspec.Struct, frozen=True):
    """What `kai replay` says about a cycle."""

    cycle_cpu_ms: float
    actions: dict[str, ActionCpu]
    bound: int
    evicted: int
    moved: int
    pipelined: int
    left_pending: int
    searches: dict[str, Searches]

    @property
    def actions_ms(self) -> float:
        """CPU of deciding alone: without reading in the cluster, and without the plan."""
        return sum(action.cpu_ms for action in self.actions.values())

    @property
    def all_searches(self) -> Searches:
        found = self.searches.values()
        return Searches(
            searched=sum(each.searched for each in found),
            solved=sum(each.solved for each in found),
            simulated=sum(each.simulated for each in found),
            failed=sum(each.failed for each in found),
            most=max((each.most for each in found), default=0),
        )


class _Replayed(msgspec.Struct):
    cycles: list[VariantCycle]


class _Meta(msgspec.Struct):
    nodes: int
    pending_pods: int
    pending_groups: int


@dataclass(frozen=True)
class VariantRun:
    """A cycle on the file of a case; None where it did not finish. `gangs`: those that waited, of `pods` in all."""

    case: VariantCase
    nodes: int
    gangs: int
    pods: int
    cycle: VariantCycle | None

    @property
    def cpu_ms(self) -> float | None:
        return self.cycle.cycle_cpu_ms if self.cycle else None

    @property
    def per_gang_ms(self) -> float | None:
        """CPU of the cycle, per gang that waited."""
        return self.cycle.cycle_cpu_ms / self.gangs if self.cycle and self.gangs else None

    @property
    def deciding_per_gang_ms(self) -> float | None:
        """CPU of deciding, per gang that waited."""
        return self.cycle.actions_ms / self.gangs if self.cycle and self.gangs else None


class VariantFiles:
    """The variants that the generator of a folder offers, and their files."""

    def __init__(self, perf: Path, folder: Path) -> None:
        self._files = Files(perf / "variants.py", folder, perf / "gen.py")
        listed = (text.split(maxsplit=1) for text in self._files.ask("--list").splitlines() if text[:1].strip())
        self.variants = {name: Variant(name, " ".join(what)) for name, *what in listed}

    def chosen(self, names: Sequence[str]) -> list[Variant]:
        """The variants of these names; all of them where none is named."""
        for name in names:
            if name not in self.variants:
                raise BenchError(f"there is no variant {name!r} (there are: {', '.join(self.variants)})")
        return [self.variants[name] for name in names or self.variants]

    def of(self, case: VariantCase) -> Path:
        """The file of a case, with its description beside it."""
        name, size, seed = case.variant.name, str(case.size), str(case.seed)
        return self._files.made(f"{name}-{size}-{seed}", name, "--nodes", size, "--seed", seed)


def measure(case: VariantCase, path: Path, cpu_seconds: int = CPU_SECONDS) -> VariantRun:
    """Run a cycle on the file of a case, in a fresh process that may use so much CPU."""
    meta = msgspec.json.decode(description(path).read_bytes(), type=_Meta)
    try:
        (cycle,) = msgspec.json.decode(checked(replay(path), cpu_seconds=cpu_seconds), type=_Replayed).cycles
    except OutOfTimeError:
        return VariantRun(case, meta.nodes, meta.pending_groups, meta.pending_pods, None)
    return VariantRun(case, meta.nodes, meta.pending_groups, meta.pending_pods, cycle)
