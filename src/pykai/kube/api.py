"""The interface to a Kubernetes API server, implemented by `HttpApi` and by the in-memory server.

Readers name the type to decode into: `Object` (a plain dict), a msgspec Struct with only the fields they read, or
`msgspec.Raw` (undecoded bytes). Writers pass a dict or a Struct and get the stored object as a dict. Errors are the
classes of `pykai.kube.errors`.

    pod = await api.get(POD.ref("web-0", "team-a"), Pod)
    await api.patch(POD.ref("web-0", "team-a").sub("status"), Patch.strategic({"status": {...}}))
    await api.delete(POD.ref("web-0", "team-a"), Deletion(grace_seconds=0, uid=pod.metadata.uid))
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

T = TypeVar("T")
Object = dict[str, Any]
"""A JSON object: a Kubernetes object, or a part of one."""
Fields = Mapping[str, Any]
"""A read-only JSON object."""
Body = Object | msgspec.Struct


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as it is addressed in URLs; `group` is empty for core kinds.

    `older`: versions to use, newest first, with servers that do not serve `version` yet.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    older: tuple[str, ...] = field(default=(), compare=False)

    @property
    def api_version(self) -> str:
        """`group/version`, or `v1` for core kinds, as in the field `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, as in error messages and names of CRDs."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "") -> str:
        """Return the URL path of the collection, in all namespaces if `namespace` is empty."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{quote(namespace, '')}/{self.plural}" if namespace else f"{root}/{self.plural}"

    def ref(self, name: str, namespace: str = "") -> Ref:
        """Return the address of one object; `namespace` is required for namespaced kinds and forbidden for others."""
        return Ref(self, name, namespace)


@dataclass(frozen=True, slots=True)
class Ref:
    """The address of one object or of one of its subresources."""

    resource: Resource
    name: str
    namespace: str = ""
    subresource: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError(f"{self.resource.qualified}: name is empty")
        if self.resource.namespaced != bool(self.namespace):
            need = "needs a namespace" if self.resource.namespaced else f"has no namespace, got {self.namespace!r}"
            raise ValueError(f"{self.resource.qualified} {self.name!r} {need}")

    def sub(self, subresource: str) -> Ref:
        """Return the address of a subresource: `status`, `binding`, `scale`."""
        return replace(self, subresource=subresource)

    @property
    def path(self) -> str:
        """The URL path."""
        own = f"{self.resource.path(self.namespace)}/{quote(self.name, '')}"
        return f"{own}/{self.subresource}" if self.subresource else own


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: empty fields select all. Selectors use the server's syntax (`a=b,c in (d,e)`).

    `metadata_only` requests PartialObjectMetadata.
    """

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list: `limit` 0 is no limit; `token` is that of the previous page.

    `version` "" reads the newest state, "0" any cached state (cheapest, may be old), other values a state at least that
    new.
    """

    limit: int = 0
    token: str = ""
    version: str = ""


ALL_AT_ONCE = Paging()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list. `token` is empty on the last page; a watch can start at `version`."""

    items: Sequence[T]
    version: str
    token: str = ""


class EventType(StrEnum):
    """The type of a watch event; a bookmark carries only a resourceVersion."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One watch event. That of a deletion carries the last state of the object."""

    type: EventType
    object: T


class PatchType(StrEnum):
    """The server's patch formats. Strategic (lists merged by key) exists for built-in kinds only."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Patch:
    """A change to an object. Build one with `merge`, `json`, `strategic` or `apply`.

    `low_priority`: sent with the low priority of status writes. `dry_run`: the server validates but does not store it.
    """

    type: PatchType
    body: Body | Sequence[Object]
    manager: str = ""
    low_priority: bool = False
    dry_run: bool = False

    @classmethod
    def merge(cls, body: Body) -> Patch:
        """Build a JSON merge patch: fields replace, None removes, lists are replaced as a whole (RFC 7386)."""
        return cls(PatchType.MERGE, body)

    @classmethod
    def json(cls, operations: Sequence[Object]) -> Patch:
        """Build a JSON patch: a list of operations, of which none is applied if a `test` fails (RFC 6902)."""
        return cls(PatchType.JSON, operations)

    @classmethod
    def strategic(cls, body: Body) -> Patch:
        """Build a strategic merge patch: keyed lists (conditions, containers) merge by key. Built-in kinds only."""
        return cls(PatchType.STRATEGIC, body)

    @classmethod
    def apply(cls, body: Body, manager: str) -> Patch:
        """Build a forced server-side apply: `manager` owns the fields in `body` from then on, and loses its others."""
        return cls(PatchType.APPLY, body, manager)


class Propagation(StrEnum):
    """The deletion propagation policy: what happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Deletion:
    """Delete options. None: the default of the server. `uid` and `version`, where set, are preconditions (Conflict)."""

    grace_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str = ""
    version: str = ""

    def body(self) -> Object:
        """Return the `DeleteOptions` object."""
        checks = {"uid": self.uid, "resourceVersion": self.version}
        options = {
            "gracePeriodSeconds": self.grace_seconds,
            "propagationPolicy": str(self.propagation) if self.propagation else None,
            "preconditions": {key: value for key, value in checks.items() if value} or None,
        }
        chosen = {key: value for key, value in options.items() if value is not None}
        return {"apiVersion": "v1", "kind": "DeleteOptions", **chosen}


SERVER_DEFAULTS = Deletion()


class Api(Protocol):
    """An API server. Every method may raise any class of `pykai.kube.errors`."""

    async def get(self, ref: Ref, into: type[T]) -> T:
        """Return the current object; NotFound if there is none."""
        ...

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        """Return one page of objects; Gone if the page token expired; NotFound if the kind is not installed."""
        ...

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        """Create an object; the body may contain the namespace instead. AlreadyExists if the name is taken."""
        ...

    async def update(self, ref: Ref, body: Body) -> Object:
        """Replace the object (or its status subresource); Conflict if the body's resourceVersion is not the newest."""
        ...

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        """Change part of the object (or of its status subresource)."""
        ...

    async def delete(self, ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
        """Delete the object; a grace period or finalizers keep it for a while with a deletionTimestamp."""
        ...

    async def post(self, ref: Ref, body: Body) -> Object:
        """Create a subresource (`binding`) of an existing object."""
        ...

    def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the changes after `version` until the server ends the watch; Gone if that version was compacted.

        The first event is a bookmark of `version`, as soon as the server has accepted the watch; later bookmarks come
        from the server. With an empty `version` the first events are all existing objects as ADDED instead.
        """
        ...
