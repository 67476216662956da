"""The node scale adjuster: its decision, and the controller on a server in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.controllers.node_scale import (
    NodeScalerSettings,
    ScalingPodTemplate,
    ScalingSettings,
    desired,
    devices_of,
    origin,
    run,
    scaling_manifest,
)
from pykai.kube.api import SERVER_DEFAULTS, Deletion, Object, Patch, Ref, Selection
from pykai.kube.api_resources import NAMESPACE, POD
from pykai.kube.errors import Timeout, Unavailable
from pykai.objects import names
from tests.unit.controllers.live import DiaryApi, eventually, make_pod, running

SETTINGS = ScalingSettings(ScalingPodTemplate("registry.example/scaling-pod:1"))
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
PLACED = {"type": "PodScheduled", "status": "True"}


def waiting(name: str, fraction: str = "0.5", devices: str = "1", **spec: Any) -> dict[str, Any]:
    annotations = {"gpu-fraction": fraction, "gpu-fraction-num-devices": devices}
    requests = {"cpu": "500m", "memory": "1Gi", "example.com/nic": "1"}
    return {
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"resources": {"requests": requests}}, {"resources": {"requests": {"cpu": "1"}}}],
            **spec,
        },
        "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
    }


def placed(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "status": {"phase": "Running", "conditions": [PLACED]}}


def scaling(pod: dict[str, Any], devices: int = 1, phase: str = "Pending") -> dict[str, Any]:
    return {**scaling_manifest(pod, devices, SETTINGS.template), "status": {"phase": phase}}


def created(pods: list[dict[str, Any]], last_scale_up: float | None = None) -> list[tuple[str, int]]:
    adjustment = desired(pods, SETTINGS, 1000.0, last_scale_up)
    assert adjustment.delete == ()
    return [(pod["metadata"]["name"], devices_of(pod)) for pod in adjustment.create]


A, B, C = waiting("a"), waiting("b"), waiting("c")


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], [], id="nothing waits"),
        pytest.param([A], [("ns-a", 1)], id="one"),
        pytest.param([B, A], [("ns-a", 1)], id="two halves fit one device, order of the list is irrelevant"),
        pytest.param([A, B, C], [("ns-a", 1), ("ns-b", 1)], id="three halves need two"),
        pytest.param([A, B, C, scaling(A)], [("ns-b", 1)], id="one is there already"),
        pytest.param([A, B, scaling(B)], [], id="enough is there"),
        pytest.param([A, waiting("w", "0.1", "4")], [("ns-a", 1), ("ns-w", 4)], id="the widest pod gets its devices"),
        pytest.param([waiting("x", "0.004")], [("ns-x", 1)], id="a tiny share is still a share"),
        pytest.param([waiting("x", "abc")], [], id="no valid share"),
        pytest.param([waiting("x", "0.5", "none")], [], id="no valid number of devices"),
        pytest.param([waiting("x", schedulerName="other")], [], id="another scheduler's pod"),
        pytest.param([waiting("x", nodeName="n")], [], id="already on a node"),
        pytest.param([placed(A)], [], id="placed"),
        pytest.param([{**A, "status": {"phase": "Pending"}}], [], id="not tried yet"),
        pytest.param([{**A, "status": {"phase": "Failed", "conditions": [UNSCHEDULABLE]}}], [], id="ended"),
    ],
)
def test_scaling_pods_that_come(pods: list[dict[str, Any]], expected: list[tuple[str, int]]) -> None:
    assert created(pods) == expected


@pytest.mark.parametrize("share", [{"gpu-memory": "4000"}, {"nvidia.com/container.main.gpu-memory.request": "4Gi"}])
def test_gpu_memory_counts_as_the_configured_part(share: dict[str, str]) -> None:
    pods = [waiting(f"m{i}") for i in range(11)]
    for pod in pods:
        pod["metadata"]["annotations"] = share
    assert len(created(pods[:10])) == 1
    assert len(created(pods)) == 2


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([scaling(A)], id="its pod is gone"),
        pytest.param([placed(A), scaling(A)], id="its pod is placed"),
        pytest.param([A, scaling(A, phase="Succeeded")], id="it ran"),
    ],
)
def test_scaling_pods_that_go_start_the_cool_down(pods: list[dict[str, Any]]) -> None:
    adjustment = desired([*pods, B], SETTINGS, 1000.0, None)
    assert (adjustment.delete, adjustment.create) == (("ns-a",), ())
    assert (adjustment.last_scale_up, adjustment.retry_after) == (1000.0, 60.0)


@pytest.mark.parametrize(("last", "retry_after"), [(None, None), (939.9, None), (940.0, None), (960.0, 20.0)])
def test_nothing_comes_during_the_cool_down(last: float | None, retry_after: float | None) -> None:
    adjustment = desired([A], SETTINGS, 1000.0, last)
    assert adjustment.retry_after == retry_after
    assert len(adjustment.create) == (1 if retry_after is None else 0)


def test_the_end_of_the_cool_down_is_not_missed_by_rounding() -> None:
    assert 68.1 - 8.1 < 60.0
    adjustment = desired([A], SETTINGS, 68.1, 8.1)
    assert (adjustment.retry_after, len(adjustment.create)) == (None, 1)


@pytest.mark.parametrize("last", [None, 960.0])
def test_scaling_pods_that_are_not_called_unschedulable_are_marked(last: float | None) -> None:
    marked = {**scaling(B), "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}}
    assert desired([A, B, scaling(A), marked], SETTINGS, 1000.0, last).mark == ("ns-a",)
    assert desired([placed(A), scaling(A)], SETTINGS, 1000.0, last).mark == (), "it goes"


def test_a_scaling_pod_that_is_going_already_is_neither_deleted_nor_counted_nor_replaced() -> None:
    going = scaling(A)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert created([A, B, going]) == [("ns-b", 1)]


def test_the_scaling_pod_asks_and_goes_where_its_origin_does() -> None:
    where: dict[str, Any] = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    }
    pod = scaling_manifest(waiting("a", **where), 2, SETTINGS.template)
    assert pod["metadata"]["labels"] == {
        "app": "scaling-pod",
        "shared-gpu-pod-name": "a",
        "shared-gpu-pod-namespace": "ns",
    }
    assert {key: pod["spec"][key] for key in where} == where | {"affinity": {"nodeAffinity": {}}}
    assert "schedulerName" not in pod["spec"]
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }


def test_a_long_name_finds_its_origin_again() -> None:
    pod = waiting("x" * 63 + "." + "y" * 180)
    made = scaling_manifest(pod, 1, SETTINGS.template)
    assert origin(made) == ("ns", pod["metadata"]["name"])
    assert len(made["metadata"]["labels"]["shared-gpu-pod-name"]) == 63
    assert created([pod, made]) == []


# ------------------------------------------------------------------------------------------------- controller
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


@pytest.mark.virtual_time
async def test_waiting_shares_get_scaling_pods_that_go_when_their_pods_are_placed(api: DiaryApi) -> None:
    settings = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("image")))
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
        await asyncio.sleep(61)
        await wait_for_share(api, "e")
        await eventually(lambda: scaling_pods(api))


@pytest.mark.virtual_time
async def test_a_deletion_whose_answer_is_lost_starts_the_cool_down(api: DiaryApi) -> None:
    settings = NodeScalerSettings(ScalingSettings(ScalingPodTemplate("image")))
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


@pytest.mark.virtual_time
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


@pytest.mark.virtual_time
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
