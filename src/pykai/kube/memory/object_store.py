"""Stored objects, the log of their changes, and the watches and selectors that read it.

Each commit takes the next revision of one counter and appends to one log. A watch reads the log from its
resourceVersion on; if the log no longer has it, the watch is Gone, as after a compaction of etcd. Records are
immutable: all readers share their JSON, and each decodes its own copy. Only `ObjectStore.write` and
`ObjectStore.remove` change the content.

Selectors have the server's syntax: an absent label satisfies `!=` and `notin`; a field that the server does not index
is rejected.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pykai.kube.api import EventType, Object, Resource, Selection
from pykai.kube.codec import decode, encode
from pykai.kube.errors import BadRequest, Gone, Timeout
from pykai.kube.informer_store import Key
from pykai.kube.memory.patches import Owners

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*([-A-Za-z0-9_.]*)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")

EVERY_KIND_FIELDS = ("metadata.name", "metadata.namespace")
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs.batch": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def labels_matching(selector: str) -> LabelTest:
    """Return the test for a selector such as `app=web,tier in (a,b),!old`; an empty selector matches everything."""
    tests = [_requirement(part.strip()) for part in re.split(r",(?![^(]*\))", selector) if part.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(text: str) -> LabelTest:
    if match := _SET.fullmatch(text):
        key, operator, values = match.groups()
        return _expression(key, "In" if operator == "in" else "NotIn", [value.strip() for value in values.split(",")])
    if match := _EXISTS.fullmatch(text):
        return _expression(match[2], "DoesNotExist" if match[1] else "Exists", [])
    if match := _EQUAL.fullmatch(text):
        key, operator, value = match.groups()
        return _expression(key, {"!=": "NotIn", ">": "Gt", "<": "Lt"}.get(operator, "In"), [value])
    raise BadRequest(f"unable to parse requirement: {text!r} is not a label selector")


def _expression(key: str, operator: str, values: list[str]) -> LabelTest:
    tests: dict[str, LabelTest] = {
        "In": lambda labels: key in labels and labels[key] in values,
        "NotIn": lambda labels: key not in labels or labels[key] not in values,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
        "Gt": lambda labels: _number(labels.get(key)) > _number(values[0]),
        "Lt": lambda labels: _number(labels.get(key)) < _number(values[0]),
    }
    if operator not in tests:
        raise BadRequest(f"{operator!r} is not a valid label selector operator")
    return tests[operator]


def _number(text: str | None) -> float:
    """Return the integer as a float, or NaN, which compares false with everything, for any other text."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else float("nan")


def fields_matching(selector: str, resource: Resource) -> Callable[[Object], bool] | None:
    """Return the test for a selector such as `spec.nodeName=n1`; None where there is nothing to test."""
    allowed = EVERY_KIND_FIELDS + FIELDS.get(resource.qualified, ())
    wanted: list[tuple[list[str], str, bool]] = []
    for part in filter(None, (piece.strip() for piece in selector.split(","))):
        match = re.fullmatch(r"([A-Za-z.]+)\s*(==|=|!=)\s*(.*)", part)
        if match is None:
            raise BadRequest(f"invalid field selector {part!r}")
        if match[1] not in allowed:
            raise BadRequest(f"field label not supported: {match[1]}")
        wanted.append((match[1].split("."), match[3], match[2] != "!="))
    if not wanted:
        return None
    return lambda body: all((_field(body, path) == value) is equal for path, value, equal in wanted)


def _field(body: Object, path: list[str]) -> str:
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or value is None:
        return "true" if value else ("false" if path[-1] in {"unschedulable", "hostNetwork"} else "")
    return str(value)


Line = tuple[EventType, bytes]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One stored object in one state."""

    key: Key
    uid: str
    revision: int
    raw: bytes
    labels: dict[str, str]
    owner_uids: frozenset[str]
    owners: Owners = field(default_factory=dict)

    def body(self) -> Object:
        """Return a copy that the caller may change."""
        return decode(self.raw, Object)

    def at(self, revision: int) -> bytes:
        """Return the JSON with another resourceVersion, as the event of a deletion shows it."""
        body = self.body()
        body["metadata"]["resourceVersion"] = str(revision)
        return encode(body)


def record_of(body: Object, revision: int, owners: Owners) -> StoredRecord:
    """Return the record of an object, whose resourceVersion is set to the revision."""
    metadata = body["metadata"]
    metadata["resourceVersion"] = str(revision)
    owner_uids = frozenset(owner["uid"] for owner in metadata.get("ownerReferences") or ())
    key = (metadata.get("namespace") or "", metadata["name"])
    return StoredRecord(key, metadata["uid"], revision, encode(body), metadata.get("labels") or {}, owner_uids, owners)


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change: `before` is None for a creation, `after` for a deletion."""

    revision: int
    resource: Resource
    before: StoredRecord | None
    after: StoredRecord | None


Matcher = Callable[[StoredRecord], bool]


def matcher(where: Selection, resource: Resource) -> Matcher:
    """Return the test for whether a record belongs to a selection."""
    has_labels = labels_matching(where.labels)
    has_fields = fields_matching(where.fields, resource)

    def test(record: StoredRecord) -> bool:
        if where.namespace and record.key[0] != where.namespace:
            return False
        return has_labels(record.labels) and (has_fields is None or has_fields(record.body()))

    return test


class Watcher:
    """One open watch, with the lines that its reader has not taken yet."""

    def __init__(self, resource: Resource, selected: Matcher) -> None:
        self.resource = resource
        self._selected = selected
        self._lines: deque[Line] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def offer(self, entry: LoggedChange) -> None:
        """Queue the event of a change; an object may also enter or leave the selection of the watch."""
        before = entry.before if entry.before and self._selected(entry.before) else None
        after = entry.after if entry.after and self._selected(entry.after) else None
        if after:
            self.put(EventType.MODIFIED if before else EventType.ADDED, after.raw)
        elif before:
            self.put(EventType.DELETED, before.at(entry.revision))

    def put(self, kind: EventType, raw: bytes) -> None:
        """Queue one line, unless the watch is closed."""
        if not self._closed:
            self._lines.append((kind, raw))
            self._wake.set()

    def close(self) -> None:
        """End the stream once the queued lines are read."""
        self._closed = True
        self._wake.set()

    async def lines(self) -> AsyncIterator[Line]:
        """Yield the lines as they come, until the server closes the watch."""
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
        self._entries: deque[LoggedChange] = deque()
        self._watchers: dict[Resource, list[Watcher]] = defaultdict(list)
        self.observe: Callable[[LoggedChange], None] | None = None
        """Receives every change."""

    def append(self, entry: LoggedChange) -> None:
        """Append a change and deliver it to the open watches."""
        self._entries.append(entry)
        if len(self._entries) > self._capacity:
            self.compacted = self._entries.popleft().revision
        if self.observe is not None:
            self.observe(entry)
        for watcher in self._watchers[entry.resource]:
            watcher.offer(entry)

    def open(self, watcher: Watcher, since: int) -> None:
        """Start a watch with the changes after a revision; Gone if the log no longer has all of them."""
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
        """Drop a watch after its reader disconnected."""
        self._watchers[watcher.resource].remove(watcher)

    def compact(self) -> None:
        """Drop all changes: watches can only start at the current revision."""
        self._entries.clear()
        self.compacted = self.revision

    def watchers(self, resource: Resource | None = None) -> list[Watcher]:
        """Return the open watches, of one kind or of all."""
        chosen = [self._watchers[resource]] if resource else list(self._watchers.values())
        return [watcher for watchers in chosen for watcher in watchers]


Address = tuple[Resource, Key]


@dataclass(frozen=True, slots=True)
class Found:
    """A record and the kind it belongs to."""

    resource: Resource
    record: StoredRecord


class ObjectStore:
    """All records, and the log of their changes."""

    def __init__(self, history: int) -> None:
        self.log = Log(history)
        self._records: dict[Resource, dict[Key, StoredRecord]] = defaultdict(dict)
        self._by_uid: dict[str, Address] = {}
        self._owned: dict[str, dict[Address, None]] = defaultdict(dict)

    def get(self, resource: Resource, key: Key) -> StoredRecord | None:
        """Return the record, or None."""
        return self._records[resource].get(key)

    def of_kind(self, resource: Resource) -> list[StoredRecord]:
        """Return all records of a kind in the order of namespace and name."""
        records = self._records[resource]
        return [records[key] for key in sorted(records)]

    def by_uid(self, uid: str) -> Found | None:
        """Return the record with a uid, or None."""
        address = self._by_uid.get(uid)
        return None if address is None else Found(address[0], self._records[address[0]][address[1]])

    def owned_by(self, uid: str) -> list[Found]:
        """Return the records that name the uid as an owner, oldest first."""
        return [Found(resource, self._records[resource][key]) for resource, key in self._owned.get(uid, ())]

    def in_namespace(self, namespace: str) -> Iterator[Found]:
        """Yield all records in a namespace."""
        for resource, records in list(self._records.items()):
            for key in [key for key in records if key[0] == namespace]:
                yield Found(resource, records[key])

    def write(self, resource: Resource, body: Object, owners: Owners, before: StoredRecord | None) -> StoredRecord:
        """Commit a new state of an object; `before` is None for a new object."""
        self.log.revision += 1
        after = record_of(body, self.log.revision, owners)
        self._records[resource][after.key] = after
        if before is None or before.owner_uids != after.owner_uids:
            self._reindex(resource, before, after)
        self.log.append(LoggedChange(after.revision, resource, before, after))
        return after

    def own(self, resource: Resource, record: StoredRecord, owners: Owners) -> StoredRecord:
        """Record the field owners of an object that was just written; creates no revision."""
        after = replace(record, owners=owners)
        self._records[resource][record.key] = after
        return after

    def remove(self, resource: Resource, record: StoredRecord) -> None:
        """Commit the removal of an object."""
        self.log.revision += 1
        del self._records[resource][record.key]
        self._reindex(resource, record, None)
        self.log.append(LoggedChange(self.log.revision, resource, record, None))

    def _reindex(self, resource: Resource, before: StoredRecord | None, after: StoredRecord | None) -> None:
        if before is not None:
            address = (resource, before.key)
            self._by_uid.pop(before.uid, None)
            for uid in before.owner_uids:
                self._owned[uid].pop(address, None)
                if not self._owned[uid]:
                    del self._owned[uid]
        if after is not None:
            address = (resource, after.key)
            self._by_uid[after.uid] = address
            for uid in after.owner_uids:
                self._owned[uid][address] = None
