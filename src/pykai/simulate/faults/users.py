"""Actions of users and infrastructure on a cluster under test: objects are deleted and edited, nodes come and go.

Times and kinds of the actions are drawn before the run; each draws its object from those that exist at its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from pykai.kube.api import Deletion, Object, Patch, Resource, Selection
from pykai.kube.api_resources import (
    BIND_REQUEST,
    CONFIG,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    POD_GROUP,
    QUEUE,
    RESOURCE_CLAIM,
)
from pykai.kube.codec import encode
from pykai.kube.errors import ApiError
from pykai.kube.memory import MemoryApi
from pykai.objects import names
from pykai.simulate.faults.api import Fault, FaultPlan
from pykai.simulate.faults.invariants import FAILED_BY_USER, REPLICAS_BY_USER
from pykai.simulate.faults.worlds import RACK_LABEL, RACKS

FIRST_ACTION, SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 3.0, 15.0
LONGEST_ABSENCE = 30.0
FORCED = Deletion(grace_seconds=0)
LONGEST_OUTAGE = 20.0
UserAction = Callable[[MemoryApi, Random], Awaitable[str]]
"""Performs an action and returns its object, with the changed fields if there are any; empty if there is no object."""


class Users:
    """Performs the planned actions on the server without faults; `left_by` is the end of the faults."""

    def __init__(self, api: MemoryApi, plan: FaultPlan, seed: int, left_by: float) -> None:
        self._api = api
        self._plan = plan
        self._planned: list[tuple[float, str]] = []
        draw, at = Random(f"{seed}/users"), FIRST_ACTION
        while at < left_by:
            self._planned.append((at, draw.choice(sorted(ACTIONS))))
            at += draw.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)

    async def run(self) -> None:
        """Perform all planned actions; return when the last one, including its reversal, is done."""
        begun: list[asyncio.Task[None]] = []
        time = asyncio.get_running_loop().time
        try:
            for number, (at, kind) in enumerate(self._planned):
                await asyncio.sleep(max(at - time(), 0.0))
                begun.append(asyncio.create_task(self._perform(kind, number)))
            await asyncio.gather(*begun)
        finally:
            for task in begun:
                task.cancel()

    async def _perform(self, kind: str, number: int) -> None:
        point = f"deed {number}"
        chance = self._plan.event(kind, point)
        if chance is None:
            return
        if kind == SERVER_RESTARTED and chance.random() < 0.5:
            self._plan.outage_until = asyncio.get_running_loop().time() + chance.uniform(0.5, LONGEST_OUTAGE)
        began = asyncio.get_running_loop().time()
        with suppress(ApiError):
            about = await ACTIONS[kind](self._api, chance)
            if about:
                self._plan.note(Fault(began, kind, point, about))


# --------------------------------------------------------------------------------------------------------- choosing
async def _draw_object(
    api: MemoryApi, chance: Random, resource: Resource, where: Callable[[Object], bool] = bool
) -> Object:
    """Draw an object of a kind; empty if there is none."""
    found = sorted((one for one in (await api.list(resource, Object)).items if where(one)), key=_key)
    return chance.choice(found) if found else {}


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def _title(obj: Object) -> str:
    return "/".join(filter(None, _key(obj)))


def _is_ours(pod: Object) -> bool:
    return pod["metadata"]["namespace"] not in (names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)


async def _patch(api: MemoryApi, resource: Resource, obj: Object, body: Object) -> str:
    if not obj:
        return ""
    await api.patch(resource.ref(obj["metadata"]["name"], _key(obj)[0]), Patch.merge(body))
    return f"{_title(obj)} {encode(body).decode()}"


def _delete(resource: Resource, where: Callable[[Object], bool] = bool, how: Deletion | None = None) -> UserAction:
    async def action(api: MemoryApi, chance: Random) -> str:
        obj = await _draw_object(api, chance, resource, where)
        if obj:
            await api.delete(resource.ref(obj["metadata"]["name"], _key(obj)[0]), how or Deletion())
        return _title(obj) if obj else ""

    return action


# ------------------------------------------------------------------------------------------------------------ actions
async def _edit_group(api: MemoryApi, chance: Random) -> str:
    """Change the queue, priority class or minimum of a PodGroup."""
    group = await _draw_object(api, chance, POD_GROUP)
    queues = sorted(one["metadata"]["name"] for one in (await api.list(QUEUE, Object)).items)
    spec = chance.choice(
        (
            {"queue": chance.choice(queues) if queues else "department"},
            {"priorityClassName": chance.choice(("train", "build"))},
            {"minMember": chance.randint(1, 3)},
        )
    )
    return await _patch(api, POD_GROUP, group, {"spec": spec})


async def _edit_queue(api: MemoryApi, chance: Random) -> str:
    queue = await _draw_object(api, chance, QUEUE, lambda one: bool(one["spec"].get("parentQueue")))
    share = {"quota": chance.choice((0, 1, 2, 4)), "limit": chance.choice((-1, -1, 2, 4))}
    return await _patch(api, QUEUE, queue, {"spec": {"resources": {"gpu": share}}})


async def _replace_queue(api: MemoryApi, chance: Random) -> str:
    """Delete a leaf queue and re-create it."""
    queue = await _draw_object(api, chance, QUEUE, lambda one: bool(one["spec"].get("parentQueue")))
    if not queue:
        return ""
    await api.delete(QUEUE.ref(queue["metadata"]["name"]))
    try:
        await asyncio.sleep(chance.uniform(0.5, LONGEST_ABSENCE))
    finally:
        await api.create(QUEUE, {"metadata": {"name": queue["metadata"]["name"]}, "spec": queue["spec"]})
    return _title(queue)


async def _edit_pod(api: MemoryApi, chance: Random) -> str:
    """Remove an annotation of the grouper or the binder from a pod, or change its queue label.

    The GPU group label stays: it is the only record of the GPU that a pod shares.
    """
    pod = await _draw_object(api, chance, POD, _is_ours)
    metadata = chance.choice(
        (
            {"annotations": {names.POD_GROUP_ANNOTATION: None}},
            {"annotations": {names.RECEIVED_RESOURCE_TYPE: None}},
            {"labels": {names.QUEUE_LABEL: chance.choice(("team-a", "team-b"))}},
            {"labels": {"example.com/note": "seen"}},
        )
    )
    return await _patch(api, POD, pod, {"metadata": metadata})


async def _edit_request(api: MemoryApi, chance: Random) -> str:
    """Mark a BindRequest as failed in place of the binder, or label it."""
    request = await _draw_object(api, chance, BIND_REQUEST)
    if request and chance.random() < 0.5:
        ref = BIND_REQUEST.ref(request["metadata"]["name"], _key(request)[0]).sub("status")
        await api.patch(ref, Patch.merge({"status": {"phase": "Failed", "reason": FAILED_BY_USER}}))
        return f"{_title(request)} failed"
    return await _patch(api, BIND_REQUEST, request, {"metadata": {"labels": {"example.com/note": "seen"}}})


async def _edit_config_map(api: MemoryApi, chance: Random) -> str:
    """Overwrite the data of a ConfigMap, or label it."""
    found = await _draw_object(api, chance, CONFIG_MAP)
    change = chance.choice(({"data": {"edited": "yes"}}, {"metadata": {"labels": {"example.com/note": "seen"}}}))
    return await _patch(api, CONFIG_MAP, found, change)


async def _edit_node(api: MemoryApi, chance: Random) -> str:
    """Move a node to another rack."""
    return await _patch(
        api, NODE, await _draw_object(api, chance, NODE), {"metadata": {"labels": {RACK_LABEL: chance.choice(RACKS)}}}
    )


async def _edit_installation(api: MemoryApi, chance: Random) -> str:
    """Scale a Deployment of the operator, or change the Config."""
    config = await _draw_object(api, chance, CONFIG)
    if not config or chance.random() < 0.5:
        deployment = await _draw_object(api, chance, DEPLOYMENT)
        return await _patch(api, DEPLOYMENT, deployment, {"spec": {"replicas": REPLICAS_BY_USER}})
    return await _patch(api, CONFIG, config, {"spec": {"global": {"replicaCount": chance.randint(1, 2)}}})


async def _replace_config(api: MemoryApi, chance: Random) -> str:
    """Delete the Config, which uninstalls everything, and re-create it."""
    config = await _draw_object(api, chance, CONFIG)
    if not config:
        return ""
    await api.delete(CONFIG.ref(config["metadata"]["name"]))
    try:
        await asyncio.sleep(chance.uniform(0.5, LONGEST_ABSENCE))
    finally:
        await api.create(CONFIG, {"metadata": {"name": config["metadata"]["name"]}, "spec": config["spec"]})
    return _title(config)


async def _resize_job(api: MemoryApi, chance: Random) -> str:
    return await _patch(api, JOB, await _draw_object(api, chance, JOB), {"spec": {"parallelism": chance.randint(1, 3)}})


async def _cordon(api: MemoryApi, chance: Random) -> str:
    node = await _draw_object(api, chance, NODE)
    await _patch(api, NODE, node, {"spec": {"unschedulable": True}})
    try:
        await asyncio.sleep(chance.uniform(1.0, LONGEST_ABSENCE))
    finally:
        await _patch(api, NODE, node, {"spec": {"unschedulable": None}})
    return _title(node)


async def _lose_node(api: MemoryApi, chance: Random) -> str:
    """Delete a node and its pods, as the pod garbage collector does, and re-create it later."""
    node = await _draw_object(api, chance, NODE)
    if not node or len((await api.list(NODE, Object)).items) < 2:
        return ""
    name: str = node["metadata"]["name"]
    kept = {key: value for key, value in node["metadata"].items() if key in ("name", "labels", "annotations")}
    await api.delete(NODE.ref(name))
    try:
        await _delete_pods(api, name)
        await asyncio.sleep(chance.uniform(2.0, LONGEST_ABSENCE))
        await _delete_pods(api, name)
    finally:
        await api.create(NODE, {"metadata": kept, "spec": node.get("spec") or {}, "status": node["status"]})
    return name


async def _delete_pods(api: MemoryApi, node: str) -> None:
    """Delete the pods of a deleted node."""
    for pod in (await api.list(POD, Object, Selection(fields=f"spec.nodeName={node}"))).items:
        with suppress(ApiError):
            await api.delete(POD.ref(pod["metadata"]["name"], pod["metadata"]["namespace"]), FORCED)


async def _restart_server(api: MemoryApi, chance: Random) -> str:
    if chance.random() < 0.7:
        api.compact()
    api.disconnect()
    return "the API server"


SERVER_RESTARTED = "server restarted"
"""Half of the restarts are followed by an outage for the components, but not for kubelets and users."""
ACTIONS: dict[str, UserAction] = {
    "pod deleted": _delete(POD, _is_ours),
    "pod deleted by force": _delete(POD, _is_ours, FORCED),
    "pod edited": _edit_pod,
    "PodGroup deleted": _delete(POD_GROUP),
    "PodGroup edited": _edit_group,
    "queue edited": _edit_queue,
    "queue deleted and made again": _replace_queue,
    "BindRequest deleted": _delete(BIND_REQUEST),
    "BindRequest edited": _edit_request,
    "reservation pod deleted": _delete(POD, lambda pod: pod["metadata"]["namespace"] == names.RESERVATION_NAMESPACE),
    "config map deleted": _delete(CONFIG_MAP),
    "config map edited": _edit_config_map,
    "ResourceClaim deleted": _delete(RESOURCE_CLAIM),
    "job resized": _resize_job,
    "job deleted": _delete(JOB),
    "node cordoned": _cordon,
    "node lost": _lose_node,
    "node moved to another rack": _edit_node,
    "Deployment deleted": _delete(DEPLOYMENT),
    "Config deleted and made again": _replace_config,
    "Config or Deployment edited": _edit_installation,
    SERVER_RESTARTED: _restart_server,
}
