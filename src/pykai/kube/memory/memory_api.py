"""An in-memory API server: the interface of `pykai.kube.api` with the rules of the real server.

It is product code: simulator, dry runs and fast tests run on it the controllers that a cluster runs. The caller
supplies the clock, and a seeded generator supplies names and uids, so that the same calls give the same objects.
Garbage collection and namespace deletion, for which a cluster needs controllers, take effect at once. Not modelled:
authorization, `managedFields`, the expiry of events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from random import Random
from typing import TypeVar

from msgspec import Raw

from pykai.kube import api_resources as known
from pykai.kube.api import (
    ALL_AT_ONCE,
    EVERYTHING,
    SERVER_DEFAULTS,
    Body,
    Deletion,
    EventType,
    Object,
    Page,
    Paging,
    Patch,
    PatchType,
    Ref,
    Resource,
    Selection,
    WatchEvent,
)
from pykai.kube.codec import addressed, bookmark, decode, decode_item, encode, subresource_body
from pykai.kube.errors import BadRequest, Gone, NotFound
from pykai.kube.memory.core import Admission, Core
from pykai.kube.memory.object_store import LoggedChange, StoredRecord, Watcher, matcher
from pykai.kube.memory.object_writes import check_name, check_preconditions, check_version, patched

T = TypeVar("T")

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
BOOKMARK_SECONDS = 60.0
DONE: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class MemoryApi:
    """An `Api`. `clock` returns seconds since 1970, `definitions` are CRDs installed from the start, `history` is the
    number of changes that the watch log keeps."""

    def __init__(
        self,
        clock: Callable[[], float],
        definitions: Iterable[Object] = (),
        admission: Sequence[Admission] = (),
        seed: int = 0,
        history: int = 10_000,
    ) -> None:
        self._core = Core(clock, admission, Random(seed), history)
        self._lists = Lists()
        self._bookmarked = clock()
        for name in NAMESPACES:
            self._install(known.NAMESPACE, {"metadata": {"name": name}})
        for name, value in SYSTEM_CLASSES.items():
            self._install(known.PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
        for definition in definitions:
            self._install(known.CRD, definition)

    def _install(self, resource: Resource, body: Object) -> None:
        self._core.create(resource, addressed(resource, body))

    # ------------------------------------------------------------------------------------------------- reading
    async def get(self, ref: Ref, into: type[T]) -> T:
        """See `Api.get`."""
        return decode(self._core.find(ref)[1].raw, into)

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        """See `Api.list`."""
        self._core.kind(resource)
        store = self._core.store
        if paging.token:
            version, records = self._lists.resume(paging.token, store.log.compacted)
        else:
            version, selected = store.log.revision, matcher(where, resource)
            records = [record for record in store.of_kind(resource) if selected(record)]
        page, token = self._lists.cut(records, paging.limit, version)
        raws = (Raw(_shown(record.raw, where)) for record in page)
        return Page([decode_item(raw, into, resource) for raw in raws], str(version), token)

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """See `Api.watch`."""
        watcher = self._open(resource, where, version)
        try:
            async for kind, raw in watcher.lines():
                yield WatchEvent(kind, decode(_shown(raw, where), into))
        finally:
            self._core.store.log.close(watcher)

    def _open(self, resource: Resource, where: Selection, version: str) -> Watcher:
        self._core.kind(resource)
        store, selected = self._core.store, matcher(where, resource)
        watcher = Watcher(resource, selected)
        if version and not version.isdigit():
            raise BadRequest(f"invalid resource version {version!r}")
        since = int(version or 0)
        if since:
            watcher.put(EventType.BOOKMARK, bookmark(resource, version))
        else:
            for record in filter(selected, store.of_kind(resource)):
                watcher.put(EventType.ADDED, record.raw)
        store.log.open(watcher, since or store.log.revision)
        return watcher

    # ------------------------------------------------------------------------------------------------- writing
    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        """See `Api.create`."""
        record = self._core.create(resource, addressed(resource, body, namespace))
        self._bookmark_when_due()
        return record.body()

    async def update(self, ref: Ref, body: Body) -> Object:
        """See `Api.update`."""
        kind, record = self._core.find(ref)
        sent = addressed(kind.resource, body, ref.namespace)
        check_name(ref.name, sent)
        check_version(kind, record.body(), sent, patched=False)
        record = self._core.change(kind, record, sent, ref.subresource)
        self._bookmark_when_due()
        return record.body()

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        """See `Api.patch`."""
        if patch.type is PatchType.APPLY:
            record = self._core.apply(ref, patch)
        else:
            kind, record = self._core.find(ref)
            old = record.body()
            sent = patched(kind, old, patch)
            check_version(kind, old, sent, patched=True)
            record = self._core.change(kind, record, sent, ref.subresource, dry_run=patch.dry_run)
        self._bookmark_when_due()
        return record.body()

    async def delete(self, ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
        """See `Api.delete`."""
        kind, record = self._core.find(ref)
        check_preconditions(kind, record.body(), how)
        self._core.begin_deletion(kind, record, how)
        self._bookmark_when_due()

    async def post(self, ref: Ref, body: Body) -> Object:
        """See `Api.post`."""
        kind, record = self._core.find(ref)
        sent = subresource_body(ref, body)
        if kind.resource == known.POD and ref.subresource == "binding":
            self._core.bind(kind, record, sent)
        else:
            raise NotFound("the server could not find the requested resource")
        self._bookmark_when_due()
        return dict(DONE)

    def load(self, resource: Resource, body: Object) -> None:
        """Store an object of another cluster unchanged: its uid, times and status, without admission or garbage
        collection."""
        self._core.load(resource, body)

    def observe(self, change: Callable[[LoggedChange], None]) -> None:
        """Call `change` with every change from now on, before the watches."""
        self._core.store.log.observe = change

    # ------------------------------------------------------------------------ what a real server does in time
    def compact(self) -> None:
        """Compact the log: older watches and continue tokens become Gone."""
        self._core.store.log.compact()
        self._lists = Lists()

    def disconnect(self) -> None:
        """End every open watch, as a restarting server does."""
        for watcher in self._core.store.log.watchers():
            watcher.close()

    def bookmark(self) -> None:
        """Send every open watch a bookmark; otherwise they come with the first write after each minute."""
        log = self._core.store.log
        self._bookmarked = self._core.clock()
        for watcher in log.watchers():
            watcher.put(EventType.BOOKMARK, bookmark(watcher.resource, str(log.revision)))

    def _bookmark_when_due(self) -> None:
        if self._core.clock() - self._bookmarked >= BOOKMARK_SECONDS:
            self.bookmark()


def _shown(raw: bytes, where: Selection) -> bytes:
    if not where.metadata_only:
        return raw
    metadata = decode(raw, Object)["metadata"]
    return encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})


OPEN_LISTS = 64


class Lists:
    """Paginated lists that may be continued; the oldest is dropped first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[int, Sequence[StoredRecord]]] = OrderedDict()
        self._count = 0

    def cut(self, records: Sequence[StoredRecord], limit: int, version: int) -> tuple[Sequence[StoredRecord], str]:
        """Return the first page, and the token for the rest; the token is empty if there is none."""
        if not limit or len(records) <= limit:
            return records, ""
        self._count += 1
        token = f"{version}.{self._count}"
        self._open[token] = (version, records[limit:])
        if len(self._open) > OPEN_LISTS:
            self._open.popitem(last=False)
        return records[:limit], token

    def resume(self, token: str, compacted: int) -> tuple[int, Sequence[StoredRecord]]:
        """Return the version of a list and its records from the token on; Gone if the token expired."""
        found = self._open.get(token)
        if found is None or found[0] < compacted:
            raise Gone("The provided continue parameter is too old to display a consistent list result.")
        return found
