"""The node scale adjuster on a server in memory."""

from __future__ import annotations

import asyncio

import pytest

from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate, ScalingSettings, run
from pykai.kube.api import SERVER_DEFAULTS, Deletion, Object, Patch, Ref, Selection
from pykai.kube.errors import Timeout, Unavailable
from pykai.kube.resources import NAMESPACE, POD
from pykai.objects import names
from tests.unit.controllers.live import DiaryApi, eventually, make_pod, running
from tests.virtual_loop import in_virtual_time

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> DiaryApi:
    monkeypatch.setattr("pykai.controllers.node_scale.GATHER_SECONDS", 0.01)
    server = DiaryApi()
    await server.create(NAMESPACE, {"metadata": {"name": names.SCALING_NAMESPACE}})
    return server


async def wait_for_share(api: DiaryApi, name: str, fraction: str = "0.5") -> None:
    await make_pod(api, name, annotations={names.GPU_FRACTION: fraction})
    await api.patch(POD.ref(name, "default").sub("status"), Patch.merge({"status": {"conditions": [UNSCHEDULABLE]}}))


async def scaling_pods(api: DiaryApi) -> list[Object]:
    return list((await api.list(POD, Object, Selection(namespace=names.SCALING_NAMESPACE))).items)


@in_virtual_time
async def test_waiting_shares_get_scaling_pods_that_go_when_their_pods_are_placed(api: DiaryApi) -> None:
    clock = Clock()
    settings = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("image")), clock=clock)
    async with running(api, run, settings):
        for name in ("a", "b", "c"):
            await wait_for_share(api, name)

        async def two_unschedulable() -> bool:
            conditions = [(pod["status"].get("conditions") or [{}])[0] for pod in await scaling_pods(api)]
            return [each.get("reason") for each in conditions] == ["Unschedulable", "Unschedulable"]

        await eventually(two_unschedulable)
        for name in ("a", "b", "c"):
            await api.delete(POD.ref(name, "default"))

        async def none() -> bool:
            return not await scaling_pods(api)

        await eventually(none)
        await wait_for_share(api, "d")
        await asyncio.sleep(0.1)
        assert await none(), "within the cool-down nothing is created"
        clock.now += 61
        await wait_for_share(api, "e")
        await eventually(lambda: scaling_pods(api))


@in_virtual_time
async def test_a_deletion_whose_answer_is_lost_starts_the_cool_down(api: DiaryApi) -> None:
    settings = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("image")), clock=Clock())
    async with running(api, run, settings):
        await wait_for_share(api, "a")
        await eventually(lambda: scaling_pods(api))
        lost = api.delete

        async def delete(ref: Ref, how: Deletion = SERVER_DEFAULTS) -> None:
            await lost(ref, how)
            if ref.namespace == names.SCALING_NAMESPACE:
                raise Timeout("no answer")

        api.delete = delete  # type: ignore[method-assign]
        await wait_for_share(api, "b")
        await api.delete(POD.ref("a", "default"))
        await asyncio.sleep(30)
        assert not await scaling_pods(api)


@in_virtual_time
async def test_a_scaling_pod_whose_mark_was_not_written_gets_it(api: DiaryApi) -> None:
    settings = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("image")))
    async with running(api, run, settings):
        await make_pod(api, "a", annotations={names.GPU_FRACTION: "0.5"})
        condition = Patch.merge({"status": {"conditions": [UNSCHEDULABLE]}})
        await api.patch(POD.ref("a", "default").sub("status"), condition)
        api.refusals["patch", "Pod/status"] = [Unavailable("away")]

        async def marked() -> bool:
            return [pod["status"].get("conditions") for pod in await scaling_pods(api)] == [[UNSCHEDULABLE]]

        await eventually(marked)


@in_virtual_time
async def test_a_scaling_pod_that_is_there_is_not_made_again(api: DiaryApi) -> None:
    settings = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("image")))
    async with running(api, run, settings):
        await wait_for_share(api, "a")
        await eventually(lambda: scaling_pods(api))
    before = api.count("create", "Pod")
    async with running(api, run, settings):
        await wait_for_share(api, "b", "0.25")
        await asyncio.sleep(0.1)
        assert len(await scaling_pods(api)) == 1
        assert api.count("create", "Pod") == before + 1
