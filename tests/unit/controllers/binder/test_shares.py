"""What the container of a share is told, and in which of its two ConfigMaps."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from pykai.controllers.binder.binding import BindAttempt, BindError
from pykai.controllers.binder.gpu_sharing import data_changes, environment, is_created_for, memory_limit
from pykai.kube.api import Object
from pykai.kube.api_resources import BIND_REQUEST, CONFIG_MAP, POD
from pykai.objects import names
from pykai.objects.kinds import BindRequest, BindRequestSpec, Node, ObjectMeta, Pod, ReceivedGpu, decode

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time

BY_KEY = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]
PREFIX = {names.SHARED_GPU_CONFIGMAP: "pre"}


def container(name: str, by_key: bool = True) -> Object:
    return {"name": name, "image": "i", "env": BY_KEY if by_key else []}


def attempt(annotations: dict[str, str], spec: Object, portion: str = "0.25", memory: str = "15360") -> BindAttempt:
    body = {"metadata": {"name": "p", "namespace": "team", "annotations": annotations}, "spec": spec}
    pod: Pod = decode(json.encode(body), Pod)
    gpu = ReceivedGpu(count=1, portion=portion)
    request = BindRequest(metadata=ObjectMeta(), spec=BindRequestSpec(received_gpu=gpu))
    node = Node(metadata=ObjectMeta(name="n1", labels={names.GPU_MEMORY_LABEL: memory}))
    return BindAttempt(request, pod, node, ("GPU-1", "GPU-2"))


@pytest.mark.parametrize(
    ("annotations", "init", "expected"),
    [
        ({}, [], "pre-0"),
        ({names.GPU_FRACTION_CONTAINER: "b"}, [], "pre-1"),
        ({names.GPU_FRACTION_CONTAINER: "s"}, ["r", "s"], "pre-i1"),
        ({names.GPU_FRACTION_CONTAINER: "a"}, ["a"], "pre-i0"),
        ({names.GPU_FRACTION_CONTAINER: "a", names.GPU_FRACTION_CONTAINER_TYPE: "RegularContainer"}, ["a"], "pre-0"),
        ({names.GPU_FRACTION_CONTAINER_TYPE: "InitContainer"}, ["r", "s"], "pre-i0"),
    ],
)
def test_the_container_that_gets_the_share(annotations: dict[str, str], init: list[str], expected: str) -> None:
    spec = {"containers": [container("a"), container("b")], "initContainers": [container(name) for name in init]}
    told = environment(attempt(PREFIX | annotations, spec), cdi=False, limits_memory=False)
    assert (told.names.capabilities, told.names.environment) == (expected, f"{expected}-evar")


@pytest.mark.parametrize(
    ("options", "by_key", "capabilities", "direct"),
    [
        ({}, True, {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, {}),
        ({}, False, {}, {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}),
        (
            {"cdi": True},
            True,
            {"NVIDIA_VISIBLE_DEVICES": "k8s.device-plugin.nvidia.com/gpu=GPU-1,k8s.device-plugin.nvidia.com/gpu=GPU-2"},
            {},
        ),
        (
            {"limits_memory": True},
            True,
            {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "CUDA_DEVICE_MEMORY_LIMIT": "3840m"},
            {},
        ),
    ],
)
def test_what_the_container_is_told(options: Any, by_key: bool, capabilities: Object, direct: Object) -> None:
    given = {"cdi": False, "limits_memory": False, **options}
    told = environment(attempt(PREFIX, {"containers": [container("a", by_key)]}), **given)
    portion = {"GPU_PORTION": "0.25", "RUNAI_NUM_OF_GPUS": "0.25"}
    assert {key: text for key, text in told.capabilities.items() if text is not None} == {**portion, **capabilities}
    assert {key: text for key, text in told.direct.items() if text is not None} == direct


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({}, "no desired configmap name found in pod team/p annotations"),
        (PREFIX | {names.GPU_FRACTION_CONTAINER: "z"}, "container with name z not found for fraction request"),
        (PREFIX | {names.GPU_FRACTION_CONTAINER_TYPE: "InitContainer"}, "no init container found for fraction request"),
    ],
)
def test_a_pod_that_names_no_place_for_it(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(BindError, match=message):
        environment(attempt(annotations, {"containers": [container("a")]}), cdi=False, limits_memory=False)


@pytest.mark.parametrize(
    ("memory", "portion", "limit"),
    [("15360", "0.27", "4147m"), ("15360", "0.50", "7680m"), ("", "0.5", None), ("16", "", None), ("x", "0.5", None)],
)
def test_memory_limit(memory: str, portion: str, limit: str | None) -> None:
    assert memory_limit(Node(metadata=ObjectMeta(labels={names.GPU_MEMORY_LABEL: memory})), portion) == limit


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"GPU_PORTION": "0.5", "more": "kept"}, {}),
        ({"GPU_PORTION": "0.2"}, {"GPU_PORTION": "0.5"}),
        ({"GPU_PORTION": "0.5", "CUDA_DEVICE_MEMORY_LIMIT": "1m"}, {"CUDA_DEVICE_MEMORY_LIMIT": None}),
    ],
)
def test_an_existing_map_is_brought_up_to_date(data: Object, expected: Object) -> None:
    assert data_changes({"data": data}, {"GPU_PORTION": "0.5", "CUDA_DEVICE_MEMORY_LIMIT": None}) == expected


def test_the_key_of_old_pods_follows_the_devices() -> None:
    found = {"data": {"RUNAI-VISIBLE-DEVICES": "old"}}
    changes = data_changes(found, {"NVIDIA_VISIBLE_DEVICES": "GPU-9"})
    assert changes == {"NVIDIA_VISIBLE_DEVICES": "GPU-9", "RUNAI-VISIBLE-DEVICES": "GPU-9"}


@pytest.mark.parametrize(
    ("owners", "labels", "expected"),
    [
        (["1"], {names.MANAGED_BY_LABEL: "kai-binder"}, True),
        (["1"], {}, True),  # of KAI, or of an earlier version
        (["1"], {names.MANAGED_BY_LABEL: "Helm"}, False),
        (["2"], {names.MANAGED_BY_LABEL: "kai-binder"}, False),
        (["1", "2"], {}, False),
        ([], {names.MANAGED_BY_LABEL: "kai-binder"}, False),
    ],
)
def test_only_maps_that_the_binder_created_for_the_pod_are_its_own(
    owners: list[str], labels: dict[str, str], expected: bool
) -> None:
    found = {"metadata": {"ownerReferences": [{"uid": uid} for uid in owners], "labels": labels}}
    assert is_created_for(found, Pod(metadata=ObjectMeta(name="p", uid="1"))) is expected


async def test_hami_and_cdi_by_configuration() -> None:
    plugins = '{"gpusharing": {"arguments": {"cdiEnabled": "true"}}, "hamicore": {"enabled": true}}'
    async with World(plugins=plugins) as world:
        await world.share("p", ["g"], request={"portion": "0.27"})
        api = await world.start_binder()
        data = (await world.now(CONFIG_MAP, "p-abc-shared-gpu-0"))["data"]
        assert data["NVIDIA_VISIBLE_DEVICES"] == "k8s.device-plugin.nvidia.com/gpu=GPU-n1-0"
        assert data["CUDA_DEVICE_MEMORY_LIMIT"] == "4147m"
        assert api.writes.count("create configmaps") == 2


async def test_a_foreign_map_is_neither_changed_nor_adopted_nor_deleted() -> None:
    async with World() as world:
        foreign = {"metadata": {"name": "p-abc-shared-gpu-0"}, "data": {"NVIDIA_VISIBLE_DEVICES": "secret"}}
        before = await world.api.create(CONFIG_MAP, foreign, TEAM)
        await world.share("p", ["g"])
        await world.start_binder()
        assert await world.now(CONFIG_MAP, "p-abc-shared-gpu-0") == before
        status = await world.status("p")
        assert status["phase"] == "Failed"
        assert 'configmap "p-abc-shared-gpu-0" named by annotation' in status["reason"]
        assert "was not created for this pod by the binder" in status["reason"]
        assert "nodeName" not in (await world.now(POD, "p"))["spec"]


async def test_maps_go_though_the_request_vanished_while_no_binder_ran() -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.start_binder(last=4)  # killed between its ConfigMaps and the bind
        await world.stop_binder()
        assert len((await world.api.list(CONFIG_MAP, Object)).items) > 0
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.start_binder()
        assert (await world.api.list(CONFIG_MAP, Object)).items == []
        assert names.GPU_GROUP_LABEL not in ((await world.now(POD, "p"))["metadata"].get("labels") or {})
