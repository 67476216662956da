"""Resource claims: allocated once, reserved for every pod, and given back."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.errors import Forbidden, NotFound
from pykai.kube.resources import POD, RESOURCE_CLAIM
from pykai.objects import names

from .world import TEAM, World

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


async def test_pods_that_share_a_claim_all_use_the_first_allocation() -> None:
    other = {"devices": {"results": []}}
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
