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
_FEW = 16
"""So many rows are searched for one by one: to put all in order takes longer."""


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
        rows = rows_of_ids(self._ids, [id(obj) for obj in found.values()])
        return {key: row for key, row in zip(found, rows, strict=True) if row >= 0}


def rows_of_ids(ids: Rows, wanted: Sequence[int]) -> list[int]:
    """The row of each identity that is wanted, -1 where there is none."""
    if len(wanted) <= _FEW:
        found = [np.flatnonzero(ids == each) for each in wanted]
        return [int(rows[0]) if len(rows) else -1 for rows in found]
    if not len(ids):
        return [-1] * len(wanted)
    order = np.argsort(ids, kind="stable")  # objects that came together lie in order: this sort makes use of that
    places = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    return np.where(ids[places] == wanted, places, -1).tolist()  # type: ignore[no-any-return]
