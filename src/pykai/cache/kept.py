"""What is kept of a kind from one snapshot to the next: a snapshot pays for what happened since the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pykai.cache.layers import Layers
from pykai.cache.numbering import Edit, Read, Readings
from pykai.cache.store import Moment, Store
from pykai.model.lookup import KeptLookup
from pykai.model.resources import Rows

Fact = TypeVar("Fact")
PART = 4
"""Where more than this part of the objects changed, all of them are compared."""


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

    def lookup(self, rows: int) -> KeptLookup | None:
        """Where the objects are by name, if a table has a row for each of them; None: whoever asks has to collect."""
        if self._by_key is None or len(self._readings.objects) != rows:
            return None
        return KeptLookup(self._by_key, self._readings.ids)


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
