"""The in-memory server without its asynchronous face: every verb as one synchronous step on the store.

Order of a write, as on the server: find, check preconditions, change, admit, conform to the schema, commit. A write
that changes nothing commits nothing: no new resourceVersion, no event.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from random import Random

from pykai.kube import resources as known
from pykai.kube.api import Deletion, Object, Patch, Ref, Resource
from pykai.kube.codec import named
from pykai.kube.errors import AlreadyExists, BadRequest, NotFound
from pykai.kube.memory import apply, changes, collector, deletion, metadata, pods
from pykai.kube.memory.apply import Owners
from pykai.kube.memory.births import BIRTHS
from pykai.kube.memory.kinds import Kind, built_in, from_definition
from pykai.kube.memory.log import Record, record_of
from pykai.kube.memory.store import Store

Admission = Callable[[Resource, Object, Object | None], Object]
"""Sees (kind, new object, old object or None on creation); returns the object to store, or raises an ApiError."""

NAME_TRIES = 8


class Core:
    """The state of the server and its verbs."""

    def __init__(
        self, clock: Callable[[], float], admission: Sequence[Admission], random: Random, history: int
    ) -> None:
        self.clock = clock
        self.store = Store(history)
        self._admission = tuple(admission)
        self._random = random
        self._created = 0
        """Uids begin with it: where rules fall back on them, the older object comes first, whatever the seed."""
        self._kinds = {resource: built_in(resource) for resource in known.BUILT_IN}

    # ------------------------------------------------------------------------------------------------- finding
    def kind(self, resource: Resource) -> Kind:
        """The rules of a kind; NotFound if it is not served."""
        found = self._kinds.get(resource)
        if found is None:
            raise NotFound("the server could not find the requested resource")
        return found

    def find(self, ref: Ref) -> tuple[Kind, Record]:
        """The record at an address; NotFound if there is none."""
        kind = self.kind(ref.resource)
        record = self.store.get(ref.resource, (ref.namespace, ref.name))
        if record is None:
            details = {"name": ref.name, "group": ref.resource.group, "kind": ref.resource.plural}
            raise NotFound(f'{ref.resource.qualified} "{ref.name}" not found', details=details)
        return kind, record

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether a kind, as an owner reference names it, is served."""
        return any(r.api_version == api_version and r.kind == kind for r in self._kinds)

    # ------------------------------------------------------------------------------------------------- writing
    def create(self, resource: Resource, body: Object) -> Record:
        """Store a new object."""
        kind = self.kind(resource)
        if resource.namespaced:
            self._check_namespace(body["metadata"]["namespace"])
        body = self._named(resource, changes.without_status(kind, body))
        self._created += 1
        uid = str(uuid.UUID(int=(self._created % 2**32) << 96 | self._random.getrandbits(96), version=4))
        body = {**body, "metadata": metadata.fresh(body["metadata"], self.clock(), uid)}
        new = changes.new_object(kind, self._born(resource, self._admitted(resource, body, None)))
        if self.store.get(resource, (new["metadata"].get("namespace") or "", new["metadata"]["name"])):
            raise self._taken(resource, new["metadata"]["name"])
        record = self.store.write(resource, new, {}, None)
        self._definition_changed(resource, new)
        collector.after_creation(self, kind, record)
        return record

    def load(self, resource: Resource, body: Object) -> None:
        """Store an object of another server, in place of one of the same name."""
        self.kind(resource)
        meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
        before = self.store.get(resource, (meta.get("namespace") or "", meta["name"]))
        self.store.write(resource, {**body, "metadata": meta}, {}, before)

    def change(self, kind: Kind, record: Record, sent: Object, subresource: str) -> Record:
        """Store what an update or a patch made of an object."""
        old = record.body()
        new = changes.changed_object(kind, old, sent, subresource)
        if not subresource and new != old:
            new = changes.changed_object(kind, old, self._admitted(kind.resource, new, old), "")
        return self.commit(kind, record, new, apply.taken(record.owners, old, new, kind.list_keys))

    def apply(self, ref: Ref, patch: Patch) -> Record:
        """Server-side apply; creates the object if there is none."""
        kind = self.kind(ref.resource)
        if not patch.manager:
            raise BadRequest(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        config = named(ref, patch.body)  # type: ignore[arg-type]
        changes.check_name(ref.name, config)
        record = self.store.get(ref.resource, (ref.namespace, ref.name))
        if record is None and not ref.subresource:
            return self._apply_new(kind, config, patch.manager)
        kind, record = self.find(ref)
        old = record.body()
        changes.check_version(kind, old, config, patched=True)
        manager = (patch.manager, patch.force)
        sent, owners = apply.applied(old, record.owners, config, manager, kind.list_keys)
        new = changes.changed_object(kind, old, sent, ref.subresource)
        if not ref.subresource and new != old:
            new = changes.changed_object(kind, old, self._admitted(kind.resource, new, old), "")
        return self.commit(kind, record, new, owners)

    def _apply_new(self, kind: Kind, config: Object, manager: str) -> Record:
        record = self.create(kind.resource, config)
        if self.store.get(kind.resource, record.key) is None:
            return record  # its owner is no more, so it is not either
        _, owners = apply.applied({}, {}, config, (manager, True), kind.list_keys)
        return self.store.own(kind.resource, record, owners)

    def commit(self, kind: Kind, record: Record, new: Object, owners: Owners | None = None) -> Record:
        """Store a new state; the object goes away if this was the last thing that held it."""
        owners = record.owners if owners is None else owners
        if new == record.body() and owners == record.owners:
            return record
        if self._ends(kind, new):
            last = record_of(new, record.revision, owners)
            self.remove(kind, last)
            return last
        after = self.store.write(kind.resource, new, owners, record)
        self._definition_changed(kind.resource, new)
        return after

    def bind(self, kind: Kind, record: Record, binding: Object) -> None:
        """Assign a pod to a node."""
        self.commit(kind, record, pods.bound(record.body(), binding, self.clock()))

    # ------------------------------------------------------------------------------------------------ deleting
    def begin_deletion(self, kind: Kind, record: Record, how: Deletion) -> None:
        """Delete an object, or mark it if something still holds it."""
        new = deletion.begun(kind, record.body(), how, self.clock())
        if kind.resource == known.NAMESPACE:
            new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        if self._ends(kind, new):
            self.remove(kind, record)
            return
        marked = self.commit(kind, record, new)
        collector.after_marking(self, kind, marked)

    def remove(self, kind: Kind, record: Record) -> None:
        """Take an object away, and what lived only because of it."""
        self.store.remove(kind.resource, record)
        if kind.resource == known.CRD:
            self._withdraw(record.body())
        collector.after_removal(self, kind.resource, record)

    # ------------------------------------------------------------------------------------------------- details
    def contents(self, kind: Kind, record: Record) -> list[tuple[Kind, Record]]:
        """What must go before a namespace or a definition can: empty for every other kind."""
        if kind.resource == known.NAMESPACE:
            return [(self.kind(f.resource), f.record) for f in self.store.in_namespace(record.key[1])]
        if kind.resource == known.CRD:
            rows = from_definition(record.body())
            return [(row, r) for row in rows for r in self.store.of_kind(row.resource)]
        return []

    def _ends(self, kind: Kind, body: Object) -> bool:
        if not deletion.finished(body):
            return False
        record = self.store.get(kind.resource, (body["metadata"].get("namespace") or "", body["metadata"]["name"]))
        return record is None or not self.contents(kind, record)

    def _check_namespace(self, name: str) -> None:
        record = self.store.get(known.NAMESPACE, ("", name))
        changes.check_namespace(record.body() if record else None, name)

    def _named(self, resource: Resource, body: Object) -> Object:
        own = body["metadata"]
        if own.get("name") or not own.get("generateName"):
            return body
        for _ in range(NAME_TRIES):
            name = metadata.generated(own["generateName"], self._random)
            if self.store.get(resource, (own.get("namespace") or "", name)) is None:
                return {**body, "metadata": {**own, "name": name}}
        raise self._taken(resource, own["generateName"])

    def _taken(self, resource: Resource, name: str) -> AlreadyExists:
        details = {"name": name, "group": resource.group, "kind": resource.plural}
        return AlreadyExists(f'{resource.qualified} "{name}" already exists', details=details)

    def _admitted(self, resource: Resource, new: Object, old: Object | None) -> Object:
        for admit in self._admission:
            new = admit(resource, new, old)
        return new

    def _born(self, resource: Resource, body: Object) -> Object:
        if resource == known.POD:
            return pods.defaulted(body, [r.body() for r in self.store.of_kind(known.PRIORITY_CLASS)])
        birth = BIRTHS.get(resource)
        return birth(body) if birth and body["metadata"].get("name") else body

    def _definition_changed(self, resource: Resource, body: Object) -> None:
        if resource == known.CRD:
            self._kinds |= {row.resource: row for row in from_definition(body)}

    def _withdraw(self, definition: Object) -> None:
        for row in from_definition(definition):
            self._kinds.pop(row.resource, None)
            for watcher in self.store.log.watchers(row.resource):
                watcher.close()
