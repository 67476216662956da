"""The core of the in-memory API server: each verb is one synchronous step on the store.

The order of a write is that of the server: find, check preconditions, change, admit, conform to the schema, commit. A
write that changes nothing commits nothing: no new resourceVersion, no event.

Garbage collection deletes the dependents of deleted owners, then releases owners that wait for their dependents. In a
cluster a controller does this within seconds; here it completes before the write returns. An owner of a kind that is
not served counts as existing, because its absence cannot be verified.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from random import Random

from pykai.kube import api_resources as known
from pykai.kube.api import Deletion, Object, Patch, Propagation, Ref, Resource
from pykai.kube.codec import named
from pykai.kube.errors import AlreadyExists, BadRequest, NotFound
from pykai.kube.memory.object_store import Found, ObjectStore, StoredRecord, record_of
from pykai.kube.memory.object_writes import (
    FOREGROUND,
    ORPHAN,
    changed_object,
    check_name,
    check_namespace,
    check_version,
    deletion_begun,
    deletion_finished,
    generated_name,
    new_metadata,
    new_object,
    without_finalizer,
    without_status,
)
from pykai.kube.memory.patches import Owners, applied, owners_after_write
from pykai.kube.memory.served_kinds import (
    CREATION_DEFAULTS,
    ServedKind,
    bound_pod,
    built_in,
    defaulted_pod,
    from_definition,
)

Admission = Callable[[Resource, Object, Object | None], Object]
"""A webhook: from (kind, new object, old object or None on create) to the object to store; an ApiError denies it."""

NAME_TRIES = 8


class Core:
    """The state of the server and its verbs."""

    def __init__(
        self, clock: Callable[[], float], admission: Sequence[Admission], random: Random, history: int
    ) -> None:
        self.clock = clock
        self.store = ObjectStore(history)
        self._admission = tuple(admission)
        self._random = random
        self._created = 0
        """Prefix of uids: rules that order by uid put the older object first, whatever the seed."""
        self._kinds = {resource: built_in(resource) for resource in known.BUILT_IN}

    # ------------------------------------------------------------------------------------------------- finding
    def kind(self, resource: Resource) -> ServedKind:
        """Return the rules of a kind; NotFound if it is not served."""
        found = self._kinds.get(resource)
        if found is None:
            raise NotFound("the server could not find the requested resource")
        return found

    def find(self, ref: Ref) -> tuple[ServedKind, StoredRecord]:
        """Return the record at an address; NotFound if there is none."""
        kind = self.kind(ref.resource)
        record = self.store.get(ref.resource, (ref.namespace, ref.name))
        if record is None:
            details = {"name": ref.name, "group": ref.resource.group, "kind": ref.resource.plural}
            raise NotFound(f'{ref.resource.qualified} "{ref.name}" not found', details=details)
        return kind, record

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the server serves a kind that an owner reference names."""
        return any(r.api_version == api_version and r.kind == kind for r in self._kinds)

    # ------------------------------------------------------------------------------------------------- writing
    def create(self, resource: Resource, body: Object) -> StoredRecord:
        """Store a new object."""
        kind = self.kind(resource)
        new = self._new(kind, body)
        record = self.store.write(resource, new, {}, None)
        self._definition_changed(resource, new)
        if record.owner_uids and not _living_owners(self, record.body()):
            self.begin_deletion(kind, record, _BACKGROUND)
        return record

    def _new(self, kind: ServedKind, body: Object) -> Object:
        """Return a new object after admission; AlreadyExists if its name is taken."""
        resource = kind.resource
        if resource.namespaced:
            self._check_namespace(body["metadata"]["namespace"])
        body = self._named(resource, without_status(kind, body))
        self._created += 1
        uid = str(uuid.UUID(int=(self._created % 2**32) << 96 | self._random.getrandbits(96), version=4))
        body = {**body, "metadata": new_metadata(body["metadata"], self.clock(), uid)}
        new = new_object(kind, self._defaulted(resource, self._admitted(resource, body, None)))
        if self.store.get(resource, (new["metadata"].get("namespace") or "", new["metadata"]["name"])):
            raise self._already_exists(resource, new["metadata"]["name"])
        return new

    def load(self, resource: Resource, body: Object) -> None:
        """Store an object of another cluster, in place of one of the same name."""
        self.kind(resource)
        meta = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
        before = self.store.get(resource, (meta.get("namespace") or "", meta["name"]))
        self.store.write(resource, {**body, "metadata": meta}, {}, before)

    def change(
        self, kind: ServedKind, record: StoredRecord, sent: Object, subresource: str, *, dry_run: bool = False
    ) -> StoredRecord:
        """Store the result of an update or patch; a dry run stores nothing."""
        old = record.body()
        new = self._changed(kind, old, sent, subresource)
        if dry_run:
            return record_of(new, record.revision, record.owners)
        return self.commit(kind, record, new, owners_after_write(record.owners, old, new, kind.list_keys))

    def _changed(self, kind: ServedKind, old: Object, sent: Object, subresource: str) -> Object:
        """Return the new state after admission; subresources skip admission."""
        new = changed_object(kind, old, sent, subresource)
        if not subresource and new != old:
            new = changed_object(kind, old, self._admitted(kind.resource, new, old), "")
        return new

    def apply(self, ref: Ref, patch: Patch) -> StoredRecord:
        """Server-side apply; creates the object if there is none."""
        kind = self.kind(ref.resource)
        if not patch.manager:
            raise BadRequest(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        config = named(ref, patch)
        check_name(ref.name, config)
        record = self.store.get(ref.resource, (ref.namespace, ref.name))
        if record is None and not ref.subresource:
            if patch.dry_run:
                return record_of(self._new(kind, config), 0, {})
            return self._apply_new(kind, config, patch.manager)
        kind, record = self.find(ref)
        old = record.body()
        check_version(kind, old, config, patched=True)
        sent, owners = applied(old, record.owners, config, patch.manager, kind.list_keys)
        new = self._changed(kind, old, sent, ref.subresource)
        return record_of(new, record.revision, owners) if patch.dry_run else self.commit(kind, record, new, owners)

    def _apply_new(self, kind: ServedKind, config: Object, manager: str) -> StoredRecord:
        record = self.create(kind.resource, config)
        if self.store.get(kind.resource, record.key) is None:
            return record  # garbage collected, because its owner does not exist
        _, owners = applied({}, {}, config, manager, kind.list_keys)
        return self.store.own(kind.resource, record, owners)

    def commit(self, kind: ServedKind, record: StoredRecord, new: Object, owners: Owners | None = None) -> StoredRecord:
        """Store a new state; remove a terminating object that nothing holds any more."""
        owners = record.owners if owners is None else owners
        if new == record.body() and owners == record.owners:
            return record
        if self._is_deletable(kind, new):
            last = record_of(new, record.revision, owners)
            self.remove(kind, last)
            return last
        after = self.store.write(kind.resource, new, owners, record)
        self._definition_changed(kind.resource, new)
        return after

    def bind(self, kind: ServedKind, record: StoredRecord, binding: Object) -> None:
        """Assign a pod to a node."""
        self.commit(kind, record, bound_pod(record.body(), binding, self.clock()))

    # ------------------------------------------------------------------------------------------------ deleting
    def begin_deletion(self, kind: ServedKind, record: StoredRecord, how: Deletion) -> None:
        """Delete an object, or set its deletionTimestamp if a grace period or finalizers hold it."""
        new = deletion_begun(kind, record.body(), how, self.clock())
        if kind.resource == known.NAMESPACE:
            new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        if self._is_deletable(kind, new):
            self.remove(kind, record)
            return
        marked = self.commit(kind, record, new)
        _collect_terminating(self, kind, marked)

    def remove(self, kind: ServedKind, record: StoredRecord) -> None:
        """Remove an object and the dependents that have no other owner."""
        self.store.remove(kind.resource, record)
        if kind.resource == known.CRD:
            self._stop_serving(record.body())
        _collect_removed(self, kind.resource, record)

    # ------------------------------------------------------------------------------------------------- details
    def contents(self, kind: ServedKind, record: StoredRecord) -> list[tuple[ServedKind, StoredRecord]]:
        """Return the objects in a namespace or of a definition, to be deleted before it; none for other kinds."""
        if kind.resource == known.NAMESPACE:
            return [(self.kind(f.resource), f.record) for f in self.store.in_namespace(record.key[1])]
        if kind.resource == known.CRD:
            rows = from_definition(record.body())
            return [(row, r) for row in rows for r in self.store.of_kind(row.resource)]
        return []

    def _is_deletable(self, kind: ServedKind, body: Object) -> bool:
        if not deletion_finished(body):
            return False
        record = self.store.get(kind.resource, (body["metadata"].get("namespace") or "", body["metadata"]["name"]))
        return record is None or not self.contents(kind, record)

    def _check_namespace(self, name: str) -> None:
        record = self.store.get(known.NAMESPACE, ("", name))
        check_namespace(record.body() if record else None, name)

    def _named(self, resource: Resource, body: Object) -> Object:
        own = body["metadata"]
        if own.get("name") or not own.get("generateName"):
            return body
        for _ in range(NAME_TRIES):
            name = generated_name(own["generateName"], self._random)
            if self.store.get(resource, (own.get("namespace") or "", name)) is None:
                return {**body, "metadata": {**own, "name": name}}
        raise self._already_exists(resource, own["generateName"])

    def _already_exists(self, resource: Resource, name: str) -> AlreadyExists:
        details = {"name": name, "group": resource.group, "kind": resource.plural}
        return AlreadyExists(f'{resource.qualified} "{name}" already exists', details=details)

    def _admitted(self, resource: Resource, new: Object, old: Object | None) -> Object:
        for admit in self._admission:
            new = admit(resource, new, old)
        return new

    def _defaulted(self, resource: Resource, body: Object) -> Object:
        if resource == known.POD:
            return defaulted_pod(body, [r.body() for r in self.store.of_kind(known.PRIORITY_CLASS)])
        defaulted = CREATION_DEFAULTS.get(resource)
        return defaulted(body) if defaulted and body["metadata"].get("name") else body

    def _definition_changed(self, resource: Resource, body: Object) -> None:
        if resource == known.CRD:
            self._kinds |= {row.resource: row for row in from_definition(body)}

    def _stop_serving(self, definition: Object) -> None:
        for row in from_definition(definition):
            self._kinds.pop(row.resource, None)
            for watcher in self.store.log.watchers(row.resource):
                watcher.close()


_BACKGROUND = Deletion(propagation=Propagation.BACKGROUND)
_FOREGROUND = Deletion(propagation=Propagation.FOREGROUND)


def _collect_terminating(core: Core, kind: ServedKind, record: StoredRecord) -> None:
    """Delete the dependents that a pending deletion waits for."""
    finalizers = record.body()["metadata"].get("finalizers") or []
    for inner, content in core.contents(kind, record):
        if (current := core.store.get(inner.resource, content.key)) is not None:
            core.begin_deletion(inner, current, _BACKGROUND)
    if ORPHAN in finalizers:
        for found in core.store.owned_by(record.uid):
            _remove_owner(core, found, record.uid)
        _remove_finalizer(core, record.uid, ORPHAN)
    if FOREGROUND in finalizers:
        for found in core.store.owned_by(record.uid):
            if (living := core.store.by_uid(found.record.uid)) is not None:
                core.begin_deletion(core.kind(living.resource), living.record, _FOREGROUND)
        _finish_foreground(core, record.uid)


def _collect_removed(core: Core, resource: Resource, record: StoredRecord) -> None:
    """Collect the dependents of the removed object, then release owners that waited for it."""
    for found in core.store.owned_by(record.uid):
        _collect_dependent(core, found, record.uid)
    for uid in record.owner_uids:
        _finish_foreground(core, uid)
    if resource.namespaced:
        _remove_if_empty(core, known.NAMESPACE, record.key[0])
    _remove_if_empty(core, known.CRD, resource.qualified)


def _collect_dependent(core: Core, found: Found, gone: str) -> None:
    current = core.store.by_uid(found.record.uid)
    if current is None:
        return
    if _living_owners(core, current.record.body()):
        _remove_owner(core, current, gone)
    else:
        core.begin_deletion(core.kind(current.resource), current.record, _BACKGROUND)


def _living_owners(core: Core, body: Object) -> list[Object]:
    owners = body["metadata"].get("ownerReferences") or []
    return [
        owner
        for owner in owners
        if core.store.by_uid(owner["uid"]) is not None or not core.serves(owner["apiVersion"], owner["kind"])
    ]


def _remove_owner(core: Core, found: Found, uid: str) -> None:
    body = found.record.body()
    rest = [owner for owner in body["metadata"]["ownerReferences"] if owner["uid"] != uid]
    metadata = {name: value for name, value in body["metadata"].items() if name != "ownerReferences"}
    body["metadata"] = {**metadata, "ownerReferences": rest} if rest else metadata
    core.commit(core.kind(found.resource), found.record, body)


def _finish_foreground(core: Core, uid: str) -> None:
    blocking = any(
        owner["uid"] == uid and owner.get("blockOwnerDeletion")
        for found in core.store.owned_by(uid)
        for owner in found.record.body()["metadata"]["ownerReferences"]
    )
    if not blocking:
        _remove_finalizer(core, uid, FOREGROUND)


def _remove_finalizer(core: Core, uid: str, finalizer: str) -> None:
    found = core.store.by_uid(uid)
    if found is None:
        return
    body = found.record.body()
    if "deletionTimestamp" in body["metadata"] and finalizer in (body["metadata"].get("finalizers") or ()):
        core.commit(core.kind(found.resource), found.record, without_finalizer(body, finalizer))


def _remove_if_empty(core: Core, resource: Resource, name: str) -> None:
    record = core.store.get(resource, ("", name))
    if record is None or "deletionTimestamp" not in record.body()["metadata"]:
        return
    kind = core.kind(resource)
    if not core.contents(kind, record) and not record.body()["metadata"].get("finalizers"):
        core.remove(kind, record)
