"""Garbage collection: objects whose owners are gone go too, and what waits for its content to go is let go.

On a cluster a controller does this within seconds; here it is done before the write returns. An owner of a kind that
is not served counts as living, because nobody can know better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykai.kube import resources as known
from pykai.kube.api import Deletion, Object, Propagation, Resource
from pykai.kube.memory.deletion import FOREGROUND, ORPHAN, without_finalizer
from pykai.kube.memory.kinds import Kind
from pykai.kube.memory.log import Record
from pykai.kube.memory.store import Found

if TYPE_CHECKING:
    from pykai.kube.memory.core import Core

_BACKGROUND = Deletion(propagation=Propagation.BACKGROUND)
_FOREGROUND = Deletion(propagation=Propagation.FOREGROUND)


def after_creation(core: Core, kind: Kind, record: Record) -> None:
    """Collect a new object whose owners never existed."""
    if record.owner_uids and not _living_owners(core, record.body()):
        core.begin_deletion(kind, record, _BACKGROUND)


def after_marking(core: Core, kind: Kind, record: Record) -> None:
    """Do what a deletion that has begun is waiting for."""
    finalizers = record.body()["metadata"].get("finalizers") or []
    for inner, content in core.contents(kind, record):
        if (current := core.store.get(inner.resource, content.key)) is not None:
            core.begin_deletion(inner, current, _BACKGROUND)
    if ORPHAN in finalizers:
        for found in core.store.owned_by(record.uid):
            _disown(core, found, record.uid)
        _let_go(core, record.uid, ORPHAN)
    if FOREGROUND in finalizers:
        for found in core.store.owned_by(record.uid):
            if (living := core.store.by_uid(found.record.uid)) is not None:
                core.begin_deletion(core.kind(living.resource), living.record, _FOREGROUND)
        _finish_foreground(core, record.uid)


def after_removal(core: Core, resource: Resource, record: Record) -> None:
    """Collect what the removed object owned, then let go of what waited for it."""
    for found in core.store.owned_by(record.uid):
        _release(core, found, record.uid)
    for uid in record.owner_uids:
        _finish_foreground(core, uid)
    if resource.namespaced:
        _finish_container(core, known.NAMESPACE, record.key[0])
    _finish_container(core, known.CRD, resource.qualified)


def _release(core: Core, found: Found, gone: str) -> None:
    current = core.store.by_uid(found.record.uid)
    if current is None:
        return
    if _living_owners(core, current.record.body()):
        _disown(core, current, gone)
    else:
        core.begin_deletion(core.kind(current.resource), current.record, _BACKGROUND)


def _living_owners(core: Core, body: Object) -> list[Object]:
    owners = body["metadata"].get("ownerReferences") or []
    return [
        owner
        for owner in owners
        if core.store.by_uid(owner["uid"]) is not None or not core.serves(owner["apiVersion"], owner["kind"])
    ]


def _disown(core: Core, found: Found, uid: str) -> None:
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
        _let_go(core, uid, FOREGROUND)


def _let_go(core: Core, uid: str, finalizer: str) -> None:
    found = core.store.by_uid(uid)
    if found is None:
        return
    body = found.record.body()
    if "deletionTimestamp" in body["metadata"] and finalizer in (body["metadata"].get("finalizers") or ()):
        core.commit(core.kind(found.resource), found.record, without_finalizer(body, finalizer))


def _finish_container(core: Core, resource: Resource, name: str) -> None:
    record = core.store.get(resource, ("", name))
    if record is None or "deletionTimestamp" not in record.body()["metadata"]:
        return
    kind = core.kind(resource)
    if not core.contents(kind, record) and not record.body()["metadata"].get("finalizers"):
        core.remove(kind, record)
