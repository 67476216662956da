"""`kai local`: a real control plane with hollow GPU nodes and every pykai component, on this machine.

`up` starts a process that owns the cluster (`run`, detached) and returns when it can be used; `down` ends it. Both ways
run the same code, and the owner is this module, so what runs on a local cluster is the three tables below.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from pykai.cli import cluster_table
from pykai.cli.local_order import NAME, Order, order_of, takes_order
from pykai.cli.on_local import KAI, PODS_ONLY, RESERVATION
from pykai.config.fields import FieldError
from pykai.hollow.settings import KubeletSettings, Log, Object, OnStart
from pykai.hollow.settings import Program as PodProgram
from pykai.hollow.shapes import Device
from pykai.local import build, clusters, parts
from pykai.local.cluster import ClusterError, tail
from pykai.local.containers.images import Image, Images
from pykai.local.gotool import GoMissingError
from pykai.local.process import identify
from pykai.local.session import ClusterPlan, Component, run_cluster
from pykai.observe import logs

COMPONENTS: Sequence[Component] = (KAI,)
"""What runs on every local cluster, started in this order."""

PROGRAMS: Sequence[OnStart] = (RESERVATION,)
"""What pods run; they are asked in this order and the first program wins."""

IMAGES: Images = {
    "pykai": Image({"kai": (sys.executable, "-m", "pykai.cli.main")}, ("kai",), {"PYTHONUNBUFFERED": "1"}),
}
"""Whose containers run as processes: with `--bare`, the components that the chart and its operator deploy."""

UP_SECONDS = 120.0
_console = Console(stderr=True)


def _first_program(pod: Object, node: str, devices: tuple[Device, ...], log: Log) -> PodProgram | None:
    programs = (choose(pod, node, devices, log) for choose in PROGRAMS)
    return next((program for program in programs if program is not None), None)


def _plan(order: Order) -> ClusterPlan:
    return ClusterPlan(
        name=order.name,
        nodes=order.shapes(),
        extra_parts=(parts.SCHEDULER,) if order.kube_scheduler else (),
        settings=KubeletSettings(job_seconds=order.job_seconds, on_start=_first_program),
        components=(PODS_ONLY,) if order.bare else COMPONENTS,
        images=IMAGES,
    )


@contextmanager
def _errors_for_people() -> Iterator[None]:
    try:
        yield
    except FieldError as error:
        raise click.UsageError(str(error)) from error
    except (ClusterError, build.BuildError, GoMissingError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _build_display() -> Iterator[build.Watcher]:
    """A progress bar on a terminal, a line now and then elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    if not _console.is_terminal:
        yield build.Lines(lambda line: click.echo(line, err=True))
        return
    with Progress(*columns, console=_console, transient=True) as display:
        bar = display.add_task("control plane", total=None)
        yield lambda at: display.update(
            bar, description=f"control plane: {at.stage}", completed=at.done, total=at.total or None
        )


def _binary() -> Path:
    with _build_display() as watch:
        return build.ensure_binary(watch)


@click.group()
def local() -> None:
    """A real Kubernetes control plane on this machine, with hollow GPU nodes."""


@local.command()
@takes_order
def run(**options: Any) -> None:
    """Run a cluster in the foreground until Ctrl-C, then remove it."""
    logs.set_up()
    with _errors_for_people():
        order = order_of(options)
        run_cluster(_plan(order), _binary(), _show_ready)


@local.command()
@takes_order
def up(**options: Any) -> None:
    """Start a cluster in the background and wait until it can be used."""
    with _errors_for_people():
        order = order_of(options)
        order.shapes()
        _refuse_running(order.name)
        _binary()
        begun = time.monotonic()
        _show_ready(_start_owner(order))
        log = clusters.directory_of(order.name) / clusters.OWNER_LOG
        click.echo(f"ready after {time.monotonic() - begun:.1f} s; log: {log}", err=True)


def _refuse_running(name: str) -> None:
    record = clusters.read_record(name)
    if record is not None and record.state() in ("ready", "starting"):
        raise ClusterError(
            f"cluster {name!r} is already running; stop it with `kai local down --name {name}` or choose another --name"
        )


def _start_owner(order: Order) -> clusters.Record:
    log = clusters.directory_of(order.name) / clusters.OWNER_LOG
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "run", *order.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    record = _await_owner(order.name, process.pid)
    if record is None:
        last_words = tail(log)
        clusters.down(order.name)
        raise ClusterError(f"the cluster did not become ready; the end of its log was:\n{last_words}")
    if record.phase == "failed":
        raise ClusterError(record.failure)
    return record


def _await_owner(name: str, pid: int) -> clusters.Record | None:
    """The owner's record once it is ready or has failed; None if it is neither in time."""
    owner = identify(pid)
    try:
        return clusters.await_phase(name, owner, UP_SECONDS) if owner else None
    except KeyboardInterrupt:
        clusters.down(name)
        raise


def _show_ready(record: clusters.Record) -> None:
    click.echo(f"cluster {record.name}: Kubernetes {record.version} at {record.url}, {record.nodes} hollow nodes")
    click.echo(f"export KUBECONFIG={record.kubeconfig}")


@local.command()
@NAME
@click.option("--all", "every", is_flag=True, help="All your local clusters.")
def down(name: str, every: bool) -> None:
    """Stop a cluster and remove everything it left."""
    with _errors_for_people():
        for each in [record.name for record in clusters.records()] if every else [name]:
            gone = clusters.down(each)
            click.echo(f"cluster {each} is gone" if gone else f"there is no cluster {each}")


_WORDS_OF_KUBECTL = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""All from kubectl's first word on is its own, `--` included."""


@local.command(add_help_option=False, context_settings=_WORDS_OF_KUBECTL, short_help="Run kubectl on a cluster.")
@click.option("--on", "name", default="", help="Which of your local clusters; without it kai, or the only one.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl on a cluster: the control plane's binary is one, if there is none on this machine.

    `kai local kubectl --on NAME get pods` where there are several clusters.
    """
    with _errors_for_people():
        kubeconfig = _chosen(name).kubeconfig
        command = [str(_binary()), "kubectl", "--kubeconfig", kubeconfig, *arguments]
        sys.exit(subprocess.run(command).returncode)


def _chosen(name: str) -> clusters.Record:
    ready = {record.name: record for record in clusters.records() if record.state() == "ready"}
    wanted = name or (next(iter(ready)) if len(ready) == 1 else Order().name)
    if wanted not in ready:
        others = f"; ready are {', '.join(ready)}: choose with --on NAME" if ready else ""
        raise ClusterError(
            f"there is no cluster {wanted!r} that is ready; `kai local up --name {wanted}` starts one{others}"
        )
    return ready[wanted]


@local.command(short_help="Show your local clusters.")
@click.option("--name", default="", help="Only this cluster.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(name: str, output: str) -> None:
    """Show your local clusters; the exit code is 1 unless all of them are ready."""
    with _errors_for_people():
        found = [record for record in clusters.records() if name in ("", record.name)]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode([cluster_table.summary(record) for record in found])))
    elif name and not found:
        click.echo(f"there is no cluster {name!r}; `kai local up --name {name}` starts one")
    else:
        cluster_table.show(found)
    if any(record.state() != "ready" for record in found) or (name and not found):
        sys.exit(1)


if __name__ == "__main__":
    local()
