"""`python -m bench.start`: processor time of each component from its start until it is ready, on an empty cluster.

Each component is a process of its own on a real control plane, started several times in turns with the others; what
counts is the median. `make env` and the images compile all modules; where that is out of date, and no bytecode is
written, every start compiles them anew, which takes three times as long.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click

from bench import machine, page
from bench.live_cluster import QUEUE_CONTROLLER, SCHEDULER, LiveCluster, component, live_cluster
from bench.measure import BenchError
from bench.page import markdown
from pykai.cli.install import install
from pykai.local.cluster_session import connect
from pykai.local.process import cpu_seconds
from pykai.observe import tables

NAME = "bench-start"
_METRICS = "--metrics-bind-address=0"
_WEBHOOKS = ("--webhook-addr=0", "--webhook-own-host=127.0.0.1", "--webhook-cert-dir={}")
COMPONENTS: Mapping[str, tuple[str, ...]] = {
    SCHEDULER: ("--plugin-server-port=0",),
    "kai binder": (_METRICS,),
    "kai podgrouper": (_METRICS,),
    "kai podgroup-controller": (_METRICS, *_WEBHOOKS),
    QUEUE_CONTROLLER: _WEBHOOKS,
    "kai admission": (_METRICS, *_WEBHOOKS),
    "kai operator": (_METRICS,),
    "kai node-scale-adjuster": (_METRICS,),
}
"""The flags of each component; {} stands for a directory of its own."""
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
TITLES = ("component", "CPU s", "least", "most")
TEXT = """## Start of a component

Processor time of a process from its start until `/readyz` answers, on an empty cluster; median, least and most of
{rounds} starts.

{table}
Measured {when:%Y-%m-%d} on {machine}; load {before:.1f} before and {after:.1f} after.
"""


def measure(cluster: LiveCluster, directory: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds that each start of each component took."""
    found: dict[str, list[float]] = {command: [] for command in COMPONENTS}
    for _ in range(rounds):
        for command, flags in COMPONENTS.items():
            with component(cluster, directory, command, *(flag.format(directory) for flag in flags)):
                found[command].append(cpu_seconds(cluster.pids[command]))
    return found


def rows(found: Mapping[str, list[float]]) -> list[list[str]]:
    """The figures, in the order of TITLES."""
    return [
        [command, *(f"{seconds:.2f}" for seconds in (median(starts), min(starts), max(starts)))]
        for command, starts in found.items()
    ]


@contextmanager
def _empty_cluster() -> Iterator[LiveCluster]:
    with live_cluster(0, 0, NAME) as cluster:
        asyncio.run(_installed(cluster))
        yield cluster


async def _installed(cluster: LiveCluster) -> None:
    async with connect(cluster.kubeconfig) as api:
        await install(api)


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Starts of each component.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(rounds: int, docs: bool) -> None:
    """Measure what the start of each component costs."""
    began = machine.now()
    try:
        with tempfile.TemporaryDirectory() as directory, _empty_cluster() as cluster:
            found = rows(measure(cluster, Path(directory), rounds))
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    columns: list[tables.Column | str] = [TITLES[0], *(tables.Column(title, right=True) for title in TITLES[1:])]
    tables.show([tables.table("Start of a component", columns, found)])
    if docs:
        ended = machine.now()
        text = TEXT.format(
            rounds=rounds,
            table=markdown(TITLES, found),
            when=began.at,
            machine=machine.title(),
            before=began.load,
            after=ended.load,
        )
        PAGE.write_text(page.with_section(PAGE.read_text(), "bench-start", text))


if __name__ == "__main__":
    main()
