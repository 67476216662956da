"""`kai simulate`: runs manifests on an in-memory cluster in virtual time; composes the simulation, shows its result."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pykai.cli.component import GC_THRESHOLDS, reported_errors
from pykai.cli.fault_campaign import SEEDS, play_faults
from pykai.cli.flags import InputError, no_nan
from pykai.cli.simulated_product import SimulatedProduct
from pykai.config import scheduler_config, snapshot_file
from pykai.config.fields import FieldError, path_prefix
from pykai.config.scheduler_config import SchedulerConfig, remarks
from pykai.config.usage_db import read_usage_config
from pykai.model.params import SchedulerParams
from pykai.objects import units
from pykai.plugins import registry
from pykai.scheduler.decision import Decision
from pykai.scheduler.informers import SOURCES
from pykai.scheduler.scheduler import unobserved
from pykai.simulate import generate, manifest_validation, manifests, traces
from pykai.simulate.history import SimulationResult, document
from pykai.simulate.manifest_validation import Admitted, ManifestsError
from pykai.simulate.manifests import Manifest, ManifestError, Origin, is_read_from_a_cluster
from pykai.simulate.simulation import BrokenError, Progress, Setting, Simulation
from pykai.simulate.timeline import clock

if TYPE_CHECKING:
    from pykai.dashboard.simulated_board import DecisionLog

SNAPSHOTS = (".zip", ".gzip")
GENERATED = ("--nodes", "--jobs", "--trace")
LINE_SECONDS = 10.0
"""Interval of the progress lines of a long run."""


class SimulateOptions(msgspec.Struct, frozen=True):
    """The options of the command that select what to simulate."""

    paths: tuple[Path, ...] = ()
    recursive: bool = False
    nodes: int = 0
    gpus: int = 8
    jobs: int = 0
    trace: str = ""
    seed: int = 0
    job_seconds: float = Setting().job_runs
    config: Path | None = None


# --------------------------------------------------------------------------------------------------------- composition
@dataclass(frozen=True)
class Input:
    """The input of a simulation: admitted objects, notes for the user, the scheduler's configuration and parameters."""

    objects: list[Admitted]
    notes: list[str]
    config: SchedulerConfig
    params: SchedulerParams


def read_input(options: SimulateOptions) -> Input:
    """Return the simulation's objects: of manifests and a snapshot, generated ones, and those of an installation."""
    snapshots = [path for path in options.paths if path.suffix in SNAPSHOTS]
    if len(snapshots) > 1:
        raise FieldError(str(snapshots[1]), "only one snapshot can be continued")
    config, params = SchedulerConfig(), SchedulerParams()
    loaded = [*generate.nodes(options.nodes, options.gpus)]
    if snapshots:
        file = snapshot_file.load(snapshots[0])
        config, params = scheduler_config.read(file.config), snapshot_file.params(file)
        loaded += from_snapshot(snapshots[0])
    loaded += manifests.read([path for path in options.paths if path not in snapshots], options.recursive)
    loaded, note = manifest_validation.relevant(loaded)
    if options.jobs:
        loaded += _generated_jobs(options, loaded)
    if options.trace:
        gpus = options.nodes * options.gpus
        loaded += traces.manifests(traces.day(gpus, options.seed), traces.quotas(gpus))
    objects = manifest_validation.admit(generate.with_defaults(loaded))
    if not any(one.obj.get("kind") == "Node" for one in loaded):
        raise FieldError("no nodes", "add a Node to the manifests, or generate some with --nodes 10 --gpus 8")
    return Input(
        objects, [note] if note else [], scheduler_config.load(options.config) if options.config else config, params
    )


def _generated_jobs(options: SimulateOptions, loaded: Sequence[Manifest]) -> list[Manifest]:
    gpus = float(options.nodes * options.gpus)
    if any(one.obj.get("kind") == "Queue" for one in loaded):
        return generate.jobs(options.jobs, _leaf_queues(loaded), gpus, options.seed)
    queues = generate.queues(gpus)
    return [*queues, *generate.jobs(options.jobs, _leaf_queues(queues), gpus, options.seed)]


def from_snapshot(path: Path) -> list[Manifest]:
    """The objects of a snapshot file."""
    objects = snapshot_file.raw_objects(path)
    by_section = {source.section: source.resource for source in SOURCES}
    return [
        Manifest(Origin(str(path), number), {"apiVersion": kind.api_version, "kind": kind.kind, **obj})
        for section, kind in by_section.items()
        for number, obj in enumerate(objects.get(section) or (), 1)
    ]


def _leaf_queues(loaded: Sequence[Manifest]) -> list[str]:
    queues = [one.obj for one in loaded if one.obj.get("kind") == "Queue"]
    parents = {(queue.get("spec") or {}).get("parentQueue") for queue in queues}
    return sorted({queue["metadata"]["name"] for queue in queues} - parents)


def simulation(
    options: SimulateOptions, observe: Callable[[Decision], None] = unobserved
) -> tuple[Simulation, list[str]]:
    """Return the simulation of these options, and notes on it; invalid input raises. `observe`: sees all decisions."""
    inputs = read_input(options)
    start = start_time(inputs.objects)
    with path_prefix(f"{options.config}: "):
        scheduler_config.policy(inputs.config, registry.make, registry.BUILT_IN)
        usage = read_usage_config(inputs.config.usage_db, start) if inputs.config.usage_db else None
    setting = Setting(seed=options.seed, start=start, job_runs=options.job_seconds, usage=usage)
    arrivals = [one.arrival(options.seed) for one in inputs.objects]
    product = SimulatedProduct(inputs.config, inputs.params, observe=observe)
    written = [one for one in arrivals if not one.source.startswith(GENERATED)]
    if refused := Simulation(product, written, setting).refusals():
        raise FieldError("", "\n".join(refused))
    notes = inputs.notes + [remark for one in inputs.objects for remark in one.remarks]
    return Simulation(product, arrivals, setting), notes


def start_time(objects: Sequence[Admitted]) -> float:
    """Return the start of virtual time: the newest timestamp of objects read from a cluster, else a fixed time."""
    recorded = [one.obj for one in objects if is_read_from_a_cluster(one.obj)]
    instants = [units.parse_timestamp(obj["metadata"].get("creationTimestamp")) for obj in recorded]
    instants += [units.parse_timestamp((obj.get("status") or {}).get("startTime")) for obj in recorded]
    return max((instant for instant in instants if instant is not None), default=Setting().start)


# -------------------------------------------------------------------------------------------------------------- command
def _duration(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    try:
        seconds = None if text is None else units.parse_long_duration(text)
    except units.DurationError as error:
        raise click.BadParameter(str(error)) from error
    if seconds is not None and seconds < 0:
        raise click.BadParameter(f"{text} is negative")
    return seconds


@click.command()
@click.argument(
    "paths", metavar="[FILE|DIR|-]...", nargs=-1, type=click.Path(exists=True, allow_dash=True, path_type=Path)
)
@click.option("-R", "--recursive", is_flag=True, help="Read directories recursively.")
@click.option("--nodes", default=0, type=click.IntRange(0), help="Number of generated nodes to add.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(0), help="GPUs of each generated node.")
@click.option("--jobs", default=0, type=click.IntRange(0), help="Number of generated jobs to add.")
@click.option("--trace", type=click.Choice(["", traces.NAME]), default="", help="Add a day of jobs from this trace.")
@click.option(
    "--until",
    callback=_duration,
    help="Stop after this time, such as 90s or 2h.  [default: when nothing changes any more; a trace: after a day]",
)
@click.option("--seed", default=0, show_default=True, help="Seed of everything random.")
@click.option(
    "--job-seconds",
    default=Setting().job_runs,
    show_default=True,
    type=click.FloatRange(0),
    callback=no_nan,
    help="How long a Job's pod runs if it has no annotation pykai.io/run-seconds.",
)
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Scheduler configuration.")
@click.option("--faults", type=SEEDS, metavar="SEED[-LAST]", help="Run and check random histories with faults.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--rows", default=40, show_default=True, type=click.IntRange(1), help="Rows to show of each table.")
@click.option("--events", type=click.File("w", lazy=False), help="Write all events to this file, as JSON lines.")
@click.option(
    "--report", type=click.Path(file_okay=False, path_type=Path), help="Write plots and a page to this folder."
)
@click.option("--dashboard", is_flag=True, help="Then serve a dashboard of every moment of the run until Ctrl-C.")
def simulate(  # noqa: PLR0913 - what is done with the outcome
    until: float | None,
    output: str,
    rows: int,
    events: Any,
    report: Path | None,
    dashboard: bool,
    **parameters: Any,
) -> None:
    """Run Kubernetes manifests on an in-memory cluster in virtual time.

    Objects come from YAML files, from standard input (-, such as `kubectl get nodes,queues,podgroups,pods -A -o yaml`),
    from a snapshot of a scheduler (FILE.zip), or are generated. Objects that were read from a cluster keep their state.
    The annotations pykai.io/arrives (a duration) and pykai.io/run-seconds set when an object arrives and how long a pod
    runs.
    """
    if (faults := parameters.pop("faults")) is not None:
        if parameters["paths"] or parameters["nodes"] or parameters["jobs"] or parameters["trace"]:
            raise click.UsageError("--faults makes clusters of its own: give no files, --nodes, --jobs or --trace")
        play_faults(faults)
        return
    options = SimulateOptions(**parameters)
    if not options.paths and not options.nodes:
        raise click.UsageError("nothing to simulate: name files or directories, or use --nodes")
    if options.trace and not options.nodes:
        raise click.UsageError("--trace requires --nodes: its jobs are scaled to the generated nodes")
    if options.trace and until is None:
        until = traces.DAY
    gc.set_threshold(*GC_THRESHOLDS)
    decision_log = _decision_log() if dashboard else None
    run, outcome, notes = _run_simulation(options, until, decision_log.observe if decision_log else unobserved)
    config = remarks(scheduler_config.load(options.config), registry.make) if options.config else ()
    for remark in (*(f"{options.config}: {line}" for line in config), *notes, *outcome.history.remarks):
        click.echo(f"note: {remark}", err=True)
    if events is not None:
        events.writelines(f"{msgspec.json.encode(event).decode()}\n" for event in outcome.history.events)
    if report is not None:
        write_report(outcome, report)
    _print_result(outcome, options.seed, output, rows)
    if decision_log is not None:
        _serve_dashboard(options, decision_log, run, outcome)


def _decision_log() -> DecisionLog:
    from pykai.dashboard.simulated_board import DecisionLog  # imports the dashboard, which few simulations need

    return DecisionLog()


def _serve_dashboard(options: SimulateOptions, log: DecisionLog, run: Simulation, outcome: SimulationResult) -> None:
    """Serve the dashboard of the run until Ctrl-C."""
    from pykai.cli.dashboard import PORT, serve_on_loopback
    from pykai.dashboard.simulated_board import simulated_board

    name = " ".join(map(str, options.paths)) or f"{options.nodes} nodes, {options.jobs} jobs"
    board = simulated_board(name, log, outcome, run.setting.start)
    with reported_errors():
        asyncio.run(serve_on_loopback(board, PORT))


def _run_simulation(
    options: SimulateOptions, until: float | None, observe: Callable[[Decision], None]
) -> tuple[Simulation, SimulationResult, list[str]]:
    try:
        run, notes = simulation(options, observe)
    except (ManifestError, ManifestsError, FieldError) as error:
        raise InputError(str(error)) from error
    if run.setting.usage is not None and until is None:
        raise click.UsageError("usageDBConfig requires --until: past use keeps changing fair shares")
    return run, play(run, until), notes


def play(run: Simulation, until: float | None) -> SimulationResult:
    """Run a simulation with a progress display; an invalid plan ends the command with an error."""
    try:
        with _progress_display(until) as progress:
            return run.play(until, progress)
    except BrokenError as error:
        raise click.ClickException(str(error)) from error


def _progress_lines() -> Progress:
    """Progress as an occasional line, for long runs without a terminal."""
    last = time.monotonic()

    def show(seconds: float, ended: int, pods: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            click.echo(f"{clock(seconds)} simulated, {ended} of {pods} pods have ended", err=True)

    return show


@contextmanager
def _progress_display(until: float | None) -> Iterator[Progress]:
    """A transient progress bar on a terminal, occasional lines elsewhere."""
    if not sys.stderr.isatty():
        yield _progress_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=until)

        def show(seconds: float, ended: int, pods: int) -> None:
            at = f"{seconds:.0f} s simulated, {ended} of {pods} pods have ended"
            done, total = (seconds, until) if until is not None else (ended, pods)
            bar.update(task, description=at, completed=done, total=total)

        yield show


def write_report(outcome: SimulationResult, folder: Path) -> None:
    """Write plots and a page to the folder, and print the page's path."""
    try:
        from pykai.simulate import report
    except ModuleNotFoundError as error:
        raise click.ClickException(f"--report needs {error.name}: install pykai[report]") from error
    try:
        click.echo(f"report: {report.write(outcome, folder)}", err=True)
    except OSError as error:
        raise InputError(f"--report: cannot write to {folder}: {error.strerror}") from error


def _print_result(outcome: SimulationResult, seed: int, output: str, rows: int) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(outcome, seed))))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document(outcome, seed), sort_keys=False, allow_unicode=True), nl=False)
    else:
        from pykai.observe.tables import console, show
        from pykai.simulate.result_tables import tables

        out = console()
        show(tables(outcome, rows, out.width), out)
