"""Tables for terminals: one house style, used by every command that shows something to a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH_WITHOUT_TERMINAL = 120
HEADER = "bold"
FAINT = "bright_black"


@dataclass(frozen=True)
class Column:
    """A heading; `right`: figures; `wide`: takes what is left of the line and wraps."""

    title: str
    right: bool = False
    wide: bool = False


def table(title: str, columns: Sequence[Column | str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """A table in house style, its title in front."""
    made = Table(
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
        made.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.wide,
        )
    for row in rows:
        made.add_row(*row)
    return made


def first(rows: Sequence[Sequence[RenderableType]], most: int) -> list[Sequence[RenderableType]]:
    """At most so many rows, and a last one that tells how many there are more."""
    if len(rows) <= most:
        return list(rows)
    rest: Sequence[RenderableType] = [Text(f"... {len(rows) - most} more", style=FAINT)]
    return [*rows[:most], [*rest, *[""] * (len(rows[0]) - 1)]]


def console() -> Console:
    """Where people read: the terminal at its width, a file at a fixed one."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)


def show(parts: Iterable[RenderableType], out: Console | None = None) -> None:
    """Print parts with an empty line between them."""
    out = out or console()
    for number, part in enumerate(parts):
        if number:
            out.print()
        out.print(part)


def line(message: str) -> str:
    """A message on one line."""
    return " ".join(message.split())


def amount(value: float) -> str:
    """A figure as people write it: whole where it is whole, ∞ for -1 (unlimited)."""
    if value == -1:
        return "∞"
    return f"{value:.2f}".rstrip("0").rstrip(".")
