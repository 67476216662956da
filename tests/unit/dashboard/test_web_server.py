"""The dashboard's server: who comes in, what each page shows, what it hides, and how a browser is told to behave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from pykai.dashboard.access import Gate, LoopbackGate, Reviews, Sessions, SignInGate
from pykai.dashboard.board import Board
from pykai.dashboard.web_server import COOKIE, Dashboard
from pykai.kube.api import Object, Resource
from pykai.kube.errors import Unavailable
from tests.unit.dashboard.boards import board, cluster, moment, workload

PAGES = (
    "/queues",
    "/queues/q-red",
    "/queues/dept",
    "/devices",
    "/devices/n1",
    "/waiting",
    "/evictions",
    "/workloads/blue/blue-huge",
    "/workloads/blue/blue-huge/explanation",
    "/what-if",
)
SECRET = "s3cret"
Client = TestClient[Any, Any]


@asynccontextmanager
async def client(shown: Board | None = None, gate: Gate | None = None) -> AsyncIterator[Client]:
    """A browser without a cookie."""
    app = Dashboard(shown or board(), gate or LoopbackGate(SECRET)).application()
    async with TestClient(TestServer(app)) as found:
        yield found


@asynccontextmanager
async def visitor(shown: Board | None = None) -> AsyncIterator[Client]:
    """A browser that opened the address which was printed."""
    async with client(shown) as found:
        await found.get(f"/?token={SECRET}")
        yield found


# ------------------------------------------------------------------------------------------------------------- by hand
@pytest.mark.parametrize("path", PAGES)
async def test_every_page_answers(path: str) -> None:
    async with visitor() as browser:
        answer = await browser.get(path)
        text = await answer.text()
        assert answer.status == 200, text
        assert "<main" in text
        assert text.count("<h1") == (0 if path.endswith("explanation") else 1)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_says_what_a_browser_may_do(path: str) -> None:
    async with visitor() as browser:
        answer = await browser.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text = await answer.text()
        assert not re.search(r'\sstyle="|\son[a-z]+="|javascript:', text), "nothing inline"
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "nothing from outside"
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script or "application/json" in script


async def test_without_the_secret_nobody_comes_in() -> None:
    async with client() as browser:
        for path in ("/queues", "/devices.json", "/events", "/queues?token=wrong"):
            answer = await browser.get(path)
            assert answer.status == 401
            assert "red" not in await answer.text()
        answer = await browser.get(f"/waiting?token={SECRET}", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (303, "/waiting"), "the secret leaves the address"
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8490", 200),
        ("localhost:8490", 200),
        ("[::1]:8490", 200),
        ("localhost", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8490", 421),
        ("", 421),
    ],
)
async def test_a_name_that_somebody_made_up_does_not_reach_it(host: str, status: int) -> None:
    async with client() as browser:
        answer = await browser.get("/queues", headers={"Host": host, "Cookie": f"{COOKIE}={SECRET}"})
        assert answer.status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 422),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({}, 422),
    ],
)
async def test_a_form_of_another_site_is_refused(headers: dict[str, str], status: int) -> None:
    async with visitor() as browser:
        assert (await browser.post("/what-if", data={}, headers=headers)).status == status


async def test_what_does_not_exist_is_a_page_too() -> None:
    async with visitor() as browser:
        for path in ("/queues/none", "/devices/none", "/workloads/red/none", "/workloads/red/none/explanation"):
            answer = await browser.get(path)
            assert answer.status == 404
            assert "There is no" in await answer.text()
        for path in ("/static/../server.py", "/static/none.js", "/static/server.py", "/none"):
            assert (await browser.get(path)).status == 404


async def test_names_are_escaped() -> None:
    objects = [*cluster(), *workload("<img src=x>", "blue", 1)]
    async with visitor(board(objects)) as browser:
        text = await (await browser.get("/waiting")).text()
        assert "<img" not in text
        assert "&lt;img src=x&gt;" in text


async def test_figures_are_those_of_the_overview() -> None:
    async with visitor() as browser:
        text = _plain(await (await browser.get("/queues/q-red")).text())
        for part in ("GPUs allocated 8 4 borrowed", "Quota 4", "May lose to q-blue", "Allocated 8 4"):
            assert part in text


async def test_pages_filter_and_turn() -> None:
    many = [part for number in range(120) for part in workload(f"blue-{number:03}", "blue", 4)]
    async with visitor(board([*cluster(), *many])) as browser:
        first = await (await browser.get("/waiting")).text()
        assert "Page 1 of 2" in first
        assert first.count("<details") == 100
        assert "blue-huge" in await (await browser.get("/waiting?q=huge")).text()
        assert (await (await browser.get("/waiting?q=huge")).text()).count("<details") == 1
        assert (await browser.get("/waiting?page=99999999999999")).status == 200
        assert "No node matches" in await (await browser.get("/devices?q=zzz")).text()


async def test_a_fragment_is_only_what_changes() -> None:
    async with visitor() as browser:
        text = await (await browser.get("/queues", headers={"X-Fragment": "1"})).text()
        assert text.lstrip().startswith("<main")
        assert "<html" not in text


async def test_the_map_has_a_cell_for_every_device() -> None:
    async with visitor() as browser:
        found = await (await browser.get("/devices.json")).json()
        assert found == {"names": ["n1", "n2"], "cells": [[2] * 4, [2] * 4], "marks": ["", ""], "down": []}


# ---------------------------------------------------------------------------------------------------------- questions
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: mine, namespace: blue, labels: {kai.scheduler/queue: q-blue}}
spec:
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: GPUS}}}]
"""


@pytest.mark.parametrize(
    ("given", "status", "shown"),
    [
        ({"manifest": JOB.replace("GPUS", '"2"')}, 200, "starts after evictions"),
        ({"manifest": JOB.replace("GPUS", '"64"')}, 200, "never starts"),
        ({"manifest": JOB.replace("GPUS", '"2"'), "changes": "--add-nodes 1 --like n1"}, 200, "starts now"),
        ({"changes": "--add-nodes 1 --like n1"}, 200, "nothing to start"),
        ({"manifest": "kind: ["}, 422, "manifest"),
        ({"changes": "--add-nodes none"}, 422, "is not a number of nodes"),
        ({"changes": "--drain nowhere"}, 422, "there is no node nowhere"),
        ({"changes": "--fly"}, 422, "has no value"),
        ({}, 422, "Paste a manifest"),
    ],
)
async def test_what_if(given: dict[str, str], status: int, shown: str) -> None:
    async with visitor() as browser:
        answer = await browser.post("/what-if", data=given)
        text = await answer.text()
        assert (answer.status, shown in text) == (status, True), _plain(text)
        assert given.get("changes", "") in text, "the question stays on the page"


async def test_an_explanation_has_verdicts_and_remedies() -> None:
    async with visitor() as browser:
        text = _plain(await (await browser.get("/workloads/blue/blue-small/explanation")).text())
        assert "Expected start" in text
        text = _plain(await (await browser.get("/workloads/blue/blue-huge/explanation")).text())
        assert "allocate" in text


# -------------------------------------------------------------------------------------------------------------- events
async def test_a_newer_moment_is_told_at_once() -> None:
    shown = board(kind="live")
    async with visitor(shown) as browser:
        answer = await browser.get("/events?revision=1")
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert await _line(answer) == "retry: 2000"
        shown.show(moment(cluster(), 2))
        async with asyncio.timeout(2):
            assert [await _line(answer) for _ in range(3)] == ["id: 2", "event: moment", "data: 2"]


async def test_who_comes_back_hears_what_was_missed() -> None:
    async with visitor(board(kind="live")) as browser:
        answer = await browser.get("/events", headers={"Last-Event-ID": "0"})
        async with asyncio.timeout(2):
            assert [await _line(answer) for _ in range(2)] == ["retry: 2000", "id: 1"]


async def _line(answer: ClientResponse) -> str:
    while not (line := (await answer.content.readline()).decode().strip()):
        pass
    return line


# ----------------------------------------------------------------------------------------------------------- signed in
RIGHTS: dict[str, set[tuple[str, str]]] = {
    "admin": {("pods", ""), ("queues", ""), ("nodes", "")},
    "blue-user": {("pods", "blue")},
    "blue-viewer": {("pods", "blue"), ("queues", ""), ("nodes", "")},
    "stranger": set(),
}


class ReviewingApi:
    """An API server that answers reviews from a table; a token is the name of its user."""

    def __init__(self) -> None:
        self.asked: list[Object] = []
        self.down = False

    async def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        if self.down:
            raise Unavailable("no answer")
        self.asked.append(body)
        spec = body["spec"]
        if resource.kind == "TokenReview":
            known = spec["token"] in RIGHTS
            return {"status": {"authenticated": known, "user": {"username": spec["token"], "groups": ["all"]}}}
        asked = spec["resourceAttributes"]
        assert asked["verb"] == "list"
        allowed = (asked["resource"], asked.get("namespace", "")) in RIGHTS[spec["user"]]
        return {"status": {"allowed": allowed}}


@asynccontextmanager
async def signed_in(user: str, api: ReviewingApi | None = None) -> AsyncIterator[Client]:
    """The browser of a user who pasted a token."""
    now = asyncio.get_running_loop().time
    gate = SignInGate(Reviews(api or ReviewingApi(), now), Sessions(now))  # type: ignore[arg-type]
    async with client(gate=gate) as browser:
        await browser.post("/sign-in", data={"token": user})
        yield browser


async def test_a_user_without_a_token_is_asked_for_one() -> None:
    async with signed_in("nobody") as browser:
        answer = await browser.get("/queues", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
        assert (await browser.get("/events")).status == 401
        assert (await browser.get("/queues", headers={"X-Fragment": "1"})).status == 401
        answer = await browser.post("/sign-in", data={"token": "wrong"})
        assert answer.status == 401
        assert "does not accept this token" in await answer.text()


async def test_a_token_in_the_header_is_enough() -> None:
    async with signed_in("nobody") as browser:
        assert (await browser.get("/queues", headers={"Authorization": "Bearer admin"})).status == 200
        assert (await browser.get("/queues", headers={"Authorization": "Bearer wrong"})).status == 401


async def test_an_admin_sees_everything_and_signs_out() -> None:
    async with signed_in("admin") as browser:
        assert "red-train-0" in await (await browser.get("/queues/q-red")).text()
        await browser.post("/sign-out")
        assert (await browser.get("/queues", allow_redirects=False)).status == 303


@pytest.mark.parametrize("user", ["blue-user", "blue-viewer"])
@pytest.mark.parametrize("path", [*PAGES, "/devices.json", "/workloads/red/red-train-0", "/evictions?page=1"])
async def test_no_foreign_name_is_on_any_page(user: str, path: str) -> None:
    async with signed_in(user) as browser:
        text = await (await browser.get(path)).text()
        assert "red-train" not in text.replace("/workloads/red/red-train-0", "").replace("red/red-train-0", "")
        if user == "blue-user":
            assert "q-red" not in text.replace("/queues/q-red", "").replace("queue q-red", "")
            assert not re.search(r"\bn[12]\b", text.replace("/devices/n1", "").replace("node n1", ""))


async def test_what_is_hidden_is_part_of_totals() -> None:
    async with signed_in("blue-user") as browser:
        queues = _plain(await (await browser.get("/queues")).text())
        assert "GPUs allocated 8 of 8" in queues
        assert re.search("other queues 8 4 ", queues), "allocated and quota of what has no name"
        assert "1 namespace visible to blue-user" in queues
        evictions = _plain(await (await browser.get("/evictions")).text())
        assert "1 workload of other namespaces lost pods: 1 pod, 2 GPUs" in evictions
        devices = _plain(await (await browser.get("/devices")).text())
        assert "You may not list nodes" in devices


async def test_a_hidden_workload_looks_like_none() -> None:
    async with signed_in("blue-viewer") as browser:
        hidden = await browser.get("/workloads/red/red-train-0")
        missing = await browser.get("/workloads/red/none")
        assert hidden.status == missing.status == 404
        refused = await browser.post("/what-if", data={"manifest": JOB.replace("GPUS", '"2"').replace("blue", "red")})
        assert "you may not list pods in this namespace" in await refused.text()
        told = await (await browser.post("/what-if", data={"manifest": JOB.replace("GPUS", '"2"')})).text()
        assert "starts after evictions" in told
        assert "red-train" not in told


async def test_who_may_list_nothing_sees_nothing() -> None:
    async with signed_in("stranger") as browser:
        answer = await browser.get("/queues")
        assert answer.status == 403
        assert "GPUs" not in await answer.text()


async def test_rights_are_asked_once_a_minute() -> None:
    api = ReviewingApi()
    async with signed_in("blue-viewer", api) as browser:
        await browser.get("/queues")
        asked = len(api.asked)
        for path in PAGES:
            await browser.get(path)
        assert len(api.asked) == asked


async def test_an_api_server_that_does_not_answer_lets_nobody_in() -> None:
    api = ReviewingApi()
    async with signed_in("admin", api) as browser:
        api.down = True
        answer = await browser.get("/queues", headers={"Authorization": "Bearer blue-user"})
        assert answer.status == 503


def _plain(text: str) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<script.*?</script>", " ", text, flags=re.DOTALL)).split())
