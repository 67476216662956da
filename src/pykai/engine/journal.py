"""The undo log of a Trial: every change records the old value, so that no inverse operations are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_MISSING = object()
_CALL = object()


class Journal:
    """Old values in order of change; `undo_to(mark)` puts them back."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Any, Any]] = []

    def mark(self) -> int:
        return len(self.entries)

    def put(self, container: Any, key: Any, value: Any) -> None:
        """container[key] = value, noted."""
        self.entries.append((container, key, container[key]))
        container[key] = value

    def put_new(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """mapping[key] = value where the key may not exist yet, noted."""
        self.entries.append((mapping, key, mapping.get(key, _MISSING)))
        mapping[key] = value

    def put_each_new(self, mapping: dict[Any, Any], keys: Sequence[Any], value: Any) -> None:
        """mapping[key] = value for each of the keys, which may not exist yet, noted."""
        self.entries.extend([(mapping, key, mapping.get(key, _MISSING)) for key in keys])
        mapping.update(dict.fromkeys(keys, value))

    def drop(self, mapping: dict[Any, Any], key: Any) -> None:
        """del mapping[key], noted."""
        self.entries.append((mapping, key, mapping.pop(key)))

    def note(self, undo: Callable[[Any], None], what: Any) -> None:
        """Record one step of many changes; `undo(what)` undoes all of them."""
        self.entries.append((undo, what, _CALL))

    def column(self, block: Any, column: int) -> None:
        """Note one column of a [row, column] block before it is written to."""
        self.entries.append((block, (slice(None), column), block[:, column].copy()))

    def undo_to(self, mark: int) -> None:
        entries = self.entries
        while len(entries) > mark:
            container, key, old = entries.pop()
            if old is _MISSING:
                del container[key]
            elif old is _CALL:
                container(key)
            else:
                container[key] = old
