"""`kai time-based-fairshare-simulator`: simulates time-based fair share in virtual time and writes a CSV table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

import click

from pykai.cli.flags import Flag, InputError, takes, warn_ineffective
from pykai.cli.simulate import play, write_report
from pykai.cli.simulated_product import SimulatedProduct
from pykai.config.fields import FieldError
from pykai.config.scheduler_config import PluginChoice, SchedulerConfig
from pykai.observe import logs
from pykai.plugins import registry
from pykai.scheduler.queueing_hints import Debounce
from pykai.simulate import generate, manifest_validation, time_based
from pykai.simulate.manifest_validation import ManifestsError
from pykai.simulate.manifests import ManifestError
from pykai.simulate.simulation import Simulation
from pykai.simulate.time_based import Study, objects

STANDARD = "-"
EXAMPLE = "examples/time-based-fairshare/simulation-config.yaml"
FLAGS = (
    Flag("input", EXAMPLE, "YAML file with the study; -: standard input.", one_dash=True),
    Flag("output", "simulation_results.csv", "CSV file to write; -: standard output.", one_dash=True),
    Flag("report", "", "Also write plots and a page to this folder.", one_dash=True),
    Flag("enable-controller-logs", False, "", ineffective="there are no controllers here", one_dash=True),
)
HEADER = ("Time", "QueueID", "Allocation", "FairShare")


DEBOUNCE = Debounce(period=1.0, pause=1.0, burst=1.0, refresh=1.0)
"""Exactly one cycle per second of virtual time."""


def simulation(study: Study, source: str) -> Simulation:
    """Return the simulation of a study; `source`: its file, for messages."""
    unadmitted = objects(study, source)
    arrivals = [each.arrival(0) for each in manifest_validation.admit(generate.with_defaults(unadmitted))]
    arguments = {"proportion": {"kValue": str(study.k_value)}}
    choices = tuple(PluginChoice("", name, arguments.get(name, {})) for name in registry.BUILT_IN)
    config = SchedulerConfig(plugins=choices, usage_db=time_based.usage_document(study))
    return Simulation(SimulatedProduct(config, debounce=DEBOUNCE), arrivals, time_based.setting(study))


@click.command("time-based-fairshare-simulator")
@takes(FLAGS)
def time_based_fairshare_simulator(**flags: Any) -> None:
    """Simulate how past use shifts a cluster between queues, and write every queue's allocation after every cycle.

    Jobs never end; evicted pods are recreated and wait. Flags may be written with one dash, as KAI's.
    """
    logs.set_up()
    warn_ineffective(FLAGS, flags)
    try:
        study = time_based.read(_read_text(flags["input"]), flags["input"])
        run = simulation(study, flags["input"])
    except (FieldError, ManifestError, ManifestsError) as error:
        raise InputError(str(error)) from error
    outcome = play(run, time_based.duration(study))
    figures = list(time_based.figures(study, outcome))
    with _open_output(flags["output"]) as target:
        rows = csv.writer(target, lineterminator="\n")
        rows.writerow(HEADER)
        rows.writerows((cycle, queue, f"{held:f}", f"{fair:f}") for cycle, queue, held, fair in figures)
    if flags["report"]:
        write_report(outcome, Path(flags["report"]))
    for queue in study.queues:
        average = fmean(row.allocation for row in figures if row.queue == queue.name)
        click.echo(f"{queue.name}: {average:.2f} GPUs on average over {study.cycles} cycles", err=True)


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == STANDARD else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file} cannot be read: {error}", param_hint="-input") from error


@contextmanager
def _open_output(file: str) -> Iterator[TextIO]:
    if file == STANDARD:
        yield sys.stdout
        return
    try:
        with Path(file).open("w", encoding="utf-8", newline="") as target:
            yield target
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be written: {error}", param_hint="-output") from error
