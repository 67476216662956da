"""`kai simulate`: manifests on a cluster in memory, in virtual time. Composes the simulator; decides nothing itself."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from pykai.admission import review
from pykai.admission.in_process import webhooks
from pykai.admission.pods import PodSettings
from pykai.cli import all as everything
from pykai.cli.component import COLLECTED_AFTER, Process, live
from pykai.cli.flags import no_nan
from pykai.cli.reservation import on_hollow_nodes
from pykai.config import scheduler, snapshot
from pykai.config.fields import FieldError, below
from pykai.config.scheduler import SchedulerConfig, remarks
from pykai.config.usage import read_usage_config
from pykai.hollow.settings import OnStart
from pykai.kube.api import Api
from pykai.kube.memory import Admission
from pykai.model.params import SchedulerParams
from pykai.objects import crds, names, units
from pykai.observe import logs
from pykai.plugins import registry
from pykai.scheduler.informers import SOURCES
from pykai.scheduler.trigger import Debounce
from pykai.simulate import generate, installed, manifests, validation
from pykai.simulate.cluster import BrokenError, Hooks, Progress, Setting, Simulation
from pykai.simulate.document import document
from pykai.simulate.faults import END_SECONDS as FAULTS_END
from pykai.simulate.faults import FaultyProduct
from pykai.simulate.history import Event, Outcome
from pykai.simulate.manifests import Manifest, ManifestError, Object, Origin, is_read_from_a_cluster
from pykai.simulate.timeline import clock
from pykai.simulate.validation import Admitted, ManifestsError

_PROCESS = Process("kai", metrics_address="0", health_address="0")
SNAPSHOTS = (".zip", ".gzip")
GENERATED = ("--nodes", "--jobs")
LINE_SECONDS = 10.0
"""Between two lines about the progress of a long run."""


class RefusedError(click.ClickException):
    """The input is wrong."""

    exit_code = 2


class Order(msgspec.Struct, frozen=True):
    """The options of the command that say what to simulate."""

    paths: tuple[Path, ...] = ()
    recursive: bool = False
    nodes: int = 0
    gpus: int = 8
    jobs: int = 0
    seed: int = 0
    job_seconds: float = Setting().job_runs
    config: Path | None = None


# --------------------------------------------------------------------------------------------------------- composition
class SimulatedProduct:
    """All components as `kai all` composes them, without ports: the product of a simulation."""

    def __init__(
        self, config: SchedulerConfig, params: SchedulerParams | None = None, debounce: Debounce | None = None
    ) -> None:
        self._config = config
        self._debounce = debounce or Debounce()
        self._params = params or SchedulerParams()
        self._pods = PodSettings(gpu_sharing=True, fraction_runtime_class="")
        self._faults = logs.collect_errors()

    def admission(self, queues: Callable[[], Mapping[str, Object]], warn: Callable[[str], None]) -> Sequence[Admission]:
        """See `cluster.Product`."""
        return [webhooks(review.Admission(self._pods, queues), warn)]

    def definitions(self) -> Sequence[Object]:
        """See `cluster.Product`."""
        return crds.manifests()

    def faults(self) -> Sequence[str]:
        """See `cluster.Product`: what components log as errors."""
        return self._faults

    def programs(self, api: Api) -> OnStart:
        """See `cluster.Product`."""
        return on_hollow_nodes(lambda: api)

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        """See `cluster.Product`."""
        await live(api, _PROCESS, partial(everything.compose, self._settings(hooks)), all_ready=ready)

    def _settings(self, hooks: Hooks) -> everything.AllSettings:
        usual = everything.settings_for(names.SCHEDULER_NAME, self._pods, None)
        options = replace(usual.scheduler.options, params=self._params, debounce=self._debounce)
        chosen = replace(usual.scheduler, options=options, config=self._config, plugin_port=None, observe=hooks.observe)
        if hooks.past is not None:
            past = hooks.past
            chosen = replace(chosen, usage_source=lambda _: past)
        reservations = replace(usual.binder.reservations, runtime_class="")
        return replace(usual, scheduler=chosen, binder=replace(usual.binder, reservations=reservations))


@dataclass(frozen=True)
class Input:
    """What is simulated: objects, what the user should know about them, and the scheduler's own settings."""

    objects: list[Admitted]
    notes: list[str]
    config: SchedulerConfig
    params: SchedulerParams


def read_input(order: Order) -> Input:
    """Everything that will exist: what was written, what was asked for by number, what an installation brings."""
    snapshots = [path for path in order.paths if path.suffix in SNAPSHOTS]
    if len(snapshots) > 1:
        raise FieldError(str(snapshots[1]), "only one snapshot can be continued")
    config, params = SchedulerConfig(), SchedulerParams()
    found = [*generate.nodes(order.nodes, order.gpus)]
    if snapshots:
        file = snapshot.load(snapshots[0])
        config, params = scheduler.read(file.config), snapshot.params(file)
        found += from_snapshot(snapshots[0])
    found += manifests.read([path for path in order.paths if path not in snapshots], order.recursive)
    found, note = validation.relevant(found)
    if order.jobs:
        found += _generated_jobs(order, found)
    objects = validation.admit([*installed.missing(found), *found])
    if not any(one.obj.get("kind") == "Node" for one in found):
        raise FieldError("no nodes", "add a Node to the manifests, or generate some with --nodes 10 --gpus 8")
    return Input(objects, [note] if note else [], scheduler.load(order.config) if order.config else config, params)


def _generated_jobs(order: Order, found: Sequence[Manifest]) -> list[Manifest]:
    gpus = float(order.nodes * order.gpus)
    if any(one.obj.get("kind") == "Queue" for one in found):
        return generate.jobs(order.jobs, _leaf_queues(found), gpus, order.seed)
    queues = generate.queues(gpus)
    return [*queues, *generate.jobs(order.jobs, _leaf_queues(queues), gpus, order.seed)]


def from_snapshot(path: Path) -> list[Manifest]:
    """The objects of a snapshot file."""
    sections = snapshot.raw_objects(path)
    by_section = {source.section: source.resource for source in SOURCES}
    return [
        Manifest(Origin(str(path), number), {"apiVersion": kind.api_version, "kind": kind.kind, **obj})
        for section, kind in by_section.items()
        for number, obj in enumerate(sections.get(section) or (), 1)
    ]


def _leaf_queues(found: Sequence[Manifest]) -> list[str]:
    queues = [one.obj for one in found if one.obj.get("kind") == "Queue"]
    parents = {(queue.get("spec") or {}).get("parentQueue") for queue in queues}
    return sorted({queue["metadata"]["name"] for queue in queues} - parents)


def simulation(order: Order) -> tuple[Simulation, list[str]]:
    """The run an order asks for, and notes on it; what is wrong with it is refused."""
    given = read_input(order)
    start = started(given.objects)
    with below(f"{order.config}: "):
        scheduler.policy(given.config, registry.make, registry.BUILT_IN)
        past = read_usage_config(given.config.usage_db, start) if given.config.usage_db else None
    setting = Setting(seed=order.seed, start=start, job_runs=order.job_seconds, usage=past)
    arrivals = [one.arrival(order.seed) for one in given.objects]
    product = SimulatedProduct(given.config, given.params)
    written = [one for one in arrivals if not one.source.startswith(GENERATED)]
    if refused := Simulation(product, written, setting).refusals():
        raise FieldError("", "\n".join(refused))
    notes = given.notes + [remark for one in given.objects for remark in one.remarks]
    return Simulation(product, arrivals, setting), notes


def started(objects: Sequence[Admitted]) -> float:
    """When the run begins: at the newest instant of what was read from a cluster, else at a fixed one."""
    read = [one.obj for one in objects if is_read_from_a_cluster(one.obj)]
    instants = [units.parse_timestamp(obj["metadata"].get("creationTimestamp")) for obj in read]
    instants += [units.parse_timestamp((obj.get("status") or {}).get("startTime")) for obj in read]
    return max((instant for instant in instants if instant is not None), default=Setting().start)


def remarks_of(file: Path | None) -> list[str]:
    """What a configuration that can be used asks for in vain."""
    return [f"{file}: {line}" for line in remarks(scheduler.load(file), registry.make)] if file else []


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
@click.option("-R", "--recursive", is_flag=True, help="Read directories in directories, too.")
@click.option("--nodes", default=0, type=click.IntRange(0), help="Add so many generated nodes.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(0), help="GPUs of each generated node.")
@click.option("--jobs", default=0, type=click.IntRange(0), help="Add so many generated jobs.")
@click.option(
    "--until", callback=_duration, help="Stop after this time, such as 90s or 2h.  [default: when all is quiet]"
)
@click.option("--seed", default=0, show_default=True, help="What is drawn by chance depends on it and on nothing else.")
@click.option(
    "--job-seconds",
    default=Setting().job_runs,
    show_default=True,
    type=click.FloatRange(0),
    callback=no_nan,
    help="How long a Job's pod runs without annotation pykai.io/run-seconds.",
)
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Scheduler configuration.")
@click.option("--faults", type=int, metavar="SEED", help="Play a random history with faults instead, and check it.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--rows", default=40, show_default=True, type=click.IntRange(1), help="Rows to show of each table.")
@click.option("--events", type=click.File("w"), help="Write every event to this file, as a line of JSON each.")
@click.option(
    "--report", type=click.Path(file_okay=False, path_type=Path), help="Write plots and a page to this folder."
)
def simulate(until: float | None, output: str, rows: int, events: Any, report: Path | None, **options: Any) -> None:
    """Run Kubernetes manifests on a cluster in memory, in virtual time.

    Objects come from YAML files, from standard input (-, such as `kubectl get nodes,queues,podgroups,pods -A -o yaml`),
    from a snapshot of a scheduler (FILE.zip), or are generated. What was read from a cluster is continued as it is.
    The annotations pykai.io/arrives (a duration) and pykai.io/run-seconds say when an object arrives and how long a pod
    runs.
    """
    if (faults := options.pop("faults")) is not None:
        play_faults(faults)
        return
    order = Order(**options)
    if not order.paths and not order.nodes:
        raise click.UsageError("nothing to simulate: name files or directories, or use --nodes")
    gc.set_threshold(*COLLECTED_AFTER)
    outcome, notes = _run(order, until)
    for remark in (*remarks_of(order.config), *notes, *outcome.history.remarks):
        click.echo(f"note: {remark}", err=True)
    if events is not None:
        _write_events(outcome.history.events, events)
    if report is not None:
        write_report(outcome, report)
    _show(outcome, order.seed, output, rows)


def play_faults(seed: int) -> None:
    """Play the history of a seed; what the checks find is shown, and ends the command with code 1."""
    product = FaultyProduct(SimulatedProduct(SchedulerConfig()), seed)
    found = generate.small_cluster(seed)
    arrivals = [one.arrival(seed) for one in validation.admit([*installed.missing(found), *found])]
    try:
        outcome = Simulation(product, arrivals, Setting(seed=seed)).play(FAULTS_END)
    except BrokenError as error:
        product.violations.append(str(error))
        outcome = None
    pods = f"{len(outcome.history.lives)} pods, " if outcome else ""
    click.echo(f"seed {seed}: {pods}" + ", ".join(f"{count} {kind}" for kind, count in sorted(product.counts.items())))
    for violation in dict.fromkeys(product.violations):
        click.echo(f"  violation: {violation}")
    if product.violations:
        sys.exit(1)


def _run(order: Order, until: float | None) -> tuple[Outcome, list[str]]:
    try:
        run, notes = simulation(order)
    except (ManifestError, ManifestsError, FieldError) as error:
        raise RefusedError(str(error)) from error
    if run.setting.usage is not None and until is None:
        raise click.UsageError("past use counts (usageDBConfig), so the run has no end of its own: say --until")
    return play(run, until), notes


def play(run: Simulation, until: float | None) -> Outcome:
    """The outcome of a run of so many seconds, with a bar on a terminal; a plan that is wrong ends the command."""
    try:
        with _progress(until) as progress:
            return run.play(until, progress)
    except BrokenError as error:
        raise click.ClickException(str(error)) from error


def _progress_lines() -> Progress:
    """A line now and then, for runs that take long."""
    last = time.monotonic()

    def tell(seconds: float, ended: int, pods: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            click.echo(f"{clock(seconds)} simulated, {ended} of {pods} pods have ended", err=True)

    return tell


@contextmanager
def _progress(until: float | None) -> Iterator[Progress]:
    """A bar on a terminal; it vanishes when the run is over."""
    if not sys.stderr.isatty():
        yield _progress_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=until)

        def tell(seconds: float, ended: int, pods: int) -> None:
            at = f"{seconds:.0f} s simulated, {ended} of {pods} pods have ended"
            done, total = (seconds, until) if until is not None else (ended, pods)
            bar.update(task, description=at, completed=done, total=total)

        yield tell


def _write_events(events: Sequence[Event], file: Any) -> None:
    encoder = msgspec.json.Encoder()
    for event in events:
        file.write(encoder.encode(event).decode() + "\n")


def write_report(outcome: Outcome, folder: Path) -> None:
    """Write plots and a page, and say where they are."""
    try:
        from pykai.simulate import report
    except ModuleNotFoundError as error:
        raise click.ClickException(f"--report needs {error.name}: install pykai[report]") from error
    try:
        click.echo(f"report: {report.write(outcome, folder)}", err=True)
    except OSError as error:
        raise click.ClickException(f"--report: cannot write to {folder}: {error.strerror}") from error


def _show(outcome: Outcome, seed: int, output: str, rows: int) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(outcome, seed))))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document(outcome, seed), sort_keys=False, allow_unicode=True), nl=False)
    else:
        from pykai.observe.tables import console, show
        from pykai.simulate.tables import tables

        out = console()
        show(tables(outcome, rows, out.width), out)
