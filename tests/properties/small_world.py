"""A small cluster as JSON objects: seen by the product's cache, changed by carrying out plans.

Carrying out is immediate: who is bound runs in the next cycle, who is evicted is gone by then, and waits again where
its owner makes it anew. Only what a plan promises for later stays undone, to be decided again.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pykai.cache.cluster import ClusterCache
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names, nvfractions
from pykai.objects.units import rfc3339
from pykai.plugins.registry import BUILT_IN, make_all

Fields = dict[str, Any]
NOW = 1_800_000_000.0
STEP = 30.0
"""Seconds from one cycle to the next."""
OURS = "ns"
PRIORITIES = {"low": 10, "train": 50, "build": 100, "inference": 125}
LEVELS = ("block", "rack")

PACKING = Policy(make_all([(name, {}) for name in BUILT_IN]))
_SPREADING = {"gpupack": ("gpuspread", {}), "nodeplacement": ("nodeplacement", {"gpu": "spread", "cpu": "spread"})}
SPREADING = Policy(make_all([_SPREADING.get(name, (name, {})) for name in BUILT_IN]))
POLICIES = {"packing": PACKING, "spreading": SPREADING}

_MARKS = {
    "last-start": names.LAST_START_TIMESTAMP,
    "last-eviction": names.LAST_EVICTION_TIMESTAMP,
    "stale": names.STALE_TIMESTAMP,
}


@dataclass(repr=False)
class Cluster:
    """Objects by kind."""

    nodes: list[Fields] = field(default_factory=list)
    queues: list[Fields] = field(default_factory=list)
    groups: list[Fields] = field(default_factory=list)
    pods: list[Fields] = field(default_factory=list)
    devices: int = 0
    """Shared devices named so far."""
    made: int = 0
    """Pods made anew so far."""

    def objects(self) -> list[Any]:
        found: list[tuple[Any, Fields]] = [
            (kinds.PriorityClass, {"metadata": {"name": name}, "value": v}) for name, v in PRIORITIES.items()
        ]
        levels = [{"nodeLabel": level} for level in LEVELS]
        found.append((kinds.Topology, {"metadata": {"name": "site"}, "spec": {"levels": levels}}))
        for kind, items in self._by_kind().items():
            found.extend((kind, item) for item in items)
        return [kinds.decode(msgspec.json.encode(item), kind) for kind, item in found]

    def _by_kind(self) -> dict[Any, list[Fields]]:
        return {kinds.Node: self.nodes, kinds.Queue: self.queues, kinds.PodGroup: self.groups, kinds.Pod: self.pods}

    def snapshot(self, now: float = NOW) -> Snapshot:
        return snapshot_of(self.objects(), now)

    def __repr__(self) -> str:
        """What it takes to understand a failure: one line for each object, reservations left out."""
        items = [item for some in self._by_kind().values() for item in some]
        shown = [item for item in items if item["metadata"].get("namespace", OURS) == OURS]
        return "\n" + "\n".join(_line(item) for item in shown)

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """How hypothesis shows it."""
        printer.text(repr(self))


def _line(item: Fields) -> str:
    meta = item["metadata"]
    notes = {
        key: meta[key] for key in ("labels", "annotations", "deletionTimestamp", "creationTimestamp") if meta.get(key)
    }
    return f"{meta['name']}: {notes} {item.get('spec')} {item.get('status')}"


def snapshot_of(objects: list[Any], now: float = NOW) -> Snapshot:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(objects)
    return cache.snapshot(now)


# --------------------------------------------------------------------------------------------------------- life of pods
def running(pod: Fields, node: str, groups: tuple[str, ...]) -> Fields:
    """The pod as it runs on a node, with the devices it shares."""
    pod = deepcopy(pod)
    labels = {k: value for k, value in pod["metadata"]["labels"].items() if not k.startswith(names.GPU_GROUP_LABEL)}
    if len(groups) == 1:
        labels[names.GPU_GROUP_LABEL] = groups[0]
    labels.update({f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in groups if len(groups) > 1})
    pod["metadata"]["labels"] = labels
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running"}
    return pod


def waiting(pod: Fields, number: int) -> Fields:
    """The pod as its owner makes it again: under another name."""
    pod = running(pod, "", ())
    pod["metadata"].pop("deletionTimestamp", None)
    pod["metadata"]["name"] = pod["metadata"]["uid"] = f"{pod['metadata']['name'].split('.')[0]}.{number}"
    return {**pod, "status": {"phase": "Pending"}}


def reservation(node: str, group: str, mode: str = names.TIME_SLICING) -> Fields:
    """What holds a shared device for those who share it."""
    container = {"name": "main", "resources": {"requests": {names.NVIDIA_GPU: "1"}}}
    labels = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group}
    meta = {"name": f"gpu-reservation-{group}", "namespace": names.RESERVATION_NAMESPACE, "labels": labels}
    said = {nvfractions.key("main", nvfractions.COMPUTE_MODE): mode}
    notes = {"annotations": said} if mode != names.TIME_SLICING else {}
    return {
        "metadata": {**meta, **notes},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


# ------------------------------------------------------------------------------------------------------------ execution
def carried_out(cluster: Cluster, plan: Plan, again: bool = True) -> Cluster:
    """The cluster once everything has happened that the plan asks for; `again`: who left is made anew and waits."""
    binds = {bind.pod[1]: bind for bind in plan.binds}
    evicted = {eviction.pod[1] for eviction in plan.evictions}
    groups = [_marked(group, plan) for group in cluster.groups]
    after = Cluster(cluster.nodes, cluster.queues, groups, devices=cluster.devices, made=cluster.made)
    known: dict[str, str] = {}
    for pod in cluster.pods:
        name = pod["metadata"]["name"]
        if pod["metadata"]["namespace"] != OURS:
            continue
        if name in evicted or "deletionTimestamp" in pod["metadata"]:
            after.made += 1
            after.pods.extend([waiting(pod, after.made)] if again else [])
        elif name in binds:
            shared = [_device(after, known, binds[name].node, group) for group in binds[name].gpu_groups]
            after.pods.append(running(pod, binds[name].node, tuple(shared)))
        else:
            after.pods.append(pod)
    after.pods.extend(_reservations(after.pods))
    return after


def _device(after: Cluster, known: dict[str, str], node: str, group: str) -> str:
    """A device that is new in the plan gets a name of its own, as the binder would give it."""
    if not group.startswith("new-"):
        return group
    if group not in known:
        after.devices += 1
        known[group] = f"{node}-gpu-{after.devices}"
    return known[group]


def _reservations(pods: list[Fields]) -> list[Fields]:
    held: dict[str, tuple[str, str]] = {}
    for pod in pods:
        for key, group in pod["metadata"]["labels"].items():
            if key.startswith(names.GPU_GROUP_LABEL):
                held[group] = pod["spec"]["nodeName"], nvfractions.compute_mode(pod["metadata"].get("annotations"))
    return [reservation(node, group, mode) for group, (node, mode) in held.items()]


def _marked(group: Fields, plan: Plan) -> Fields:
    annotations = dict(group["metadata"].get("annotations") or {})
    for mark in plan.timestamps:
        if mark.gang[1] == group["metadata"]["name"]:
            annotations.pop(_MARKS[mark.what], None)
            if mark.at is not None:
                annotations[_MARKS[mark.what]] = rfc3339(mark.at)
    return {**group, "metadata": {**group["metadata"], "annotations": annotations}}
