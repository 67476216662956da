"""One cycle on a variant of the benchmark clusters: full, unequal, mixed, as clusters with a backlog are.

Which variants there are, the generator beside the project says. Every cycle is cold, the first of a new process: so are
KAI's. A process that uses up its CPU is ended, and counts as not finished.

What is asked of each run is here, too: ratios to KAI's figures, seconds, failed simulations, and growth by size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec

from bench.measure import BenchError, Files, OutOfTimeError, checked, description, replay
from pykai.engine.policy import SearchLimits

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


MORE = Path(__file__).with_name("kinds.py")


class VariantFiles:
    """The variants that the generator of a folder offers, or MORE, which builds on it; and their files."""

    def __init__(self, perf: Path, folder: Path, more: bool = False) -> None:
        parts = perf / "variants.py", perf / "gen.py"
        self._files = Files(MORE, folder, *parts) if more else Files(parts[0], folder, parts[1])
        self._options = ("--perf", str(perf)) if more else ()
        printed = self._files.ask("--list", *self._options).splitlines()
        listed = (text.split(maxsplit=1) for text in printed if text[:1].strip())
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
        return self._files.made(f"{name}-{size}-{seed}", name, "--nodes", size, "--seed", seed, *self._options)


def measure(case: VariantCase, path: Path, cpu_seconds: int = CPU_SECONDS) -> VariantRun:
    """Run a cycle on the file of a case, in a fresh process that may use so much CPU."""
    meta = msgspec.json.decode(description(path).read_bytes(), type=_Meta)
    try:
        (cycle,) = msgspec.json.decode(checked(replay(path), cpu_seconds=cpu_seconds), type=_Replayed).cycles
    except OutOfTimeError:
        return VariantRun(case, meta.nodes, meta.pending_groups, meta.pending_pods, None)
    return VariantRun(case, meta.nodes, meta.pending_groups, meta.pending_pods, cycle)


LONG_SECONDS, TIMES_LONG, TIMES_SHORT = 2.0, 20.0, 5.0
"""So many times less CPU than KAI, where it needs more than LONG_SECONDS and where not."""
MOST_SECONDS = {1_000: 2.0}
"""Size -> CPU of a cycle, whatever KAI needs."""
FINEST_MS = 0.1
"""Less CPU is counted as this: some machines count in ticks, and a tiny cycle may take none."""
FAILED_PER_SEARCH = 2.0
FLAT = 2.0
"""The cost of a gang is flat where it grows by no more than this from the smallest to the largest size."""
CPU, SIMULATIONS, LIMIT = "CPU", "simulations", "limit of simulations"


class KaiFigures(msgspec.Struct, frozen=True):
    """One cycle of KAI. Counts are calls: a pod may be counted twice; moved pods are among the pipelined ones."""

    cpu_s: float
    bound: int
    evicted: int
    pipelined: int
    note: str = ""

    @property
    def cut(self) -> bool:
        """Whether the cycle was ended before it had decided everything."""
        return self.note.startswith("cut")


class _Row(msgspec.Struct, frozen=True):
    nodes: int
    seed: int
    kai: KaiFigures


Peers = Mapping[tuple[str, int, int], KaiFigures]
"""By variant, size and seed."""


def read(path: Path) -> Peers:
    """KAI's figures; empty where there is no such file."""
    rows = msgspec.json.decode(path.read_bytes(), type=dict[str, _Row]) if path.is_file() else {}
    return {(name, row.nodes, row.seed): row.kai for name, row in rows.items()}


@dataclass(frozen=True)
class Judged:
    """Our run and, where there is one for the same file, KAI's."""

    run: VariantRun
    kai: KaiFigures | None

    @property
    def ratio(self) -> float | None:
        """How many times more CPU KAI needs, at least where it was cut; None where either figure is missing."""
        ours = self.run.cpu_ms
        if self.kai is None or ours is None:
            return None
        return 1000 * self.kai.cpu_s / max(ours, FINEST_MS)

    @property
    def times(self) -> float | None:
        """The ratio that is asked for."""
        if self.kai is None:
            return None
        return TIMES_LONG if self.kai.cpu_s > LONG_SECONDS else TIMES_SHORT

    @property
    def most_seconds(self) -> float | None:
        """The CPU that is allowed."""
        return MOST_SECONDS.get(self.run.case.size)

    @property
    def reached(self) -> dict[str, float]:
        """For everything that is asked, what was reached as a part of it: below 1 it was missed."""
        cpu = self._cpu()
        return {**({} if cpu is None else {CPU: cpu}), **self._searches()}

    def _cpu(self) -> float | None:
        """The least that was reached of the goals for CPU: nothing where the cycle did not finish."""
        ours, parts = self.run.cpu_ms, list[float]()
        if self.times is not None:
            parts.append((self.ratio or 0.0) / self.times)
        if self.most_seconds is not None:
            parts.append(0.0 if ours is None else 1000 * self.most_seconds / max(ours, FINEST_MS))
        return min(parts, default=None)

    def _searches(self) -> dict[str, float]:
        found = self.run.cycle.all_searches if self.run.cycle else Searches()
        failed = {SIMULATIONS: FAILED_PER_SEARCH * found.searched / found.failed} if found.failed else {}
        ended_by_limit = found.most >= SearchLimits().scenarios_per_gang
        return {**failed, **({LIMIT: 0.0} if ended_by_limit else {})}

    @property
    def missed(self) -> list[str]:
        return [goal for goal, part in self.reached.items() if part < 1]

    @property
    def badness(self) -> tuple[float, float]:
        """Sorts the worst first: what is farthest from what is asked, then what costs most."""
        if self.run.cpu_ms is None:
            return -1.0, -inf
        return min(self.reached.values(), default=inf), -self.run.cpu_ms


def judge(run: VariantRun, peers: Peers) -> Judged:
    """Our run beside KAI's figures for the same file."""
    return Judged(run, peers.get(run.case.key))


@dataclass(frozen=True)
class Growth:
    """The runs of one variant, by size. None: there is one size only, or a cycle did not finish."""

    runs: tuple[VariantRun, ...]

    @property
    def deciding(self) -> float | None:
        """How many times more CPU deciding takes for a waiting gang at the largest size than at the smallest."""
        return self._growth([run.deciding_per_gang_ms for run in self.runs])

    @property
    def cycle(self) -> float | None:
        """The same for the whole cycle, reading in the cluster included."""
        return self._growth([run.per_gang_ms for run in self.runs])

    @staticmethod
    def _growth(costs: Sequence[float | None]) -> float | None:
        small, large = costs[0], costs[-1]
        return large / small if len(costs) > 1 and small and large else None

    @property
    def flat(self) -> bool | None:
        """Whether the cost of a gang is flat; None where there is one size only."""
        if len(self.runs) < 2:
            return None
        return self.deciding is not None and self.deciding <= FLAT

    @property
    def badness(self) -> float:
        """Sorts the worst first."""
        return -inf if self.deciding is None else -self.deciding


def growths(found: Iterable[Judged]) -> list[Growth]:
    """Runs by variant, the one that grows most first."""
    runs: dict[str, list[VariantRun]] = {}
    for each in found:
        runs.setdefault(each.run.case.variant.name, []).append(each.run)
    made = (Growth(tuple(sorted(some, key=lambda run: run.case.size))) for some in runs.values())
    return sorted(made, key=lambda growth: growth.badness)
