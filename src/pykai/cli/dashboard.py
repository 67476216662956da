"""`kai dashboard`: serves the dashboard of a live cluster or a snapshot file, to the caller or to all users."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import click

from pykai.cli.component import run_until, stop_event
from pykai.cli.overview import board_of, live_board
from pykai.cli.state import StateSource, cluster_options, reported_access_errors, source_of
from pykai.dashboard.access import LoopbackGate, Reviews, Sessions, SignInGate
from pykai.dashboard.board import Board
from pykai.dashboard.web_server import Dashboard, serving
from pykai.kube.clock import steady
from pykai.observe.http import address_of

LOOPBACK = "127.0.0.1"
PORT = 8490


@click.command()
@cluster_options
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port on loopback; 0: a free one."
)
@click.option(
    "--in-cluster",
    metavar="ADDRESS",
    default="",
    help="Serve users who sign in with a token of the cluster, at an address such as :8080.",
)
@click.option(
    "--tls-cert-file", type=click.Path(exists=True, dir_okay=False), help="Certificate for HTTPS; with --in-cluster."
)
@click.option(
    "--tls-private-key-file", type=click.Path(exists=True, dir_okay=False), help="Private key of the certificate."
)
def dashboard(
    port: int, in_cluster: str, tls_cert_file: str | None, tls_private_key_file: str | None, **options: Any
) -> None:
    """Serve the dashboard until Ctrl-C: queues, devices, waiting workloads and their reasons, evictions, what-if.

    The dashboard is read-only. Started by hand it listens on loopback only and requires the token in the address it
    prints. With --in-cluster every user signs in and sees what the API server lets that user list; other objects only
    count in totals.
    """
    source = source_of(options)
    if in_cluster and source.snapshot:
        raise click.UsageError("--in-cluster cannot be used with --snapshot")
    if bool(tls_cert_file) != bool(tls_private_key_file) or (tls_cert_file and not in_cluster):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file require each other, and --in-cluster")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls_cert_file else None
    if tls is not None:
        assert tls_cert_file is not None
        tls.load_cert_chain(tls_cert_file, tls_private_key_file)
    with reported_access_errors():
        if source.snapshot is not None:
            asyncio.run(serve_on_loopback(board_of(source), port))
        elif in_cluster:
            asyncio.run(_serve_cluster(source, in_cluster, tls))
        else:
            asyncio.run(_serve_live(source, port))


async def serve_on_loopback(board: Board, port: int) -> None:
    """Serve on loopback until a signal."""
    gate, stop = LoopbackGate(), stop_event()
    async with serving(Dashboard(board, gate), LOOPBACK, port) as bound_port:
        click.echo(f"http://{LOOPBACK}:{bound_port}/?token={gate.secret}")
        await run_until(stop.wait(), board.run())


async def _serve_live(source: StateSource, port: int) -> None:
    async with live_board(source) as (board, _):
        await serve_on_loopback(board, port)


async def _serve_cluster(source: StateSource, address: str, tls: ssl.SSLContext | None) -> None:
    listen = address_of(address)
    if listen is None:
        raise click.BadParameter(f"{address!r} is not an address to listen on", param_hint="--in-cluster")
    stop = stop_event()
    async with live_board(source) as (board, api):
        gate = SignInGate(Reviews(api, steady), Sessions(steady), tls is not None)
        async with serving(Dashboard(board, gate), listen[0] or "", listen[1], tls) as bound_port:
            click.echo(f"serving at port {bound_port}")
            await run_until(stop.wait(), board.run())
