"""Cached readings of objects: a snapshot reads only objects that are new since the last one.

Objects are immutable, so the same object always gives the same reading. Readings are integers: names, templates and
specs are numbered on first use and keep their number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import numpy as np

from pykai.cache.store import Key, Layers, Moment, Store
from pykai.model.resources import Rows

Thing = TypeVar("Thing", bound=Hashable)
_FEW = 16
"""Up to this many rows are searched one by one, which is faster than sorting all."""
GROWTH = 8
"""A block grows by one part in this many at least, so that it does not grow on each addition."""
Read = Callable[[Sequence[Any]], Rows]
"""Objects -> what is read of each, [field, object]."""


def column(numbers: Sequence[int]) -> Rows:
    """Return a column of a list; `np.array` takes three times as long to detect integers."""
    return np.fromiter(numbers, dtype=np.int64, count=len(numbers))


@dataclass(frozen=True)
class Edit:
    """A change of a list of objects: pairs of an old object and its replacement in the same position, objects removed,
    and objects added at the end."""

    replaced: Sequence[tuple[Any, Any]]
    removed: Sequence[Any]
    added: Sequence[Any]

    @property
    def nothing(self) -> bool:
        return not (self.replaced or self.removed or self.added)

    @classmethod
    def between(cls, before: Mapping[Any, Any], now: Mapping[Any, Any], keys: Mapping[Any, bool]) -> Edit:
        """What happened to the objects of these keys; True: it is at the end now, whether it was there or not."""
        states = [(before.get(key), now.get(key), moved) for key, moved in keys.items()]
        changed = [state for state in states if state[0] is not state[1] or state[2]]
        return cls(
            replaced=[(old, new) for old, new, moved in changed if not (old is None or new is None or moved)],
            removed=[old for old, new, moved in changed if old is not None and (new is None or moved)],
            added=[new for old, new, moved in changed if new is not None and (old is None or moved)],
        )


class Numbers(dict[Thing, int]):
    """Thing -> number; a lookup of an unknown thing gives it the next number."""

    def __missing__(self, thing: Thing) -> int:
        number = self[thing] = len(self)
        return number

    def learn(self, things: Iterable[Thing]) -> None:
        """Number many at once, those that are new."""
        new = dict.fromkeys([thing for thing in things if thing not in self])
        self.update(zip(new, count(len(self)), strict=False))


class NamedRows:
    """Rows with a namespaced name, by namespace."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[list[int], list[str]]] = {}

    def of(self, namespace: str) -> tuple[list[int], list[str]]:
        """Rows and names of a namespace, to be added to."""
        return self._names.setdefault(namespace, ([], []))

    def __iter__(self) -> Iterator[tuple[str, list[int], list[str]]]:
        return ((namespace, *found) for namespace, found in self._names.items())


class NumberedNames:
    """Namespaced names by number: no two have the same, whatever their namespaces."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def column(self, length: int, named: NamedRows) -> Rows:
        """The number at each row, -1 at rows without a name; what is new gets one."""
        found = np.full(length, -1, dtype=np.int64)
        for namespace, rows, names in named:
            numbers = self._numbers(namespace, names)
            if len(rows) == length:
                return numbers
            found[column(rows)] = numbers
        return found

    def _numbers(self, namespace: str, names: Sequence[str]) -> Rows:
        known = self._by_namespace.setdefault(namespace, {})
        if not known:
            known.update(zip(names, count(self._count), strict=False))
            self._count += len(names)
            if len(known) == len(names):  # all different: their numbers are known already
                return np.arange(self._count - len(names), self._count)
        try:
            return np.fromiter(map(known.__getitem__, names), dtype=np.int64, count=len(names))
        except KeyError:
            new = dict.fromkeys([name for name in names if name not in known])
            known.update(zip(new, count(self._count), strict=False))
            self._count += len(new)
            return np.fromiter(map(known.__getitem__, names), dtype=np.int64, count=len(names))


class Readings:
    """A block [field, object] of whole numbers. It holds its objects, so their ids are not given out again.

    The ids of objects are never written to once they were handed out; a block is good until the next.
    """

    def __init__(self) -> None:
        self.objects: tuple[Any, ...] = ()
        self._ids: Rows | None = None
        """Of the objects, once there are others to compare them with."""
        self._block: Rows = np.zeros((0, 0), dtype=np.int64)
        self._space: Rows = self._block
        """The larger array whose beginning is the block, with room for added objects."""

    @property
    def ids(self) -> Rows:
        """The identity of the object at each row."""
        if self._ids is None:
            self._ids = _ids(self.objects)
        return self._ids

    def block(self, objects: Sequence[Any], read: Read) -> Rows:
        """The block of these objects; `read` makes it for objects that were not in the last."""
        if not self.objects:
            self._block, self._ids = read(objects), None
        else:
            known, ids = self.ids, _ids(objects)
            if not np.array_equal(ids, known):
                self._block = self._changed(objects, (known, ids), read)
            self._ids = ids
        self._space, self.objects = self._block, tuple(objects)
        return self._block

    def patched(self, edit: Edit, read: Read) -> Rows:
        """The block after a few objects were replaced, taken out or added at the end."""
        if edit.nothing:
            return self._block
        ids, objects = self.ids, list(self.objects)
        replaced = rows_of_ids(ids, [id(old) for old, _ in edit.replaced])
        removed = rows_of_ids(ids, [id(old) for old in edit.removed])
        for row, (_, new) in zip(replaced, edit.replaced, strict=True):
            objects[row] = new
        for row in sorted(removed, reverse=True):
            del objects[row]
        objects += edit.added
        ids = np.concatenate([ids, _ids(edit.added)])
        ids[replaced] = [id(new) for _, new in edit.replaced]
        self._ids = np.delete(ids, removed) if removed else ids
        self._block = self._edited((replaced, removed), read([*(new for _, new in edit.replaced), *edit.added]))
        self.objects = tuple(objects)
        return self._block

    def _edited(self, rows: tuple[Sequence[int], Sequence[int]], new: Rows) -> Rows:
        """The block with what was read anew of replaced objects, without those removed, with those that came."""
        (replaced, removed), known = rows, self._block.shape[1]
        added = new[:, len(replaced) :]
        if known + added.shape[1] > self._space.shape[1]:
            more = np.empty((len(new), (known + added.shape[1]) // GROWTH), dtype=np.int64)
            self._space = np.hstack([self._block, added, more])
        self._space[:, known : known + added.shape[1]] = added
        self._space[:, replaced] = new[:, : len(replaced)]
        left = known + added.shape[1]
        if removed:
            kept = np.delete(self._space[:, :left], removed, axis=1)
            left = kept.shape[1]
            self._space[:, :left] = kept
        return self._space[:, :left]

    def _changed(self, objects: Sequence[Any], ids: tuple[Rows, Rows], read: Read) -> Rows:
        known, now = ids
        order = np.argsort(known)
        place = order[np.searchsorted(known, now, sorter=order).clip(max=len(order) - 1)]
        block = self._block[:, place]
        new = np.flatnonzero(known[place] != now).tolist()
        if new:
            block[:, new] = read([objects[row] for row in new])
        return block


def _ids(objects: Sequence[Any]) -> Rows:
    """Identities of objects that are all held."""
    return np.fromiter(map(id, objects), dtype=np.int64, count=len(objects))


def in_order(column: Rows) -> Rows:
    """The rows by the number in a column of numbers from -1 on, those with the same as they come. Two passes over half
    a number each where one is not enough: numpy sorts short numbers in linear time."""
    shifted = column + 1
    order = np.argsort((shifted & 0xFFFF).astype(np.uint16), kind="stable")
    if shifted.max(initial=0) > 0xFFFF:
        order = order[np.argsort((shifted[order] >> 16).astype(np.uint16), kind="stable")]
    return np.asarray(order)


def by_first(column: Rows) -> tuple[Rows, Rows]:
    """Numbers in a column replaced by 0, 1, 2 ... in order of appearance; and the row where each appears first."""
    first = np.full(int(column.max(initial=-1)) + 1, len(column))
    first[column[::-1]] = np.arange(len(column))[::-1]  # of those that are alike the last one stays
    found = np.flatnonzero(first < len(column))
    found = found[np.argsort(first[found])]
    new = np.zeros(len(first), dtype=np.int64)
    new[found] = np.arange(len(found))
    return new[column], first[found]


def finer(column: Rows, by: Rows) -> Rows:
    """Numbers for what two columns distinguish together."""
    return np.asarray(np.unique(column * (int(by.max(initial=0)) + 1) + by, return_inverse=True)[1], dtype=np.int64)


Fact = TypeVar("Fact")
PART = 4
"""If more than one in this many objects changed, all of them are compared."""


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


class Kept:
    """The objects of one kind as rows in the order in which they came, and a block of what was read of each."""

    def __init__(self) -> None:
        self._readings = Readings()
        self._moment: Moment | None = None
        self._by_key: Layers | None = None

    def follow(self, store: Store, read: Read) -> tuple[Sequence[Any], Rows]:
        """The objects of a store and their block, neither to be written to."""
        keys = None if self._by_key is None else store.since(self._moment)
        if self._by_key is None or keys is None or len(keys) * PART > len(self._readings.objects):
            block = self._readings.block(store.unchosen(), read)
        else:
            block = self._readings.patched(Edit.between(self._by_key, store.by_key, keys), read)
        self._moment = store.moment
        self._by_key = store.by_key.copy() if store.keyed else None
        return self._readings.objects, block

    def lookup(self) -> KeptLookup | None:
        """Where the objects are by name; None: they are not known by name."""
        return None if self._by_key is None else KeptLookup(self._by_key, self._readings.ids)


class Derived:
    """What was derived from stores, by function and kind, as long as nothing happens to them."""

    def __init__(self) -> None:
        self._facts: dict[tuple[Callable[..., Any], type[Any]], tuple[Moment, tuple[Any, ...], Any]] = {}

    def of(self, function: Callable[..., Fact], kind: type[Any], store: Store, *about: Any) -> Fact:
        """What a pure function makes of the objects of the store of a kind, and of what else it is asked `about`."""
        moment, known = store.moment, self._facts.get((function, kind))
        if known is not None and known[1] == about and moment.is_as(known[0]):
            fact: Fact = known[2]
            return fact
        made = function(store.objects(), *about)
        self._facts[function, kind] = (moment, about, made)
        return made
