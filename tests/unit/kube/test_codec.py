"""Encoding and decoding: types by choice, errors that name the object, bodies completed from their address."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from pykai.kube import codec
from pykai.kube.api import Deletion, Object, Propagation
from pykai.kube.api_resources import NODE, POD
from pykai.kube.errors import AlreadyExists, ApiError, BadRequest, Conflict, Invalid, TooManyRequests, Unavailable


class Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class Pod(msgspec.Struct):
    spec: Spec


def test_an_object_that_does_not_fit_is_named() -> None:
    data = b'{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":5}}'
    with pytest.raises(codec.DecodeError, match=r"ns/p: .*nodeName"):
        codec.decode(data, Pod)
    with pytest.raises(codec.DecodeError, match="without readable metadata"):
        codec.decode(b"{", Pod)


def test_a_list_keeps_its_items_raw_and_null_means_empty() -> None:
    envelope = codec.decode_list(b'{"metadata":{"resourceVersion":"5","continue":"t"},"items":[{"spec":{}}]}')
    assert (envelope.metadata.resource_version, envelope.metadata.token) == ("5", "t")
    assert [bytes(item) for item in envelope.items or ()] == [b'{"spec":{}}']
    assert codec.decode_list(b'{"metadata":{},"items":null}').items is None
    with pytest.raises(Unavailable, match="not a list"):
        codec.decode_list(b'{"items":{}}')


def test_items_get_their_kind_back_as_dicts_only() -> None:
    assert codec.decode_item(Raw(b'{"spec":{}}'), Object, POD) == {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    assert codec.decode_item(Raw(b'{"spec":{"nodeName":"n"}}'), Pod, POD).spec.node_name == "n"


def test_a_decoded_item_does_not_keep_its_page_alive() -> None:
    class Kept(msgspec.Struct):
        spec: Raw

    page = codec.decode_list(b'{"items":[{"spec":{"a":1}},' + b'{"spec":{}},' * 1000 + b'{"spec":{}}]}')
    assert page.items is not None
    item = codec.decode(page.items[0], Kept)
    assert len(memoryview(item.spec).obj) < 50  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "namespace", "expected"),
    [
        ({"metadata": {"name": "p"}}, "ns", ("v1", "Pod", "ns")),
        ({"metadata": {"name": "p", "namespace": "ns"}}, "", ("v1", "Pod", "ns")),
        ({"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "ns"}}, "ns", ("v1", "Pod", "ns")),
    ],
)
def test_bodies_are_completed(body: Object, namespace: str, expected: tuple[str, str, str]) -> None:
    before = msgspec.json.encode(body)
    done = codec.addressed(POD, body, namespace)
    assert (done["apiVersion"], done["kind"], done["metadata"]["namespace"]) == expected
    assert msgspec.json.encode(body) == before


def test_bodies_that_contradict_their_address_are_refused() -> None:
    with pytest.raises(BadRequest, match="does not match"):
        codec.addressed(POD, {"metadata": {"namespace": "a"}}, "b")
    with pytest.raises(BadRequest, match="namespace is missing"):
        codec.addressed(POD, {"metadata": {"name": "p"}})
    assert "namespace" not in codec.addressed(NODE, {"metadata": {"name": "n"}})["metadata"]


def test_addresses_are_checked() -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        POD.ref("p")
    with pytest.raises(ValueError, match="has no namespace"):
        NODE.ref("n", "ns")
    with pytest.raises(ValueError, match="name is empty"):
        NODE.ref("")
    assert POD.ref("p", "ns").sub("status").path == "/api/v1/namespaces/ns/pods/p/status"


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (422, "Invalid", Invalid),
        (500, "InternalError", ApiError),
        (503, "ServiceUnavailable", Unavailable),
        (418, "Teapot", ApiError),
    ],
)
def test_errors_by_status_and_reason(code: int, reason: str, kind: type[ApiError]) -> None:
    error = codec.error_from(msgspec.json.encode({"code": code, "reason": reason, "message": "m"}), 0)
    assert (type(error), error.status, error.reason, error.message) == (kind, code, reason, "m")


def test_an_error_that_is_no_status_is_quoted() -> None:
    error = codec.error_from(b"  upstream is <sad>", 502)
    assert (type(error), error.message) == (Unavailable, "upstream is <sad>")
    assert TooManyRequests("later", details={"retryAfterSeconds": 3}).retry_after == 3.0


@pytest.mark.parametrize(
    "body",
    [
        {"code": "throttled"},
        {"code": 0},
        {"code": 200},
        {"details": "busy"},
        {"details": ["busy"]},
        {"details": {"retryAfterSeconds": "soon"}},
    ],
)
def test_what_a_proxy_wrote_into_an_error_does_not_count(body: Object) -> None:
    error = codec.error_from(msgspec.json.encode(body), 429)
    assert isinstance(error, TooManyRequests)
    assert (error.status, error.details, error.retry_after) == (429, {}, 0.0)


def test_a_line_of_an_unknown_type_is_a_broken_one() -> None:
    with pytest.raises(Unavailable, match="unknown type: NEWS"):
        codec.decode_line(b'{"type":"NEWS","object":{}}')


def test_delete_options() -> None:
    how = Deletion(grace_seconds=0, propagation=Propagation.FOREGROUND, uid="u")
    assert how.body() == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u"},
    }
    assert Deletion().body() == {"apiVersion": "v1", "kind": "DeleteOptions"}
