"""The live board on an API server in memory: it follows without listing again, and writes nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.dashboard.board import DecidedMoment, Title
from pykai.dashboard.live_board import LiveBoard
from pykai.explain.live_cluster import SchedulerSetting
from pykai.kube.api import EVERYTHING, Api, Object, Paging, Resource, Selection
from pykai.kube.api_resources import CONFIG_MAP, EVENT, NAMESPACE, NODE, POD, POD_GROUP, QUEUE
from pykai.kube.errors import Forbidden, Unauthorized
from tests.unit.dashboard.boards import TEAMS, cluster, workload
from tests.unit.scheduler.rig import RecordingApi

KINDS = {"Node": NODE, "Queue": QUEUE, "PodGroup": POD_GROUP, "Pod": POD}


class CountingApi(RecordingApi):
    """Counts lists, and refuses those of some kinds."""

    def __init__(self, *forbidden: Resource) -> None:
        super().__init__()
        self.lists: Counter[str] = Counter()
        self._forbidden = forbidden

    async def list(
        self, resource: Resource, into: type[Any], where: Selection = EVERYTHING, paging: Paging | None = None
    ) -> Any:
        self.lists[resource.kind] += 1
        if resource in self._forbidden:
            raise Forbidden(f"{resource.qualified} is forbidden")
        return await super().list(resource, into, where, paging or Paging())


async def fill(api: Api, objects: list[Object]) -> None:
    for each in objects:
        body = {**each, "metadata": {key: value for key, value in each["metadata"].items() if key != "uid"}}
        await api.create(KINDS[each["kind"]], body, each["metadata"].get("namespace", ""))


@asynccontextmanager
async def following(api: CountingApi) -> AsyncIterator[LiveBoard]:
    for name in TEAMS:
        await api.create(NAMESPACE, {"metadata": {"name": name}})
    await fill(api, cluster())
    board = LiveBoard(Title("live", "memory"), api, SchedulerSetting())
    run = asyncio.create_task(board.run())
    try:
        yield board
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def until_newer(board: LiveBoard, revision: int) -> DecidedMoment:
    async with asyncio.timeout(20):
        await board.newer_than(revision)
    moment = board.moment()
    assert moment is not None
    return moment


async def test_a_change_is_a_newer_moment_without_another_list() -> None:
    api = CountingApi()
    async with following(api) as board:
        first = await until_newer(board, 0)
        assert {each.name for each in first.overview.waiting} == {"blue-small", "blue-huge"}
        lists, writes = Counter(api.lists), len(api.writes)
        made = workload("blue-new", "blue", 1)
        await fill(api, made)
        moment, began = first, asyncio.get_running_loop().time()
        while "blue-new" not in {each.name for each in moment.overview.waiting if each.pods}:
            moment = await until_newer(board, moment.revision)
        assert asyncio.get_running_loop().time() - began < 10
        assert api.lists == lists, "what changed came by the watches"
        assert len(api.writes) == writes + len(made), "only the test wrote"
        assert len(board.samples()) >= 1


async def test_evictions_come_from_events() -> None:
    api = CountingApi()
    async with following(api) as board:
        await until_newer(board, 0)
        notes = {
            "evictor-action-type": "reclaim",
            "evictor-pod-group-namespace": "blue",
            "evictor-pod-group-name": "blue-small",
            "pykai.io/evicted-queue": "q-red",
            "pykai.io/evicted-node": "n2",
            "pykai.io/evicted-gpus": "2",
            "pykai.io/evicted-started": "2026-01-01T00:00:00Z",
        }
        about = {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "namespace": "red", "name": "red-train-3"}
        event = {
            "metadata": {"name": "e1", "annotations": notes},
            "involvedObject": about,
            "reason": "Evict",
            "message": "Pod red/red-train-3-0 was preempted by workload blue/blue-small.\nq-red uses too much.",
            "lastTimestamp": "2026-01-01T01:00:00Z",
        }
        await api.create(EVENT, event, "red")
        async with asyncio.timeout(10):
            while not board.evictions():
                await asyncio.sleep(0.05)
        (found,) = board.evictions()
        assert (found.pod, found.queue, found.node, found.evictor, found.evictor_queue) == (
            "red-train-3-0",
            "q-red",
            "n2",
            "blue-small",
            "q-blue",
        )
        assert (found.ran, found.lost_gpu_hours) == (3600.0, 2.0)
        assert "Evict" in [each.what for each in board.history(("red", "red-train-3"))]


async def test_what_may_not_be_listed_and_is_not_needed_is_a_problem_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.dashboard.live_board.SYNC_TIMEOUT_SECONDS", 0.5)
    async with following(CountingApi(CONFIG_MAP)) as board:
        await until_newer(board, 0)
        assert any("configmaps is forbidden" in problem for problem in board.problems)


async def test_without_pods_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.dashboard.live_board.SYNC_TIMEOUT_SECONDS", 0.5)
    async with following(CountingApi(POD)) as board:
        async with asyncio.timeout(10):
            while not board.problems:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert board.moment() is None
        assert any("pods is forbidden" in problem for problem in board.problems)


@pytest.mark.virtual_time
async def test_the_error_that_ends_an_informer_ends_the_board_as_it_is() -> None:
    class Expired(RecordingApi):
        """Rejects the credentials."""

        async def list(self, *arguments: Any) -> Any:
            raise Unauthorized("the token has expired")

    with pytest.raises(Unauthorized, match="expired"):
        await LiveBoard(Title("live", "memory"), Expired(), SchedulerSetting()).run()
