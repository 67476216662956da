"""Which version of resource.k8s.io is spoken, and how seldom the server is asked about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pykai.kube.api import Object, Page
from pykai.kube.api_resources import POD, RESOURCE_CLAIM, RESOURCE_SLICE
from pykai.kube.auth import Access
from pykai.kube.client import HttpApi
from pykai.kube.errors import NotFound
from pykai.kube.informer import InformerState, SharedInformer
from pykai.objects.kinds import ResourceClaim
from tests.timeouts import TIMEOUT_SECONDS

WISH = {"deviceClassName": "gpu", "count": 2}
CLAIM = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": WISH}]}}}
FLAT = {"devices": {"requests": [{"name": "r", **WISH}]}}


class Server:
    """An API server that knows some versions of resource.k8s.io; it keeps the paths it was asked for and one claim."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions
        self.asked: list[str] = []
        self.claim: Object = {**CLAIM, "spec": FLAT}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        if request.path.startswith("/api/"):
            return web.json_response({"items": []})
        _, _, group, *rest = request.path.split("/")
        if not self.versions or (rest and rest[0] not in self.versions):
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if not rest:
            versions = [{"groupVersion": f"{group}/{each}", "version": each} for each in self.versions]
            return web.json_response({"kind": "APIGroup", "name": group, "versions": versions})
        if request.method in ("POST", "PUT"):
            self.claim = json.loads(await request.read())
        return web.json_response(self.claim if rest[1:2] == ["namespaces"] else {"items": [self.claim]})


@pytest.fixture
def server() -> Server:
    return Server("v1alpha3", "v1beta1")


@pytest.fixture
async def api(server: Server) -> AsyncIterator[HttpApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(app) as running, HttpApi(Access(str(running.make_url("")).rstrip("/"))) as api:
        yield api


@pytest.mark.parametrize(
    ("served", "spoken"),
    [
        (("v1", "v1beta2", "v1beta1"), "v1"),
        (("v1beta1", "v1beta2"), "v1beta2"),
        (("v1alpha3", "v1beta1"), "v1beta1"),
    ],
)
async def test_the_newest_version_is_spoken(api: HttpApi, server: Server, served: tuple[str, ...], spoken: str) -> None:
    server.versions = served
    await api.list(RESOURCE_CLAIM, ResourceClaim)
    await api.list(RESOURCE_SLICE, Object)
    root = "GET /apis/resource.k8s.io"
    assert server.asked == [root, f"{root}/{spoken}/resourceclaims", f"{root}/{spoken}/resourceslices"]


async def test_readers_see_the_form_of_v1(api: HttpApi) -> None:
    (listed,) = (await api.list(RESOURCE_CLAIM, ResourceClaim)).items
    got = await api.get(RESOURCE_CLAIM.ref("c", "ns"), ResourceClaim)
    assert listed.spec == got.spec == CLAIM["spec"]


@pytest.mark.parametrize(("version", "spec"), [("v1", CLAIM["spec"]), ("v1beta1", FLAT)])
async def test_writers_write_the_version_they_speak(api: HttpApi, server: Server, version: str, spec: Object) -> None:
    server.versions = (version,)
    await api.create(RESOURCE_CLAIM, CLAIM, "ns")
    assert (server.claim["apiVersion"], server.claim["spec"]) == (f"resource.k8s.io/{version}", spec)
    ref = RESOURCE_CLAIM.ref("c", "ns")
    stored = await api.get(ref, Object)
    await api.update(ref.sub("status"), {**stored, "status": {"reservedFor": []}})
    assert server.asked[-1] == f"PUT /apis/resource.k8s.io/{version}/namespaces/ns/resourceclaims/c/status"
    assert (server.claim["apiVersion"], server.claim["spec"]) == (f"resource.k8s.io/{version}", spec)


async def test_an_upgraded_server_is_asked_again(api: HttpApi, server: Server) -> None:
    await api.list(RESOURCE_CLAIM, Object)
    server.versions = ("v1",)
    with pytest.raises(NotFound):
        await api.list(RESOURCE_CLAIM, Object)
    await api.list(RESOURCE_CLAIM, Object)
    assert server.asked[-1] == "GET /apis/resource.k8s.io/v1/resourceclaims"


@pytest.mark.parametrize("served", [(), ("v1alpha2", "v1alpha3")])
async def test_a_server_without_it_is_asked_one_small_question(
    api: HttpApi, server: Server, served: tuple[str, ...]
) -> None:
    server.versions = served
    await api.list(POD, Object)
    with pytest.raises(NotFound):
        await api.list(RESOURCE_CLAIM, Object)
    assert server.asked == ["GET /api/v1/pods", "GET /apis/resource.k8s.io"]


class Upgraded:
    """A server that stops serving the version of a watch after the first list."""

    def __init__(self) -> None:
        self.lists = 0

    async def list(self, *_: Any) -> Page[Any]:
        self.lists += 1
        return Page([], str(self.lists))

    async def watch(self, *_: Any) -> AsyncGenerator[Any, None]:
        if self.lists == 1:
            raise NotFound("the server could not find the requested resource")
        await asyncio.Event().wait()
        yield


async def test_a_watch_that_the_server_no_longer_serves_lists_anew_at_once() -> None:
    server = Upgraded()
    watch = SharedInformer(cast(Any, server), RESOURCE_CLAIM, ResourceClaim, optional=True)
    following = asyncio.create_task(watch.run())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while server.lists < 2 or not watch.alive:
            await asyncio.sleep(0.01)
    following.cancel()
    assert watch.state is InformerState.LIVE
