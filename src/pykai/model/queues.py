"""Queues as columns: a forest, parents by row; resources cpu (milli), memory (bytes), gpu (devices)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykai.model.resources import Column, freeze


@dataclass(frozen=True, eq=False)
class QueueTable:
    """-1 in `deserved` or `limit` is unlimited; -1 in `parent` is a root."""

    names: Sequence[str]
    titles: Sequence[str]
    """Display name, or name."""
    rows: Mapping[str, int]
    parent: Sequence[int]
    children: Sequence[Sequence[int]]
    deserved: Column
    limit: Column
    weight: Column
    usage: Column
    priority: Sequence[int]
    creation: Sequence[float]
    preempt_min_runtime: Sequence[float | None]
    reclaim_min_runtime: Sequence[float | None]
    paths: Sequence[tuple[int, ...]]
    """The queue itself, its parent, ... up to the root."""
    left_out: Mapping[str, str]
    """Queues that are no rows here -> the queue above them that does not exist; empty: they are above themselves."""

    def __post_init__(self) -> None:
        freeze(self)

    def __len__(self) -> int:
        return len(self.names)
