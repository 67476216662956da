"""Writes of the pod grouper that succeed late: what they were about may have gone or changed since."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from pykai.controllers.podgrouper.assignments import GroupWriter
from pykai.controllers.podgrouper.grouper import PodGrouperSettings, run
from pykai.controllers.podgrouper.rules.workload import GroupingSettings, GroupSpec
from pykai.kube.api import Deletion, Object, Patch, Ref, Resource, WatchEvent
from pykai.kube.api_resources import POD, POD_GROUP
from pykai.kube.errors import Gone, Unavailable
from pykai.kube.informer import InformerFactory
from pykai.objects import kinds, names
from pykai.simulate import loop
from tests.unit.controllers.live import (
    DiaryApi,
    group_name,
    groups,
    make_job,
    make_pod,
    make_priority_classes,
    owned_by,
    running,
)

POD_P = POD.ref("p", "default")
A_WHILE = 30.0


class CompactedApi(DiaryApi):
    """Its watch of PodGroups shows none while `hidden`, and is compacted after so many seconds."""

    hidden = False
    compacted_after = A_WHILE / 2

    async def watch(self, resource: Resource, *rest: Any, **more: Any) -> AsyncGenerator[WatchEvent[Any], None]:
        async with aclosing(super().watch(resource, *rest, **more)) as events:
            async for event in events:
                if self.hidden and resource == POD_GROUP:
                    await asyncio.sleep(self.compacted_after)
                    raise Gone("too old resource version")
                yield event


def test_a_group_that_is_deleted_before_the_watch_shows_it_is_written_again() -> None:
    async def story() -> None:
        api = CompactedApi()
        await make_priority_classes(api)
        async with running(api, run, PodGrouperSettings()):
            api.hidden = True
            await make_pod(api, "p")
            await asyncio.sleep(1.0)
            name = (await groups(api))[0]["metadata"]["name"]
            await api.delete(POD_GROUP.ref(name, "default"))
            await asyncio.sleep(A_WHILE)
            assert [group["metadata"]["name"] for group in await groups(api)] == [name]

    loop.run(story())


def test_a_group_that_is_edited_before_the_watch_shows_it_gets_its_shape_back() -> None:
    async def story() -> None:
        api = CompactedApi()
        await make_priority_classes(api)
        async with running(api, run, PodGrouperSettings()):
            api.hidden, api.compacted_after = True, 3.0
            await make_pod(api, "p", ownerReferences=owned_by(await make_job(api, "j")))
            await asyncio.sleep(1.0)
            name = (await groups(api))[0]["metadata"]["name"]
            await api.patch(POD_GROUP.ref(name, "default"), Patch.merge({"spec": {"minMember": 7}}))
            await asyncio.sleep(A_WHILE)
            assert [group["spec"]["minMember"] for group in await groups(api)] == [1]

    loop.run(story())


@pytest.mark.virtual_time
async def test_a_pod_that_comes_back_without_its_owner_is_not_put_in_the_old_group(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        api.refusals["patch", "Pod"] = [Unavailable("restarting")]
        await make_pod(api, "p", ownerReferences=owned_by(job))
        await asyncio.sleep(0.3)
        await api.delete(POD_P, Deletion(grace_seconds=0))
        pod = await make_pod(api, "p")
        await asyncio.sleep(A_WHILE)
        assert await group_name(api) == f"pg-p-{pod['metadata']['uid']}"


@pytest.mark.virtual_time
async def test_a_pod_that_got_another_owner_meanwhile_stays_in_the_new_group(api: DiaryApi) -> None:
    one, two = await make_job(api, "one"), await make_job(api, "two")
    async with running(api, run, PodGrouperSettings()):
        api.refusals["patch", "Pod"] = [Unavailable("restarting")]
        await make_pod(api, "p", ownerReferences=owned_by(one))
        await asyncio.sleep(0.3)
        await api.patch(POD_P, Patch.merge({"metadata": {"ownerReferences": owned_by(two)}}))
        await asyncio.sleep(A_WHILE)
        assert await group_name(api) == f"pg-two-{two['metadata']['uid']}"


@pytest.mark.virtual_time
async def test_a_pod_of_its_own_that_got_an_owner_is_not_put_back_into_its_own_group(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        await asyncio.sleep(0.3)
        api.refusals["create", "PodGroup"] = [Unavailable("restarting")]
        await api.patch(POD_P, Patch.merge({"metadata": {"ownerReferences": owned_by(job)}}))
        await asyncio.sleep(A_WHILE)
        assert await group_name(api) == f"pg-j-{job['metadata']['uid']}"
        assert api.count("patch", "Pod") == 2, "the owner, and the group"


@pytest.mark.virtual_time
async def test_no_group_is_made_for_pods_that_have_gone(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        api.refusals["create", "PodGroup"] = [Unavailable("restarting")]
        await make_pod(api, "p", ownerReferences=owned_by(job))
        await asyncio.sleep(0.3)
        await api.delete(POD_P, Deletion(grace_seconds=0))
        await asyncio.sleep(A_WHILE)
        assert await groups(api) == []


@pytest.mark.virtual_time
async def test_what_others_undid_is_written_again_however_soon(api: DiaryApi) -> None:
    writer = GroupWriter(api, InformerFactory(api).of(POD_GROUP, kinds.PodGroup), GroupingSettings())
    spec = GroupSpec("g", "default", {}, "", "")
    await make_pod(api, "p")
    before = await api.get(POD_P, kinds.Pod)
    await writer.assign(before, spec)
    await writer.assign(before, spec)
    assert api.count("patch", "Pod") == 1, "the watch is a moment behind"
    await api.patch(POD_P, Patch.merge({"metadata": {"annotations": {names.POD_GROUP_ANNOTATION: None}}}))
    await writer.assign(await api.get(POD_P, kinds.Pod), spec)
    assert await group_name(api) == "g"


class HeldApi(DiaryApi):
    """The answer to the first patch of a pod comes when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        written = await super().patch(ref, patch)
        if self.count("patch", "Pod") == 1:
            await self.let_go.wait()
        return written


@pytest.mark.virtual_time
async def test_a_write_that_another_followed_is_seen_as_news_when_it_shows() -> None:
    api = HeldApi()
    writer = GroupWriter(api, InformerFactory(api).of(POD_GROUP, kinds.PodGroup), GroupingSettings())
    await make_pod(api, "p")
    before = await api.get(POD_P, kinds.Pod)
    first = asyncio.create_task(writer.assign(before, GroupSpec("one", "default", {}, "", "")))
    await asyncio.sleep(0.1)
    shown = await api.get(POD_P, kinds.Pod)
    await writer.assign(before, GroupSpec("two", "default", {}, "", ""))
    api.let_go.set()
    await first
    assert not writer.is_echo(before, shown)
