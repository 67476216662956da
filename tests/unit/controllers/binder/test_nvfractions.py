"""Shares by annotations of the pod: what the binder writes with the bind, and what it cannot compute."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from pykai.controllers.binder.binding import BindAttempt, BindError
from pykai.controllers.binder.gpu_sharing import environment, share_annotations
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.objects import names
from pykai.objects.kinds import BindRequest, BindRequestSpec, Node, ObjectMeta, Pod, ReceivedGpu, decode

from .world import World

pytestmark = pytest.mark.virtual_time

KEY = "nvidia.com/container."
REQUEST, LIMIT, DEVICES = (f"{KEY}main.{each}" for each in ("gpu-memory.request", "gpu-memory.limit", "gpus.devices"))
PORTION_LIMIT = "kai.scheduler/container.main.gpu-memory.portion.limit"
HALF = {"gpu-fraction": "0.5"}
PLUGINS = '{"gpusharing": {"enabled": false}, "nvfractions": {"enabled": true}}'


def attempt(annotations: dict[str, str], portion: str | None = "0.5", memory: str | None = "2000") -> BindAttempt:
    spec = {"initContainers": [{"name": "load"}], "containers": [{"name": "main"}, {"name": "side"}]}
    body = {"metadata": {"name": "p", "namespace": "team", "annotations": annotations}, "spec": spec}
    received = None if portion is None else ReceivedGpu(count=1, portion=portion)
    request = BindRequest(metadata=ObjectMeta(), spec=BindRequestSpec(received_gpu=received))
    labels = {} if memory is None else {names.GPU_MEMORY_LABEL: memory}
    node = Node(metadata=ObjectMeta(name="n1", labels=labels))
    pod: Pod = decode(json.encode(body), Pod)
    return BindAttempt(request, pod, node, ("0", "1"))


@pytest.mark.parametrize(
    ("annotations", "portion", "added"),
    [
        (HALF, "0.5", {REQUEST: "1000Mi"}),
        ({**HALF, PORTION_LIMIT: "0.8"}, "0.5", {REQUEST: "1000Mi", LIMIT: "1600Mi"}),
        ({**HALF, PORTION_LIMIT: "0.8", LIMIT: "1500Mi"}, "0.5", {REQUEST: "1500Mi"}),
        (HALF, "0.33", {REQUEST: "660Mi"}),
        ({REQUEST: "700Mi"}, "0.35", {}),
        ({LIMIT: "1Gi"}, "0.52", {REQUEST: "1Gi"}),
    ],
)
def test_what_the_bind_adds(annotations: dict[str, str], portion: str, added: dict[str, str]) -> None:
    """KAI's case first: a node of 2000 MiB, half of GPUs 0 and 1."""
    assert share_annotations(attempt(annotations, portion), False) == {**added, DEVICES: "0,1"}


def test_devices_have_their_names_of_cdi_and_go_to_the_container_that_is_named() -> None:
    prefix = "k8s.device-plugin.nvidia.com/gpu="
    assert share_annotations(attempt({REQUEST: "1Gi"}), True)[DEVICES] == f"{prefix}0,{prefix}1"
    named = share_annotations(attempt({**HALF, "gpu-fraction-container-name": "load"}), False)
    assert named == {f"{KEY}load.gpu-memory.request": "1000Mi", f"{KEY}load.gpus.devices": "0,1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": None}, "node does not include nvidia.com/gpu.memory label"),
        ({"memory": "many"}, 'invalid nvidia.com/gpu.memory label value "many"'),
        ({"portion": "x"}, 'invalid received gpu portion "x"'),
        ({"portion": "nan"}, 'invalid received gpu portion "nan"'),
        ({"portion": "2"}, 'invalid received gpu portion "2"'),
        ({"portion": "0.0001"}, "calculated gpu memory request is zero"),
        ({"portion": None}, "missing data for NvFractions annotation calculation"),
        ({"annotations": {REQUEST: "1Mi", PORTION_LIMIT: "0.0001"}}, "calculated gpu memory limit is zero"),
        ({"annotations": {"gpu-fraction-container-name": "z"}}, "container with name z not found for fraction request"),
    ],
)
def test_what_cannot_be_computed_fails_the_bind(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BindError) as refused:
        share_annotations(attempt(**{"annotations": HALF, **changes}), False)
    assert str(refused.value) == message


@pytest.mark.parametrize("changes", [{"memory": None}, {"memory": "x"}, {"portion": "x"}])
def test_hami_core_binds_no_pod_without_a_limit(changes: dict[str, Any]) -> None:
    with pytest.raises(BindError, match="the memory limit of pod team/p cannot be computed"):
        environment(
            attempt(**{"annotations": {**HALF, names.SHARED_GPU_CONFIGMAP: "pre"}, **changes}),
            cdi=False,
            limits_memory=True,
        )


async def test_a_pod_is_bound_with_its_annotations_and_without_config_maps() -> None:
    async with World(plugins=PLUGINS) as world:
        await world.share(
            "p", ["g"], request={"portion": "0.50"}, annotations={f"{KEY}main.gpu-compute.mode": "sm-sharing"}
        )
        api = await world.start_binder()
        found = (await world.now(POD, "p"))["metadata"]["annotations"]
        assert (found[REQUEST], found[DEVICES]) == ("7680Mi", "GPU-n1-0")
        assert (await world.status("p"))["phase"] == "Succeeded"
        assert "create configmaps" not in api.writes
        (reservation,) = await world.reservations()
        assert reservation["metadata"]["annotations"][f"{KEY}resource-reservation.gpu-compute.mode"] == "sm-sharing"


async def test_the_new_list_of_groups_goes_before_the_deprecated_one() -> None:
    groups = [{"id": "g", "computeSharingMode": "sm-sharing"}]
    async with World(plugins=PLUGINS) as world:
        await world.share("p", [], request={"portion": "0.50", "selectedFractionalGpuGroups": groups})
        await world.start_binder()
        assert (await world.now(POD, "p"))["metadata"]["labels"][names.GPU_GROUP_LABEL] == "g"
        (reservation,) = await world.reservations()
        assert reservation["metadata"]["annotations"][f"{KEY}resource-reservation.gpu-compute.mode"] == "sm-sharing"


@pytest.mark.parametrize(
    ("spec", "groups", "mode"),
    [
        (BindRequestSpec(), [], "time-slicing"),
        (BindRequestSpec(selected_gpu_groups=["a", "b"]), ["a", "b"], "time-slicing"),
        (
            decode(b'{"selectedGPUGroups": ["old"], "selectedFractionalGpuGroups": [{"id": "a"}]}', BindRequestSpec),
            ["a"],
            "time-slicing",
        ),
        (
            decode(
                b'{"selectedFractionalGpuGroups": [{"id": "a", "computeSharingMode": "sm-sharing"}]}', BindRequestSpec
            ),
            ["a"],
            "sm-sharing",
        ),
    ],
)
def test_groups_of_a_bind_request(spec: BindRequestSpec, groups: list[str], mode: str) -> None:
    assert (spec.gpu_groups, spec.compute_mode) == (groups, mode)


async def test_no_share_is_bound_where_no_plugin_delivers_it() -> None:
    async with World(plugins='{"gpusharing": {"enabled": false}}') as world:
        await world.share("p", ["g"])
        await world.start_binder()
        status = await world.status("p")
        assert status["phase"] == "Failed"
        assert status["reason"].startswith("GPU sharing is disabled: no binder plugin is on")
        assert not (await world.now(POD, "p"))["spec"].get("nodeName")
        assert (await world.now(BIND_REQUEST, "p"))["spec"]["selectedNode"] == "n1"
