"""The log of an in-memory server's changes, and the watches that read it.

Every commit takes the next revision of one counter and is appended to one log. A watch reads the log from the revision
it names; what the log has dropped cannot be watched any more (Gone), exactly as after a compaction of etcd.
Records are never changed once committed: their JSON is shared by all readers, who each decode their own copy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from pykai.kube.api import EventType, Object, Resource, Selection
from pykai.kube.codec import decode, encode
from pykai.kube.errors import Gone, Timeout
from pykai.kube.memory.apply import Owners
from pykai.kube.memory.selectors import fields_matching, labels_matching

Key = tuple[str, str]
Line = tuple[EventType, bytes]


@dataclass(frozen=True, slots=True)
class Record:
    """One stored object in one state."""

    key: Key
    uid: str
    revision: int
    raw: bytes
    labels: dict[str, str]
    owner_uids: frozenset[str]
    owners: Owners = field(default_factory=dict)

    def body(self) -> Object:
        """A copy that the caller may change."""
        return decode(self.raw, Object)

    def at(self, revision: int) -> bytes:
        """The JSON with another resourceVersion, as the event of a deletion shows it."""
        body = self.body()
        body["metadata"]["resourceVersion"] = str(revision)
        return encode(body)


def record_of(body: Object, revision: int, owners: Owners) -> Record:
    """The record of an object, whose resourceVersion is set to the revision."""
    metadata = body["metadata"]
    metadata["resourceVersion"] = str(revision)
    owner_uids = frozenset(owner["uid"] for owner in metadata.get("ownerReferences") or ())
    key = (metadata.get("namespace") or "", metadata["name"])
    return Record(key, metadata["uid"], revision, encode(body), metadata.get("labels") or {}, owner_uids, owners)


@dataclass(frozen=True, slots=True)
class Entry:
    """One change: `before` is None for a creation, `after` for a deletion."""

    revision: int
    resource: Resource
    before: Record | None
    after: Record | None


Matcher = Callable[[Record], bool]


def matcher(where: Selection, resource: Resource) -> Matcher:
    """Whether a record belongs to a selection."""
    has_labels = labels_matching(where.labels)
    has_fields = fields_matching(where.fields, resource)

    def test(record: Record) -> bool:
        if where.namespace and record.key[0] != where.namespace:
            return False
        return has_labels(record.labels) and (has_fields is None or has_fields(record.body()))

    return test


class Watcher:
    """One open watch: lines wait here until their reader takes them."""

    def __init__(self, resource: Resource, selected: Matcher) -> None:
        self.resource = resource
        self._selected = selected
        self._lines: deque[Line] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def offer(self, entry: Entry) -> None:
        """Queue what the change means to this watch: an object may also enter or leave the selection."""
        before = entry.before if entry.before and self._selected(entry.before) else None
        after = entry.after if entry.after and self._selected(entry.after) else None
        if after:
            self.put(EventType.MODIFIED if before else EventType.ADDED, after.raw)
        elif before:
            self.put(EventType.DELETED, before.at(entry.revision))

    def put(self, kind: EventType, raw: bytes) -> None:
        """Queue one line; a closed watch hears nothing more."""
        if not self._closed:
            self._lines.append((kind, raw))
            self._wake.set()

    def close(self) -> None:
        """End the stream once the queued lines are read."""
        self._closed = True
        self._wake.set()

    async def lines(self) -> AsyncIterator[Line]:
        """The lines as they come, until the server closes the watch."""
        while True:
            while self._lines:
                yield self._lines.popleft()
            if self._closed:
                return
            self._wake.clear()
            await self._wake.wait()


class Log:
    """The revision counter, the recent changes and the open watches."""

    def __init__(self, capacity: int) -> None:
        self.revision = 1
        self.compacted = 0
        self._capacity = capacity
        self._entries: deque[Entry] = deque()
        self._watchers: dict[Resource, list[Watcher]] = defaultdict(list)

    def append(self, entry: Entry) -> None:
        """Remember a change and show it to the open watches."""
        self._entries.append(entry)
        if len(self._entries) > self._capacity:
            self.compacted = self._entries.popleft().revision
        for watcher in self._watchers[entry.resource]:
            watcher.offer(entry)

    def open(self, watcher: Watcher, since: int) -> None:
        """Start a watch with the changes after a revision; Gone if they are no longer all known."""
        if since < self.compacted:
            raise Gone(f"too old resource version: {since} ({self.compacted})")
        if since > self.revision:
            wait = {"retryAfterSeconds": 1, "causes": [{"reason": "ResourceVersionTooLarge"}]}
            raise Timeout(f"Too large resource version: {since}, current: {self.revision}", details=wait)
        for entry in self._entries:
            if entry.revision > since and entry.resource == watcher.resource:
                watcher.offer(entry)
        self._watchers[watcher.resource].append(watcher)

    def close(self, watcher: Watcher) -> None:
        """Forget a watch whose reader went away."""
        self._watchers[watcher.resource].remove(watcher)

    def compact(self) -> None:
        """Forget all changes: only a watch from the present revision is possible."""
        self._entries.clear()
        self.compacted = self.revision

    def watchers(self, resource: Resource | None = None) -> list[Watcher]:
        """The open watches, of one kind or of all."""
        chosen = [self._watchers[resource]] if resource else list(self._watchers.values())
        return [watcher for watchers in chosen for watcher in watchers]
