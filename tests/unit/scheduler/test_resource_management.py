"""What kai-resource-management writes: queues and groups of node pools, groups that have no pool yet, moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import NAMESPACE, NODE, POD, POD_GROUP, QUEUE

from .rig import FAST, Rig, group, node, params, pod, queue, rig

pytestmark = pytest.mark.virtual_time

POOL = "kai.scheduler/node-pool"
NOWHERE = "kai-unexisting-node-pool"


def of_pool(obj: Object, pool: str, **labels: str) -> Object:
    """The object with the label of a node pool; none is the default pool."""
    obj["metadata"].setdefault("labels", {}).update({POOL: pool} if pool else {}, **labels)
    return obj


async def department(it: Rig, pool: str, suffix: str) -> None:
    """A department and a project in a pool, as two queues."""
    share = {"quota": 2.0, "limit": -1.0, "overQuotaWeight": 1.0}
    await it.api.create(QUEUE, of_pool(queue(f"research{suffix}", "", **share), pool))
    project = queue(f"vision{suffix}", f"research{suffix}", **share)
    await it.api.create(QUEUE, of_pool(project, pool, project="vision"))


async def label(it: Rig, pool: str | None, queue_name: str) -> None:
    """Place the group in a pool as the assigner does."""
    body: Object = {"metadata": {"labels": {POOL: pool}}, "spec": {"queue": queue_name}}
    await it.api.patch(POD_GROUP.ref("train", "team"), Patch.merge(body))


async def test_a_group_is_scheduled_where_the_assigner_puts_it() -> None:
    options = replace(FAST, params=params(node_pool_key=POOL, node_pool="gold"))
    async with rig(options=options) as it:
        await it.api.create(NAMESPACE, {"metadata": {"name": "team"}})
        await it.api.create(NODE, of_pool(node("gold-0", 1), "gold"))
        await it.api.create(NODE, node("plain-0", 1))
        await department(it, "gold", "-gold")
        await department(it, "", "")
        await it.api.create(POD_GROUP, of_pool(group("train", queue="vision-gold"), NOWHERE))
        await it.api.create(POD, pod("train"))
        await it.quiet()
        assert await it.requests() == [], "no pool yet"

        await label(it, None, "vision")
        await it.quiet()
        assert await it.requests() == [], "the default pool has a scheduler of its own"

        await label(it, "gold", "vision-gold")
        assert (await it.request("train"))["spec"]["selectedNode"] == "gold-0"
        shares = {each["metadata"]["name"]: each.get("status") for each in (await it.api.list(QUEUE, Object)).items}
        assert shares["vision"] is None, "queues of other pools are not written"


async def test_a_group_that_found_no_place_is_told_its_pool_once_and_again_after_it_was_cleared() -> None:
    options = replace(FAST, params=params(node_pool_key=POOL, node_pool="gold"))
    async with rig(options=options) as it:
        await it.api.create(NAMESPACE, {"metadata": {"name": "team"}})
        await it.api.create(NODE, of_pool(node("gold-0", 1), "gold"))
        await department(it, "gold", "-gold")
        made = group("train", queue="vision-gold", schedulingBackoff=1, markUnschedulable=False)
        await it.api.create(POD_GROUP, of_pool(made, "gold"))
        await it.api.create(POD, pod("train", 8))

        async def pools() -> list[str]:
            found = await it.api.get(POD_GROUP.ref("train", "team"), Object)
            conditions = (found.get("status") or {}).get("schedulingConditions") or []
            assert found["spec"]["schedulingBackoff"] == 1
            return [each["nodePool"] for each in conditions if each["type"] == "UnschedulableOnNodePool"]

        assert await it.until(pools) == ["gold"]
        nothing = Patch.merge({"status": {"schedulingConditions": None}})
        await it.api.patch(POD_GROUP.ref("train", "team").sub("status"), nothing)
        assert await it.until(pools) == ["gold"]
