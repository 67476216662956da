"""`kai snapshot-tool`: one cycle on a snapshot file with the flags and output of KAI's tool, for scripts that use it.

The cycle is that of `kai replay`, which also shows the plan. Profiles are in the formats of Python's profilers.
"""

from __future__ import annotations

import cProfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import msgspec
import structlog

from pykai.cli.flags import Flag, takes
from pykai.cli.replay import opened, reported_input_errors
from pykai.model.plan import Plan
from pykai.observe import logs
from pykai.scheduler.process_memory import gc_disabled

FLAGS = (
    Flag("filename", "", "Snapshot file, a zip archive.", one_dash=True),
    Flag("verbosity", 4, "Log verbosity; from 2 on, log the duration of each action.", one_dash=True),
    Flag("cpuprofile", "", "Write a CPU profile of the cycle to this file, for pstats.", one_dash=True),
    Flag("memprofile", "", "Write a memory profile after the cycle to this file, for tracemalloc.", one_dash=True),
)

log = structlog.get_logger("snapshot-tool")


@click.command("snapshot-tool")
@takes(FLAGS)
def snapshot_tool(**flags: Any) -> None:
    """Run one scheduling cycle on a snapshot file and print the milliseconds of the cycle and its actions.

    Flags may be written with one dash, as KAI's.
    """
    file = _existing_file(flags["filename"])
    logs.set_up(flags["verbosity"])
    with reported_input_errors(file):
        run = opened(file)
        with _memory_profile(flags["memprofile"]), _cpu_profile(flags["cpuprofile"]):
            started = time.perf_counter()
            with gc_disabled():
                plan = run.plan(time.perf_counter)
            elapsed = time.perf_counter() - started
    for name, action in plan.actions.items():
        log.info(f"Action {name} completed in {round(action.seconds * 1000, 3):g}ms")
    click.echo(msgspec.json.encode(durations(plan, elapsed)))


def durations(plan: Plan, elapsed: float) -> dict[str, Any]:
    """Return the printed document, in whole milliseconds as in KAI; `passed`: seconds of the whole cycle."""
    actions = {name: int(action.seconds * 1000) for name, action in plan.actions.items()}
    return {"total_duration_ms": int(elapsed * 1000), "action_durations_ms": actions}


def _existing_file(filename: str) -> Path:
    if not filename:
        raise click.UsageError("--filename is required")
    file = Path(filename)
    if not file.is_file():
        raise click.BadParameter(f"there is no file {filename}", param_hint="--filename")
    return file


@contextmanager
def _cpu_profile(file: str) -> Iterator[None]:
    profile = cProfile.Profile()
    with profile if file else nullcontext():
        yield
    if file:
        _write_profile("--cpuprofile", lambda: profile.dump_stats(file))


@contextmanager
def _memory_profile(file: str) -> Iterator[None]:
    if not file:
        yield
        return
    tracemalloc.start()
    try:
        yield
        _write_profile("--memprofile", lambda: tracemalloc.take_snapshot().dump(file))
    finally:
        tracemalloc.stop()


def _write_profile(flag: str, dump: Callable[[], None]) -> None:
    try:
        dump()
    except OSError as error:
        raise click.BadParameter(f"the profile cannot be written: {error}", param_hint=flag) from error
