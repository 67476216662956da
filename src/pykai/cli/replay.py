"""`kai replay`: one or more scheduling cycles on a snapshot file, each from the file's state; nothing is written.

What is timed is what a scheduler does in a cycle: building the columns from parsed objects, the actions, reading out
the plan with its reasons, and giving back what all of that took. Reading and parsing the file is not. Searches have no
time limit here: the same file gives the same plan on every machine.
"""

from __future__ import annotations

import resource
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy.ma  # noqa: F401  numpy imports it in the middle of the first `unique`: start-up, not a cycle

from pykai.cache.cluster import Change, ClusterCache
from pykai.config import snapshot
from pykai.config.fields import FieldError, field_error
from pykai.config.snapshot import SnapshotFile
from pykai.engine.budgets import Clock
from pykai.engine.decide import decide
from pykai.explain.source import of_file
from pykai.explain.source import opened as source_of
from pykai.model.plan import Plan, ScenarioState, SearchResult, SearchStatistics
from pykai.objects import units
from pykai.objects.units import parse_timestamp
from pykai.scheduler.process_memory import gc_disabled, keep_freed_memory
from pykai.simulate import pod_checks

_MAPS_OF_AMOUNTS = ("requests", "limits", "allocatable", "capacity", "overhead")
_MIB_OF_MAXRSS = 1024 * 1024 if sys.platform == "darwin" else 1024


class Timing(msgspec.Struct):
    """Milliseconds of this process: user and system time."""

    cpu_ms: float


class SearchFigures(msgspec.Struct):
    """An action's searches for victims, those that asked a generator. `failed`: simulations that ended no search with a
    solution; a shorter prefix of a gang that was solved on the way is among them. `most`: simulations of one search."""

    searched: int = 0
    solved: int = 0
    simulated: int = 0
    failed: int = 0
    most: int = 0


class CycleFigures(msgspec.Struct):
    """One cycle. `pipelined`: waiting pods that get a place others still hold; `moved`: evicted pods that get one."""

    snapshot_cpu_ms: float
    actions: dict[str, Timing]
    cycle_cpu_ms: float
    cycle_wall_ms: float
    bound: int
    evicted: int
    pipelined: int
    moved: int
    left_pending: int
    searches: dict[str, SearchFigures]
    """By action; an action without a search is not there."""


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


class Replay:
    """A parsed file with what its cycles need. `now`: seconds since the epoch."""

    def __init__(self, file: SnapshotFile, now: float) -> None:
        self._source = of_file(file, now)
        self.file, self.now = file, now
        self.params, self.policy = self._source.params, self._source.policy

    def cycle(self) -> tuple[Plan, CycleFigures]:
        """One cycle from the file's state, parsed."""
        return self._cycle(self._source.cache)

    def plan(self, clock: Clock) -> Plan:
        """The plan of one cycle, whose statistics are in seconds of this clock."""
        return decide(self._source.cache().snapshot(self.now), self.policy, self.now, clock)

    def warm_cycles(self, count: int) -> list[CycleFigures]:
        """Cycles from the file's state as a live scheduler has it: in a cache that has seen a cycle before."""
        cache = ClusterCache(self.params)
        for obj in self._source.objects:
            cache.apply(Change(obj))
        return [self._cycle(cache.copy)[1] for _ in range(count + 1)][1:]

    def _cycle(self, known: Callable[[], ClusterCache]) -> tuple[Plan, CycleFigures]:
        cpu, wall = time.process_time(), time.perf_counter()
        cache = known()
        snapshot = cache.snapshot(self.now)
        taken = time.process_time() - cpu
        plan = decide(snapshot, self.policy, self.now, time.process_time)
        del snapshot  # giving its memory back is a part of the cycle; the cache stays with a scheduler
        spent, passed = time.process_time() - cpu, time.perf_counter() - wall
        return plan, _figures(plan, taken + plan.timings.opening, spent, passed)


def search_figures(efforts: Iterable[SearchStatistics]) -> dict[str, SearchFigures]:
    """What the searches of a cycle cost, by action."""
    found: dict[str, SearchFigures] = {}
    for effort in (each for each in efforts if each.generators):
        simulated = sum(part.states.get(ScenarioState.SIMULATED, 0) for part in effort.generators)
        solved = int(effort.result is SearchResult.SOLVED)
        sums = found.setdefault(effort.action, SearchFigures())
        sums.searched += 1
        sums.solved += solved
        sums.simulated += simulated
        sums.failed += simulated - solved
        sums.most = max(sums.most, simulated)
    return found


def _figures(plan: Plan, opening: float, cpu: float, wall: float) -> CycleFigures:
    moved = sum(1 for eviction in plan.evictions if eviction.moves_to)
    return CycleFigures(
        snapshot_cpu_ms=_milliseconds(opening),
        actions={name: Timing(_milliseconds(action.seconds)) for name, action in plan.actions.items()},
        cycle_cpu_ms=_milliseconds(cpu),
        cycle_wall_ms=_milliseconds(wall),
        bound=len(plan.binds),
        evicted=len(plan.evictions),
        pipelined=len(plan.nominations) - moved,
        moved=moved,
        left_pending=plan.pending,
        searches=search_figures(plan.searches),
    )


def peak_rss_mb() -> float:
    """The most memory this process has had, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB_OF_MAXRSS, 1)


def summary(file: SnapshotFile, cycles: list[CycleFigures]) -> dict[str, Any]:
    """What `--json` prints of cycles from parsed objects."""
    objects = file.raw_objects
    counts = {"nodes": objects.nodes, "pods": objects.pods, "groups": objects.pod_groups}
    sizes = {name: len(found or ()) for name, found in counts.items()}
    return {**sizes, "peak_rss_mb": peak_rss_mb(), "cycles": cycles}


class _Refused(click.ClickException):
    exit_code = 2


def instant(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """The value of an option that is a time, in seconds since the epoch."""
    found = parse_timestamp(text)
    if text is not None and found is None:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-01-31T12:00:00Z")
    return found


@click.command()
@click.argument("file", metavar="SNAPSHOT.zip", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--cycles", default=1, show_default=True, type=click.IntRange(1), help="How many, each from the file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with counts and timings instead of the plan.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True, help="The plan."
)
@click.option("--warm", is_flag=True, help="As many cycles again as a live scheduler has them: with a filled cache.")
@click.option("--rows", default=20, show_default=True, type=click.IntRange(0), help="Rows to show of each table.")
@click.option(
    "--now", callback=instant, help="The time the cycle takes place at.  [default: the newest time in the file]"
)
def replay(  # noqa: PLR0913 - one parameter for each option
    file: Path, cycles: int, as_json: bool, output: str, warm: bool, rows: int, now: float | None
) -> None:
    """Run scheduling cycles on a snapshot file and show what would be decided.

    The file is what KAI's scheduler serves at /get-snapshot. Nothing is written anywhere.
    """
    with refusing(file):
        run = opened(file, now)
        plan, figures = run_cycles(run, cycles)
        found = summary(run.file, figures)
        again = run_warm_cycles(run, cycles) if warm else None
    if as_json:
        click.echo(msgspec.json.encode({**found, **({} if again is None else {"warm": again})}))
    elif output != "table":
        data = plan_document(plan)
        click.echo(msgspec.json.format(msgspec.json.encode(data)) if output == "json" else msgspec.yaml.encode(data))
    else:
        _show(plan, figures, rows)
        for number, cycle in enumerate(again or (), 1):
            click.echo(f"warm {_line(number, cycle)}")


def opened(file: Path, now: float | None = None) -> Replay:
    """The file, ready for its cycles; `now` None: the newest time in it. FieldError names what is wrong with it."""
    source = source_of(file, now)
    return Replay(source.file, source.now)


@contextmanager
def refusing(file: Path) -> Iterator[None]:
    """What turns out to be wrong with the file, as a refusal that names the field."""
    try:
        yield
    except FieldError as error:
        raise _Refused(str(error)) from error
    except units.QuantityError as error:
        raise _Refused(f"{file}: {_first_wrong_amount(file) or error}") from error
    except msgspec.ValidationError as error:
        raise _Refused(f"{file}: {_first_wrong_part(file) or field_error(error, snapshot.MEMBER)}") from error


def run_cycles(run: Replay, cycles: int) -> tuple[Plan, list[CycleFigures]]:
    """The last plan, and the figures of every cycle."""
    figures = []
    keep_freed_memory()
    with gc_disabled():
        for _ in range(cycles):
            plan, measured = run.cycle()
            figures.append(measured)
    return plan, figures


def run_warm_cycles(run: Replay, cycles: int) -> list[CycleFigures]:
    """The figures of cycles with a filled cache."""
    with gc_disabled():
        return run.warm_cycles(cycles)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as data: what is bound, promised and evicted, and why the rest waits."""
    return {
        "binds": [{**msgspec.to_builtins(each), "pod": "/".join(each.pod)} for each in plan.binds],
        "nominations": [{"pod": "/".join(each.pod), "node": each.node} for each in plan.nominations],
        "evictions": [
            {
                "pod": "/".join(each.pod),
                "workload": "/".join(each.gang),
                "action": each.action,
                "for": "/".join(each.evictor or ()),
                "movesTo": each.moves_to,
                "message": each.message,
            }
            for each in plan.evictions
        ],
        "waiting": [
            {
                "workload": "/".join(each.gang),
                "pods": {"/".join(pod): text for pod, text in each.pods.items()},
                "reason": msgspec.to_builtins(each.dominant),
                "actions": msgspec.to_builtins(each.actions),
                "message": each.message,
                "notReady": each.not_ready,
            }
            for each in plan.verdicts
        ],
    }


def _raw_objects(file: Path) -> Any:
    with zipfile.ZipFile(file) as archive:
        return msgspec.json.decode(archive.read(snapshot.MEMBER))["rawObjects"]


def _first_wrong_part(file: Path) -> FieldError | None:
    """The first part of a pod's spec that has not its type, with its path: a cycle reads them when it needs them."""
    for number, pod in enumerate(_raw_objects(file).get("pods") or ()):
        path = f"{snapshot.MEMBER}: rawObjects.pods[{number}].spec"
        for part, message in pod_checks.shapes(pod.get("spec") or {}, path):
            return FieldError(part, message)
    return None


def _first_wrong_amount(file: Path) -> FieldError | None:
    """The first amount in the file that is none, with its path: for people who edit snapshots by hand."""
    for path, text in _amounts(_raw_objects(file), "rawObjects"):
        try:
            units.parse_quantity(text)
        except units.QuantityError as error:
            return FieldError(f"{snapshot.MEMBER}: {path}", str(error))
    return None


def _amounts(found: Any, path: str) -> Iterator[tuple[str, str]]:
    """The texts in all maps of amounts, with their paths."""
    named = found.items() if isinstance(found, dict) else ()
    for key, value in named:
        if key in _MAPS_OF_AMOUNTS and isinstance(value, dict):
            yield from ((f"{path}.{key}.{name}", text) for name, text in value.items() if isinstance(text, str))
        yield from _amounts(value, f"{path}.{key}")
    for number, value in enumerate(found if isinstance(found, list) else ()):
        yield from _amounts(value, f"{path}[{number}]")


def _show(plan: Plan, figures: list[CycleFigures], rows: int) -> None:
    from pykai.observe import tables  # rich costs memory that --json must not have

    tables.show(tables.plan_tables(plan, rows))
    for number, cycle in enumerate(figures, 1):
        click.echo(_line(number, cycle))


def _line(number: int, c: CycleFigures) -> str:
    return (
        f"cycle {number}: {c.bound} bound, {c.evicted} evicted, {c.pipelined} pipelined, {c.moved} moved, "
        f"{c.left_pending} left pending; {c.cycle_cpu_ms:.1f} ms CPU, {c.cycle_wall_ms:.1f} ms"
    )
