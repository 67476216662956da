"""The PodGroup controller on a server in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.controllers.pod_group_status import PodGroupStatusSettings, min_pods, progress, run
from pykai.controllers.ttl_cache import MUTATION_SECONDS
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import NODE, POD, POD_GROUP, PRIORITY_CLASS, RESOURCE_CLAIM
from pykai.kube.errors import Unavailable
from pykai.objects import kinds, names
from pykai.objects.custom_resources import SubGroup
from tests.unit.controllers.live import DiaryApi, eventually, make_pod, running

QUICK = PodGroupStatusSettings(gather_seconds=0.02)


async def make_group(api: DiaryApi, name: str = "g", **spec: Any) -> None:
    metadata = {"name": name, "namespace": "default"}
    await api.create(POD_GROUP, {"metadata": metadata, "spec": {"queue": "q", "minMember": 1, **spec}})


async def make_member(api: DiaryApi, name: str, **parts: Any) -> None:
    annotations = {names.POD_GROUP_ANNOTATION: "g", **parts.pop("annotations", {})}
    await make_pod(api, name, annotations=annotations, **parts)


async def set_status(api: DiaryApi, pod: str, **status: Any) -> None:
    await api.patch(POD.ref(pod, "default").sub("status"), Patch.merge({"status": status}))


async def resources(api: DiaryApi, name: str = "g") -> Object:
    group = await api.get(POD_GROUP.ref(name, "default"), Object)
    found: Object = (group.get("status") or {}).get("resourcesStatus") or {}
    return found


async def becomes(api: DiaryApi, expected: Object) -> None:
    async def same() -> bool:
        return await resources(api) == expected

    try:
        await eventually(same)
    except AssertionError:
        assert await resources(api) == expected


@pytest.mark.virtual_time
async def test_a_pod_that_starts_quickly_costs_one_write(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_group(api, priorityClassName="build")
        await make_member(api, "p", requests={"cpu": "500m", "nvidia.com/gpu": "1"})
        await set_status(api, "p", phase="Running")
        whole = {"cpu": "500m", "nvidia.com/gpu": "1"}
        await becomes(api, {"requested": whole, "allocated": whole, "allocatedNonPreemptible": whole})
        await asyncio.sleep(0.1)
        assert api.count("patch", "PodGroup/status") == 1


@pytest.mark.virtual_time
async def test_of_a_semi_preemptible_group_the_core_cannot_be_evicted(api: DiaryApi) -> None:
    async def core(*pods: str) -> None:
        body = {"status": {"schedulingState": {"corePods": list(pods)}}}
        await api.patch(POD_GROUP.ref("g", "default").sub("status"), Patch.merge(body))

    async with running(api, run, QUICK):
        await make_group(api, preemptibility="semi-preemptible", priorityClassName="train")
        for name, cpu in (("a", "1"), ("b", "2"), ("c", "4")):
            await make_member(api, name, requests={"cpu": cpu})
            await set_status(api, name, phase="Running")
        everything = {"requested": {"cpu": "7"}, "allocated": {"cpu": "7"}}
        await becomes(api, everything)
        await core("a", "b")
        await becomes(api, {**everything, "allocatedNonPreemptible": {"cpu": "3"}})
        await core("c", "gone")
        await becomes(api, {**everything, "allocatedNonPreemptible": {"cpu": "4"}})


@pytest.mark.virtual_time
async def test_sums_follow_pods_as_they_come_change_and_go(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_group(api, priorityClassName="train")
        for name in ("a", "b"):
            await make_member(api, name)
        await becomes(api, {"requested": {"cpu": "2"}})
        scheduled = [{"type": "PodScheduled", "status": "True"}]
        await set_status(api, "a", conditions=scheduled)
        await becomes(api, {"requested": {"cpu": "2"}, "allocated": {"cpu": "1"}})
        await set_status(api, "a", phase="Succeeded")
        await becomes(api, {"requested": {"cpu": "1"}})
        await api.delete(POD.ref("b", "default"))
        await becomes(api, {})


@pytest.mark.virtual_time
async def test_pods_of_others_do_not_count(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_group(api)
        await make_member(api, "other", spec={"schedulerName": "default-scheduler"})
        await make_member(api, "ours", requests={"cpu": "3"})
        await becomes(api, {"requested": {"cpu": "3"}})


@pytest.mark.virtual_time
async def test_nothing_changes_means_nothing_is_written(api: DiaryApi) -> None:
    await make_group(api)
    await make_member(api, "p")
    async with running(api, run, QUICK):
        await becomes(api, {"requested": {"cpu": "1"}})
    api.writes.clear()
    async with running(api, run, QUICK):
        await set_status(api, "p", message="not about resources")
        await asyncio.sleep(0.15)
        assert api.count("patch", "PodGroup/status") == 0


@pytest.mark.virtual_time
async def test_a_class_that_comes_later_decides_what_may_be_preempted(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_group(api, priorityClassName="late")
        await make_member(api, "p")
        await set_status(api, "p", phase="Running")
        await becomes(api, {"requested": {"cpu": "1"}, "allocated": {"cpu": "1"}})
        await api.create(PRIORITY_CLASS, {"metadata": {"name": "late"}, "value": 200})
        one = {"cpu": "1"}
        await becomes(api, {"requested": one, "allocated": one, "allocatedNonPreemptible": one})
        await api.patch(POD_GROUP.ref("g", "default"), Patch.merge({"spec": {"preemptibility": "preemptible"}}))
        await becomes(api, {"requested": one, "allocated": one})


@pytest.mark.virtual_time
async def test_a_class_that_ceases_to_be_the_default_decides_no_more(api: DiaryApi) -> None:
    await api.create(PRIORITY_CLASS, {"metadata": {"name": "usual"}, "value": 200, "globalDefault": True})
    one = {"cpu": "1"}
    async with running(api, run, QUICK):
        await make_group(api)
        await make_member(api, "p")
        await set_status(api, "p", phase="Running")
        await becomes(api, {"requested": one, "allocated": one, "allocatedNonPreemptible": one})
        await api.patch(PRIORITY_CLASS.ref("usual"), Patch.merge({"globalDefault": False}))
        await becomes(api, {"requested": one, "allocated": one})


@pytest.mark.virtual_time
async def test_shares_of_memory_are_told_by_the_node(api: DiaryApi) -> None:
    await api.create(NODE, {"metadata": {"name": "n", "labels": {names.GPU_MEMORY_LABEL: "8000"}}})
    async with running(api, run, QUICK):
        await make_group(api)
        marks = {names.GPU_MEMORY: "2000", names.RECEIVED_RESOURCE_TYPE: "Fraction"}
        await make_member(api, "p", annotations=marks, requests={}, spec={"nodeName": "n"})
        await set_status(api, "p", phase="Running")
        await becomes(api, {"requested": {names.GPU_MEMORY_RESOURCE: "2k"}, "allocated": {names.NVIDIA_GPU: "250m"}})


@pytest.mark.virtual_time
async def test_a_claim_that_is_missing_is_waited_for(api: DiaryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.controllers.pod_group_status.FIRST_SECONDS", 0.05)
    async with running(api, run, QUICK):
        await make_group(api)
        claims = [{"name": "gpu", "resourceClaimName": "c"}]
        await make_member(api, "p", requests={}, spec={"resourceClaims": claims})
        await asyncio.sleep(0.1)
        assert await resources(api) == {}
        request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
        body = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
        await api.create(RESOURCE_CLAIM, body)
        await becomes(api, {"requested": {"gpu.nvidia.com": "2"}})


@pytest.mark.virtual_time
async def test_a_failed_write_is_tried_again(api: DiaryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.controllers.pod_group_status.FIRST_SECONDS", 0.01)
    api.refusals["patch", "PodGroup/status"] = [Unavailable("restarting")]
    async with running(api, run, QUICK):
        await make_group(api)
        await make_member(api, "p")
        await becomes(api, {"requested": {"cpu": "1"}})
        assert api.count("patch", "PodGroup/status") == 2


@pytest.mark.virtual_time
async def test_a_status_written_while_the_watch_lags_is_completed(api: DiaryApi) -> None:
    """The watch still shows that a pod runs which did not run in between: what seems unchanged is not written."""
    async with running(api, run, QUICK):
        await make_group(api)
        await make_member(api, "p")
        await set_status(api, "p", phase="Running")
        await becomes(api, {"requested": {"cpu": "1"}, "allocated": {"cpu": "1"}})
        api.stalled["PodGroup"] = resumed = asyncio.Event()
        await set_status(api, "p", phase="Pending")
        await becomes(api, {"requested": {"cpu": "1"}})
        await asyncio.sleep(MUTATION_SECONDS + 1)
        await set_status(api, "p", phase="Running")
        await make_member(api, "q")
        await becomes(api, {"requested": {"cpu": "2"}, "allocated": {"cpu": "1"}})
        resumed.set()


def _pods(*phases: str) -> list[kinds.Pod]:
    return [kinds.Pod(metadata=kinds.ObjectMeta(name="p"), status=kinds.PodStatus(phase=phase)) for phase in phases]


@pytest.mark.parametrize(
    ("phases", "phase", "running"),
    [
        ((), "Pending", 0),
        (("Pending", "Pending"), "Pending", 0),
        (("Running", "Pending"), "Pending", 1),
        (("Running", "Running", "Pending"), "Running", 2),
        (("Running", "Succeeded"), "Running", 1),
        (("Running", "Failed"), "Pending", 1),
        (("Succeeded", "Succeeded"), "Succeeded", 0),
        (("Succeeded", "Failed"), "Failed", 0),
    ],
)
def test_the_phase_of_a_group_of_two(phases: tuple[str, ...], phase: str, running: int) -> None:
    group = kinds.PodGroup(metadata=kinds.ObjectMeta(name="g"), spec=kinds.PodGroupSpec(min_member=2))
    assert progress(group, _pods(*phases)) == {"phase": phase, "running": running, "minimum": 2}


def _part(name: str, least: int | None = None, parent: str | None = None, groups: int | None = None) -> SubGroup:
    return SubGroup(name=name, min_member=least, parent=parent, min_sub_group=groups)


@pytest.mark.parametrize(
    ("parts", "groups", "minimum"),
    [
        ([_part("a", 3), _part("b", 1), _part("c")], None, 5),
        ([_part("a", 3), _part("b", 1), _part("c", 2)], 2, 3),
        ([_part("a", groups=1), _part("b", 4, "a"), _part("c", 2, "a"), _part("d", 0)], None, 2),
        ([_part("a", parent="a")], None, 1),
    ],
    ids=["all", "some", "tree", "cycle"],
)
def test_the_minimum_of_a_group_with_sub_groups(parts: list[SubGroup], groups: int | None, minimum: int) -> None:
    assert min_pods(kinds.PodGroupSpec(sub_groups=parts, min_sub_group=groups)) == minimum


@pytest.mark.virtual_time
async def test_the_phase_is_shown(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_group(api)
        await make_member(api, "p")
        await set_status(api, "p", phase="Running")

        async def shown() -> bool:
            status = (await api.get(POD_GROUP.ref("g", "default"), Object)).get("status") or {}
            return (status.get("phase"), status.get("running"), status.get("minimum")) == ("Running", 1, 1)

        await eventually(shown)
