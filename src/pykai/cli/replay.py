"""`kai replay`: runs one or more scheduling cycles on a snapshot file, each from the file's state, and writes nothing.

The timings cover what a scheduler does in a cycle: building the snapshot's columns from parsed objects, the actions,
the plan with its reasons, and freeing the memory; not reading and parsing the file. Searches have no time limit here,
so that a file gives the same plan on every machine.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy.ma  # noqa: F401  numpy imports it in the middle of the first `unique`: start-up, not a cycle

from pykai.cache.cluster import Change, ClusterCache
from pykai.cli.flags import InputError
from pykai.config import snapshot_file
from pykai.config.fields import FieldError, field_error
from pykai.config.snapshot_file import SnapshotFile
from pykai.engine.budgets import Clock
from pykai.engine.decide import decide
from pykai.explain.source import of_file
from pykai.explain.source import opened as source_of
from pykai.model.plan import Plan, ScenarioState, SearchResult, SearchStatistics
from pykai.objects import units
from pykai.objects.units import parse_timestamp
from pykai.scheduler.process_memory import gc_disabled, keep_freed_memory
from pykai.simulate import pod_checks

_QUANTITY_MAPS = ("requests", "limits", "allocatable", "capacity", "overhead")
_MIB_OF_MAXRSS = 1024 * 1024 if sys.platform == "darwin" else 1024


class Timing(msgspec.Struct):
    """CPU time of this process, user and system, in milliseconds."""

    cpu_ms: float


class SearchFigures(msgspec.Struct):
    """Statistics of an action's victim searches, those that ran a scenario generator. `failed`: simulations that did
    not solve a search, solved shorter prefixes of a gang included. `most`: the most simulations of one search."""

    searched: int = 0
    solved: int = 0
    simulated: int = 0
    failed: int = 0
    most: int = 0


class CycleFigures(msgspec.Struct):
    """Statistics of one cycle. `pipelined`: pending pods nominated to resources that are being released; `moved`:
    evicted pods nominated to another node."""

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
    """By action; actions without a search are left out."""


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


class Replay:
    """A parsed snapshot file and the time of its cycles, in seconds since the epoch."""

    def __init__(self, file: SnapshotFile, now: float) -> None:
        self._source = of_file(file, now)
        self.file, self.now = file, now
        self.params, self.policy = self._source.params, self._source.policy

    def cycle(self) -> tuple[Plan, CycleFigures]:
        """Run one cycle from the file's state."""
        return self._run_cycle(self._source.cache)

    def plan(self, clock: Clock) -> Plan:
        """Run one cycle and return its plan; its timings are read from this clock."""
        return decide(self._source.cache().snapshot(self.now), self.policy, self.now, clock)

    def warm_cycles(self, count: int) -> list[CycleFigures]:
        """Run cycles from the file's state on a cache that has been through a cycle before, as in a live scheduler."""
        cache = ClusterCache(self.params)
        for obj in self._source.objects:
            cache.apply(Change(obj))
        return [self._run_cycle(cache.copy)[1] for _ in range(count + 1)][1:]

    def _run_cycle(self, make_cache: Callable[[], ClusterCache]) -> tuple[Plan, CycleFigures]:
        cpu, wall = time.process_time(), time.perf_counter()
        cache = make_cache()
        snapshot = cache.snapshot(self.now)
        snapshot_seconds = time.process_time() - cpu
        plan = decide(snapshot, self.policy, self.now, time.process_time)
        del snapshot  # freeing it is part of a cycle; a live scheduler keeps the cache
        cpu_seconds, wall_seconds = time.process_time() - cpu, time.perf_counter() - wall
        return plan, _cycle_figures(plan, snapshot_seconds + plan.timings.opening, cpu_seconds, wall_seconds)


def search_figures(searches: Iterable[SearchStatistics]) -> dict[str, SearchFigures]:
    """Statistics of the victim searches of a cycle, by action."""
    figures: dict[str, SearchFigures] = {}
    for search in (each for each in searches if each.generators):
        simulated = sum(part.states.get(ScenarioState.SIMULATED, 0) for part in search.generators)
        solved = int(search.result is SearchResult.SOLVED)
        sums = figures.setdefault(search.action, SearchFigures())
        sums.searched += 1
        sums.solved += solved
        sums.simulated += simulated
        sums.failed += simulated - solved
        sums.most = max(sums.most, simulated)
    return figures


def _cycle_figures(plan: Plan, snapshot_seconds: float, cpu: float, wall: float) -> CycleFigures:
    moved = sum(1 for eviction in plan.evictions if eviction.moves_to)
    return CycleFigures(
        snapshot_cpu_ms=_milliseconds(snapshot_seconds),
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
    """Return the peak resident set size of this process, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB_OF_MAXRSS, 1)


def summary(file: SnapshotFile, cycles: list[CycleFigures]) -> dict[str, Any]:
    """Return the output of `--json` for cold cycles."""
    objects = file.raw_objects
    counts = {"nodes": objects.nodes, "pods": objects.pods, "groups": objects.pod_groups}
    sizes = {name: len(listed or ()) for name, listed in counts.items()}
    return {**sizes, "peak_rss_mb": peak_rss_mb(), "cycles": cycles}


def timestamp(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Callback of an option that takes a timestamp; returns seconds since the epoch."""
    seconds = parse_timestamp(text)
    if text is not None and seconds is None:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-01-31T12:00:00Z")
    return seconds


@click.command()
@click.argument("file", metavar="SNAPSHOT.zip", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--cycles", default=1, show_default=True, type=click.IntRange(1), help="Number of cycles, each from the file."
)
@click.option("--json", "as_json", is_flag=True, help="Print counts and timings as one JSON object, not the plan.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the plan.",
)
@click.option("--warm", is_flag=True, help="Then run as many cycles on a warm cache, as in a live scheduler.")
@click.option("--rows", default=20, show_default=True, type=click.IntRange(0), help="Rows to show of each table.")
@click.option("--now", callback=timestamp, help="Time of the cycle.  [default: the newest timestamp in the file]")
def replay(  # noqa: PLR0913 - one parameter for each option
    file: Path, cycles: int, as_json: bool, output: str, warm: bool, rows: int, now: float | None
) -> None:
    """Run scheduling cycles on a snapshot file and show the plan.

    The file has the format that KAI's scheduler serves at /get-snapshot. Nothing is written to a cluster.
    """
    if as_json and output != "table":
        raise click.UsageError("--json prints figures, -o json and -o yaml print the plan: choose one")
    with reported_input_errors(file):
        run = opened(file, now)
        plan, figures = run_cycles(run, cycles)
        result = summary(run.file, figures)
        with gc_disabled():
            warm_figures = run.warm_cycles(cycles) if warm else None
    if as_json:
        click.echo(msgspec.json.encode({**result, **({} if warm_figures is None else {"warm": warm_figures})}))
    elif output != "table":
        data = plan_document(plan)
        click.echo(msgspec.json.format(msgspec.json.encode(data)) if output == "json" else msgspec.yaml.encode(data))
    else:
        from pykai.observe import tables  # imports rich, whose memory must not count in the peak that --json reports

        tables.show(tables.plan_tables(plan, rows))
        for number, cycle in enumerate(figures, 1):
            click.echo(_cycle_line(number, cycle))
        for number, cycle in enumerate(warm_figures or (), 1):
            click.echo(f"warm {_cycle_line(number, cycle)}")


def opened(file: Path, now: float | None = None) -> Replay:
    """Load a snapshot file; `now` defaults to the newest timestamp in it. FieldError names an invalid field."""
    source = source_of(file, now)
    return Replay(source.file, source.now)


@contextmanager
def reported_input_errors(file: Path) -> Iterator[None]:
    """Report errors in the file as click errors that name the field."""
    try:
        yield
    except FieldError as error:
        raise InputError(str(error)) from error
    except units.QuantityError as error:
        raise InputError(f"{file}: {_first_invalid_quantity(file) or error}") from error
    except msgspec.ValidationError as error:
        raise InputError(
            f"{file}: {_first_malformed_part(file) or field_error(error, snapshot_file.MEMBER)}"
        ) from error


def run_cycles(run: Replay, cycles: int) -> tuple[Plan, list[CycleFigures]]:
    """Run cycles; return the last plan and the statistics of every cycle."""
    figures = []
    keep_freed_memory()
    with gc_disabled():
        for _ in range(cycles):
            plan, measured = run.cycle()
            figures.append(measured)
    return plan, figures


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as data: binds, nominations, evictions, and the reasons of waiting workloads."""
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


def _first_malformed_part(file: Path) -> FieldError | None:
    """Return the path and error of the first part of a pod's spec with a wrong type, which a cycle decodes lazily."""
    for number, pod in enumerate(snapshot_file.raw_objects(file).get("pods") or ()):
        path = f"{snapshot_file.MEMBER}: rawObjects.pods[{number}].spec"
        for part, message in pod_checks.shapes(pod.get("spec") or {}, path):
            return FieldError(part, message)
    return None


def _first_invalid_quantity(file: Path) -> FieldError | None:
    """Return the path and error of the first invalid quantity in the file; hand-edited snapshots have them."""
    for path, text in _quantities(snapshot_file.raw_objects(file), "rawObjects"):
        try:
            units.parse_quantity(text)
        except units.QuantityError as error:
            return FieldError(f"{snapshot_file.MEMBER}: {path}", str(error))
    return None


def _quantities(document: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every quantity in maps of quantities."""
    for key, value in document.items() if isinstance(document, dict) else ():
        if key in _QUANTITY_MAPS and isinstance(value, dict):
            yield from ((f"{path}.{key}.{name}", text) for name, text in value.items() if isinstance(text, str))
        yield from _quantities(value, f"{path}.{key}")
    for number, value in enumerate(document if isinstance(document, list) else ()):
        yield from _quantities(value, f"{path}[{number}]")


def _cycle_line(number: int, cycle: CycleFigures) -> str:
    return (
        f"cycle {number}: {cycle.bound} bound, {cycle.evicted} evicted, {cycle.pipelined} pipelined, "
        f"{cycle.moved} moved, {cycle.left_pending} left pending; "
        f"{cycle.cycle_cpu_ms:.1f} ms CPU, {cycle.cycle_wall_ms:.1f} ms"
    )
