"""Volumes: claims that are bound, claims that wait for their node, and claims nobody can help."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS
from pykai.plugins.volume_claims import SELECTED_NODE

from .world import TEAM, World

pytestmark = pytest.mark.virtual_time

LATE, STATIC, NOW = "late", "static", "now"
CLASSES = {
    LATE: ("disk.example.com", "WaitForFirstConsumer"),
    STATIC: ("kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    NOW: ("disk.example.com", "Immediate"),
}


async def storage(world: World) -> None:
    for name, (provisioner, mode) in CLASSES.items():
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        await world.api.create(STORAGE_CLASS, body)


async def claim(world: World, name: str = "data", kind: str = LATE, **metadata: Any) -> Object:
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    return await world.api.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name, **metadata}, "spec": spec}, TEAM)


async def volume(world: World, name: str, size: str = "10Gi", kind: str = STATIC, **spec: Any) -> Object:
    node = spec.pop("node", "n1")
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    body = {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": kind,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **spec,
        },
    }
    return await world.api.create(PERSISTENT_VOLUME, body)


async def bound(world: World, name: str, to: str) -> None:
    """What the volume controller does in the end."""
    ref = PERSISTENT_VOLUME_CLAIM.ref(name, TEAM)
    done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": to}}
    await world.api.patch(ref, Patch.merge(done))
    await world.api.patch(ref.sub("status"), Patch.merge({"status": {"phase": "Bound"}}))


async def using(world: World, *claims: str, name: str = "p") -> Object:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}} for i, each in enumerate(claims)]
    pod = await world.pod(name, spec={"volumes": volumes})
    await world.request(pod)
    return pod


async def test_a_new_volume_is_asked_for_on_the_node_and_waited_for() -> None:
    async with World() as world:
        await storage(world)
        await claim(world)
        await using(world, "data")
        api = await world.start_binder()
        assert (await world.now(PERSISTENT_VOLUME_CLAIM, "data"))["metadata"]["annotations"][SELECTED_NODE] == "n1"
        assert "nodeName" not in (await world.now(POD, "p"))["spec"]
        await volume(world, "made", kind=LATE)
        await bound(world, "data", "made")
        await world.settle()
        assert (await world.status("p"))["phase"] == "Succeeded"
        assert api.writes.count("patch persistentvolumeclaims") == 1


async def test_the_smallest_volume_that_suits_is_taken() -> None:
    async with World() as world:
        await storage(world)
        await claim(world, kind=STATIC)
        await volume(world, "large", "20Gi")
        await volume(world, "right", "15Gi")
        await volume(world, "small", "5Gi")
        await volume(world, "elsewhere", "10Gi", node="n2")
        await volume(world, "taken", "10Gi", claimRef={"namespace": TEAM, "name": "other", "uid": "1"})
        await volume(world, "other-mode", "10Gi", volumeMode="Block")
        await using(world, "data")
        await world.start_binder()
        chosen = await world.api.get(PERSISTENT_VOLUME.ref("right"), Object)
        assert chosen["spec"]["claimRef"]["name"] == "data"
        assert chosen["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        await bound(world, "data", "right")
        await world.settle()
        assert (await world.status("p"))["phase"] == "Succeeded"


async def test_two_claims_of_a_pod_get_two_volumes() -> None:
    async with World() as world:
        await storage(world)
        for name in ("a", "b"):
            await claim(world, name, STATIC)
            await volume(world, f"v-{name}")
        await using(world, "a", "b")
        await world.start_binder()
        await world.settle(5)
        found = (await world.api.list(PERSISTENT_VOLUME, Object)).items
        assert sorted(each["spec"]["claimRef"]["name"] for each in found) == ["a", "b"]


async def test_a_volume_that_never_comes_fails_in_time() -> None:
    async with World(plugins='{"volumebinding": {"arguments": {"bindTimeoutSeconds": "30"}}}') as world:
        await storage(world)
        await claim(world)
        await using(world, "data")
        await world.start_binder()
        await world.settle(29)
        assert await world.status("p") == {}
        await world.settle(2)
        assert (await world.status("p"))["reason"] == (
            'plugin volumebinding failed in PreBind: timed out waiting for persistentvolumeclaim "data" to be bound'
        )


async def test_a_driver_that_gives_up_is_a_failure() -> None:
    async with World() as world:
        await storage(world)
        await claim(world)
        await using(world, "data")
        await world.start_binder()
        back = Patch.merge({"metadata": {"annotations": {SELECTED_NODE: None}}})
        await world.api.patch(PERSISTENT_VOLUME_CLAIM.ref("data", TEAM), back)
        await world.settle()
        assert (await world.status("p"))["reason"].endswith('provisioning failed for PVC "data"')


# ------------------------------------------------------------------------------------------------------- refusals
async def missing(world: World) -> str:
    return 'persistentvolumeclaim "data" not found'


async def immediate(world: World) -> str:
    await claim(world, kind=NOW)
    return "pod has unbound immediate PersistentVolumeClaims"


async def no_class(world: World) -> str:
    await claim(world, kind="none")
    return "pod has unbound immediate PersistentVolumeClaims"


async def no_volume_left(world: World) -> str:
    await claim(world, kind=STATIC)
    return 'no volume for persistentvolumeclaim "data" on node n1'


async def chosen_elsewhere(world: World) -> str:
    await claim(world, annotations={SELECTED_NODE: "n2"})
    return 'a volume for persistentvolumeclaim "data" is being made on node n2'


async def out_of_reach(world: World) -> str:
    await claim(world)
    await volume(world, "far", node="n2")
    await bound(world, "data", "far")
    return "node(s) had volume node affinity conflict"


async def volume_gone(world: World) -> str:
    await claim(world)
    await bound(world, "data", "gone")
    return 'persistentvolume "gone" not found'


async def lost(world: World) -> str:
    await claim(world)
    await bound(world, "data", "gone")
    status = Patch.merge({"status": {"phase": "Lost"}})
    await world.api.patch(PERSISTENT_VOLUME_CLAIM.ref("data", TEAM).sub("status"), status)
    return 'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"'


STORIES = (missing, immediate, no_class, no_volume_left, chosen_elsewhere, out_of_reach, volume_gone, lost)


@pytest.mark.parametrize("story", STORIES)
async def test_what_no_waiting_would_change_fails_at_once(story: Any) -> None:
    async with World() as world:
        await storage(world)
        why = await story(world)
        await using(world, "data")
        await world.start_binder()
        assert (await world.status("p"))["reason"] == f"plugin volumebinding failed in PreBind: {why}"


@pytest.mark.parametrize("owned", [True, False])
async def test_an_ephemeral_volume_must_be_the_pods_own(owned: bool) -> None:
    async with World() as world:
        await storage(world)
        pod = await world.pod("p", spec={"volumes": [{"name": "scratch", "ephemeral": {}}]})
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
        owners: dict[str, Any] = {"ownerReferences": [owner]} if owned else {}
        await claim(world, "p-scratch", **owners)
        await volume(world, "v", kind=LATE)
        await bound(world, "p-scratch", "v")
        await world.request(pod)
        await world.start_binder()
        assert (await world.status("p"))["phase"] == ("Succeeded" if owned else "Failed")
