"""The objects of one kind by namespace and name, and the changes since a reader last read them.

There are two layers: a large map that copies share and never change, and the few changes since. The cost of a copy is
that of the changes only, so that a cycle can read forty thousand pods as they were when it began while events go on.
The order is that of a dict: a key keeps its position until it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

Key = tuple[str, str]
FEW = 1024
PART = 8
"""The changes are merged into a new large map when there are more than a few and more than this part of it, or when
most of it is gone, because the map keeps the objects in memory."""
_GONE = object()


class Layers(Mapping[Key, Any]):
    """The objects of one kind by namespace and name."""

    __slots__ = ("_base", "_late", "_over", "_size")

    def __init__(self, base: dict[Key, Any] | None = None) -> None:
        self._base: dict[Key, Any] = {} if base is None else base
        self._over: dict[Key, Any] = {}
        """Changes: the object, or that it is gone."""
        self._late: dict[Key, None] = {}
        """Keys that came after those of the base, in order."""
        self._size = len(self._base)

    def get(self, key: Key, default: Any = None) -> Any:
        found = self._over.get(key)
        if found is None:
            return self._base.get(key, default)
        return default if found is _GONE else found

    def __getitem__(self, key: Key) -> Any:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Key]:
        over, late = self._over, self._late
        if not over:
            yield from self._base
            return
        for key in self._base:
            if key not in late and over.get(key) is not _GONE:
                yield key
        yield from late

    def objects(self) -> list[Any]:
        """All of them in order."""
        return [self.get(key) for key in self] if self._over else list(self._base.values())

    def put(self, key: Key, obj: Any) -> bool:
        """Add or replace an object; return whether the key is new."""
        came = self.get(key) is None
        if came:
            self._late[key] = None
            self._size += 1
        self._over[key] = obj
        self._merge()
        return came

    def drop(self, key: Key) -> bool:
        """Remove an object; return whether there was one."""
        if self.get(key) is None:
            return False
        self._size -= 1
        self._late.pop(key, None)
        if key in self._base:
            self._over[key] = _GONE
        else:
            del self._over[key]
        self._merge()
        return True

    def copy(self) -> Layers:
        """Return an independent copy."""
        made = Layers(self._base)
        made._over, made._late, made._size = self._over.copy(), self._late.copy(), self._size
        return made

    def _merge(self) -> None:
        over, late = self._over, self._late
        few = len(over) <= FEW or len(over) * PART <= len(self._base)
        if few and self._size * 2 >= len(self._base):
            return
        base = self._base.copy()
        for key, obj in over.items():
            if obj is _GONE or key in late:
                base.pop(key, None)
            else:
                base[key] = obj
        base |= {key: over[key] for key in late}
        self._base, self._over, self._late = base, {}, {}


Choice = Callable[[Iterable[Any]], list[Any]]
"""Objects -> those of them that count."""
MOST_EVENTS, EVENTS_PER_OBJECT = 20_000, 4
"""Number of events kept, if there are so many objects; a reader that is further behind reads everything again."""


class Event(Enum):
    """What happened to an object."""

    CAME = "came"
    CHANGED = "changed"
    LEFT = "left"


Log = list[tuple[Key, Event]]


class Moment(NamedTuple):
    """A state of a store: how much of which log had happened, and what a copy had changed by itself."""

    log: Log
    length: int
    own: tuple[tuple[Key, Event], ...]

    def is_as(self, other: Moment | None) -> bool:
        """Whether nothing happened between two moments, of which no copy changed anything."""
        return other is not None and self.log is other.log and self[1:] == other[1:] and not self.own


class Store:
    """The objects that count.

    Those that come many at a time get their keys on demand: a reader of all objects, as of a file, does not pay
    for keys. Objects that come together have different names.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._layers = Layers()
        self._unkeyed: list[Any] = []
        self._log: Log = []
        self._length = 0
        """Of the log: a copy stays at the moment it was made, whatever is added for the others."""
        self._own: Log | None = None
        """What a copy changed; None: this is no copy."""

    def add(self, objects: Iterable[Any]) -> None:
        """Take in many at once."""
        self._unkeyed.extend(objects)
        self._log, self._length = [], 0

    def put(self, obj: Any, gone: bool) -> None:
        """Take in one, or drop it if it is gone or no longer counts."""
        key = (obj.metadata.namespace, obj.metadata.name)
        if gone or not self._choice([obj]):
            if self.by_key.drop(key):
                self._note(key, Event.LEFT)
        else:
            self._note(key, Event.CAME if self.by_key.put(key, obj) else Event.CHANGED)

    def _note(self, key: Key, event: Event) -> None:
        if self._own is not None:
            self._own.append((key, event))
            return
        if self._length >= min(MOST_EVENTS, max(FEW, EVENTS_PER_OBJECT * len(self))):
            self._log, self._length = [], 0
        self._log.append((key, event))
        self._length += 1

    @property
    def moment(self) -> Moment:
        """The present state, to be compared with a later one."""
        return Moment(self._log, self._length, tuple(self._own or ()))

    def since(self, then: Moment | None) -> dict[Key, bool] | None:
        """Keys to which something happened since then, and whether they have another place in the order, those that
        came last at the end; None where that is not known, or where something that a copy took out is back in its old
        place."""
        now = self.moment
        if then is None or then.log is not now.log or now.length < then.length:
            return None
        if any(event is not Event.CHANGED for _, event in (*then.own, *now.own)):
            return None
        found = {key: False for key, _ in (*then.own, *now.own)}
        for key, event in now.log[then.length : now.length]:
            if event is Event.CAME:
                found.pop(key, None)
                found[key] = True
            else:
                found.setdefault(key, False)
        return found

    @property
    def by_key(self) -> Layers:
        """All of them; of two with one name the later."""
        if self._unkeyed:
            chosen, known = self._choice(self._unkeyed), dict(self._layers)
            known.update({((meta := obj.metadata).namespace, meta.name): obj for obj in chosen})
            self._layers, self._unkeyed = Layers(known), []
        return self._layers

    def objects(self) -> list[Any]:
        """All of them in the order in which they came."""
        return self._choice(self._unkeyed) if self._only_unkeyed else self.by_key.objects()

    def unchosen(self) -> list[Any]:
        """The same for a reader that finds out itself which ones count: others may be among them."""
        return list(self._unkeyed) if self._only_unkeyed else self.by_key.objects()

    @property
    def keyed(self) -> bool:
        """Whether the objects are known by name."""
        return not self._unkeyed

    @property
    def _only_unkeyed(self) -> bool:
        return bool(self._unkeyed) and not self._layers

    def copy(self) -> Store:
        """Return an independent copy."""
        made = Store(self._choice)
        made._layers, made._log, made._length = self.by_key.copy(), self._log, self._length
        made._own = list(self._own or ())
        return made

    def __len__(self) -> int:
        return len(self._layers) + len(self._unkeyed)
