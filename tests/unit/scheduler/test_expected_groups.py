"""Scheduler and pod grouper in one process: pods are decided before their groups are written, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.kube.api import Body, Object, Resource
from pykai.kube.api_resources import JOB, NODE, POD, POD_GROUP
from pykai.kube.errors import ApiError, Forbidden, Unavailable
from pykai.objects.kinds import ObjectMeta, PodGroup
from pykai.scheduler import group_membership
from pykai.scheduler.group_membership import ExpectedGroups

from .rig import RecordingApi, Rig, furnish, node, pod, rig

pytestmark = pytest.mark.virtual_time

LABELS = {"kai.scheduler/queue": "test"}


# ----------------------------------------------------------------------------------------------------- what is expected
class Listener:
    def __init__(self, told: ExpectedGroups, shown: set[tuple[str, str]] | None = None) -> None:
        self.said: list[tuple[str, Any]] = []
        self.shown = shown or set()
        told.listen(self.group, lambda key: self.said.append(("pod", key[1])), self.shown.__contains__)

    def group(self, group: PodGroup, gone: bool) -> None:
        self.said.append(("gone" if gone else "group", group.metadata.name))


def a_group(name: str) -> PodGroup:
    return PodGroup(metadata=ObjectMeta(name=name, namespace="team"))


A, B = ("team", "a"), ("team", "b")


def test_a_group_is_said_once_and_goes_with_its_last_pod() -> None:
    told = ExpectedGroups()
    heard = Listener(told)
    assert told.expect(A, "u-a", a_group("g"))
    assert told.expect(B, "u-b", a_group("g"))
    assert told.expect(B, "u-b", a_group("g"))
    assert heard.said == [("group", "g"), ("pod", "a"), ("pod", "b")]
    told.gone("u-a")
    assert heard.said[3:] == []
    told.withdraw("u-b")
    assert heard.said[3:] == [("gone", "g"), ("pod", "b")]
    assert told.group_of("u-b") == ""


def test_a_group_the_watch_shows_is_neither_said_nor_taken_away() -> None:
    told = ExpectedGroups()
    heard = Listener(told)
    told.expect(A, "u-a", a_group("g"))
    told.shown(("team", "g"))
    told.gone("u-a")
    assert ("gone", "g") not in heard.said
    heard.shown.add(("team", "h"))
    told.expect(B, "u-b", a_group("h"))
    assert ("group", "h") not in heard.said
    assert told.group_of("u-b") == "h"


def test_a_pod_that_names_its_group_keeps_it_until_the_group_is_written() -> None:
    told = ExpectedGroups()
    heard = Listener(told)
    told.expect(A, "u-a", a_group("g"))
    told.named("u-a")
    assert ("gone", "g") not in heard.said
    told.shown(("team", "g"))
    told.named("u-a")
    assert told.group_of("u-a") == ""


def test_a_pod_that_belongs_elsewhere_leaves_its_first_group() -> None:
    told = ExpectedGroups()
    heard = Listener(told)
    told.expect(A, "u-a", a_group("g"))
    told.expect(A, "u-a", a_group("h"))
    assert heard.said == [("group", "g"), ("pod", "a"), ("group", "h"), ("gone", "g"), ("pod", "a")]


def test_too_many_groups_ahead_of_their_writing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_membership, "MOST", 1)
    told = ExpectedGroups()
    assert told.expect(A, "u-a", a_group("g"))
    assert not told.expect(B, "u-b", a_group("h"))
    told.shown(("team", "g"))
    assert told.expect(B, "u-b", a_group("h"))


# ------------------------------------------------------------------------------------------------------------- together
class Slow(RecordingApi):
    """Creates no PodGroup before `now` is set, then raises what is queued for it, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.now = asyncio.Event()
        self.refusals: list[ApiError] = []

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        if resource == POD_GROUP:
            await self.now.wait()
            if self.refusals:
                raise self.refusals.pop(0)
        return await super().create(resource, body, namespace)


def bare(name: str, **metadata: Any) -> Object:
    made = pod(name)
    made["metadata"] = {"name": name, "namespace": "team", "labels": LABELS, **metadata}
    return made


async def bound(it: Rig, *names: str) -> bool:
    found = [await it.seen(POD, name) for name in names]
    return all(each and each["spec"].get("nodeName") for each in found)


async def groups(it: Rig) -> list[Object]:
    return list((await it.api.list(POD_GROUP, Object)).items)


async def test_a_pod_is_bound_before_its_group_is_written_and_names_it() -> None:
    api = Slow()
    async with rig(api, direct=True, grouped=True) as it:
        await furnish(it.api)
        made = await it.api.create(POD, bare("p"))
        await it.until(lambda: bound(it, "p"))
        assert await groups(it) == []
        api.now.set()
        await it.until(lambda: groups(it))
        await it.quiet()
        name = f"pg-p-{made['metadata']['uid']}"
        assert [each["metadata"]["name"] for each in await groups(it)] == [name]
        found = await it.seen(POD, "p")
        assert found is not None
        assert found["metadata"]["annotations"]["pod-group-name"] == name
        assert (it.api.count("create", "PodGroup"), it.api.count("patch", "PodGroup")) == (1, 0)
        assert it.api.count("patch", "Pod") == 0


async def test_what_a_pod_holds_counts_while_its_group_is_not_written() -> None:
    async with rig(Slow(), direct=True, grouped=True) as it:
        await furnish(it.api, nodes=2, gpus=1, limit=1)
        await it.api.create(POD, bare("a"))
        await it.until(lambda: bound(it, "a"))
        await it.api.create(POD, bare("b"))
        await it.quiet()
        assert not await bound(it, "b"), "the queue is at its limit"


async def test_a_restart_between_bind_and_group_makes_the_same_group() -> None:
    api = Slow()
    async with rig(api, direct=True, grouped=True) as it:
        await furnish(api)
        made = await api.create(POD, bare("p"))
        await it.until(lambda: bound(it, "p"))
    api.now.set()
    async with rig(api, direct=True, grouped=True) as it:
        [group] = await it.until(lambda: groups(it))
        assert group["metadata"]["name"] == f"pg-p-{made['metadata']['uid']}"
        assert "received-resource-type" not in group["metadata"]["annotations"]
        await it.quiet()
        assert api.count("patch", "PodGroup") == 0


@pytest.mark.parametrize("refusal", [Forbidden("no"), Unavailable("not now")])
async def test_a_group_that_is_refused_is_tried_again(refusal: ApiError) -> None:
    api = Slow()
    api.now.set()
    api.refusals = [refusal]
    async with rig(api, direct=True, grouped=True) as it:
        await furnish(api)
        await api.create(POD, bare("p"))
        await it.until(lambda: groups(it))
        await it.until(lambda: bound(it, "p"))


async def test_a_pod_that_goes_before_its_group_is_written_leaves_none() -> None:
    async with rig(Slow(), direct=True, grouped=True) as it:
        await furnish(it.api, gpus=0)
        await it.api.create(POD, bare("p"))
        await it.quiet()
        await it.api.delete(POD.ref("p", "team"))
        await it.quiet()
        await it.api.create(NODE, node("late"))
        await it.quiet()
        assert it.scheduler.last is not None
        assert len(it.scheduler.last.snapshot.gangs) == 0


async def test_a_pod_that_waits_is_told_why_once_its_group_is_there() -> None:
    api = Slow()
    async with rig(api, direct=True, grouped=True) as it:
        await furnish(it.api, gpus=0)
        await it.api.create(POD, bare("p"))
        await it.quiet()
        assert it.api.count("patch", "PodGroup") == 0
        api.now.set()

        async def told() -> bool:
            return any((each.get("status") or {}).get("schedulingConditions") for each in await groups(it))

        await it.until(told)


async def test_the_pods_of_a_gang_are_bound_without_a_write_to_each() -> None:
    api = Slow()
    async with rig(api, direct=True, grouped=True) as it:
        await furnish(it.api)
        notes = {"kai.scheduler/batch-min-member": "3"}
        job = await it.api.create(JOB, {"metadata": {"name": "j", "namespace": "team", "annotations": notes}})
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        for name in "abc":
            await it.api.create(POD, bare(name, ownerReferences=[owner]))
        await it.until(lambda: bound(it, *"abc"))
        api.now.set()
        [group] = await it.until(lambda: groups(it))
        assert it.api.count("patch", "Pod") == 0
        found = [await it.seen(POD, name) for name in "abc"]
        assert {each["metadata"]["annotations"]["pod-group-name"] for each in found if each} == {
            group["metadata"]["name"]
        }
