"""Groups after something left: a deleted group is written again, a deleted pod does not leave its shape behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.controllers.podgrouper.grouper import PodGrouperSettings, run
from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import POD, POD_GROUP
from pykai.kube.errors import NotFound
from pykai.objects import names
from tests.unit.controllers.live import (
    DiaryApi,
    eventually,
    groups,
    make_job,
    make_pod,
    owned_by,
    running,
)

AT_ONCE = Deletion(grace_seconds=0)


async def priority(api: DiaryApi) -> str:
    (group,) = await groups(api)
    return str(group["spec"]["priorityClassName"])


async def in_a_while() -> None:
    await asyncio.sleep(5)


def prioritised(job: Object, name: str) -> dict[str, Any]:
    return {"ownerReferences": owned_by(job), "labels": {names.PRIORITY_CLASS_LABEL: name}}


@pytest.mark.virtual_time
async def test_a_deleted_group_is_written_again_while_its_pods_exist(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "2"})
    async with running(api, run, PodGrouperSettings()):
        for name in ("p", "q"):
            await make_pod(api, name, ownerReferences=owned_by(job))
        await make_pod(api, "alone")
        await in_a_while()
        before = {group["metadata"]["name"]: group["spec"] for group in await groups(api)}
        assert len(before) == 2
        for name in before:
            await api.delete(POD_GROUP.ref(name, "default"))
        await in_a_while()
        assert {group["metadata"]["name"]: group["spec"] for group in await groups(api)} == before


@pytest.mark.virtual_time
async def test_no_group_is_written_for_pods_that_go_with_it(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", ownerReferences=owned_by(job), finalizers=["example.com/slow"])
        await in_a_while()
        (group,) = await groups(api)
        await api.delete(POD.ref("p", "default"), AT_ONCE)
        await api.delete(POD_GROUP.ref(group["metadata"]["name"], "default"))
        await in_a_while()
        assert await groups(api) == []
        await api.patch(POD.ref("p", "default"), Patch.merge({"metadata": {"finalizers": None}}))
        await in_a_while()
        assert await groups(api) == []


@pytest.mark.virtual_time
async def test_a_group_loses_the_shape_of_a_pod_that_has_left(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "old", **prioritised(job, "train"))
        await asyncio.sleep(2)
        await make_pod(api, "new", **prioritised(job, "build"))
        await in_a_while()
        assert await priority(api) == "build"
        await api.delete(POD.ref("new", "default"), AT_ONCE)
        await in_a_while()
        assert await priority(api) == "train"


@pytest.mark.virtual_time
async def test_events_of_an_older_pod_do_not_change_the_shape_and_neither_does_a_restart(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "z-old", **prioritised(job, "train"))
        await asyncio.sleep(2)
        await make_pod(api, "a-new", **prioritised(job, "build"))
        await in_a_while()
        status = {"status": {"phase": "Running"}}
        await api.patch(POD.ref("z-old", "default").sub("status"), Patch.merge(status))
        await in_a_while()
        assert await priority(api) == "build"
        before = await groups(api)
    api.writes.clear()
    async with running(api, run, PodGrouperSettings()):
        await in_a_while()
    assert await groups(api) == before
    assert api.count("patch", "PodGroup") == 0


@pytest.mark.virtual_time
async def test_a_pod_that_returns_under_its_name_is_a_new_member(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", **prioritised(job, "build"))
        await asyncio.sleep(2)
        await make_pod(api, "q", **prioritised(job, "train"))
        await in_a_while()
        await api.delete(POD.ref("p", "default"), AT_ONCE)

        async def gone() -> bool:
            try:
                await api.get(POD.ref("p", "default"), Object)
            except NotFound:
                return True
            return False

        await eventually(gone)
        await make_pod(api, "p", **prioritised(job, "inference"))
        await in_a_while()
        assert await priority(api) == "inference"


@pytest.mark.virtual_time
async def test_an_edited_group_gets_its_shape_back(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "2"})
    async with running(api, run, PodGrouperSettings()):
        for name in ("p", "q"):
            await make_pod(api, name, ownerReferences=owned_by(job))
        await in_a_while()
        (group,) = await groups(api)
        edit = {"minMember": 7, "queue": "another"}
        await api.patch(POD_GROUP.ref(group["metadata"]["name"], "default"), Patch.merge({"spec": edit}))
        await in_a_while()
        (group,) = await groups(api)
        assert group["spec"]["minMember"] == 2
        assert group["spec"]["queue"] == "another", "the queue is the user's to choose"
