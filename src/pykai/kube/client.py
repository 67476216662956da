"""The `Api` of a real API server: each verb is one HTTP request.

async with HttpApi(find_access(kubeconfig)) as api:
    pods = await api.list(POD, Pod)
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

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
from pykai.kube.auth import Access
from pykai.kube.codec import (
    addressed,
    bookmark,
    decode,
    decode_item,
    decode_line,
    decode_list,
    encode,
    named,
    subresource_body,
)
from pykai.kube.errors import NotFound
from pykai.kube.transport import Request, RequestLane, Settings, Transport
from pykai.objects.kinds import claim_in_version

T = TypeVar("T")

WATCH_SECONDS = (240, 480)
_METADATA: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


class HttpApi:
    """An `Api` over HTTP. Create it in a running event loop; use it as a context manager or call `close`."""

    def __init__(self, access: Access, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self._low_priority_kinds = settings.low_priority_kinds
        self._transport = Transport(access, settings)
        self._versions = Versions(lambda path: self._transport.send(Request("GET", path)))

    async def __aenter__(self) -> HttpApi:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def get(self, ref: Ref, into: type[T]) -> T:
        """See `Api.get`."""
        ref = await self._served(ref)
        return decode(await self._transport.send(Request("GET", ref.path, lane_of(ref, "GET"))), into)

    async def list(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, paging: Paging = ALL_AT_ONCE
    ) -> Page[T]:
        """See `Api.list`."""
        resource = await self._versions.of(resource)
        at = "" if paging.token else paging.version  # a token implies its own version
        pages = {"limit": paging.limit, "continue": paging.token, "resourceVersion": at}
        target = resource.path(where.namespace) + _query(_selectors(where) | pages)
        accept = _METADATA.format("List") if where.metadata_only else "application/json"
        with self._versions.rediscovered_if_absent(resource):
            found = decode_list(await self._transport.send(Request("GET", target, accept=accept)))
        items = [decode_item(item, into, resource) for item in found.items or ()]
        return Page(items, found.metadata.resource_version, found.metadata.token)

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        """See `Api.create`."""
        resource = await self._versions.of(resource)
        sent = as_written(resource, addressed(resource, body, namespace))
        target = resource.path(sent["metadata"].get("namespace") or "")
        lane = RequestLane.LOW_PRIORITY if resource.plural in self._low_priority_kinds else lane_of(resource, "POST")
        return await self._write("POST", target, lane, sent)

    async def update(self, ref: Ref, body: Body) -> Object:
        """See `Api.update`."""
        ref = await self._served(ref)
        return await self._write("PUT", ref.path, lane_of(ref, "PUT"), addressed(ref.resource, body, ref.namespace))

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        """See `Api.patch`."""
        ref = await self._served(ref)
        options, body = {"dryRun": "All"} if patch.dry_run else {}, patch.body
        if patch.type is PatchType.APPLY:
            options |= {"fieldManager": patch.manager, "force": "true"}
            body = named(ref, patch)
        request = Request(
            "PATCH",
            ref.path + _query(options),
            RequestLane.LOW_PRIORITY if patch.low_priority else lane_of(ref, "PATCH"),
            encode(body),
            content_type=patch.type.value,
            repeatable=patch.type is not PatchType.JSON,
        )
        return decode(await self._transport.send(request), Object)

    async def delete(self, ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
        """See `Api.delete`."""
        ref = await self._served(ref)
        await self._transport.send(Request("DELETE", ref.path, lane_of(ref, "DELETE"), encode(how.body())))

    async def post(self, ref: Ref, body: Body) -> Object:
        """See `Api.post`."""
        ref = await self._served(ref)
        return await self._write("POST", ref.path, lane_of(ref, "POST"), subresource_body(ref, body))

    async def watch(
        self, resource: Resource, into: type[T], where: Selection = EVERYTHING, version: str = ""
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """See `Api.watch`."""
        options = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": random.randint(*WATCH_SECONDS),
        }
        resource = await self._versions.of(resource)
        target = resource.path(where.namespace) + _query(_selectors(where) | options)
        accept = _METADATA.format("") if where.metadata_only else "application/json"
        with self._versions.rediscovered_if_absent(resource):
            async for line in self._transport.lines(Request("GET", target, RequestLane.WATCHES, accept=accept)):
                if line is None:
                    if version not in ("", "0"):
                        yield WatchEvent(EventType.BOOKMARK, decode(bookmark(resource, version), into))
                    continue
                event = decode_line(line)
                yield WatchEvent(EventType(event.type), decode(event.object, into))

    async def _served(self, ref: Ref) -> Ref:
        """Return the address of the object in the API version that the server serves."""
        return replace(ref, resource=await self._versions.of(ref.resource)) if ref.resource.older else ref

    async def _write(self, method: str, target: str, lane: RequestLane, body: Object) -> Object:
        request = Request(method, target, lane, encode(body), repeatable=method != "POST")
        return decode(await self._transport.send(request), Object)


def lane_of(target: Ref | Resource, method: str) -> RequestLane:
    """Return the lane of a request to an object, a subresource or a collection."""
    resource = target if isinstance(target, Resource) else target.resource
    subresource = "" if isinstance(target, Resource) else target.subresource
    if subresource == "binding" or resource == known.LEASE or (resource == known.BIND_REQUEST and method == "POST"):
        return RequestLane.BINDS
    if resource == known.EVENT or (subresource == "status" and method != "GET"):
        return RequestLane.LOW_PRIORITY
    return RequestLane.ORDINARY


def _selectors(where: Selection) -> Object:
    return {"labelSelector": where.labels, "fieldSelector": where.fields}


def _query(options: Object) -> str:
    """Return the query string of all options that are set."""
    chosen = {name: value for name, value in options.items() if value not in ("", 0)}
    return f"?{urlencode(chosen)}" if chosen else ""


# ------------------------------------------------------------------------------------------------------------- versions
class _Version(Struct):
    version: str


class _Group(Struct):
    versions: list[_Version] = []


class Versions:
    """The API versions that a server serves; `ask` returns the response body of a GET for a path."""

    def __init__(self, ask: Callable[[str], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._served: dict[str, list[str]] = {}

    async def of(self, resource: Resource) -> Resource:
        """Return the kind in the version to use; NotFound if the server serves none of the known versions."""
        if not resource.older:
            return resource
        if resource.group not in self._served:
            group = decode(await self._ask(f"/apis/{resource.group}"), _Group)
            self._served[resource.group] = [each.version for each in group.versions]
        known = (resource.version, *resource.older)
        for version in known:
            if version in self._served[resource.group]:
                return replace(resource, version=version)
        raise NotFound(f"{resource.qualified}: the server serves none of {', '.join(known)}")

    @contextmanager
    def rediscovered_if_absent(self, resource: Resource) -> Iterator[None]:
        """Discover the group's versions again if the block raises NotFound."""
        try:
            yield
        except NotFound:
            self._served.pop(resource.group, None)
            raise


def as_written(resource: Resource, body: Object) -> Object:
    """Return the body of a new object converted to the chosen version."""
    return claim_in_version(body, resource.version) if resource.plural == "resourceclaims" else body
