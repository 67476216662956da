"""Terminal tables in one style for all commands, and the tables of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pykai.model.plan import Bind, Evict, Key, Plan, Verdict
from pykai.observe.wording import eviction_reason, reason_line, shared_reason, short_name, without_figures

WIDTH_WITHOUT_TERMINAL = 120
HEADER = "bold"
FAINT = "bright_black"


@dataclass(frozen=True)
class Column:
    """A column. `right`: numbers, right-aligned; `drawn`: a bar of characters. Neither wraps: on a narrow terminal the
    longest texts wrap first, and nothing is cut off."""

    title: str
    right: bool = False
    drawn: bool = False


def table(title: str, columns: Sequence[Column | str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """Return a table with its title above."""
    result = Table(
        title=title,
        title_justify="left",
        title_style="bold cyan",
        min_width=len(title),
        header_style=HEADER,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for column in (Column(c) if isinstance(c, str) else c for c in columns):
        result.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right or column.drawn,
        )
    for row in rows:
        result.add_row(*row)
    return result


def first(rows: Sequence[Sequence[RenderableType]], most: int) -> list[Sequence[RenderableType]]:
    """At most `most` rows, and one with the number of the others."""
    if len(rows) <= most:
        return list(rows)
    rest: Sequence[RenderableType] = [Text(f"... {len(rows) - most} more", style=FAINT)]
    return [*rows[:most], [*rest, *[""] * (len(rows[0]) - 1)]]


def console() -> Console:
    """Return the console of standard output: as wide as the terminal, else as COLUMNS says, else of a fixed width."""
    result = Console(highlight=False)
    if result.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return result
    return Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)


def show(parts: Iterable[RenderableType], out: Console | None = None) -> None:
    """Print parts with an empty line between them."""
    out = out or console()
    for number, part in enumerate(parts):
        if number:
            out.print()
        out.print(part)


def amount(value: float) -> str:
    """Return a number with at most two decimals, or ∞ for -1 (unlimited)."""
    if value == -1:
        return "∞"
    return f"{value:.2f}".rstrip("0").rstrip(".")


Row = tuple[RenderableType, ...]


def plan_tables(plan: Plan, most: int) -> Iterator[Table]:
    """Yield the tables of a plan that have rows, each with at most `most` rows."""
    moved = {each.pod for each in plan.evictions if each.moves_to}
    nominated = [(object_title(each.pod), each.node) for each in plan.nominations if each.pod not in moved]
    waiting = _waiting_rows(plan.verdicts)
    sections: list[tuple[str, list[Column | str], list[Row]]] = [
        ("Bound", ["pod", "node", "GPUs"], [(object_title(each.pod), each.node, gpus(each)) for each in plan.binds]),
        ("Evicted", ["pod", "action", "for", "why"], [_eviction_row(e) for e in plan.evictions]),
        ("Pipelined", ["pod", "waits for node"], list(nominated)),
        ("Left pending", ["workload", Column("pods", right=True), "why"], waiting),
    ]
    for heading, columns, rows in sections:
        if rows:
            number = len(plan.verdicts) if rows is waiting else len(rows)
            yield table(f"{heading}: {number}", columns, first(rows, most))


def object_title(key: Key | None) -> str:
    """`namespace/name`; a dash for None."""
    return "-" if key is None else "/".join(key)


def workload_name(key: Key | None) -> str:
    """`namespace/name` of the workload of a PodGroup; a dash for None."""
    return short_name(object_title(key))


def gpus(bind: Bind) -> str:
    """Return the devices of a bind: a number of whole devices, or a portion of each device."""
    if not bind.devices:
        return "-"
    if bind.portion == 1:
        return str(bind.devices)
    return f"{bind.devices} x {bind.portion:g}" if bind.devices > 1 else f"{bind.portion:g}"


def _eviction_row(eviction: Evict) -> Row:
    moves = f" (moves to {eviction.moves_to})" if eviction.moves_to else ""
    pod = object_title(eviction.pod)
    return pod, eviction.action, workload_name(eviction.evictor), eviction_reason(eviction.message, pod) + moves


def _waiting_rows(verdicts: tuple[Verdict, ...]) -> list[Row]:
    """Return a row per reason: the first workload that waits for it, and the number of the others."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        token, text = shared_reason(verdict)
        groups.setdefault((token, without_figures(text)), []).append(verdict)
    return [
        (
            workload_name(group[0].gang) + (f" and {len(group) - 1} more" if len(group) > 1 else ""),
            str(sum(len(verdict.pods) for verdict in group)),
            _common_reason(group),
        )
        for group in groups.values()
    ]


def _common_reason(verdicts: Sequence[Verdict]) -> str:
    """Return the reason of the first workload; with its amounts if it is the only one."""
    token, text = shared_reason(verdicts[0])
    dominant = verdicts[0].dominant
    if len(verdicts) == 1 and dominant is not None:
        text = reason_line(dominant.message)
    return text if not token or text.startswith(f"{token}:") else f"{token}: {text}"
