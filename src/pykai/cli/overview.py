"""`kai queues`, `kai queue`, `kai nodes`, `kai evictions`, `kai top`: the state of a live cluster or a snapshot file.

They read with the caller's permissions and write nothing. The default output is tables; `-o json` and `-o yaml` print
data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import click
import msgspec

from pykai.cli.flags import InputError
from pykai.cli.state import (
    StateSource,
    cluster_options,
    output_option,
    print_as_data,
    read_state,
    reported_access_errors,
    source_of,
    state_options,
)
from pykai.dashboard.board import Board, DecidedMoment, Title
from pykai.dashboard.live_board import LiveBoard
from pykai.explain import view_tables
from pykai.explain.live_cluster import UnreadableError, setting_of
from pykai.kube.api import Api
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.transport import Settings
from pykai.objects.units import rfc3339
from pykai.observe.tables import console, show
from pykai.observe.wording import suggestion

FIRST_SECONDS = 60.0
"""Timeout for reading a live cluster."""
READING = Settings(qps=0.0, burst=1000)


rows_option = click.option(
    "--rows", default=40, show_default=True, type=click.IntRange(1), help="Rows to show of each table."
)


def board_of(source: StateSource) -> Board:
    """Return a board with the state of a snapshot file, or with the current state of a cluster."""
    if source.snapshot is not None:
        return Board(Title("snapshot", str(source.snapshot)), DecidedMoment(read_state(source), 1))
    with reported_access_errors():
        return asyncio.run(_read_cluster(source))


@asynccontextmanager
async def live_board(source: StateSource) -> AsyncIterator[tuple[LiveBoard, Api]]:
    """A board of a live cluster that follows the scheduler of the shard once it runs, and its API client."""
    access = find_access(source.kubeconfig, source.context)
    async with HttpApi(access, READING) as api:
        try:
            setting = await setting_of(api, source.shard)
        except UnreadableError as error:
            raise click.ClickException(str(error)) from error
        yield LiveBoard(Title("live", access.server), api, setting), api


async def _read_cluster(source: StateSource) -> Board:
    """Read a live cluster once."""
    async with live_board(source) as (board, _):
        run = asyncio.create_task(board.run())
        first = asyncio.create_task(board.first())
        await asyncio.wait([run, first], timeout=FIRST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (first, run):
            task.cancel()
        await asyncio.gather(first, run, return_exceptions=True)
        if not first.cancelled() and first.done():
            return board
        if run.done() and not run.cancelled():
            run.result()
    raise click.ClickException("the cluster could not be read: " + ("; ".join(board.problems) or "no answer"))


def _moment(options: dict[str, Any]) -> DecidedMoment:
    """Return the decided state of the source in the options; print notes on what could not be read."""
    state = read_state(source_of(options))
    for note in state.notes:
        click.echo(f"note: {note}", err=True)
    return DecidedMoment(state, 1)


# ------------------------------------------------------------------------------------------------------------- commands
@click.command()
@output_option
@rows_option
@state_options
@click.option(
    "--resource", type=click.Choice(list(view_tables.UNITS)), help="Resource to show.  [default: gpu, cpu without GPUs]"
)
def queues(output: str, rows: int, resource: str | None, **options: Any) -> None:
    """Show the tree of queues: quota, fair share, limit, use, requests, waiting workloads, and reclaim relations.

    Amounts in brackets are over quota. A queue may reclaim from another if the reclaim rules let it take one more GPU
    from there now.
    """
    moment = _moment(options)
    views = moment.overview.queues
    if not print_as_data({"queues": views, "at": moment.at}, output):
        hidden = len(views) - rows
        more = [f"... {hidden} more queues: --rows shows more"] if hidden > 0 else []
        show([view_tables.queue_table(views[:rows], unit_of(moment, resource)), *more])


def unit_of(moment: DecidedMoment, resource: str | None = None) -> view_tables.Unit:
    """Return the resource to show; by default GPUs, or CPU if there are no GPUs."""
    return view_tables.UNITS[resource or ("gpu" if moment.decided.snapshot.nodes.allocatable[2].any() else "cpu")]


@click.command()
@click.argument("name")
@output_option
@rows_option
@state_options
def queue(name: str, output: str, rows: int, **options: Any) -> None:
    """Show one queue: quota and use, its order of service with positions, and its running workloads."""
    moment = _moment(options)
    overview = moment.overview
    views = {each.name: each for each in overview.queues}
    if name not in views:
        raise InputError(f"there is no queue {name!r}{suggestion(name, views)}")
    waiting, running = overview.queue_order(name), overview.running(name)
    if print_as_data({"queue": views[name], "orderOfService": waiting, "running": running, "at": moment.at}, output):
        return
    below = [each for each in overview.queues if name in (each.name, each.parent)]
    parts = [view_tables.queue_table(below, unit_of(moment))]
    parts.append(view_tables.order_table(f"Order of service: {len(waiting)}", waiting, moment.at, rows))
    parts.append(view_tables.running_table(f"Running: {len(running)}", running, moment.at, rows))
    view, lines = views[name], list[str]()
    if view.leaf:
        lines.append(f"May reclaim from: {', '.join(view.may_reclaim_from) or 'no queue now'}")
    show([*parts, *lines, f"May lose to: {', '.join(view.may_lose_to) or 'no queue now'}"])


@click.command()
@click.argument("names", nargs=-1)
@output_option
@rows_option
@state_options
def nodes(names: Sequence[str], output: str, rows: int, **options: Any) -> None:
    """Show the GPUs of nodes: the workloads that hold or share them, free devices and fractions, fragmentation."""
    moment = _moment(options)
    devices = moment.devices
    known = moment.decided.snapshot.nodes.rows
    for name in names:
        if name not in known:
            raise InputError(f"there is no node {name!r}{suggestion(name, known)}")
    if names:
        chosen = tuple(node for node in devices.nodes if node.name in names)
        devices = msgspec.structs.replace(devices, nodes=chosen)
    if not print_as_data({"totals": devices.totals, "nodes": devices.nodes, "at": moment.at}, output):
        show(view_tables.node_tables(devices, rows))


@click.command()
@output_option
@rows_option
@cluster_options
def evictions(output: str, rows: int, **options: Any) -> None:
    """Show evictions: pods, the workloads they were evicted for, reasons, and the work lost.

    For a live cluster: the evictions in its events, about the last hour, and those of the next cycle. For a snapshot
    file: the evictions of its plan. Work lost is the GPU hours since the pod started; checkpoints are not known here.
    """
    board, moment = _read_board(source_of(options))
    past = () if board.title.kind == "snapshot" else board.evictions()
    planned = moment.overview.evictions
    if print_as_data({"past": past, "nextCycle": planned, "at": moment.at}, output):
        return
    parts = [] if board.title.kind == "snapshot" else [view_tables.eviction_table(f"Evicted: {len(past)}", past, rows)]
    show([*parts, view_tables.eviction_table(f"In the next cycle: {len(planned)}", planned, rows)])


def _read_board(source: StateSource) -> tuple[Board, DecidedMoment]:
    board = board_of(source)
    for problem in board.problems:
        click.echo(f"note: {problem}", err=True)
    moment = board.moment()
    assert moment is not None
    return board, moment


@click.command()
@output_option
@click.option("--rows", default=15, show_default=True, type=click.IntRange(1), help="Rows to show of each table.")
@cluster_options
def top(output: str, rows: int, **options: Any) -> None:
    """Follow queues, waiting workloads and evictions in the terminal, until Ctrl-C.

    If the output is not a terminal, or with -o json or yaml, print the current state once.
    """
    out, source = console(), source_of(options)
    if output != "text" or source.snapshot is not None or not out.is_terminal:
        board, moment = _read_board(source)
        overview, evicted = moment.overview, board.evictions()
        data = {"totals": moment.devices.totals, "queues": overview.queues, "waiting": overview.waiting}
        if not print_as_data({**data, "evictions": evicted, "at": moment.at}, output):
            show(_screen(board, moment, rows), out)
        return
    with reported_access_errors(), suppress(KeyboardInterrupt):
        asyncio.run(_follow(source, rows))


async def _follow(source: StateSource, rows: int) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    async with live_board(source) as (board, _):
        run = asyncio.create_task(board.run())
        revision, reading = 0, Text(f"reading {board.title.name} ...")
        with Live(reading, console=console(), screen=True, auto_refresh=False) as live:
            while not run.done():
                newer = asyncio.create_task(board.newer_than(revision))
                await asyncio.wait([run, newer], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                moment = board.moment()
                if newer.done() and moment is not None:
                    revision = newer.result()
                    parts = await asyncio.to_thread(list, _screen(board, moment, rows))
                    live.update(Group(*parts), refresh=True)
                newer.cancel()
        run.result()


def _screen(board: Board, moment: DecidedMoment, rows: int) -> Iterable[Any]:
    from rich.text import Text

    overview, totals = moment.overview, moment.devices.totals
    waiting, evicted = overview.waiting, board.evictions()
    at = rfc3339(moment.at)
    yield Text(f"{board.title.name}  {at}  {view_tables.totals_line(totals)}", style="bold")
    yield from (Text(problem, style="yellow") for problem in board.problems)
    yield view_tables.queue_table(overview.queues[: 2 * rows], unit_of(moment))
    yield view_tables.order_table(f"Waiting: {len(waiting)}", waiting, moment.at, rows)
    if evicted:
        yield view_tables.eviction_table(f"Evicted: {len(evicted)}", evicted, max(rows // 3, 3))
