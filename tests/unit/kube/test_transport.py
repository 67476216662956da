"""Requests against a small HTTP server: retries, credentials, lanes, silent streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pykai.kube import transport
from pykai.kube.api import Deletion, EventType, Object, Paging, Patch, Selection
from pykai.kube.api_resources import BIND_REQUEST, CONFIG_MAP, EVENT, LEASE, NODE, POD, POD_GROUP
from pykai.kube.auth import Access, BearerToken
from pykai.kube.backoff import Backoff
from pykai.kube.client import HttpApi, lane_of
from pykai.kube.errors import (
    ApiError,
    Conflict,
    Gone,
    Timeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from pykai.kube.transport import RequestLane, Settings
from tests.timeouts import TIMEOUT_SECONDS

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Script:
    """What the server answers, one after the other (the last one for ever), and what it was asked."""

    answers: list[Answer] = field(default_factory=list)
    asked: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        self.bodies.append(await request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


def says(status: int, body: Object | None = None, retry_after: str = "") -> Answer:
    headers = {"Retry-After": retry_after} if retry_after else {}

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body or {}, status=status, headers=headers)

    return answer


def refuses(status: int, reason: str, **details: object) -> Answer:
    body = {"kind": "Status", "code": status, "reason": reason, "message": reason.lower(), "details": details}
    return says(status, body)


async def breaks(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(5)
    return web.Response()


OBJECT = {"metadata": {"name": "a", "namespace": "ns"}, "data": {}}
REF = CONFIG_MAP.ref("a", "ns")
SETTINGS = Settings(timeout_seconds=0.8, watch_idle_seconds=0.8)


@pytest.fixture
def script() -> Script:
    return Script([says(200, OBJECT)])


@pytest.fixture
async def server(script: Script) -> AsyncIterator[TestServer]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    server = TestServer(app)
    await server.start_server()
    yield server
    await server.close()


@pytest.fixture
async def api(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpApi]:
    monkeypatch.setattr(transport, "BACKOFF", Backoff(0.001, 0.002))
    async with HttpApi(Access(str(server.make_url("")).rstrip("/")), SETTINGS) as api:
        yield api


async def test_requests_as_the_server_expects_them(api: HttpApi, script: Script) -> None:
    await api.get(REF, Object)
    await api.list(POD, Object, Selection("ns", "a=b,c", "spec.nodeName=n"), Paging(5, "tok en", "7"))
    await api.list(NODE, Object, paging=Paging(version="0"))
    await api.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns")
    await api.patch(REF.sub("status"), Patch.merge({"x": 1}))
    await api.patch(REF, Patch.apply({"data": {}}, "me"))
    await api.delete(NODE.ref("n:1"), Deletion(grace_seconds=0, uid="u"))
    assert [(r.method, r.raw_path) for r in script.asked] == [
        ("GET", "/api/v1/namespaces/ns/configmaps/a"),
        (
            "GET",
            "/api/v1/namespaces/ns/pods?labelSelector=a%3Db%2Cc&fieldSelector=spec.nodeName%3Dn"
            "&limit=5&continue=tok+en",
        ),
        ("GET", "/api/v1/nodes?resourceVersion=0"),
        ("POST", "/api/v1/namespaces/ns/configmaps"),
        ("PATCH", "/api/v1/namespaces/ns/configmaps/a/status"),
        ("PATCH", "/api/v1/namespaces/ns/configmaps/a?fieldManager=me&force=true"),
        ("DELETE", "/api/v1/nodes/n%3A1"),
    ]
    assert [r.content_type for r in script.asked[4:6]] == [
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ]
    assert b'"kind":"ConfigMap"' in script.bodies[3]
    assert b'"preconditions":{"uid":"u"}' in script.bodies[6]


@pytest.mark.parametrize(
    "failures",
    [
        [says(503), says(500), says(504)],
        [breaks, breaks],
        [hangs],
        [says(429, retry_after="0")],
    ],
    ids=["5xx", "lost connection", "no answer", "429"],
)
async def test_reads_are_tried_again(api: HttpApi, script: Script, failures: list[Answer]) -> None:
    script.answers[:0] = failures
    assert await api.get(REF, Object) == OBJECT
    assert len(script.asked) >= len(failures) + 1


@pytest.mark.parametrize(("failure", "error"), [(says(503), Unavailable), (breaks, Unavailable), (hangs, Timeout)])
async def test_creates_are_not_tried_again(
    api: HttpApi, script: Script, failure: Answer, error: type[ApiError]
) -> None:
    script.answers[:0] = [failure]
    with pytest.raises(error):
        await api.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns")
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("patch", "times"),
    [
        (Patch.merge({"data": {"a": "1"}}), 2),
        (Patch.strategic({"data": {"a": "1"}}), 2),
        (Patch.apply({"data": {"a": "1"}}, "me"), 2),
        (Patch.json([{"op": "add", "path": "/list/-", "value": 1}]), 1),
    ],
)
async def test_patches_are_tried_again_if_that_changes_nothing(
    api: HttpApi, script: Script, patch: Patch, times: int
) -> None:
    script.answers[:0] = [breaks]
    with suppress(Unavailable):
        await api.patch(REF, patch)
    assert len(script.asked) == times


async def test_a_create_the_server_put_off_is_tried_again(api: HttpApi, script: Script) -> None:
    script.answers[:0] = [says(429, retry_after="0"), says(503, retry_after="0")]
    await api.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns")
    assert len(script.asked) == 3


async def test_a_server_that_is_not_there_is_asked_a_few_times(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "BACKOFF", Backoff(0.001, 0.002))
    async with HttpApi(Access("http://127.0.0.1:9"), SETTINGS) as api:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await api.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns")


async def test_trying_again_ends(api: HttpApi, script: Script) -> None:
    script.answers = [says(503)]
    with pytest.raises(Unavailable):
        await api.get(REF, Object)
    assert len(script.asked) == transport.TRIES


async def test_the_server_is_waited_for(api: HttpApi, script: Script) -> None:
    script.answers[:0] = [says(429, retry_after="1")]
    began = time.monotonic()
    await api.get(REF, Object)
    assert time.monotonic() - began >= 1


async def test_refusals_are_errors_by_name(api: HttpApi, script: Script) -> None:
    script.answers = [refuses(409, "Conflict")]
    with pytest.raises(Conflict, match="conflict"):
        await api.update(REF, OBJECT)
    script.answers = [says(404)]
    with pytest.raises(ApiError, match="404"):
        await api.get(REF, Object)
    assert len(script.asked) == 2


# ------------------------------------------------------------------------------------------------------ credentials
async def test_a_replaced_token_is_read_again(server: TestServer, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    async def check(request: web.Request) -> web.StreamResponse:
        known = request.headers.get("Authorization") == "Bearer new"
        file.write_text("new")
        return web.json_response(OBJECT if known else {}, status=200 if known else 401)

    script.answers = [check]
    access = Access(str(server.make_url("")).rstrip("/"), token=BearerToken(file=file))
    async with HttpApi(access, SETTINGS) as api:
        assert await api.get(REF, Object) == OBJECT
    assert len(script.asked) == 2


async def test_a_fixed_token_that_is_refused_is_not_tried_again(server: TestServer, script: Script) -> None:
    script.answers = [says(401)]
    access = Access(str(server.make_url("")).rstrip("/"), token=BearerToken("x"))
    async with HttpApi(access, SETTINGS) as api:
        with pytest.raises(Unauthorized):
            await api.get(REF, Object)
    assert [r.headers["Authorization"] for r in script.asked] == ["Bearer x"]


# ---------------------------------------------------------------------------------------------------------- lanes
@pytest.mark.parametrize(
    ("target", "method", "lane"),
    [
        (POD.ref("p", "ns").sub("binding"), "POST", RequestLane.BINDS),
        (BIND_REQUEST, "POST", RequestLane.BINDS),
        (BIND_REQUEST.ref("b", "ns").sub("status"), "PATCH", RequestLane.LOW_PRIORITY),
        (LEASE.ref("l", "ns"), "PUT", RequestLane.BINDS),
        (EVENT, "POST", RequestLane.LOW_PRIORITY),
        (POD_GROUP.ref("g", "ns").sub("status"), "PATCH", RequestLane.LOW_PRIORITY),
        (POD.ref("p", "ns"), "PATCH", RequestLane.ORDINARY),
        (POD.ref("p", "ns"), "GET", RequestLane.ORDINARY),
    ],
)
def test_lanes(target: object, method: str, lane: RequestLane) -> None:
    assert lane_of(target, method) is lane  # type: ignore[arg-type]


async def test_low_priority_requests_never_delay_a_bind(server: TestServer, script: Script) -> None:
    """Neither those that the server does not answer, nor those that must wait their turn for minutes."""
    begun = asyncio.Event()

    async def stuck(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/status"):
            begun.set()
            await asyncio.Event().wait()
        return web.json_response(OBJECT)

    script.answers = [stuck]
    settings = Settings(qps=0.01, burst=1, connections=2)
    async with HttpApi(Access(str(server.make_url("")).rstrip("/")), settings) as api:
        writes = [
            asyncio.create_task(api.patch(POD_GROUP.ref("g", "ns").sub("status"), Patch.merge({}))) for _ in range(20)
        ]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await begun.wait()
            for _ in range(5):
                await api.post(POD.ref("p", "ns").sub("binding"), {"target": {"name": "n"}})
        for task in writes:
            task.cancel()


async def test_kinds_of_low_priority_are_created_in_their_lane(server: TestServer, script: Script) -> None:
    bound, begun = asyncio.Event(), [asyncio.Event() for _ in range(3)]

    async def stuck(request: web.Request) -> web.StreamResponse:
        (bound if request.path.endswith("/binding") else next(e for e in begun if not e.is_set())).set()
        await asyncio.Event().wait()
        return web.json_response(OBJECT)

    script.answers = [stuck]
    settings = Settings(qps=0, low_priority_kinds=frozenset({POD_GROUP.plural}))
    async with HttpApi(Access(str(server.make_url("")).rstrip("/")), settings) as api:
        work = [asyncio.create_task(api.post(POD.ref("p", "ns").sub("binding"), {"target": {"name": "n"}}))]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await bound.wait()
            body = {"metadata": {"name": "g", "namespace": "ns"}}
            work += [asyncio.create_task(api.create(POD_GROUP, body)) for _ in range(3)]
            await begun[0].wait()
        await asyncio.sleep(0.05)
        assert not begun[1].is_set(), "one at a time while a bind is under way"
        for task in work:
            task.cancel()


# -------------------------------------------------------------------------------------------------------- streams
def streams(*chunks: bytes, then_hang: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        if then_hang:
            await asyncio.sleep(2)
        return response

    return answer


LINE = b'{"type":"ADDED","object":{"metadata":{"name":"%s"}}}\n'


async def collect(api: HttpApi) -> list[tuple[EventType, str]]:
    events = api.watch(CONFIG_MAP, Object, Selection("ns"), "5")
    return [(event.type, event.object["metadata"].get("name", "")) async for event in events]


async def test_lines_may_come_in_any_pieces(api: HttpApi, script: Script) -> None:
    two = LINE % b"a" + LINE % b"b"
    script.answers = [streams(two[:10], two[10:70], two[70:], LINE % b"c")]
    opened, *rest = await collect(api)
    assert opened == (EventType.BOOKMARK, "")
    assert rest == [(EventType.ADDED, name) for name in "abc"]
    query = script.asked[0].query
    assert (query["watch"], query["allowWatchBookmarks"], query["resourceVersion"]) == ("true", "true", "5")
    assert 240 <= int(query["timeoutSeconds"]) <= 480


async def test_a_silent_stream_ends(api: HttpApi, script: Script) -> None:
    script.answers = [streams(LINE % b"a", then_hang=True)]
    with pytest.raises(Timeout, match="silent"):
        await collect(api)


async def test_a_stream_says_that_it_is_too_late(api: HttpApi, script: Script) -> None:
    status = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}'
    script.answers = [streams(b'{"type":"ERROR","object":' + status + b"}\n")]
    with pytest.raises(Gone, match="too old"):
        await collect(api)
    script.answers = [refuses(410, "Expired")]
    with pytest.raises(Gone):
        await collect(api)


async def test_a_stream_that_is_put_off_says_for_how_long(api: HttpApi, script: Script) -> None:
    script.answers = [says(429, retry_after="7")]
    with pytest.raises(TooManyRequests) as refusal:
        await collect(api)
    assert refusal.value.retry_after == 7.0


async def test_a_broken_stream_is_an_error(api: HttpApi, script: Script) -> None:
    script.answers = [streams(b"<html>\n")]
    with pytest.raises(Unavailable, match="broken line"):
        await collect(api)
    script.answers = [breaks]
    with pytest.raises(Unavailable):
        await collect(api)
