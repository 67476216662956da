"""Who may read the debug endpoints, and that snapshots leave out environment variables."""

from __future__ import annotations

import json
import zipfile
from typing import IO, Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from pykai.config.scheduler_config import SchedulerConfig
from pykai.kube.api import Api, Object, Resource
from pykai.kube.api_resources import POD
from pykai.kube.errors import Unavailable
from pykai.model.params import SchedulerParams
from pykai.observe.http import listening
from pykai.scheduler.debug_server import SnapshotContext, debug_routes, may_read, write_snapshot

from .rig import RecordingApi, furnish, pod, submit

ABOUT = SnapshotContext(SchedulerConfig(), ())


async def no_file(with_env: bool) -> IO[bytes]:
    raise AssertionError("nothing is written for a client that may not read it")


def from_elsewhere(app: web.Application, path: str, headers: dict[str, str]) -> Any:
    """The answer to a request that does not come from loopback."""
    request = make_mocked_request("GET", path, headers=headers, app=app)
    return app._handle(request.clone(remote="10.0.0.7"))


@pytest.mark.parametrize("path", ["/get-snapshot", "/get-job-order"])
@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 401), ("Basic eA==", 401), ("Bearer ", 401), ("Bearer wrong", 403)],
)
async def test_clients_from_elsewhere_need_a_token(path: str, header: str | None, status: int) -> None:
    async def accepts(token: str, path: str) -> bool:
        return token == "right"

    app = debug_routes(no_file, lambda: {"order": []}, accepts)
    with pytest.raises(web.HTTPException) as refused:
        await from_elsewhere(app, path, {"Authorization": header} if header else {})
    assert refused.value.status == status


async def test_a_token_opens_the_order() -> None:
    async def accepts(token: str, path: str) -> bool:
        return (token, path) == ("right", "/get-job-order")

    app = debug_routes(None, lambda: {"order": []}, accepts)
    answer = await from_elsewhere(app, "/get-job-order", {"Authorization": "Bearer right"})
    assert answer.status == 200


class Reviews:
    """An API server that reviews tokens and rights."""

    def __init__(self, known: bool, allowed: bool) -> None:
        self.known, self.allowed = known, allowed
        self.asked: list[Object] = []

    async def create(self, resource: Resource, body: Object) -> Object:
        self.asked.append(body["spec"])
        if resource.kind == "TokenReview":
            return {"status": {"authenticated": self.known, "user": {"username": "ann", "groups": ["ops"]}}}
        return {"status": {"allowed": self.allowed}}


@pytest.mark.parametrize(("known", "allowed"), [(True, True), (True, False), (False, True)])
async def test_the_server_reviews_token_and_right(known: bool, allowed: bool) -> None:
    api = Reviews(known, allowed)
    assert await may_read(cast(Api, api), "t", "/get-snapshot") == (known and allowed)
    assert api.asked[0] == {"token": "t"}
    if known:
        attributes = {"path": "/get-snapshot", "verb": "get"}
        user = {"user": "ann", "groups": ["ops"], "uid": "", "extra": {}}
        assert api.asked[1] == {**user, "nonResourceAttributes": attributes}


async def test_without_an_answer_nobody_may_read() -> None:
    class Down:
        async def create(self, resource: Resource, body: Object) -> Object:
            raise Unavailable("down")

    assert not await may_read(cast(Api, Down()), "t", "/get-snapshot")


@pytest.fixture
async def api() -> RecordingApi:
    api = RecordingApi()
    await furnish(api, nodes=1)
    secret = pod("a")
    secret["spec"]["containers"][0] |= {"env": [{"name": "TOKEN", "value": "s3cret"}], "envFrom": [{"prefix": "X"}]}
    await submit(api, secret)
    return api


@pytest.mark.parametrize(("query", "shown"), [("", False), ("?env=false", False), ("?env=true", True)])
async def test_environment_variables_are_left_out(api: RecordingApi, query: str, shown: bool, tmp_path: Any) -> None:
    app = debug_routes(lambda env: write_snapshot(api, SchedulerParams(), ABOUT, env), None)
    async with listening(app, 0) as port, aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{port}/get-snapshot{query}")
        (tmp_path / "s.zip").write_bytes(await answer.read())
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        (stored,) = json.loads(archive.read("snapshot.json"))["rawObjects"]["pods"]
    container = stored["spec"]["containers"][0]
    assert ("env" in container, "envFrom" in container) == (shown, shown)
    assert stored["metadata"]["name"] == "a"
    assert container["resources"] == (await api.get(POD.ref("a", "team"), dict))["spec"]["containers"][0]["resources"]
