"""Common options of commands that read a cluster: the source of the state, and the output format."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from pykai.cli.flags import InputError
from pykai.cli.replay import reported_input_errors, timestamp
from pykai.explain.source import Decided, from_file
from pykai.kube.api import Api
from pykai.kube.errors import CredentialsError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
FORMATS = ("text", "json", "yaml")


@dataclass(frozen=True)
class StateSource:
    """The source of a cluster's state: a snapshot file, or a live cluster with the caller's permissions."""

    snapshot: Path | None = None
    kubeconfig: str = ""
    context: str = ""
    shard: str = "default"
    now: float | None = None


def cluster_options(command: F) -> F:
    """Add the options that name a cluster or snapshot file; `source_of` reads them."""
    options = (
        click.option(
            "--snapshot",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Read a snapshot file, KAI's or ours, instead of a live cluster.",
        ),
        click.option("--kubeconfig", default="", help="Path of a kubeconfig.  [default: as kubectl]"),
        click.option("--context", default="", help="Context of the kubeconfig.  [default: the current one]"),
        click.option("--shard", default="default", show_default=True, help="Name of the SchedulingShard."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def state_options(command: F) -> F:
    """Add `cluster_options` and --now, the time of the decision."""
    now = click.option("--now", callback=timestamp, help="Time of the decision.  [default: now, or that of the file]")
    return cluster_options(now(command))


def source_of(options: dict[str, Any]) -> StateSource:
    """Pop the options of `cluster_options` or `state_options` from a command's options."""
    names = ("snapshot", "kubeconfig", "context", "shard", "now")
    return StateSource(**{name: options.pop(name) for name in names if name in options})


def read_state(source: StateSource) -> Decided:
    """Read the state and decide it; errors are click errors of one line."""
    if source.snapshot is not None:
        with reported_input_errors(source.snapshot):
            return from_file(source.snapshot, source.now)
    from pykai.explain.live_cluster import live

    return with_api(source, lambda api: live(api, source.shard, source.now))


def with_api(source: StateSource, work: Callable[[Api], Awaitable[T]]) -> T:
    """Run `work` with an API client of the live cluster; errors are click errors of one line."""
    from pykai.explain.live_cluster import UnreadableError
    from pykai.kube.auth import find_access
    from pykai.kube.client import HttpApi

    async def connected() -> T:
        async with HttpApi(find_access(source.kubeconfig, source.context)) as api:
            return await work(api)

    try:
        with reported_access_errors():
            return asyncio.run(connected())
    except UnreadableError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def reported_access_errors() -> Iterator[None]:
    """Report errors of a cluster in one line; a kubeconfig that is missing or invalid is invalid input: exit code 2."""
    from pykai.cli.component import reported_errors

    with reported_errors():
        try:
            yield
        except CredentialsError as error:
            raise InputError(str(error)) from error


output_option = click.option("-o", "--output", type=click.Choice(FORMATS), default="text", show_default=True)


def print_as_data(value: Any, output: str) -> bool:
    """Print a value as JSON or YAML; return False for text output."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value)))
    elif output == "yaml":
        click.echo(msgspec.yaml.encode(msgspec.to_builtins(value, str_keys=True)), nl=False)
    return output != "text"
