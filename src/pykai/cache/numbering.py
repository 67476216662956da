"""What was read from an object is kept for as long as the object is there: a snapshot looks only at what is new.

Objects are immutable, so an object that is still the same one still says the same. What is read from it are whole
numbers: names, templates and specs are numbered when they are first met, and keep their number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pykai.model.resources import Rows

Thing = TypeVar("Thing", bound=Hashable)
NamedRows = tuple[list[int], list[str]]
"""Rows, and the name at each."""


def column(numbers: Sequence[int]) -> Rows:
    """A column of a list; numpy takes three times as long if it must find out that these are whole numbers."""
    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))


class Numbers(dict[Thing, int]):
    """Things by number; one that is looked up for the first time gets the next."""

    def __missing__(self, thing: Thing) -> int:
        number = self[thing] = len(self)
        return number


class NumberedNames:
    """Namespaced names by number: no two have the same, whatever their namespaces."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def column(self, length: int, named: Mapping[str, NamedRows]) -> Rows:
        """The number at each row, -1 at rows without a name; what is new gets one."""
        found = np.full(length, -1, dtype=np.int64)
        for namespace, (rows, names) in named.items():
            found[column(rows)] = column(self._numbers(namespace, names))
        return found

    def _numbers(self, namespace: str, names: Sequence[str]) -> list[int]:
        known, found, new = self._by_namespace.setdefault(namespace, {}), [], self._count
        for name in names:
            number = known.setdefault(name, new)
            if number == new:
                new += 1
            found.append(number)
        self._count = new
        return found


class Readings:
    """A block [field, object] of whole numbers. It holds its objects, so their ids are not given out again."""

    def __init__(self) -> None:
        self._objects: Sequence[Any] = ()
        self._ids: Rows | None = None
        """Of the objects, once there are others to compare them with."""
        self._block: Rows = np.zeros((0, 0), dtype=np.int64)

    def block(self, objects: Sequence[Any], read: Callable[[Sequence[Any]], Rows]) -> Rows:
        """The block of these objects, not to be written to; `read` makes it for objects that were not in the last."""
        if not self._objects:
            self._block, self._ids = read(objects), None
        else:
            known, ids = _ids(self._objects) if self._ids is None else self._ids, _ids(objects)
            if not np.array_equal(ids, known):
                self._block = self._changed(objects, (known, ids), read)
            self._ids = ids
        self._block.flags.writeable = False
        self._objects = objects
        return self._block

    def _changed(self, objects: Sequence[Any], ids: tuple[Rows, Rows], read: Callable[[Sequence[Any]], Rows]) -> Rows:
        known, now = ids
        order = np.argsort(known)
        place = order[np.searchsorted(known, now, sorter=order).clip(max=len(order) - 1)]
        block = self._block[:, place]
        new = np.flatnonzero(known[place] != now).tolist()
        if new:
            block[:, new] = read([objects[row] for row in new])
        return block


def _ids(objects: Sequence[Any]) -> Rows:
    return np.fromiter(map(id, objects), dtype=np.int64, count=len(objects))


def by_first(column: Rows) -> tuple[Rows, Rows]:
    """Numbers in a column replaced by 0, 1, 2 ... in order of appearance; and the row where each appears first."""
    rows = np.arange(len(column))
    first = np.full(int(column.max(initial=-1)) + 1, len(column))
    np.minimum.at(first, column, rows)
    found = np.flatnonzero(first < len(column))
    found = found[np.argsort(first[found])]
    new = np.zeros(len(first), dtype=np.int64)
    new[found] = np.arange(len(found))
    return new[column], first[found]


def finer(column: Rows, by: Rows) -> Rows:
    """Numbers for what two columns tell apart together."""
    return np.asarray(np.unique(column * (int(by.max(initial=0)) + 1) + by, return_inverse=True)[1], dtype=np.int64)
