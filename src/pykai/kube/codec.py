"""JSON in and out, with one compiled decoder per type.

A list is decoded in two steps: the envelope with its items as raw bytes, then every item by itself, so that one
malformed object does not hide the others, and an item already known by its version is never decoded at all.
A raw item is a view that keeps its whole page alive; `decode` copies it out first, because the structs our readers use
keep raw parts of their own.
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
    """A list as the server sends it, items untouched."""

    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[Raw] | None = None


class EventLine(Struct):
    """One line of a watch, object untouched."""

    type: str
    object: Raw


class DecodeError(ValueError):
    """An object does not have the shape its reader expects."""


@cache
def _decoder(into: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(into)


_IDENTIFIED = msgspec.json.Decoder(_Identified)
_LIST = msgspec.json.Decoder(ListEnvelope)
_LINE = msgspec.json.Decoder(EventLine)
_EVENT_TYPES = frozenset(EventType.__members__)
_ENCODER = msgspec.json.Encoder()


def encode(body: Any) -> bytes:
    """The body as JSON."""
    return _ENCODER.encode(body)


def decode(data: bytes | Raw, into: type[T]) -> T:
    """One object as `into`; DecodeError names the object and the field that does not fit."""
    own = bytes(data)
    if into is Raw:
        return cast(T, Raw(own))
    try:
        return cast(T, _decoder(cast(Any, into)).decode(own))
    except msgspec.MsgspecError as error:
        raise DecodeError(f"{_describe(own)}: {error}") from error


def decode_item(data: Raw, into: type[T], resource: Resource) -> T:
    """One item of a list; as a dict it gets back the kind that servers leave out of lists."""
    value = decode(data, into)
    if isinstance(value, dict):
        value.setdefault("apiVersion", resource.api_version)
        value.setdefault("kind", resource.kind)
    return value


def decode_list(data: bytes) -> ListEnvelope:
    """The envelope of a list."""
    try:
        return _LIST.decode(data)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the answer to a list is not a list: {error}") from error


def decode_line(line: bytes) -> EventLine:
    """The envelope of a watch event; an ERROR event is raised as the error it carries."""
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
    """Name, namespace, uid and version of an object, without decoding the rest; Unavailable if it has none."""
    try:
        return _IDENTIFIED.decode(data).metadata
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the server sent an object without readable metadata: {error}") from error


def version_number(version: str) -> int:
    """A resourceVersion, opaque by contract, as the number it is in fact: the newer the greater, 0 if unreadable."""
    return int(version) if version.isascii() and version.isdigit() else 0


def error_from(data: bytes, status: int) -> ApiError:
    """The exception for an error answer; a body that is no Status object is quoted."""
    try:
        body = _decoder(Object).decode(data)
    except msgspec.MsgspecError:
        body = {"message": data[:200].decode(errors="replace").strip()}
    return from_status(body, status)


def addressed(resource: Resource, body: Body, namespace: str = "") -> Object:
    """A copy of the body as a dict with apiVersion, kind and namespace filled in where they are missing."""
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
    """The object of a bookmark: a kind and a resourceVersion, nothing else."""
    metadata = {"resourceVersion": version, "creationTimestamp": None}
    return encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


SUBRESOURCE_KINDS = {"binding": ("v1", "Binding")}


def subresource_body(ref: Ref, body: Body) -> Object:
    """What is posted to a subresource of an object, with kind, name and namespace filled in."""
    api_version, kind = SUBRESOURCE_KINDS.get(ref.subresource, ("", ""))
    value = msgspec.to_builtins(body)
    metadata = {"name": ref.name, "namespace": ref.namespace} | (value.get("metadata") or {})
    return {"apiVersion": api_version, "kind": kind, **value, "metadata": metadata}


def named(ref: Ref, patch: Patch) -> Object:
    """An applied configuration with the kind, name and namespace of its address filled in."""
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
