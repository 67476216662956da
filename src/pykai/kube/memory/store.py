"""The objects of an in-memory server by kind and name, with the indexes that garbage collection needs.

`write` and `remove` are the only two ways the content changes; each takes one revision and one entry of the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pykai.kube.api import Object, Resource
from pykai.kube.memory.apply import Owners
from pykai.kube.memory.log import Entry, Key, Log, Record, record_of

Address = tuple[Resource, Key]


@dataclass(frozen=True, slots=True)
class Found:
    """A record and the kind it belongs to."""

    resource: Resource
    record: Record


class Store:
    """All records, and the log of how they came to be."""

    def __init__(self, history: int) -> None:
        self.log = Log(history)
        self._records: dict[Resource, dict[Key, Record]] = defaultdict(dict)
        self._by_uid: dict[str, Address] = {}
        self._owned: dict[str, dict[Address, None]] = defaultdict(dict)

    def get(self, resource: Resource, key: Key) -> Record | None:
        """The record, or None."""
        return self._records[resource].get(key)

    def of_kind(self, resource: Resource) -> list[Record]:
        """All records of a kind in the order of namespace and name."""
        records = self._records[resource]
        return [records[key] for key in sorted(records)]

    def by_uid(self, uid: str) -> Found | None:
        """The record with a uid, or None."""
        address = self._by_uid.get(uid)
        return None if address is None else Found(address[0], self._records[address[0]][address[1]])

    def owned_by(self, uid: str) -> list[Found]:
        """The records that name the uid as an owner, oldest first."""
        return [Found(resource, self._records[resource][key]) for resource, key in self._owned.get(uid, ())]

    def in_namespace(self, namespace: str) -> Iterator[Found]:
        """Everything that lives in a namespace."""
        for resource, records in list(self._records.items()):
            for key in [key for key in records if key[0] == namespace]:
                yield Found(resource, records[key])

    def write(self, resource: Resource, body: Object, owners: Owners, before: Record | None) -> Record:
        """Commit a new state of an object; `before` is None for a new object."""
        self.log.revision += 1
        after = record_of(body, self.log.revision, owners)
        self._records[resource][after.key] = after
        if before is None or before.owner_uids != after.owner_uids:
            self._reindex(resource, before, after)
        self.log.append(Entry(after.revision, resource, before, after))
        return after

    def own(self, resource: Resource, record: Record, owners: Owners) -> Record:
        """Note who owns the fields of an object that was just written; no revision of its own."""
        after = replace(record, owners=owners)
        self._records[resource][record.key] = after
        return after

    def remove(self, resource: Resource, record: Record) -> None:
        """Commit the end of an object."""
        self.log.revision += 1
        del self._records[resource][record.key]
        self._reindex(resource, record, None)
        self.log.append(Entry(self.log.revision, resource, record, None))

    def _reindex(self, resource: Resource, before: Record | None, after: Record | None) -> None:
        if before is not None:
            address = (resource, before.key)
            self._by_uid.pop(before.uid, None)
            for uid in before.owner_uids:
                self._owned[uid].pop(address, None)
        if after is not None:
            address = (resource, after.key)
            self._by_uid[after.uid] = address
            for uid in after.owner_uids:
                self._owned[uid][address] = None
