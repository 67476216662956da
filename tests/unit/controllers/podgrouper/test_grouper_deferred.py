"""A pod with a group of its own: the bind writes the group's name into it, and the grouper only if no bind comes."""

from __future__ import annotations

import asyncio

import pytest

from pykai.controllers.podgrouper.grouper import PodGrouperSettings, run
from pykai.kube.api import Patch
from pykai.kube.api_resources import POD
from pykai.kube.errors import Unavailable
from pykai.kube.operations import bind
from pykai.objects import names
from tests.unit.controllers.live import (
    DiaryApi,
    eventually,
    group_name,
    groups,
    make_job,
    make_pod,
    owned_by,
    running,
)

A_WHILE = 3.0


async def own_group(api: DiaryApi) -> str:
    """The name of the one PodGroup, once it is there."""
    (made,) = await eventually(lambda: groups(api))
    return str(made["metadata"]["name"])


async def annotate(api: DiaryApi, group: str) -> None:
    note = {"metadata": {"annotations": {names.POD_GROUP_ANNOTATION: group}}}
    await api.patch(POD.ref("p", "default"), Patch.merge(note))


@pytest.mark.virtual_time
async def test_a_bind_that_names_the_group_leaves_nothing_to_write(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        group = await own_group(api)
        await bind(api, POD.ref("p", "default"), "n1", annotations={names.POD_GROUP_ANNOTATION: group})
        await asyncio.sleep(A_WHILE)
        assert (await group_name(api), api.count("patch", "Pod"), api.count("patch", "PodGroup")) == (group, 0, 0)


@pytest.mark.virtual_time
async def test_a_bind_that_does_not_is_made_up_for(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        group = await own_group(api)
        await bind(api, POD.ref("p", "default"), "n1")
        await asyncio.sleep(A_WHILE)
        assert (await group_name(api), api.count("patch", "Pod")) == (group, 1)


@pytest.mark.virtual_time
async def test_a_pod_that_waits_longer_is_told_within_a_second(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        group = await own_group(api)
        assert await group_name(api) is None
        await asyncio.sleep(1.0)
        assert (await group_name(api), api.count("patch", "Pod")) == (group, 1)


@pytest.mark.virtual_time
async def test_a_pod_whose_user_chooses_a_group_meanwhile_stays_there(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        await own_group(api)
        await annotate(api, "chosen")
        await asyncio.sleep(A_WHILE)
        assert (await group_name(api), api.count("patch", "Pod")) == ("chosen", 1)


@pytest.mark.virtual_time
async def test_a_write_that_fails_is_tried_again(api: DiaryApi) -> None:
    api.refusals["patch", "Pod"] = [Unavailable("not now")]
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        group = await own_group(api)
        await asyncio.sleep(A_WHILE)
        assert (await group_name(api), api.count("patch", "Pod")) == (group, 2)


@pytest.mark.virtual_time
async def test_a_grouper_that_starts_anew_finishes_what_was_left(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        group = await own_group(api)
    assert await group_name(api) is None
    async with running(api, run, PodGrouperSettings()):
        await asyncio.sleep(A_WHILE)
        assert (await group_name(api), await own_group(api)) == (group, group)


@pytest.mark.virtual_time
async def test_pods_of_a_workload_are_told_at_once(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", ownerReferences=owned_by(job))
        await asyncio.sleep(0.1)
        assert await group_name(api) == await own_group(api)
