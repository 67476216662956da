"""Objects by key in two layers: a large map that copies share and never change, and the few changes since.

A copy costs what the changes cost, not what is known: a cycle can look at forty thousand pods as they were when it
began while events go on. The order is that of a dict: a key keeps its place until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Key = tuple[str, str]
FEW = 1024
PART = 8
"""The changes are merged into a new large map when there are more than a few and more than this part of it."""
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
        """Take in an object; whether there was none of this key."""
        came = self.get(key) is None
        if came:
            self._late[key] = None
            self._size += 1
        self._over[key] = obj
        self._merge()
        return came

    def drop(self, key: Key) -> bool:
        """Forget an object; whether there was one."""
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
        """The same objects, to be changed by itself."""
        made = Layers(self._base)
        made._over, made._late, made._size = self._over.copy(), self._late.copy(), self._size
        return made

    def _merge(self) -> None:
        over, late = self._over, self._late
        if len(over) <= FEW or len(over) * PART <= len(self._base):
            return
        base = self._base.copy()
        for key, obj in over.items():
            if obj is _GONE or key in late:
                base.pop(key, None)
            else:
                base[key] = obj
        base |= {key: over[key] for key in late}
        self._base, self._over, self._late = base, {}, {}
