"""Pods that name no group and own one."""

from __future__ import annotations

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import NODE, POD, POD_GROUP
from pykai.objects.kinds import ObjectMeta, OwnerReference, Pod, PodGroup
from pykai.scheduler.group_membership import OwnGroups

from .rig import RecordingApi, furnish, group, pod, rig

pytestmark = pytest.mark.virtual_time


def a_pod(**annotations: str) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace="team", uid="u", annotations=annotations or None))


def a_group(name: str, *owners: OwnerReference) -> PodGroup:
    return PodGroup(metadata=ObjectMeta(name=name, namespace="team", owner_references=list(owners)))


OWNER = OwnerReference(name="p", kind="Pod", uid="u")


@pytest.mark.parametrize(
    ("groups", "shown", "joined"),
    [
        ([a_group("own", OWNER)], a_pod(), "own"),
        ([a_group("b", OWNER), a_group("a", OWNER)], a_pod(), "a"),
        ([a_group("own", OWNER)], a_pod(**{"pod-group-name": "chosen"}), "chosen"),
        ([a_group("own", OwnerReference(name="p", kind="Pod", uid="earlier"))], a_pod(), None),
        ([a_group("own", OwnerReference(name="p", kind="Job", uid="u"))], a_pod(), None),
        ([a_group("own")], a_pod(), None),
        ([], a_pod(), None),
    ],
)
def test_what_a_pod_is_in(groups: list[PodGroup], shown: Pod, joined: str | None) -> None:
    own = OwnGroups()
    for each in groups:
        own.change(None, each)
    assert (own.joined(shown).metadata.annotations or {}).get("pod-group-name") == joined


def test_only_a_change_of_owners_concerns_pods() -> None:
    own, before = OwnGroups(), a_group("own", OWNER)
    assert own.change(None, before) == {("team", "p")}
    assert own.change(before, a_group("own", OWNER)) == set()
    assert own.change(before, None) == {("team", "p")}
    assert own.joined(a_pod()) == a_pod()


def bare(name: str) -> Object:
    made = pod(name)
    del made["metadata"]["annotations"]
    return made


async def make_own_group(api: RecordingApi, owner: Object) -> None:
    meta, made = owner["metadata"], group("own")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    ]
    await api.create(POD_GROUP, made)


async def test_a_pod_is_placed_as_soon_as_its_own_group_is_there_and_its_request_names_it() -> None:
    async with rig() as it:
        await furnish(it.api)
        made = await it.api.create(POD, bare("p"))
        await it.quiet()
        assert await it.requests() == []
        await make_own_group(it.api, made)
        request = await it.request("p")
        assert request["metadata"]["annotations"] == {"pod-group-name": "own"}
        await it.quiet()
        assert it.api.count("create", "BindRequest") == 1


async def test_what_was_there_before_the_scheduler_is_known_alike() -> None:
    api = RecordingApi()
    await furnish(api)
    await make_own_group(api, await api.create(POD, bare("p")))
    async with rig(api) as it:
        await it.request("p")


async def test_a_group_that_goes_leaves_its_pod_without_one() -> None:
    async with rig() as it:
        await furnish(it.api, gpus=0)
        await make_own_group(it.api, await it.api.create(POD, bare("p")))
        await it.quiet()
        await it.api.delete(POD_GROUP.ref("own", "team"))
        await it.quiet()
        room = Patch.merge({"status": {"allocatable": {"nvidia.com/gpu": "8"}}})
        await it.api.patch(NODE.ref("node-0").sub("status"), room)
        await it.quiet()
        assert await it.requests() == []
