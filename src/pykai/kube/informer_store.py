"""The store of an informer: objects of one kind, updated by lists and watch events; each update returns its changes.

Invariant: after a list and all events since, the store equals the server's state, and the returned changes, applied in
order to an empty map, give the store. An object that was deleted and re-created under the same name is a deletion and
an addition, never a modification. An object that cannot be decoded keeps its last decoded state and is logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import structlog
from msgspec import Raw

from pykai.kube.api import EventType, Resource
from pykai.kube.codec import DecodeError, Identity, decode_item, identity_of

T = TypeVar("T")
Key = tuple[str, str]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WatchChange(Generic[T]):
    """A change of one object. `object`: its current state, or its last state if it was deleted.

    `old`: its state before, None for an addition.
    """

    type: EventType
    key: Key
    object: T
    old: T | None


class StoredObject(NamedTuple, Generic[T]):
    """An object with its uid and resourceVersion."""

    uid: str
    version: str
    object: T


class InformerStore(Generic[T]):
    """The objects of one kind by (namespace, name)."""

    def __init__(self, resource: Resource, into: type[T]) -> None:
        self._resource = resource
        self._into = into
        self._objects: dict[Key, StoredObject[T]] = {}
        self._unreadable: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        """Return the object, or None."""
        held = self._objects.get(key)
        return None if held is None else held.object

    def items(self) -> Iterator[tuple[Key, T]]:
        """Iterate over all objects; the store must not change in the meantime."""
        for key, held in self._objects.items():
            yield key, held.object

    def page(self, raws: Iterable[Raw]) -> dict[Key, StoredObject[T]]:
        """Return the objects of one list page; those stored at the same version are not decoded again."""
        found = {}
        for raw in raws:
            identity = identity_of(raw)
            held = self._objects.get(identity.key)
            if held is None or (held.uid, held.version) != (identity.uid, identity.resource_version):
                held = self._decode(identity, raw)
            if held is not None:
                found[identity.key] = held
        return found

    def replace(self, listed: dict[Key, StoredObject[T]]) -> list[WatchChange[T]]:
        """Replace the content by a list; return the changes, deletions first."""
        before = self._objects
        self._objects = listed
        changes = [self._deletion(key, held) for key, held in before.items() if key not in listed]
        for key, held in listed.items():
            changes += self._changes(key, before.get(key), held)
        return changes

    def event(self, kind: EventType, raw: Raw) -> list[WatchChange[T]]:
        """Apply a watch event other than a bookmark; return the changes, none if the state was known."""
        identity = identity_of(raw)
        key, before = identity.key, self._objects.get(identity.key)
        if kind is EventType.DELETED:
            self._unreadable.pop(key, None)
            if before is None:
                return []
            del self._objects[key]
            last = (self._decode(identity, raw) if identity.uid == before.uid else None) or before
            return [self._change(EventType.DELETED, key, last, before)]
        if before is not None and (before.uid, before.version) == (identity.uid, identity.resource_version):
            return []
        held = self._decode(identity, raw)
        if held is not None:
            self._objects[key] = held
            return self._changes(key, before, held)
        if before is None:
            return []
        del self._objects[key]
        return [self._deletion(key, before)]

    def _changes(self, key: Key, before: StoredObject[T] | None, after: StoredObject[T]) -> list[WatchChange[T]]:
        if before is None:
            return [self._change(EventType.ADDED, key, after, None)]
        if before.uid != after.uid:
            return [self._deletion(key, before), self._change(EventType.ADDED, key, after, None)]
        return [] if before.version == after.version else [self._change(EventType.MODIFIED, key, after, before)]

    def _deletion(self, key: Key, held: StoredObject[T]) -> WatchChange[T]:
        return self._change(EventType.DELETED, key, held, held)

    def _change(
        self, kind: EventType, key: Key, held: StoredObject[T], before: StoredObject[T] | None
    ) -> WatchChange[T]:
        old = None if before is None else before.object
        return WatchChange(kind, key, held.object, old)

    def _decode(self, identity: Identity, raw: Raw) -> StoredObject[T] | None:
        try:
            value = decode_item(raw, self._into, self._resource)
        except DecodeError as error:
            if self._unreadable.get(identity.key) != str(error):
                self._unreadable[identity.key] = str(error)
                log.warning("object cannot be read", kind=self._resource.qualified, error=str(error))
            held = self._objects.get(identity.key)
            return held if held and held.uid == identity.uid else None
        self._unreadable.pop(identity.key, None)
        return StoredObject(identity.uid, identity.resource_version, value)
