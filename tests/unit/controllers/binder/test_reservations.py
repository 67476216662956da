"""Shared devices: one reservation pod for each in use, none for any other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pykai.controllers.binder.device_index import GroupKey
from pykai.controllers.binder.reservations import ReservationTemplate, reservation_name
from pykai.kube.api import Object, Patch, Resource
from pykai.kube.api_resources import BIND_REQUEST, CONFIG_MAP, POD
from pykai.kube.errors import Unavailable
from pykai.objects import names

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time

RESERVED = names.RESERVATION_NAMESPACE


def labels(pod: Object) -> Object:
    return dict(pod["metadata"].get("labels") or {})


async def reservation(world: World, group: str, node: str = "n1") -> Object:
    return await world.now(POD, reservation_name(GroupKey(node, group)), RESERVED)


# ---------------------------------------------------------------------------------------------------- one share
async def test_a_share_gets_a_reservation_a_label_two_config_maps_and_its_node() -> None:
    async with World() as world:
        pod = await world.share("p", ["g"])
        api = await world.start_binder()
        await world.settle()
        bound = await world.now(POD, "p")
        assert bound["spec"]["nodeName"] == "n1"
        assert labels(bound) == {names.GPU_GROUP_LABEL: "g"}
        assert bound["metadata"]["annotations"][names.RECEIVED_RESOURCE_TYPE] == "Fraction"
        maps = [await world.now(CONFIG_MAP, f"p-abc-shared-gpu-0{suffix}") for suffix in ("", "-evar")]
        told = {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-0", "GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}
        assert [each.get("data") or {} for each in maps] == [told, {}]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
        assert [each["metadata"]["ownerReferences"] for each in maps] == [[owner], [owner]]
        assert Counter(api.writes) == {
            "create pods": 1,
            "patch pods": 1,
            "create configmaps": 2,
            "post pods/binding": 1,
            "patch bindrequests/status": 1,
            "create events": 1,
        }


async def test_a_share_by_memory_is_a_share_like_any_other() -> None:
    async with World() as world:
        pod = await world.pod("p", share={names.GPU_MEMORY: "2000"})
        await world.request(pod, groups=["g"], portion="0.13")
        await world.share("q", ["g"])
        await world.start_binder()
        data = (await world.now(CONFIG_MAP, "p-abc-shared-gpu-0"))["data"]
        assert (data["GPU_PORTION"], data["NVIDIA_VISIBLE_DEVICES"]) == ("0.13", "GPU-n1-0")
        await world.remove("q")
        await world.settle()
        assert len(await world.reservations()) == 1


async def test_the_reservation_pod_is_what_a_kubelet_needs() -> None:
    limits = {"requests": {"cpu": "1m"}, "limits": {"memory": "64Mi", "nvidia.com/gpu": "8"}}
    template = ReservationTemplate(
        image="reserve:1",
        resources=limits,
        pod_security={"runAsNonRoot": True},
        container_security={"allowPrivilegeEscalation": False},
    )
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    async with World(template=template) as world:
        await world.share("p", ["g"], spec={"tolerations": [toleration]})
        await world.start_binder()
        made = await reservation(world, "g")
        assert labels(made) == {"app": "kai-resource-reservation", "runai-gpu-group": "g"}
        assert made["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        spec = made["spec"]
        assert (spec["nodeName"], spec["runtimeClassName"], spec["tolerations"]) == ("n1", "nvidia", [toleration])
        assert (spec["serviceAccountName"], spec["securityContext"]) == (
            "kai-resource-reservation",
            {"runAsNonRoot": True},
        )
        (container,) = spec["containers"]
        assert container["resources"] == {
            "requests": {"cpu": "1m", "memory": "64Mi", "nvidia.com/gpu": "1"},  # the server copies limits
            "limits": {"memory": "64Mi", "nvidia.com/gpu": "1"},
        }
        assert (container["image"], container["imagePullPolicy"]) == ("reserve:1", "IfNotPresent")
        assert container["securityContext"] == {"allowPrivilegeEscalation": False}
        paths = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"]}
        assert paths == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


@pytest.mark.parametrize(
    ("template", "runtime_class", "image"),
    [
        (ReservationTemplate(runtime_class="", image="i"), None, "i"),
        (ReservationTemplate(runtime_class="crun", image="i"), "crun", "i"),
        (ReservationTemplate(fake_gpus=True, image="i"), "nvidia", "ubuntu"),
    ],
)
async def test_runtime_class_and_image(template: ReservationTemplate, runtime_class: str | None, image: str) -> None:
    async with World(template=template) as world:
        await world.share("p", ["g"])
        await world.start_binder()
        spec = (await reservation(world, "g"))["spec"]
        assert (spec.get("runtimeClassName"), spec["containers"][0]["image"]) == (runtime_class, image)


async def test_pods_of_two_namespaces_share_a_device() -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.share("q", ["g"], namespace="other")
        await world.start_binder()
        assert len(await world.reservations()) == 1
        assert await world.told_devices("p") == await world.told_devices("q", "other") == "GPU-n1-0"


async def test_several_devices_have_a_label_each_and_are_told_in_order() -> None:
    async with World() as world:
        await world.share("p", ["g2", "g1", "g3"])
        await world.start_binder()
        bound = await world.now(POD, "p")
        assert labels(bound) == {f"runai-gpu-group/g{n}": f"g{n}" for n in (1, 2, 3)}
        held = {name: (await reservation(world, name))["metadata"]["annotations"] for name in ("g1", "g2", "g3")}
        expected = [held[group][names.RESERVED_GPU_INDEX] for group in ("g2", "g1", "g3")]
        assert await world.told_devices("p") == ",".join(expected)
        await world.remove("p")
        await world.settle()
        assert await world.reservations() == []


async def test_sixteen_halves_land_two_by_two_and_leave_nothing() -> None:
    async with World() as world:
        await world.start_binder()
        for number in range(16):
            await world.share(f"p{number}", [f"g{number // 2}"])
        await world.settle()
        told = [await world.told_devices(f"p{number}") for number in range(16)]
        assert sorted(Counter(told).values()) == [2] * 8
        assert sorted(set(told)) == sorted(world.devices["n1"])
        assert len(await world.reservations()) == 8
        for number in range(16):
            await world.remove(f"p{number}")
        await world.settle()
        assert await world.reservations() == []
        assert (await world.picture())["maps"] == []


@pytest.mark.parametrize("late", [BIND_REQUEST, POD], ids=["requests", "pods"])
async def test_a_reservation_outlives_a_watch_that_lags(late: Resource) -> None:
    async with World() as world:
        api = await world.start_binder()

        def fall_behind(write: str) -> None:
            if write == "post pods/binding":
                api.late.add(late)

        api.refuse = fall_behind
        await world.share("p", ["g"])
        await world.settle(500)
        api.late.clear()
        await world.settle(500)
        assert "delete pods" not in api.writes
        assert len(await world.reservations()) == 1


async def test_a_reservation_is_made_once_while_the_watch_does_not_show_it() -> None:
    async with World() as world:
        api = await world.start_binder()
        api.refuse = lambda write: api.late.add(POD) if write == "create pods" else None
        for name in ("p", "q", "r"):
            await world.share(name, ["g"])
            await world.settle(0.5)
        assert api.writes == ["create pods"]
        api.late.clear()
        await world.settle()
        assert {(await world.status(name))["phase"] for name in ("p", "q", "r")} == {"Succeeded"}


async def test_waiting_for_devices_keeps_no_worker() -> None:
    async with World(workers=2) as world:
        world.kubelets.reserves = False
        await world.start_binder()
        for number in range(4):
            await world.share(f"p{number}", [f"g{number}"])
        await world.request(await world.pod("whole"))
        await world.settle()
        assert (await world.status("whole"))["phase"] == "Succeeded"


# -------------------------------------------------------------------------------------------- the end of sharing
async def finishes(world: World, name: str) -> None:
    done = Patch.merge({"status": {"phase": "Succeeded"}})
    await world.api.patch(POD.ref(name, TEAM).sub("status"), done)


async def is_deleted(world: World, name: str) -> None:
    await world.remove(name)


@pytest.mark.parametrize("end", [finishes, is_deleted])
async def test_the_reservation_goes_with_the_last_sharer(end: Any) -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.share("q", ["g"])
        await world.start_binder()
        await end(world, "p")
        await world.settle()
        assert len(await world.reservations()) == 1
        await end(world, "q")
        await world.settle()
        assert await world.reservations() == []


async def test_a_pod_deleted_while_it_waits_leaves_nothing() -> None:
    async with World() as world:
        world.kubelets.reserves = False
        await world.share("p", ["g"])
        await world.start_binder()
        assert len(await world.reservations()) == 1
        await world.remove("p")
        await world.settle()
        assert await world.reservations() == []


async def test_a_pod_deleted_right_after_its_request_while_its_bind_failed_leaves_nothing() -> None:
    def refuse(write: str) -> None:
        if write == "post pods/binding":
            raise Unavailable("not now")

    async with World() as world:
        await world.share("a", ["g"])
        world.kubelets.reserves = False
        api = await world.start_binder()
        api.refuse = refuse
        await world.kubelets.resume()
        await world.settle()
        assert len(await world.reservations()) == 1
        await world.api.delete(BIND_REQUEST.ref("a", TEAM))
        await world.settle()
        await world.remove("a")
        await world.settle(5)
        assert not await world.reservations()


async def test_leftovers_of_another_life_are_cleaned_at_start() -> None:
    async with World() as world:
        body = {
            "metadata": {"name": "gpu-reservation-old", "labels": {names.GPU_GROUP_LABEL: "old"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        }
        await world.api.create(POD, body, RESERVED)
        await world.pod("p", labels={names.GPU_GROUP_LABEL: "old", "keep": "me"})
        await world.pod("multi", labels={"runai-gpu-group/old": "old"})
        await world.pod("foreign", labels={names.GPU_GROUP_LABEL: "old"}, spec={"schedulerName": "other"})
        await world.start_binder()
        await world.settle()
        assert await world.reservations() == []
        assert [labels(await world.now(POD, name)) for name in ("p", "multi", "foreign")] == [
            {"keep": "me"},
            {},
            {names.GPU_GROUP_LABEL: "old"},
        ]


async def test_a_reservation_under_another_name_is_honoured() -> None:
    async with World() as world:
        body = {
            "metadata": {"name": "gpu-reservation-n1-x7k2p", "labels": {names.GPU_GROUP_LABEL: "g"}},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "c", "image": "i", "resources": {"limits": {names.NVIDIA_GPU: "1"}}}],
            },
        }
        await world.api.create(POD, body, RESERVED)
        await world.share("p", ["g"])
        await world.start_binder()
        assert [each["metadata"]["name"] for each in await world.reservations()] == ["gpu-reservation-n1-x7k2p"]
        assert await world.told_devices("p") == "GPU-n1-0"


async def test_the_same_group_on_another_node_is_another_device() -> None:
    async with World({"n1": 1, "n2": 1}) as world:
        await world.share("p", ["g"], node="n1")
        await world.share("q", ["g"], node="n2")
        await world.start_binder()
        assert [await world.told_devices(name) for name in ("p", "q")] == ["GPU-n1-0", "GPU-n2-0"]
        await world.remove("p")
        await world.settle()
        assert [each["spec"]["nodeName"] for each in await world.reservations()] == ["n2"]


async def test_a_reservation_stays_when_a_user_removes_the_annotation_of_a_share() -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.start_binder()
        await world.told_devices("p")
        for request in (await world.api.list(BIND_REQUEST, Object)).items:
            await world.api.delete(BIND_REQUEST.ref(request["metadata"]["name"], request["metadata"]["namespace"]))
        note = {"metadata": {"annotations": {names.RECEIVED_RESOURCE_TYPE: None}}}
        await world.api.patch(POD.ref("p", TEAM), Patch.merge(note))
        await world.settle()
        assert len(await world.reservations()) == 1
        await world.remove("p")
        await world.settle(1)
        assert await world.reservations() == []


@pytest.mark.parametrize(
    ("scheduler", "received"),
    [("default-scheduler", "Fraction"), (names.SCHEDULER_NAME, ""), ("default-scheduler", "")],
)
async def test_a_forged_label_keeps_no_reservation(scheduler: str, received: str) -> None:
    async with World() as world:
        await world.share("p", ["g"])
        await world.start_binder()
        await world.pod(
            "forged",
            labels={names.GPU_GROUP_LABEL: "g"},
            annotations={names.GPU_FRACTION: "0.5", names.RECEIVED_RESOURCE_TYPE: received},
            spec={"schedulerName": scheduler, "nodeName": "n1"},
        )
        await world.settle()
        assert len(await world.reservations()) == 1
        await world.remove("p")
        await world.settle(1)
        assert await world.reservations() == []
        assert (await world.now(POD, "forged"))["spec"]["nodeName"] == "n1", "it is not ours to delete"
