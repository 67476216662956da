"""Rows of a table by namespace and name.

A table of forty thousand rows is asked for a few of them in a cycle, so a cache that knows its objects by name anyway
answers without a pass over all of them (`KeptLookup`); a table by itself collects the names once (`RowsByName`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pykai.model.resources import Rows

Key = tuple[str, str]
"""Namespace and name."""


class Lookup(Protocol):
    """Finds rows by name."""

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Rows by namespace and name, of those that exist."""
        ...


class RowsByName:
    """Names collected from the objects of a table."""

    def __init__(self, objects: Sequence[Any]) -> None:
        metas = (obj.metadata for obj in objects)
        self._rows = {(meta.namespace, meta.name): row for row, meta in enumerate(metas)}

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        return {key: row for key in keys if (row := self._rows.get(key)) is not None}


class KeptLookup:
    """Objects by name as the cache holds them, and the identity of the object at each row."""

    def __init__(self, objects: Mapping[Key, Any], ids: Rows) -> None:
        self._objects, self._ids = objects, ids

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        """One search for all keys: an object that has no row, such as a failed pod, is not found."""
        found = {key: obj for key in keys if (obj := self._objects.get(key)) is not None}
        wanted = np.fromiter(map(id, found.values()), dtype=np.int64, count=len(found))
        order = np.argsort(wanted)
        place = np.searchsorted(wanted, self._ids, sorter=order).clip(max=max(len(order) - 1, 0))
        hits = np.flatnonzero(wanted[order[place]] == self._ids) if len(order) else np.zeros(0, dtype=np.int64)
        rows = dict(zip(order[place[hits]].tolist(), hits.tolist(), strict=True))
        return {key: rows[number] for number, key in enumerate(found) if number in rows}
