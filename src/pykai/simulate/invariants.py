"""What must hold in a cluster whatever happens to its components: while it runs, and when it is at rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from pykai.kube.api import Api, EventType, Object
from pykai.kube.clock import wall
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import Change
from pykai.kube.resources import BIND_REQUEST, NODE, POD, POD_GROUP, QUEUE
from pykai.objects import names
from pykai.objects.units import amount

ROUNDING = 0.01
"""Portions of memory requests are rounded up to hundredths."""
NODE_GRACE_SECONDS = 30.0
"""A pod may be bound to a node that went so recently: a binder cannot have known."""
_OVER = ("Succeeded", "Failed")


class Checks:
    """Follows the true API server; `report` takes each violation."""

    def __init__(self, api: Api, report: Callable[[str], None]) -> None:
        self._api = api
        self._report = report
        self._watches = InformerFactory(api)
        self._nodes = self._watches.of(NODE, Object)
        self._pods = self._watches.of(POD, Object)
        self._lost: dict[str, float] = {}
        """Node -> when it went."""

    async def run(self) -> None:
        """Check every change until cancelled."""
        self._nodes.subscribe(self._node_changed)
        self._pods.subscribe(self._pod_changed)
        await self._watches.run()

    # ------------------------------------------------------------------------------------------------ while it runs
    def _node_changed(self, change: Change[Object]) -> None:
        if change.type is EventType.DELETED:
            self._lost[change.key[1]] = wall()

    def _pod_changed(self, change: Change[Object]) -> None:
        pod, title = change.object, "/".join(change.key)
        if change.type is EventType.DELETED:
            return
        node, before = pod["spec"].get("nodeName"), ((change.old or {}).get("spec") or {}).get("nodeName")
        if before and node != before:
            self._report(f"{title} was bound twice, to {before} and to {node}")
        gone_for = wall() - self._lost.get(node or "", float("-inf"))
        if node and not before and self._nodes.get(node) is None and gone_for > NODE_GRACE_SECONDS:
            self._report(f"{title} was bound to {node}, which does not exist")
        status = pod.get("status") or {}
        if str(status.get("reason", "")).startswith("OutOf") and node not in self._lost:
            self._report(f"{title} was refused by the kubelet of {node}: {status.get('message')}")
        if node and not before:
            self._check_devices()

    def _check_devices(self) -> None:
        """No device is shared out above 1.0."""
        shares: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for _, pod in self._pods.items():
            node, meta = pod["spec"].get("nodeName"), pod["metadata"]
            portion = (meta.get("annotations") or {}).get(names.GPU_FRACTION)
            group = (meta.get("labels") or {}).get(names.GPU_GROUP_LABEL)
            if node and group and portion and _lives(pod):
                shares[node, group].append(float(portion))
        for (node, group), portions in shares.items():
            if sum(portions) > 1.0 + ROUNDING * len(portions):
                self._report(f"device {group} of {node} is shared out to {sum(portions):g}")

    # ------------------------------------------------------------------------------------------------------ at rest
    async def placements(self) -> Mapping[str, str]:
        """Every pod that lives and its node; empty where it waits."""
        pods = (await self._api.list(POD, Object)).items
        return {_title(pod): pod["spec"].get("nodeName") or "" for pod in pods if _lives(pod)}

    async def at_rest(self) -> None:
        """Check what must hold once nothing happens any more."""
        pods = [pod for pod in (await self._api.list(POD, Object)).items if _lives(pod)]
        await self._gangs(pods)
        await self._requests({_title(pod): pod for pod in pods})
        await self._statuses(pods)
        self._reservations(pods)

    async def _gangs(self, pods: list[Object]) -> None:
        """A gang is whole or not there at all."""
        bound: defaultdict[tuple[str, str], int] = defaultdict(int)
        for pod in pods:
            meta = pod["metadata"]
            group = (meta.get("annotations") or {}).get(names.POD_GROUP_ANNOTATION, "")
            bound[meta["namespace"], group] += bool(pod["spec"].get("nodeName"))
        for group in (await self._api.list(POD_GROUP, Object)).items:
            meta, least = group["metadata"], int(group["spec"].get("minMember") or 1)
            count = bound[meta["namespace"], meta["name"]]
            if 0 < count < least:
                self._report(f"PodGroup {_title(group)} runs with {count} of at least {least} pods")

    async def _requests(self, pods: Mapping[str, Object]) -> None:
        """No BindRequest outlives its pod, or is still to be carried out for a pod that is bound."""
        for request in (await self._api.list(BIND_REQUEST, Object)).items:
            pod = pods.get(f"{request['metadata']['namespace']}/{request['spec'].get('podName')}")
            done = (request.get("status") or {}).get("phase") == "Succeeded"
            if pod is None or (pod["spec"].get("nodeName") and not done):
                self._report(f"BindRequest {_title(request)} is left over")

    async def _statuses(self, pods: list[Object]) -> None:
        """A queue's status says what its pods hold: whole GPUs, counted anew."""
        groups = {
            _title(group): group["spec"].get("queue") for group in (await self._api.list(POD_GROUP, Object)).items
        }
        held: defaultdict[str, float] = defaultdict(float)
        for pod in pods:
            meta = pod["metadata"]
            group = f"{meta['namespace']}/{(meta.get('annotations') or {}).get(names.POD_GROUP_ANNOTATION)}"
            if pod["spec"].get("nodeName") and group in groups:
                held[groups[group]] += self._gpus(pod)
        queues = (await self._api.list(QUEUE, Object)).items
        parents = {queue["spec"].get("parentQueue") for queue in queues}
        for queue in queues:
            name = queue["metadata"]["name"]
            said = amount(((queue.get("status") or {}).get("allocated") or {}).get(names.NVIDIA_GPU, 0))
            if name not in parents and abs(said - held[name]) > ROUNDING:
                self._report(f"the status of queue {name} says {said:g} GPUs, its pods hold {held[name]:g}")

    def _gpus(self, pod: Object) -> float:
        """GPUs of a bound pod: whole ones, or its parts of devices."""
        notes = pod["metadata"].get("annotations") or {}
        devices = float(notes.get(names.GPU_FRACTION_DEVICES, 1))
        if portion := notes.get(names.GPU_FRACTION):
            return devices * float(portion)
        if memory := notes.get(names.GPU_MEMORY):
            node = self._nodes.get(pod["spec"]["nodeName"]) or {"metadata": {}}
            return devices * float(memory) / float((node["metadata"].get("labels") or {})[names.GPU_MEMORY_LABEL])
        rows = [(container.get("resources") or {}).get("requests") or {} for container in pod["spec"]["containers"]]
        return sum(amount(row.get(names.NVIDIA_GPU, 0)) for row in rows)

    def _reservations(self, pods: list[Object]) -> None:
        """No device is reserved that no pod shares."""
        shared = {
            (pod["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL)
            for pod in pods
            if pod["metadata"]["namespace"] != names.RESERVATION_NAMESPACE
        }
        for pod in pods:
            group = (pod["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL)
            if pod["metadata"]["namespace"] == names.RESERVATION_NAMESPACE and group not in shared:
                self._report(f"{_title(pod)} reserves a device that no pod shares")


def _lives(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in _OVER and "deletionTimestamp" not in pod["metadata"]


def _title(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
