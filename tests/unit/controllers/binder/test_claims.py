"""Resource claims: allocated once, reserved for every pod, and given back."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, CONFIG_MAP, POD, RESOURCE_CLAIM
from pykai.kube.errors import Forbidden, NotFound, Timeout, Unavailable
from pykai.objects import names

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time

ALLOCATION = {
    "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]}
}


async def claim(world: World, name: str = "shared") -> Object:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    return await world.api.create(
        RESOURCE_CLAIM, {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}, TEAM
    )


async def using(world: World, name: str, allocation: Object | None = None, **spec: Any) -> Object:
    pod = await world.pod(name, spec={"resourceClaims": [{"name": "mine", "resourceClaimName": "shared"}]})
    given = [{"name": "mine", "allocation": allocation}] if allocation else [{"name": "mine"}]
    await world.request(pod, resourceClaimAllocations=given, **spec)
    return pod


async def status(world: World, name: str = "shared") -> Object:
    return (await world.now(RESOURCE_CLAIM, name)).get("status") or {}


async def test_a_claim_is_allocated_protected_and_reserved_for_the_pod() -> None:
    async with World() as world:
        await claim(world)
        pod = await using(world, "p", ALLOCATION)
        await world.start_binder()
        user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
        assert await status(world) == {"allocation": ALLOCATION, "reservedFor": [user]}
        found = await world.now(RESOURCE_CLAIM, "shared")
        assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert (await world.status("p"))["phase"] == "Succeeded"


async def test_finalizers_of_others_stay() -> None:
    async with World() as world:
        await claim(world)
        note = {"metadata": {"finalizers": ["example.com/backup"]}}
        await world.api.patch(RESOURCE_CLAIM.ref("shared", TEAM), Patch.merge(note))
        await using(world, "p", ALLOCATION)
        await world.start_binder()
        found = await world.now(RESOURCE_CLAIM, "shared")
        assert found["metadata"]["finalizers"] == ["example.com/backup", names.DRA_FINALIZER]


async def test_a_bind_that_is_tried_again_finds_its_claim_as_it_should_be() -> None:
    async with World() as world:
        await claim(world)
        api = await world.start_binder()
        api.refuse = no_bind
        await using(world, "p", ALLOCATION)
        await world.settle(1)
        assert (await world.status("p")).get("phase") != "Succeeded"
        api.refuse = lambda write: None
        await world.settle(30)
        assert (await world.status("p"))["phase"] == "Succeeded"
        assert api.writes.count("update resourceclaims/status") == 1


async def test_pods_that_share_a_claim_all_use_the_first_allocation() -> None:
    other: Object = {"devices": {"results": []}}
    async with World() as world:
        await claim(world)
        await using(world, "p", ALLOCATION)
        await world.start_binder()
        await using(world, "q", other)
        await using(world, "r", other)
        await world.settle(5)
        held = await status(world)
        assert held["allocation"] == ALLOCATION
        assert sorted(user["name"] for user in held["reservedFor"]) == ["p", "q", "r"]


async def test_a_claim_from_a_template_is_found_in_the_pods_status() -> None:
    async with World() as world:
        await claim(world, "made-for-p")
        pod = await world.pod("p", spec={"resourceClaims": [{"name": "mine", "resourceClaimTemplateName": "t"}]})
        made = {"resourceClaimStatuses": [{"name": "mine", "resourceClaimName": "made-for-p"}]}
        await world.api.patch(POD.ref("p", TEAM).sub("status"), Patch.merge({"status": made}))
        await world.request(pod, resourceClaimAllocations=[{"name": "mine", "allocation": ALLOCATION}])
        await world.start_binder()
        assert (await status(world, "made-for-p"))["allocation"] == ALLOCATION


@pytest.mark.parametrize(
    ("allocations", "message"),
    [
        ([{"name": "mine"}], "empty status for claim mine in bind request for pod team/p"),
        ([{"name": "other", "allocation": ALLOCATION}], "failed to find claim other of pod team/p"),
    ],
)
async def test_refusals(allocations: list[Object], message: str) -> None:
    async with World() as world:
        await claim(world)
        pod = await world.pod("p", spec={"resourceClaims": [{"name": "mine", "resourceClaimName": "shared"}]})
        await world.request(pod, resourceClaimAllocations=allocations)
        await world.start_binder()
        assert (await world.status("p"))["reason"] == f"plugin dynamicresources failed in PreBind: {message}"


@pytest.mark.parametrize("others", [[], ["q"]])
async def test_a_pod_that_is_not_bound_gives_its_claim_back(others: list[str]) -> None:
    async with World() as world:
        api = await world.start_binder()
        await claim(world)
        for name in others:
            await using(world, name, ALLOCATION)
        await world.settle()

        def refuse(write: str) -> None:
            if write == "post pods/binding":
                raise Forbidden("no")

        api.refuse = refuse
        await using(world, "p", ALLOCATION)
        await world.settle()
        assert (await world.status("p"))["phase"] == "Failed"
        held = await status(world)
        assert [user["name"] for user in held.get("reservedFor", [])] == others
        assert held.get("allocation") == (ALLOCATION if others else None)


# ------------------------------------------------------------------------------------------- extended resources
EXTENDED = {
    "allocation": ALLOCATION,
    "deviceRequests": [{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu", "count": 1}}],
    "containerMappings": [
        {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    ],
}


async def test_extended_resources_get_a_claim_of_the_pods_own() -> None:
    async with World() as world:
        pod = await world.pod("p")
        await world.request(pod, extendedResourceClaimAllocation=EXTENDED)
        await world.start_binder()
        (made,) = (await world.api.list(RESOURCE_CLAIM, Object)).items
        uid = pod["metadata"]["uid"]
        assert made["metadata"]["annotations"] == {names.EXTENDED_RESOURCE_CLAIM: "true"}
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (uid, True, True)
        assert made["spec"]["devices"]["requests"] == EXTENDED["deviceRequests"]
        assert made["status"]["allocation"] == ALLOCATION
        told = (await world.now(POD, "p"))["status"]["extendedResourceClaimStatus"]
        assert told == {"resourceClaimName": made["metadata"]["name"], "requestMappings": EXTENDED["containerMappings"]}


async def test_the_claim_of_a_pod_that_is_not_bound_goes() -> None:
    async with World() as world:
        api = await world.start_binder()

        def refuse(write: str) -> None:
            if write == "post pods/binding":
                raise Forbidden("no")

        api.refuse = refuse
        await world.request(await world.pod("p"), extendedResourceClaimAllocation=EXTENDED)
        await world.settle()
        assert (await world.api.list(RESOURCE_CLAIM, Object)).items == []
        assert "extendedResourceClaimStatus" not in (await world.now(POD, "p"))["status"]


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
async def test_the_claim_goes_though_its_request_vanished_while_no_binder_ran(writes: int) -> None:
    async with World() as world:
        await world.request(await world.pod("p"), extendedResourceClaimAllocation=EXTENDED)
        await world.start_binder(last=writes, after=True)
        await world.stop_binder()
        if (await world.now(POD, "p"))["spec"].get("nodeName"):
            return  # bound before it was killed
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.start_binder()
        assert (await world.api.list(RESOURCE_CLAIM, Object)).items == []
        assert "extendedResourceClaimStatus" not in (await world.now(POD, "p"))["status"]


# ------------------------------------------------------------------------------------- requests that are taken back
def no_bind(write: str) -> None:
    if write == "post pods/binding":
        raise Unavailable("not now")


async def test_a_request_that_is_taken_back_leaves_nothing_behind() -> None:
    async with World() as world:
        api = await world.start_binder()
        api.refuse = no_bind
        await claim(world)
        await using(world, "p", ALLOCATION)
        await world.request(await world.pod("q"), extendedResourceClaimAllocation=EXTENDED)
        await world.share("r", ["g"])
        await world.settle()
        assert (await status(world))["allocation"] == ALLOCATION
        for name in ("p", "q", "r"):
            await world.api.delete(BIND_REQUEST.ref(name, TEAM))
        await world.settle(60)
        assert await status(world) == {}
        assert [each["metadata"]["name"] for each in (await world.api.list(RESOURCE_CLAIM, Object)).items] == ["shared"]
        assert "extendedResourceClaimStatus" not in (await world.now(POD, "q"))["status"]
        assert (await world.api.list(CONFIG_MAP, Object)).items == []
        assert await world.reservations() == []


async def test_a_server_in_trouble_meanwhile_is_asked_again() -> None:
    async with World() as world:
        api = await world.start_binder()
        api.refuse = no_bind
        await world.request(await world.pod("p"), extendedResourceClaimAllocation=EXTENDED)
        await world.settle()
        troubles = [Unavailable("away")]

        def refuse(write: str) -> None:
            if write == "patch pods/status" and troubles:
                raise troubles.pop()

        api.refuse = refuse
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.settle(60)
        assert not troubles
        assert (await world.api.list(RESOURCE_CLAIM, Object)).items == []
        assert "extendedResourceClaimStatus" not in (await world.now(POD, "p"))["status"]


async def test_a_pod_that_was_bound_after_all_keeps_its_claim_when_the_request_is_taken_back() -> None:
    def lose(write: str) -> None:
        if write == "post pods/binding":
            raise Timeout("no answer")

    async with World() as world:
        api = await world.start_binder()
        api.lose = lose
        await claim(world)
        await using(world, "p", ALLOCATION)
        api.late.add(POD)
        await world.settle()
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.settle(60)
        api.late.clear()
        await world.settle(60)
        assert (await world.now(POD, "p"))["spec"]["nodeName"] == "n1"
        assert [user["name"] for user in (await status(world))["reservedFor"]] == ["p"]


async def test_a_request_that_is_taken_back_while_no_binder_is_there_leaves_the_claim_free() -> None:
    async with World() as world:
        api = await world.start_binder()
        api.refuse = no_bind
        await claim(world)
        await using(world, "p", ALLOCATION)
        await world.settle()
        await world.stop_binder()
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        assert (await status(world))["allocation"] == ALLOCATION
        await world.start_binder()
        await world.settle()
        assert await status(world) == {}


async def test_a_request_that_is_replaced_at_once_leaves_nothing_behind() -> None:
    async with World({"n1": 1, "n2": 1}) as world:
        api = await world.start_binder()
        api.refuse = no_bind
        pod = await world.pod("p")
        await world.request(pod, "n1", extendedResourceClaimAllocation=EXTENDED)
        await world.settle()
        assert (await world.now(POD, "p"))["status"]["extendedResourceClaimStatus"]
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await world.request(pod, "n2")
        api.refuse = lambda write: None
        await world.settle(10)
        assert (await world.now(POD, "p"))["spec"]["nodeName"] == "n2"
        assert (await world.api.list(RESOURCE_CLAIM, Object)).items == []
        assert "extendedResourceClaimStatus" not in (await world.now(POD, "p"))["status"]


@pytest.mark.parametrize("extended", [False, True])
async def test_devices_of_an_earlier_request_give_way_to_those_of_the_next(extended: bool) -> None:
    elsewhere = {"devices": {"results": [{**ALLOCATION["devices"]["results"][0], "pool": "n2"}]}}
    async with World({"n1": 1, "n2": 1}) as world:
        api = await world.start_binder()
        api.refuse = no_bind
        await claim(world)
        pod = await world.pod("p", spec={"resourceClaims": [{"name": "mine", "resourceClaimName": "shared"}]})

        async def ask(node: str, allocation: Object) -> None:
            given: Object = {"resourceClaimAllocations": [{"name": "mine", "allocation": allocation}]}
            if extended:
                given["extendedResourceClaimAllocation"] = {**EXTENDED, "allocation": allocation}
            await world.request(pod, node, **given)

        await ask("n1", ALLOCATION)
        await world.settle()
        await world.stop_binder()
        await world.api.delete(BIND_REQUEST.ref("p", TEAM))
        await ask("n2", elsewhere)
        await world.start_binder()
        await world.settle()
        assert (await world.now(POD, "p"))["spec"]["nodeName"] == "n2"
        for each in (await world.api.list(RESOURCE_CLAIM, Object)).items:
            assert each["status"]["allocation"] == elsewhere
            assert [user["name"] for user in each["status"]["reservedFor"]] == ["p"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_binder_killed_on_the_way_leaves_one_claim(after: bool) -> None:
    for last in range(1, 7):
        async with World() as world:
            await world.request(await world.pod("p"), extendedResourceClaimAllocation=EXTENDED)
            await world.start_binder(last, after=after)
            await world.stop_binder()
            await world.start_binder()
            assert len((await world.api.list(RESOURCE_CLAIM, Object)).items) == 1
            assert (await world.status("p"))["phase"] == "Succeeded"


async def test_a_missing_claim_fails_the_request() -> None:
    async with World() as world:
        await using(world, "p", ALLOCATION)
        await world.start_binder()
        with pytest.raises(NotFound):
            await status(world)
        assert (await world.status("p"))["reason"].endswith('resourceclaims.resource.k8s.io "shared" not found')
