"""`kai what-if`: shows the effect of manifests or changes, decided as the cluster would decide; writes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from pykai.cli.explain import ROWS, lines
from pykai.cli.flags import InputError
from pykai.cli.state import output_option, print_as_data, read_state, source_of, state_options
from pykai.explain import what_if as changing
from pykai.explain.changes import AddNodes, ChangeError, ClusterChange, Delete, Drain, parse_set
from pykai.explain.source import Decided, TargetError, gangs_of
from pykai.explain.what_if import Loss, RejectedError, WhatIfResult
from pykai.observe import logs
from pykai.observe.wording import short_name, suggestion
from pykai.simulate import manifests
from pykai.simulate.manifest_validation import ManifestsError
from pykai.simulate.manifests import ManifestError


@click.command("what-if")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    help="Manifests to apply: a file, a directory, or - for standard input.",
)
@click.option("-R", "--recursive", is_flag=True, help="Read directories recursively.")
@click.option("--add-nodes", type=click.IntRange(1), metavar="N", help="Number of nodes to add.")
@click.option("--like", default="", metavar="NODE", help="Node that added ones copy.  [default: the most common kind]")
@click.option("--set", "sets", multiple=True, metavar="queue/NAME.gpu.quota=N", help="Change a field of a queue.")
@click.option("--drain", multiple=True, metavar="NODE", help="Drain a node.")
@click.option("--delete", "deletes", multiple=True, metavar="KIND/NAME", help="Delete a workload.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of workloads to delete.")
@output_option
@state_options
def what_if(output: str, **options: Any) -> None:
    """Show what manifests or changes would do, without applying them.

    Manifests are admitted, grouped and scheduled as on the cluster. Exit code 0: the workloads start; 3: they wait;
    4: they can never start; 2: the input is invalid.
    """
    source = source_of(options)
    if not any(options[name] for name in ("files", "add_nodes", "sets", "drain", "deletes")):
        raise click.UsageError("nothing to decide: give -f, --add-nodes, --set, --drain or --delete")
    if options["like"] and not options["add_nodes"]:
        raise click.UsageError("--like requires --add-nodes")
    logs.set_up(1)
    state = read_state(source)
    try:
        loaded = manifests.read(options["files"], options["recursive"]) if options["files"] else []
        outcome = changing.what_if(state, loaded, list(_changes(state, options)))
    except (ManifestError, ManifestsError, RejectedError, ChangeError, TargetError) as error:
        raise InputError(str(error)) from error
    if not print_as_data(outcome, output):
        click.echo("\n".join(_outcome_lines(outcome)))
    sys.exit(outcome.exit_code)


def _changes(state: Decided, options: dict[str, Any]) -> Iterator[ClusterChange]:
    if options["add_nodes"]:
        like = options["like"]
        known = state.snapshot.nodes.rows
        if like and like not in known:
            raise ChangeError(f"there is no node {like}{suggestion(like, known)}")
        yield AddNodes(options["add_nodes"], like)
    for text in options["sets"]:
        yield parse_set(text)
    for node in options["drain"]:
        yield Drain(node)
    for target in options["deletes"]:
        yield Delete(tuple(gangs_of(state, target, options["namespace"])))


def _outcome_lines(outcome: WhatIfResult) -> Iterator[str]:
    yield from (f"Warning: {warning}" for warning in outcome.warnings)
    if outcome.workloads or not (outcome.gains or outcome.losses):
        yield f"Answer: {outcome.answer}"
    for workload in outcome.workloads:
        yield from lines(workload)
    yield from _first_rows("Places:", [f"{pod} -> {node}" for pod, node in outcome.placements])
    yield from _first_rows("Evicted:", [_loss_line(loss) for loss in outcome.evictions])
    gain, loss = ("Others win:", "Others lose:") if outcome.workloads else ("Wins:", "Loses:")
    for title, effects in ((gain, outcome.gains), (loss, outcome.losses)):
        yield from _first_rows(title, [f"{e.namespace}/{short_name(e.name)}: {e.before} -> {e.after}" for e in effects])


def _loss_line(loss: Loss) -> str:
    moves = f", moves to {loss.moves_to}" if loss.moves_to else ""
    return f"{loss.pod} (queue {loss.queue}) by {loss.action} for {short_name(loss.evictor) or 'its own gang'}{moves}"


def _first_rows(title: str, rows: Sequence[str]) -> Iterator[str]:
    """Yield the first rows under their title, and the number of the others; nothing without rows."""
    if rows:
        yield title
        yield from (f"  {row}" for row in rows[:ROWS])
    if len(rows) > ROWS:
        yield f"  ... {len(rows) - ROWS} more"
