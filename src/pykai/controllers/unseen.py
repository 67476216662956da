"""Our own writes until the watch shows them: they count as the state of the cluster, so nothing is written twice.

An entry goes when the watch shows that version or a later one, when the object is deleted, or after a few seconds in
any case: then the watch is believed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.controllers.plain import Object
from pykai.controllers.recent import Recent
from pykai.kube.api import EventType
from pykai.kube.clock import steady
from pykai.kube.codec import version_number
from pykai.kube.replica import Change, Key

UNSEEN_SECONDS = 10.0


class Unseen:
    """Objects of one kind as the server answered our last write, by (namespace, name)."""

    def __init__(self, clock: Callable[[], float] = steady) -> None:
        self._written: Recent[Key, Object] = Recent(UNSEEN_SECONDS, clock)

    def put(self, key: Key, written: Object) -> None:
        """We wrote this."""
        self._written.put(key, written)

    def get(self, key: Key) -> Object | None:
        """The object as we wrote it; None where the watch is as new."""
        return self._written.get(key)

    def drop(self, key: Key) -> None:
        """The server no longer has what we wrote."""
        self._written.drop(key)

    def seen(self, change: Change[Any]) -> bool:
        """The watch shows an object, typed, with its metadata: whether it is what we wrote last, and nothing newer."""
        written = self._written.get(change.key)
        if written is None:
            return False
        shown, own = change.object.metadata, written["metadata"]
        gone = change.type is EventType.DELETED and shown.uid == own.get("uid")
        if gone or version_number(shown.resource_version) >= version_number(own.get("resourceVersion", "")):
            self._written.drop(change.key)
        return bool(shown.resource_version == own.get("resourceVersion")) and not gone
