"""`kai local`: a real control plane with hollow GPU nodes and every pykai component, on this machine.

`run` owns a cluster in the foreground; `up` starts `run` as a detached process and returns when the cluster is ready;
`down` ends it. `local_cluster.py` composes what runs on the cluster. Only the owner imports it, so that help and
`status` stay fast.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from pykai.cli.flags import no_nan
from pykai.cli.main import SuggestingGroup
from pykai.config.fields import FieldError
from pykai.hollow.hollow_node import GpuShape, NodeShape, read_shapes, repeat
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.local import build, clusters
from pykai.local.build import GoMissingError
from pykai.local.clusters import ClusterError, checked_name
from pykai.local.control_plane import tail
from pykai.local.operators import AUTOSCALER, OPERATORS
from pykai.local.process import identify, resident_bytes
from pykai.objects import names

if TYPE_CHECKING:
    from pykai.local.cluster_session import ClusterPlan

UP_SECONDS = 120.0
_NODE_OPTIONS = ("nodes", "gpus", "gpu_memory", "gpu_product", "time_slices")
_MIB = 1024 * 1024


class LocalOptions(msgspec.Struct, frozen=True):
    """The options of `up` and `run`; `nodes_file` replaces the options that describe nodes."""

    name: str = "kai"
    nodes: int = 2
    gpus: int = 8
    gpu_memory: int = GpuShape().memory_mib
    gpu_product: str = GpuShape().product
    time_slices: int = 1
    nodes_file: str = ""
    job_seconds: float = KubeletSettings().job_seconds
    kube_scheduler: bool = False
    bare: bool = False
    gpu_sharing_mode: str = ""
    operators: str = ""

    def __post_init__(self) -> None:
        checked_name(self.name)
        for each in self.chosen_operators():
            if each not in OPERATORS:
                raise FieldError("--operators", f"there is no {each!r}; there are {', '.join(OPERATORS)}")

    def chosen_operators(self) -> list[str]:
        """Return the operators to run, without duplicates."""
        return list(dict.fromkeys(each.strip() for each in self.operators.split(",") if each.strip()))

    def arguments(self) -> list[str]:
        """These options as command-line arguments."""
        given = msgspec.structs.asdict(self)
        if self.nodes_file:
            given = {name: value for name, value in given.items() if name not in _NODE_OPTIONS}
        flags = {name.replace("_", "-"): value for name, value in given.items() if value != "" and value is not False}
        return [f"--{flag}" if value is True else f"--{flag}={value}" for flag, value in flags.items()]

    def shapes(self) -> list[NodeShape]:
        """Return the hollow nodes to run; FieldError names an invalid option."""
        if self.nodes_file:
            return read_shapes(Path(self.nodes_file))
        gpus = GpuShape(self.gpus, self.gpu_memory, self.gpu_product, self.time_slices) if self.gpus else None
        for field, message in gpus.problems() if gpus else ():
            raise FieldError(f"--gpu-{field}", message)
        return repeat(NodeShape("node", gpus), self.nodes)


NAME = click.option("--name", default=LocalOptions().name, show_default=True, help="Name of the local cluster.")
_OPTIONS = (
    NAME,
    click.option("--nodes", default=2, show_default=True, type=click.IntRange(0), help="Number of hollow nodes."),
    click.option("--gpus", default=8, show_default=True, type=click.IntRange(0), help="GPUs of each node."),
    click.option(
        "--gpu-memory",
        default=LocalOptions().gpu_memory,
        show_default=True,
        type=click.IntRange(1),
        help="Memory of each GPU in MiB.",
    ),
    click.option("--gpu-product", default=LocalOptions().gpu_product, show_default=True, help="Product name of GPUs."),
    click.option(
        "--time-slices", default=1, show_default=True, type=click.IntRange(1), help="Time-slicing replicas of each GPU."
    ),
    click.option("--nodes-file", default="", type=click.Path(dir_okay=False), help="YAML list of different nodes."),
    click.option(
        "--job-seconds",
        default=LocalOptions().job_seconds,
        show_default=True,
        type=click.FloatRange(0),
        callback=no_nan,
        help="How long a Job's pod runs if it has no annotation pykai.io/run-seconds.",
    ),
    click.option("--kube-scheduler", is_flag=True, help="Also run kube-scheduler."),
    click.option("--bare", is_flag=True, help="Only control plane and nodes, no pykai component."),
    click.option(
        "--gpu-sharing-mode",
        default="",
        type=click.Choice(["", *names.SHARING_MODES]),
        help="How pods share GPUs; NonMemoryEnforced by default.",
    ),
    click.option(
        "--operators",
        default="",
        metavar="NAME[,NAME]...",
        help=f"Also run operators: {', '.join(OPERATORS)} (docs/local.md).",
    ),
)


def options_of(parameters: dict[str, Any]) -> LocalOptions:
    """Return the options of `up` or `run`; --nodes-file and options that describe nodes exclude each other."""
    context = click.get_current_context()
    explicit = [name for name in _NODE_OPTIONS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if parameters["nodes_file"] and explicit:
        raise click.UsageError(f"--nodes-file describes the nodes: leave out --{explicit[0].replace('_', '-')}")
    return LocalOptions(**parameters)


def takes_local_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a decorator that adds these options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _cluster_plan(options: LocalOptions) -> ClusterPlan:
    from pykai.cli import local_cluster
    from pykai.local.cluster_session import ClusterPlan
    from pykai.local.control_plane import SCHEDULER
    from pykai.local.operators.running import component

    operator_names = options.chosen_operators()
    autoscaled = AUTOSCALER in operator_names  # scaling pods, which represent waiting GPU shares, need kube-scheduler
    components = local_cluster.components(options.gpu_sharing_mode, autoscaled)
    product = (local_cluster.PODS_ONLY,) if options.bare else components
    operators = [component(name, _operator_binary(name)) for name in operator_names]

    return ClusterPlan(
        name=options.name,
        nodes=options.shapes(),
        extra_parts=(SCHEDULER,) if options.kube_scheduler or autoscaled else (),
        settings=KubeletSettings(job_seconds=options.job_seconds, on_start=local_cluster.first_program),
        components=(*product, *operators),
        images=local_cluster.IMAGES,
    )


@contextmanager
def _reported_errors() -> Iterator[None]:
    try:
        yield
    except FieldError as error:
        raise click.UsageError(str(error)) from error
    except (ClusterError, build.BuildError, GoMissingError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _build_progress(what: str) -> Iterator[build.Watcher]:
    """A progress bar on a terminal, occasional lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    if not console.is_terminal:
        yield build.Lines(lambda line: click.echo(line, err=True), what)
        return
    with Progress(*columns, console=console, transient=True) as display:
        bar = display.add_task(what, total=None)
        yield lambda at: display.update(
            bar, description=f"{what}: {at.stage}", completed=at.done, total=at.total or None
        )


def _binary() -> Path:
    with _build_progress("control plane") as watch:
        return build.ensure_binary(watch)


def _operator_binary(name: str) -> Path:
    with _build_progress(f"operator {name}") as watch:
        return build.ensure_binary(watch, OPERATORS[name].module(name))


@click.group(cls=SuggestingGroup)
def local() -> None:
    """A real Kubernetes control plane on this machine, with hollow GPU nodes."""


@local.command()
@takes_local_options
def run(**parameters: Any) -> None:
    """Run a cluster in the foreground until Ctrl-C, then remove it."""
    from pykai.local.cluster_session import run_cluster
    from pykai.observe import logs

    logs.set_up()
    with _reported_errors():
        options = options_of(parameters)
        run_cluster(_cluster_plan(options), _binary(), _show_ready)


@local.command()
@takes_local_options
def up(**parameters: Any) -> None:
    """Start a cluster in the background and wait until it is ready."""
    with _reported_errors():
        options = options_of(parameters)
        options.shapes()
        record = clusters.read_record(options.name)
        if record is not None and record.state() in ("ready", "starting"):
            stop = f"stop it with `kai local down --name {options.name}` or choose another --name"
            raise ClusterError(f"cluster {options.name!r} is already running; {stop}")
        _binary()
        for name in options.chosen_operators():
            _operator_binary(name)
        started = time.monotonic()
        _show_ready(_start_owner(options))
        log = clusters.directory_of(options.name) / clusters.OWNER_LOG
        click.echo(f"ready after {time.monotonic() - started:.1f} s; log: {log}", err=True)


def _start_owner(options: LocalOptions) -> clusters.ClusterRecord:
    log = clusters.directory_of(options.name) / clusters.OWNER_LOG
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "run", *options.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    owner = identify(process.pid)
    try:
        record = clusters.await_phase(options.name, owner, UP_SECONDS) if owner else None
    except KeyboardInterrupt:
        clusters.down(options.name)
        raise
    if record is None:
        log_tail = tail(log)
        clusters.down(options.name)
        raise ClusterError(f"the cluster did not become ready; the end of its log was:\n{log_tail}")
    if record.phase == "failed":
        raise ClusterError(record.failure)
    return record


def _show_ready(record: clusters.ClusterRecord) -> None:
    click.echo(f"cluster {record.name}: Kubernetes {record.version} at {record.url}, {record.nodes} hollow nodes")
    click.echo(f"export KUBECONFIG={record.kubeconfig}")


@local.command()
@NAME
@click.option("--all", "every", is_flag=True, help="All your local clusters.")
def down(name: str, every: bool) -> None:
    """Stop a cluster and remove all its files."""
    with _reported_errors():
        for each in [record.name for record in clusters.records()] if every else [name]:
            gone = clusters.down(each)
            click.echo(f"cluster {each} is gone" if gone else f"there is no cluster {each}")


_PASS_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Everything after kubectl's first argument is passed on, `--` included."""


@local.command(add_help_option=False, context_settings=_PASS_THROUGH, short_help="Run kubectl on a cluster.")
@click.option("--on", "name", default="", help="Name of the cluster.  [default: the only one, else kai]")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """Run the kubectl that is built into the control plane's binary on a cluster.

    With several clusters, choose one with --on: `kai local kubectl --on NAME get pods`. Plugins find the cluster, too:
    `kai local kubectl kai queues`.
    """
    with _reported_errors():
        plugins = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "KUBECONFIG": _ready_cluster(name).kubeconfig, "PATH": plugins}
        sys.exit(subprocess.run([str(_binary()), "kubectl", *arguments], env=environment).returncode)


def _ready_cluster(name: str) -> clusters.ClusterRecord:
    ready = {record.name: record for record in clusters.records() if record.state() == "ready"}
    wanted = name or (next(iter(ready)) if len(ready) == 1 else LocalOptions().name)
    if wanted not in ready:
        others = f"; ready are {', '.join(ready)}: choose with --on NAME" if ready else ""
        raise ClusterError(
            f"there is no cluster {wanted!r} that is ready; `kai local up --name {wanted}` starts one{others}"
        )
    return ready[wanted]


@local.command(short_help="Show your local clusters.")
@click.option("--name", default="", help="Only this cluster.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def status(name: str, output: str) -> None:
    """Show your local clusters; the exit code is 1 unless all of them are ready."""
    with _reported_errors():
        records = [record for record in clusters.records() if name in ("", record.name)]
    if output != "table":
        from pykai.cli.state import print_as_data  # imports the engine, which the other commands do without

        print_as_data([_cluster_document(record) for record in records], output)
    elif name and not records:
        click.echo(f"there is no cluster {name!r}; `kai local up --name {name}` starts one")
    else:
        _show_table(records)
    if any(record.state() != "ready" for record in records) or (name and not records):
        sys.exit(1)


def _cluster_document(record: clusters.ClusterRecord) -> dict[str, Any]:
    """Return a cluster as `-o json` shows it; memory in MiB."""
    fields = ("name", "version", "url", "kubeconfig", "nodes", "components", "failure")
    return {
        **{field: getattr(record, field) for field in fields},
        "state": record.state(),
        "ageSeconds": round(time.time() - record.created),
        "parts": _process_rows(record),
    }


def _show_table(records: list[clusters.ClusterRecord]) -> None:
    """Print a table of clusters and their processes, then each cluster's KUBECONFIG or failure."""
    if not records:
        click.echo("no local cluster; `kai local up` starts one")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table("cluster", "state", "nodes", "part", "pid", "MiB", box=SIMPLE_HEAD)
    for record in records:
        for number, row in enumerate(_process_rows(record)):
            own = ("", "", "") if number else (record.name, record.state(), str(record.nodes))
            memory = str(row["memoryMiB"]) if row["alive"] else "ended"
            table.add_row(*own, row["name"], str(row["pid"]), memory)
    Console().print(table)
    for record in records:
        click.echo(f"{record.name}: {record.failure or f'export KUBECONFIG={record.kubeconfig}'}")


def _process_rows(record: clusters.ClusterRecord) -> list[dict[str, Any]]:
    rows = {"kai": record.owner, **record.parts}
    return [
        {"name": name, "pid": process.pid, "alive": process.alive(), "memoryMiB": resident_bytes(process.pid) // _MIB}
        for name, process in rows.items()
    ]


if __name__ == "__main__":
    local()
