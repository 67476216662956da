"""`kai simulate --faults`: runs random histories with faults by seed, one process each, and reports violations."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from pykai.cli.simulated_product import SimulatedProduct
from pykai.config import scheduler_config
from pykai.config.scheduler_config import SchedulerConfig
from pykai.plugins import registry
from pykai.simulate.faults.run import Outcome, play, warm_up
from pykai.simulate.faults.shrink import shrunk, story
from pykai.simulate.faults.worlds import World


class Seeds(click.ParamType[range]):
    """A seed such as 7, or a range of seeds such as 1-100."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        """Parse the option."""
        first, dash, last = str(value).partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            self.fail(f"{value!r} is neither a seed nor a range of seeds such as 1-100", param, ctx)
        return range(int(first), int(last or first) + 1)


SEEDS = Seeds()


def product_of(world: World) -> SimulatedProduct:
    """Return the product as a world configures it."""
    config = SchedulerConfig()
    if world.numa:
        plugins = [{"name": name} for name in (*registry.BUILT_IN, "numa")]
        config = scheduler_config.read({"tiers": [{"plugins": plugins}]})
    product = SimulatedProduct(config)
    product.scaling, product.operated = world.scaling, world.operator
    return product


def play_faults(seeds: range) -> None:
    """Run the histories of these seeds and exit with code 1 if one has a violation.

    For a single seed, also print the shortest history that has the violation.
    """
    if len(seeds) == 1:
        outcome = play(seeds[0], product_of)
        _print_outcome(outcome)
        if outcome.violations:
            click.echo(story(shrunk(outcome, partial(play, seeds[0], product_of)), outcome))
            sys.exit(1)
        return
    played, failed, counts, cpu = 0, list[int](), Counter[str](), 0.0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # An interrupted campaign prints its totals, too.
    try:
        for outcome in _outcomes(seeds):
            _print_outcome(outcome)
            played += 1
            counts += outcome.counts
            cpu += outcome.cpu
            if outcome.violations:
                failed.append(outcome.seed)
    except KeyboardInterrupt:
        click.echo("interrupted")
    click.echo(f"{played} histories in {cpu:.0f} s of CPU, {sum(counts.values())} faults:")
    for kind, count in sorted(counts.items()):
        click.echo(f"  {count:7d}  {kind}")
    if failed:
        click.echo(f"{len(failed)} with violations: {' '.join(map(str, sorted(failed)))}")
        sys.exit(1)
    click.echo("no violation")


def _outcomes(seeds: range) -> Iterator[Outcome]:
    """The outcomes in order of completion, from one worker process per processor."""
    warm_up(product_of)
    gc.collect()
    gc.freeze()  # Shared objects are neither collected nor copied in the forked processes.
    workers = int(os.environ.get("KAI_FAULTS_WORKERS") or os.cpu_count() or 1)
    context = multiprocessing.get_context("fork")
    with context.Pool(min(workers, len(seeds)), _ignore_interrupt, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_play_seed, seeds)


def _ignore_interrupt() -> None:
    """Ignore SIGINT in a worker: the campaign's process handles it and ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _play_seed(seed: int) -> Outcome:
    outcome = play(seed, product_of)
    outcome.events, outcome.cpu = [], time.process_time()  # This process runs one history only.
    return outcome


def _print_outcome(outcome: Outcome) -> None:
    faults = sum(outcome.counts.values())
    click.echo(
        f"seed {outcome.seed}: {outcome.title}; {outcome.pods} pods, {faults} faults, history {outcome.fingerprint}"
    )
    for violation in outcome.violations:
        click.echo(f"  violation at {violation.at:.0f} s: {violation}")
