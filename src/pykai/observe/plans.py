"""A plan as tables: what starts, what makes room, what waits for whom, and why the rest waits."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from pykai.model.plan import Bind, Evict, Key, Plan, Verdict
from pykai.observe.tables import Column, first, line, table

Row = tuple[RenderableType, ...]


def tables(plan: Plan, most: int) -> Iterator[Table]:
    """The tables that have rows, each with at most so many of them."""
    sections: list[tuple[str, list[Column | str], list[Row]]] = [
        ("Bound", ["pod", "node", "GPUs"], [_bind(bind) for bind in plan.binds]),
        ("Evicted", ["pod", "action", "for", Column("why", wide=True)], [_eviction(e) for e in plan.evictions]),
        ("Pipelined", ["pod", "waits for node"], [(title(p.pod), p.node) for p in plan.pipelines]),
        ("Left pending", ["workload", Column("pods", right=True), Column("why", wide=True)], _waits(plan.verdicts)),
    ]
    for heading, columns, rows in sections:
        if rows:
            yield table(f"{heading}: {len(rows)}", columns, first(rows, most))


def title(key: Key | None) -> str:
    """`namespace/name`; a dash where there is nobody."""
    return "-" if key is None else "/".join(key)


def gpus(bind: Bind) -> str:
    """What a pod got: whole devices, or shares of devices."""
    if not bind.devices:
        return "-"
    if bind.portion == 1:
        return str(bind.devices)
    return f"{bind.devices} x {bind.portion:g}" if bind.devices > 1 else f"{bind.portion:g}"


def _bind(bind: Bind) -> Row:
    return title(bind.pod), bind.node, gpus(bind)


def _eviction(eviction: Evict) -> Row:
    why = line(eviction.message).removeprefix(f"Pod {title(eviction.pod)} ")
    moves = f" (moves to {eviction.moves_to})" if eviction.moves_to else ""
    return title(eviction.pod), eviction.action, title(eviction.evictor), why + moves


def _waits(verdicts: tuple[Verdict, ...]) -> list[Row]:
    return [(title(v.gang), str(len(v.pods)), line(v.message)) for v in verdicts]
