"""`kai simulate`: manifests on a cluster in memory, in virtual time. Composes the simulator; decides nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from pykai.admission import review
from pykai.admission.pods import PodSettings
from pykai.cli.flags import no_nan
from pykai.config import scheduler
from pykai.config.fields import FieldError, below
from pykai.config.scheduler import remarks
from pykai.config.usage import read_usage_config
from pykai.controllers.podgrouper import grouping
from pykai.controllers.podgrouper.podgroup import pod_group_to_write
from pykai.controllers.podgrouper.rules.fields import GroupingError
from pykai.controllers.podgrouper.rules.workload import GroupingSettings
from pykai.model.params import SchedulerParams
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import units
from pykai.plugins import registry
from pykai.sim import admission, generate, installed, manifests
from pykai.sim.admission import Admitted, ManifestsError
from pykai.sim.devices import NoDeviceError
from pykai.sim.document import document
from pykai.sim.history import Event, Outcome
from pykai.sim.manifests import Manifest, ManifestError, Object
from pykai.sim.run import Progress, Simulation
from pykai.sim.setting import Grouped, Setting
from pykai.sim.store import Store
from pykai.sim.world import PlanRefusedError
from pykai.verify.judge import verify

_POD_GROUP = ("scheduling.run.ai/v2alpha2", "PodGroup")


class RefusedError(click.ClickException):
    """The input is wrong."""

    exit_code = 2


class Order(msgspec.Struct, frozen=True):
    """The options of the command that say what to simulate."""

    paths: tuple[Path, ...] = ()
    nodes: int = 0
    gpus: int = 8
    jobs: int = 0
    seed: int = 0
    job_seconds: float = Setting().job_runs
    config: Path | None = None


# --------------------------------------------------------------------------------------------------------- composition
def group(pod: Object, store: Store) -> Grouped:
    """The pod grouper's own logic, on the simulated cluster."""
    settings = GroupingSettings()
    try:
        work = grouping.workload_of(pod, store, settings)
        if work is None:
            return Grouped(pod)
        spec = grouping.group_of(work)
    except GroupingError as error:
        return Grouped(pod, problem=f"it cannot be grouped: {error}")
    existing = store.get(*_POD_GROUP, spec.namespace, spec.name)
    wanted = pod_group_to_write(spec, existing, settings)
    return Grouped(_patched(pod, grouping.pod_patch(spec, pod)), wanted, remarks=grouping.ignored_settings(work))


_WEBHOOKS = {
    "Pod": review.VALIDATE_POD,
    "Job": review.VALIDATE_POD,
    "Queue": review.VALIDATE_QUEUE,
    "PodGroup": review.VALIDATE_POD_GROUP,
    "Topology": review.VALIDATE_TOPOLOGY,
}
_ADMISSION = review.Admission(PodSettings(gpu_sharing=True))


def webhook(obj: Object) -> str:
    """Why the product's webhooks would refuse an object, or the pods of a Job; empty where they would not."""
    if obj["kind"] not in _WEBHOOKS:
        return ""
    judged = {"metadata": {}, **obj["spec"]["template"]} if obj["kind"] == "Job" else obj
    request = review.Request(uid="", operation="CREATE", object=judged)
    return review.judge(_WEBHOOKS[obj["kind"]], request, _ADMISSION).message


def judge(plugins: Container[str], snapshot: Snapshot, plan: Plan) -> list[str]:
    """What the independent judge of plans finds wrong, by the rules of the plugins that run."""
    return [str(violation) for violation in verify(snapshot, plan, plugins)]


def _patched(pod: Object, patch: Object | None) -> Object:
    meta = pod["metadata"]
    more = {part: {**(meta.get(part) or {}), **entries} for part, entries in (patch or {}).get("metadata", {}).items()}
    return {**pod, "metadata": {**meta, **more}}


def cluster(order: Order) -> list[Admitted]:
    """Everything that will exist: what was written, what was asked for by number, what an installation brings."""
    found = [*generate.nodes(order.nodes, order.gpus), *manifests.read(order.paths)]
    if order.jobs:
        gpus = float(order.nodes * order.gpus)
        if not any(one.obj.get("kind") == "Queue" for one in found):
            found += generate.queues(gpus)
        found += generate.jobs(order.jobs, _leaf_queues(found), gpus, order.seed)
    return admission.admit([*installed.missing(found), *found], webhook)


def _leaf_queues(found: Sequence[Manifest]) -> list[str]:
    queues = [one.obj for one in found if one.obj.get("kind") == "Queue"]
    parents = {(queue.get("spec") or {}).get("parentQueue") for queue in queues}
    return sorted({queue["metadata"]["name"] for queue in queues} - parents)


def simulation(order: Order) -> Simulation:
    """The run an order asks for; what is wrong with it is refused."""
    config = scheduler.load(order.config) if order.config else scheduler.SchedulerConfig()
    with below(f"{order.config}: "):
        policy = scheduler.policy(config, registry.make, registry.BUILT_IN)
        past = read_usage_config(config.usage_db, Setting().start) if config.usage_db else None
    rules = partial(judge, scheduler.plugin_names(config, registry.BUILT_IN))
    setting = Setting(seed=order.seed, job_runs=order.job_seconds, usage=past, group=group, judge=rules)
    return Simulation(cluster(order), policy, SchedulerParams(), setting)


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
@click.argument("paths", metavar="[FILE|DIR]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
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
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--rows", default=40, show_default=True, type=click.IntRange(1), help="Rows to show of each table.")
@click.option("--events", type=click.File("w"), help="Write every event to this file, as a line of JSON each.")
@click.option(
    "--report", type=click.Path(file_okay=False, path_type=Path), help="Write plots and a page to this folder."
)
def simulate(until: float | None, output: str, rows: int, events: Any, report: Path | None, **options: Any) -> None:
    """Run Kubernetes manifests on a cluster in memory, in virtual time.

    Nodes, Queues, Pods, Jobs, PodGroups, PriorityClasses and Topologies come from YAML files, or are generated.
    The annotations pykai.io/arrives (a duration) and pykai.io/run-seconds tell when an object comes and how long a pod
    runs.
    """
    order = Order(**options)
    if not order.paths and not order.nodes:
        raise click.UsageError("nothing to simulate: name files or directories, or use --nodes")
    outcome = _run(order, until)
    for remark in (*remarks_of(order.config), *outcome.history.remarks):
        click.echo(f"note: {remark}", err=True)
    if events is not None:
        _write_events(outcome.history.events, events)
    if report is not None:
        write_report(outcome, report)
    _show(outcome, order.seed, output, rows)


def _run(order: Order, until: float | None) -> Outcome:
    try:
        run = simulation(order)
    except (ManifestError, ManifestsError, FieldError) as error:
        raise RefusedError(str(error)) from error
    if run.setting.usage is not None and until is None:
        raise click.UsageError("past use counts (usageDBConfig), so the run has no end of its own: say --until")
    return play(run, until)


def play(run: Simulation, until: float | None) -> Outcome:
    """The outcome of a run of so many seconds, with a bar on a terminal; a plan that is wrong ends the command."""
    try:
        with _progress(until) as progress:
            return run.run(until, progress)
    except (PlanRefusedError, NoDeviceError) as error:
        raise click.ClickException(f"the scheduler made a wrong decision {error}") from error


@contextmanager
def _progress(until: float | None) -> Iterator[Progress]:
    """A bar on a terminal; it vanishes when the run is over."""
    if not sys.stderr.isatty():
        yield lambda *_: None
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
        from pykai.sim import report
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
        from pykai.sim.tables import tables

        out = console()
        show(tables(outcome, rows, out.width), out)
