"""The one interface to a Kubernetes API server; a real server and the in-memory one implement it alike.

Objects cross this border as JSON. A reader names the type it wants: `Object` (a plain dict), a msgspec Struct that
lists only the fields it reads, or `msgspec.Raw` (the undecoded bytes). A writer gives a dict or a Struct and gets the
stored object back as a dict. Errors are the classes of `pykai.kube.errors`.

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
"""The same where it is only read."""
Body = Object | msgspec.Struct


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the server addresses it; `group` is empty for the core kinds.

    `older`: versions to speak, newest first, with servers that do not serve `version` yet.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    older: tuple[str, ...] = field(default=(), compare=False)

    @property
    def api_version(self) -> str:
        """`group/version`, or `v1` for the core kinds, as objects write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, as error messages and CRDs name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "") -> str:
        """The URL path of the collection; empty `namespace` means all of them."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{quote(namespace, '')}/{self.plural}" if namespace else f"{root}/{self.plural}"

    def ref(self, name: str, namespace: str = "") -> Ref:
        """The address of one object; `namespace` is needed exactly for namespaced kinds."""
        return Ref(self, name, namespace)


@dataclass(frozen=True, slots=True)
class Ref:
    """The address of one object, or of a subresource of it."""

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
        """The address of a subresource: `status`, `binding`, `scale`."""
        return replace(self, subresource=subresource)

    @property
    def path(self) -> str:
        """The URL path."""
        own = f"{self.resource.path(self.namespace)}/{quote(self.name, '')}"
        return f"{own}/{self.subresource}" if self.subresource else own


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: empty fields mean all. Selectors in the server's own syntax (`a=b,c in (d,e)`).

    `metadata_only` leaves everything but kind and metadata on the server.
    """

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list: `limit` 0 is no limit; `token` comes from the page before.

    `version` "" reads the newest state, "0" any cached state (cheapest, may be old),
    another value a state at least that new.
    """

    limit: int = 0
    token: str = ""
    version: str = ""


ALL_AT_ONCE = Paging()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One answer to a list; `token` is empty on the last page, `version` is where a watch goes on."""

    items: Sequence[T]
    version: str
    token: str = ""


class EventType(StrEnum):
    """What a watch says about an object; a bookmark only carries a resourceVersion."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch. A deleted object is shown in its last state."""

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
    """A change to an object. Make one with `merge`, `json`, `strategic` or `apply`.

    `patient`: sent with the low priority of status writes. `dry_run`: the server admits the
    change and does not store it.
    """

    type: PatchType
    body: Body | Sequence[Object]
    manager: str = ""
    force: bool = False
    patient: bool = False
    dry_run: bool = False

    @classmethod
    def merge(cls, body: Body) -> Patch:
        """Fields replace, None removes, lists are replaced whole (RFC 7386)."""
        return cls(PatchType.MERGE, body)

    @classmethod
    def json(cls, operations: Sequence[Object]) -> Patch:
        """A list of operations; a failed `test` refuses all of them (RFC 6902)."""
        return cls(PatchType.JSON, operations)

    @classmethod
    def strategic(cls, body: Body) -> Patch:
        """Like merge, but keyed lists (conditions, containers, env) merge by key. Built-in kinds only."""
        return cls(PatchType.STRATEGIC, body)

    @classmethod
    def apply(cls, body: Body, manager: str, *, force: bool = True) -> Patch:
        """Server-side apply: the fields in `body` become `manager`'s, those it no longer names are dropped."""
        return cls(PatchType.APPLY, body, manager, force)


class Propagation(StrEnum):
    """What happens to the objects a deleted object owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Deletion:
    """How to delete: None leaves the choice to the server; `uid` and `version` must match or it is a Conflict."""

    grace_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str = ""
    version: str = ""

    def body(self) -> Object:
        """The `DeleteOptions` object."""
        checks = {"uid": self.uid, "resourceVersion": self.version}
        options = {
            "gracePeriodSeconds": self.grace_seconds,
            "propagationPolicy": str(self.propagation) if self.propagation else None,
            "preconditions": {key: value for key, value in checks.items() if value} or None,
        }
        chosen = {key: value for key, value in options.items() if value is not None}
        return {"apiVersion": "v1", "kind": "DeleteOptions", **chosen}


AS_SERVER_LIKES = Deletion()


class Api(Protocol):
    """An API server. Every method may raise any class of `pykai.kube.errors`."""

    async def get(self, ref: Ref, into: type[T]) -> T:
        """The object as it is now; NotFound if there is none."""
        ...

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        """One page of objects; Gone if the page token expired; NotFound if the kind is not installed."""
        ...

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        """Store a new object; `namespace` may also stand in the body. AlreadyExists if the name is taken."""
        ...

    async def update(self, ref: Ref, body: Body) -> Object:
        """Replace the object (or its status subresource); Conflict if the body's resourceVersion is not the newest."""
        ...

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        """Change part of the object (or of its status subresource)."""
        ...

    async def delete(self, ref: Ref, how: Deletion = AS_SERVER_LIKES) -> None:
        """Delete, or begin to: a grace period or finalizers keep the object a while, with a deletionTimestamp."""
        ...

    async def post(self, ref: Ref, body: Body) -> Object:
        """Create a subresource (`binding`) of an existing object."""
        ...

    def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after `version` until the server ends the stream; Gone if it no longer remembers so far back.

        The stream opens with a bookmark of `version` as soon as the server has accepted it, later bookmarks come from
        the server. An empty `version` opens with every present object as ADDED instead.
        """
        ...
