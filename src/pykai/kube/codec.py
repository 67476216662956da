"""JSON encoding and decoding, with one compiled decoder per type.

A list is decoded in two steps: the envelope with its items as raw bytes, then each item separately, so that one
malformed object does not hide the others, and an item with a known resourceVersion is never decoded. A raw item is a
view that keeps its whole page alive; `decode` copies it first, because decoded structs keep raw parts of their own.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from pykai.kube.api import Body, EventType, Object, Patch, Ref, Resource
from pykai.kube.errors import ApiError, BadRequest, Unavailable, from_status

T = TypeVar("T")


class Identity(Struct, rename="camel", frozen=True, gc=False):
    """The part of an object's metadata that a watch needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.namespace, self.name


class _Identified(Struct):
    metadata: Identity = Identity()


class _ListMetadata(Struct, rename="camel"):
    resource_version: str = ""
    token: str = msgspec.field(default="", name="continue")


class ListEnvelope(Struct):
    """A list as the server sends it, with raw items."""

    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[Raw] | None = None


class EventLine(Struct):
    """One line of a watch, with a raw object."""

    type: str
    object: Raw


class DecodeError(ValueError):
    """An object does not match the expected type."""


@cache
def _decoder(into: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(into)


_IDENTIFIED = msgspec.json.Decoder(_Identified)
_LIST = msgspec.json.Decoder(ListEnvelope)
_LINE = msgspec.json.Decoder(EventLine)
_EVENT_TYPES = frozenset(EventType.__members__)
_ENCODER = msgspec.json.Encoder()


def encode(body: Any) -> bytes:
    """Encode the body as JSON."""
    return _ENCODER.encode(body)


def decode(data: bytes | Raw, into: type[T]) -> T:
    """Decode one object as `into`; DecodeError names the object and the invalid field."""
    own = bytes(data)
    if into is Raw:
        return cast(T, Raw(own))
    try:
        return cast(T, _decoder(cast(Any, into)).decode(own))
    except msgspec.MsgspecError as error:
        raise DecodeError(f"{_describe(own)}: {error}") from error


def decode_item(data: Raw, into: type[T], resource: Resource) -> T:
    """Decode one item of a list; a dict gets the kind and apiVersion that servers omit in lists."""
    value = decode(data, into)
    if isinstance(value, dict):
        value.setdefault("apiVersion", resource.api_version)
        value.setdefault("kind", resource.kind)
    return value


def decode_list(data: bytes) -> ListEnvelope:
    """Decode the envelope of a list."""
    try:
        return _LIST.decode(data)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the answer to a list is not a list: {error}") from error


def decode_line(line: bytes) -> EventLine:
    """Decode the envelope of a watch event; an ERROR event raises the error it carries."""
    try:
        event = _LINE.decode(line)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"a watch sent a broken line: {error}") from error
    if event.type == "ERROR":
        raise error_from(bytes(event.object), 500)
    if event.type not in _EVENT_TYPES:
        raise Unavailable(f"a watch sent an event of an unknown type: {event.type}")
    return event


def identity_of(data: bytes | Raw) -> Identity:
    """Decode only name, namespace, uid and resourceVersion of an object; Unavailable if it has none."""
    try:
        return _IDENTIFIED.decode(data).metadata
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the server sent an object without readable metadata: {error}") from error


def version_number(version: str) -> int:
    """Parse a resourceVersion, formally opaque, as the increasing number it is in practice; 0 if unreadable."""
    return int(version) if version.isascii() and version.isdigit() else 0


def error_from(data: bytes, status: int) -> ApiError:
    """Return the exception for an error response; a body that is no Status object is quoted."""
    try:
        body = _decoder(Object).decode(data)
    except msgspec.MsgspecError:
        body = {"message": data[:200].decode(errors="replace").strip()}
    return from_status(body, status)


def addressed(resource: Resource, body: Body, namespace: str = "") -> Object:
    """Return a copy of the body as a dict, with missing apiVersion, kind and namespace filled in."""
    value = msgspec.to_builtins(body)
    if not isinstance(value, dict):
        raise BadRequest(f"a {resource.kind} must encode to a map, not {type(value).__name__}")
    metadata = dict(value.get("metadata") or {})
    own = metadata.get("namespace") or ""
    if namespace and own and namespace != own:
        raise BadRequest(
            f"the namespace of the object ({own}) does not match the namespace of the request ({namespace})"
        )
    if resource.namespaced and not (own or namespace):
        raise BadRequest(f"{resource.kind}: metadata.namespace is missing")
    if resource.namespaced:
        metadata["namespace"] = own or namespace
    return {"apiVersion": resource.api_version, "kind": resource.kind, **value, "metadata": metadata}


def bookmark(resource: Resource, version: str) -> bytes:
    """Return the object of a bookmark: only a kind and a resourceVersion."""
    metadata = {"resourceVersion": version, "creationTimestamp": None}
    return encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


SUBRESOURCE_KINDS = {"binding": ("v1", "Binding")}


def subresource_body(ref: Ref, body: Body) -> Object:
    """Return the body of a POST to a subresource, with kind, name and namespace filled in."""
    api_version, kind = SUBRESOURCE_KINDS.get(ref.subresource, ("", ""))
    value = msgspec.to_builtins(body)
    metadata = {"name": ref.name, "namespace": ref.namespace} | (value.get("metadata") or {})
    return {"apiVersion": api_version, "kind": kind, **value, "metadata": metadata}


def named(ref: Ref, patch: Patch) -> Object:
    """Return an apply configuration with the kind, name and namespace of its address filled in."""
    if not isinstance(patch.body, dict | msgspec.Struct):
        raise TypeError("an applied configuration is one object")
    sent = addressed(ref.resource, patch.body, ref.namespace)
    sent["metadata"].setdefault("name", ref.name)
    return sent


def _describe(data: bytes) -> str:
    try:
        identity = identity_of(data)
    except Unavailable:
        return "an object without readable metadata"
    return f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name
