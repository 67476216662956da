"""`kai explain`: why a workload is pending, what precedes it, and what would start it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from msgspec.structs import replace

from pykai.cli.flags import InputError
from pykai.cli.state import output_option, print_as_data, read_state, source_of, state_options
from pykai.explain import why
from pykai.explain.remedies import remedies
from pykai.explain.running_workloads import expected_start
from pykai.explain.source import TargetError, gangs_of
from pykai.explain.why import Amounts, Explanation
from pykai.observe.wording import many, reason_line, short_name

ROWS = 10
_MILLI = 1e3


@click.command("explain")
@click.argument("target", metavar="POD|KIND/NAME")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the workload.")
@click.option("--remedies/--no-remedies", "with_remedies", default=True, help="Search for changes that would start it.")
@output_option
@state_options
def explain(target: str, namespace: str, with_remedies: bool, output: str, **options: Any) -> None:
    """Explain why a workload is pending, what precedes it, and what would start it.

    The argument names a pod, a PodGroup or a workload such as job/train. Nothing is written; a live cluster is read
    with your own permissions.
    """
    state = read_state(source_of(options))
    try:
        gangs = gangs_of(state, target, namespace)
    except TargetError as error:
        raise InputError(str(error)) from error
    explained = []
    for number, gang in enumerate(gangs):
        workload = why.explain(state, gang)
        if output == "text":
            click.echo(("\n" if number else "") + "\n".join(lines(workload)))
        if with_remedies:
            workload = replace(workload, remedies=remedies(state, gang), start=expected_start(state, gang))
        if output == "text" and with_remedies and workload.reason is not None:
            click.echo("\n".join(_remedy_lines(workload)))
        explained.append(workload)
    print_as_data(explained[0] if len(explained) == 1 else explained, output)


def lines(workload: Explanation) -> Iterator[str]:
    """Yield an explanation as lines of text, the reason first."""
    word = ", created" if workload.state == why.STARTS else " since"
    since = f"{word} {workload.since}" if workload.since else ""
    pods = ", ".join(f"{count} {name}" for name, count in workload.pods.items()) or "no pods"
    name = short_name(workload.name)
    group = "" if name == workload.name else f", PodGroup {workload.name}"
    yield f"{workload.namespace}/{name}: {workload.state}{since} ({pods}{group})"
    if workload.reason is not None:
        yield f"  Why:      {workload.reason.token} ({workload.reason.category}): {_one_line(workload.reason.message)}"
    if workload.queue is not None:
        queue = workload.queue
        amounts = _queue_amounts(queue.allocated, queue.quota, queue.fair_share, queue.limit)
        yield f"  Queue:    {' / '.join(queue.path)}: {amounts}"
    if workload.position is not None:
        place = workload.position
        yield f"  Position: {place.in_queue} of {place.of_queue} in its queue, {place.overall} of {place.of_all} in all"
        if place.ahead:
            ahead = [f"{each.namespace}/{short_name(each.name)}" for each in place.ahead]
            hidden = place.in_queue - 1 - len(ahead)
            yield f"  Before it: {f'{hidden} others, ' if hidden > 0 else ''}{', '.join(ahead)}"
    for verdict in workload.verdicts:
        fit = f"; a place for {verdict.found} of {verdict.needed} pods" if verdict.needed else ""
        yield f"  {verdict.action + ':':15s} {verdict.code}: {_one_line(verdict.message)}{fit}"
    for pod, message in list(workload.messages.items())[:ROWS]:
        yield f"  Pod {pod}: {_one_line(message)}"
    if workload.waits_for:
        yield f"  Waits for: {_first_names(workload.waits_for)}"
    if workload.evicted_for:
        yield f"  Evicted for: {_first_names([short_name(name) for name in workload.evicted_for])}"
    for note in workload.notes:
        yield f"  Note: {note}"


def _remedy_lines(workload: Explanation) -> Iterator[str]:
    start = workload.start
    yield f"  Expected start: {start.at or 'unknown'}{f' ({start.why})' if start.why else ''}"
    ahead = workload.position.overall - 1 if workload.position is not None else 0
    first = f" before the {ahead} workloads ahead of it" if ahead > 1 else ""
    yield (
        "  What would start it:" if workload.remedies else f"  No single change was found that would start it{first}."
    )
    for remedy in workload.remedies:
        after = f" (after evicting {many(remedy.evicts, 'pod')})" if remedy.evicts else ""
        yield f"    - {remedy.text}{after}"


def _queue_amounts(allocated: Amounts, quota: Amounts, fair: Amounts, limit: Amounts) -> str:
    """Return the GPU amounts of a queue, or its CPU amounts if it has none of GPUs."""
    gpus = any(each.gpus for each in (allocated, quota, fair, limit))
    scale, unit = (1.0, "GPU") if gpus else (_MILLI, "core")
    values = [each.gpus if gpus else each.cpu for each in (allocated, quota, fair, limit)]
    shown = ["unlimited" if value < 0 else f"{value / scale:g}" for value in values]
    used = many(values[0] / scale, unit)
    return "uses {}, quota {}, fair share {}, limit {}".format(used, *shown[1:])


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS} more" if len(names) > ROWS else ""
    return ", ".join(names[:ROWS]) + more


def _one_line(text: str) -> str:
    return reason_line(text).rstrip(".")
