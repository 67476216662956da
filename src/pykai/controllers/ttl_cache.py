"""Caches of objects that this process just read or wrote, until a watch delivers them.

`TTLCache` keeps values for a few seconds. `MutationCache` keeps the objects that the server returned for our writes, as
client-go's mutation cache does: until the informer delivers that version or a later one, they count as the state of the
cluster, so nothing is written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from pykai.kube.api import EventType, Object
from pykai.kube.clock import steady
from pykai.kube.codec import version_number
from pykai.kube.informer_store import Key, WatchChange
from pykai.objects.kinds import ObjectMeta

MUTATION_SECONDS = 10.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """Values by key, kept for `seconds` unless put with another time; needs a running event loop, whose timers evict.

    Expired values are evicted within `seconds` even if the cache is no longer used, so a burst leaves no memory behind.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._entries: dict[K, tuple[float, V]] = {}
        self._sweeps = False

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V, seconds: float | None = None) -> None:
        """Keep a value; `seconds` None: the time given at construction."""
        self._entries[key] = steady() + (self._seconds if seconds is None else seconds), value
        if not self._sweeps:
            self._sweep_later()

    def get(self, key: K) -> V | None:
        """Return the value, None if there is none or it has expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] > steady() else None

    def drop(self, key: K) -> None:
        """Remove a value."""
        self._entries.pop(key, None)

    def _sweep_later(self) -> None:
        self._sweeps = bool(self._entries)
        if self._sweeps:
            asyncio.get_running_loop().call_later(self._seconds, self._sweep)

    def _sweep(self) -> None:
        now = steady()
        self._entries = {key: entry for key, entry in self._entries.items() if entry[0] > now}
        self._sweep_later()


class MutationCache:
    """Objects of one kind as the server returned our last write, by (namespace, name)."""

    def __init__(self) -> None:
        self._written: TTLCache[Key, Object] = TTLCache(MUTATION_SECONDS)

    def put(self, key: Key, written: Object) -> None:
        """Keep the result of a write."""
        self._written.put(key, written)

    def get(self, key: Key, watched: ObjectMeta | None = None) -> Object | None:
        """Return the object as we wrote it; None if the watch has delivered this version or a later one.

        `watched`: the object in the store of the watch. An answer may come after its event, and of an object that was
        deleted and created again since.
        """
        written = self._written.get(key)
        if written is None or watched is None:
            return written
        shown = version_number(watched.resource_version)
        return written if version_number(written["metadata"].get("resourceVersion", "")) > shown else None

    def drop(self, key: Key) -> None:
        """Remove an object that the server no longer has."""
        self._written.drop(key)

    def observe(self, change: WatchChange[Any]) -> bool:
        """Handle a watch event of a typed object; returns whether it shows exactly our last write."""
        written = self._written.get(change.key)
        if written is None:
            return False
        shown, own = change.object.metadata, written["metadata"]
        gone = change.type is EventType.DELETED and shown.uid == own.get("uid")
        if gone or version_number(shown.resource_version) >= version_number(own.get("resourceVersion", "")):
            self._written.drop(change.key)
        return bool(shown.resource_version == own.get("resourceVersion")) and not gone
