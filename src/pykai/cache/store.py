"""The objects of one kind by namespace and name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Key = tuple[str, str]
Choice = Callable[[Iterable[Any]], list[Any]]
"""Objects -> those of them that count."""


class Store:
    """The objects that count.

    Those that come many at a time are looked at when somebody asks for them: whoever only reads them all, as one does
    with the objects of a file, does not pay for keys. Objects that come together have names of their own.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._by_key: dict[Key, Any] = {}
        self._unkeyed: list[Any] = []

    def add(self, objects: Iterable[Any]) -> None:
        """Take in many at once."""
        self._unkeyed.extend(objects)

    def put(self, obj: Any, gone: bool) -> None:
        """Take in one, or drop it if it is gone or no longer counts."""
        key = (obj.metadata.namespace, obj.metadata.name)
        if gone or not self._choice([obj]):
            self.by_key.pop(key, None)
        else:
            self.by_key[key] = obj

    @property
    def by_key(self) -> dict[Key, Any]:
        """All of them; of two with one name the later."""
        if self._unkeyed:
            chosen = self._choice(self._unkeyed)
            self._by_key.update({((meta := obj.metadata).namespace, meta.name): obj for obj in chosen})
            self._unkeyed = []
        return self._by_key

    def objects(self) -> list[Any]:
        """All of them in the order in which they came."""
        return list(self.by_key.values()) if self._by_key else self._choice(self._unkeyed)

    def unchosen(self) -> list[Any]:
        """The same, for who looks at each and can tell itself which count: others may be among them."""
        return list(self.by_key.values()) if self._by_key else list(self._unkeyed)

    def copy(self) -> Store:
        made = Store(self._choice)
        made._by_key = dict(self.by_key)
        return made

    def __len__(self) -> int:
        return len(self._by_key) + len(self._unkeyed)
