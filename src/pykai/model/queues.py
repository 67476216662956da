"""Queues as columns: a forest, parents by row; resources cpu (milli), memory (bytes), gpu (devices)."""

from __future__ import annotations

from dataclasses import dataclass

from pykai.model.resources import Column


@dataclass(frozen=True, eq=False)
class QueueTable:
    """-1 in `deserved` or `limit` is unlimited; -1 in `parent` is a root."""

    names: list[str]
    titles: list[str]
    """Display name, or name."""
    rows: dict[str, int]
    parent: list[int]
    children: list[list[int]]
    deserved: Column
    limit: Column
    weight: Column
    usage: Column
    priority: list[int]
    creation: list[float]
    preempt_min_runtime: list[float | None]
    reclaim_min_runtime: list[float | None]
    paths: list[tuple[int, ...]]
    """The queue itself, its parent, ... up to the root."""
    left_out: dict[str, str]
    """Queues that are no rows here -> the queue above them that does not exist; empty: they are above themselves."""

    def __len__(self) -> int:
        return len(self.names)
