"""Random clusters as Kubernetes objects: what hypothesis draws, and what becomes of it when a plan is carried out.

A cluster starts consistent: who runs has been lodged on a node with room for it, as a cluster would have it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from pykai.cache.cluster import ClusterCache
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names
from pykai.objects.timestamps import rfc3339
from pykai.plugins.registry import BUILT_IN, make_all

Fields = dict[str, Any]
NOW = 1_800_000_000.0
STEP = 30.0
"""Seconds from one cycle to the next."""
PRIORITIES = {"low": 10, "train": 50, "build": 100, "inference": 125}
LEVELS = ("block", "rack")
MIG = "nvidia.com/mig-1g.5gb"

POLICY = Policy(make_all([(name, {}) for name in BUILT_IN]))
SPREAD = Policy(
    make_all(
        [
            ("gpuspread" if name == "gpupack" else name, {"gpu": "spread", "cpu": "spread"} if name == "nodeplacement" else {})
            for name in BUILT_IN
        ]
    )
)

Ask = tuple[Fields, Fields]
"""Requests of the container, annotations of the pod."""
ASKS: dict[str, Ask] = {
    "nothing": ({}, {}),
    "cpu": ({"cpu": "1"}, {}),
    "much cpu": ({"cpu": "3", "memory": "2Gi"}, {}),
    "gpu": ({"cpu": "1", names.NVIDIA_GPU: "1"}, {}),
    "two gpus": ({"cpu": "1", names.NVIDIA_GPU: "2"}, {}),
    "half": ({"cpu": "500m"}, {names.GPU_FRACTION: "0.5"}),
    "third": ({}, {names.GPU_FRACTION: "0.3"}),
    "most": ({"memory": "1Gi"}, {names.GPU_FRACTION: "0.7"}),
    "two halves": ({"cpu": "1"}, {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_DEVICES: "2"}),
    "memory": ({}, {names.GPU_MEMORY: "4000"}),
    "much memory": ({"cpu": "1"}, {names.GPU_MEMORY: "12000"}),
    "mig": ({MIG: "1"}, {}),
}
PLAIN = ("cpu", "gpu", "two gpus")


@dataclass
class Cluster:
    """Objects as JSON, by kind."""

    nodes: list[Fields] = field(default_factory=list)
    queues: list[Fields] = field(default_factory=list)
    groups: list[Fields] = field(default_factory=list)
    pods: list[Fields] = field(default_factory=list)
    devices: int = 0
    """Shared devices named so far."""

    def objects(self) -> list[Any]:
        rest = [(kinds.PriorityClass, {"metadata": {"name": n}, "value": v}) for n, v in PRIORITIES.items()]
        levels = [{"nodeLabel": level} for level in LEVELS]
        rest.append((kinds.Topology, {"metadata": {"name": "site"}, "spec": {"levels": levels}}))
        rest.extend((kinds.Node, item) for item in self.nodes)
        rest.extend((kinds.Queue, item) for item in self.queues)
        rest.extend((kinds.PodGroup, item) for item in self.groups)
        rest.extend((kinds.Pod, item) for item in self.pods)
        return [kinds.decode(msgspec.json.encode(item), kind) for kind, item in rest]

    def snapshot(self, now: float = NOW) -> Snapshot:
        return snapshot_of(self.objects(), now)


def snapshot_of(objects: list[Any], now: float = NOW) -> Snapshot:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(objects)
    return cache.snapshot(now)


# -------------------------------------------------------------------------------------------------------------- nodes
@st.composite
def node(draw: st.DrawFn, name: str) -> Fields:
    gpus = draw(st.sampled_from([0, 1, 2, 2, 4]))
    labels = {"block": draw(st.sampled_from("ab")), "rack": draw(st.sampled_from("xy"))}
    offer = {"cpu": draw(st.sampled_from(["4", "8"])), "memory": "16Gi", "pods": draw(st.sampled_from(["3", "5", "110"]))}
    spec: Fields = {}
    if gpus:
        offer[names.NVIDIA_GPU] = str(gpus)
        if draw(st.integers(0, 4)):
            labels[names.GPU_MEMORY_LABEL] = draw(st.sampled_from(["16384", "40960"]))
    special = draw(st.integers(0, 11))
    if special == 0:
        spec["taints"] = [{"key": "special", "effect": "NoSchedule"}]
    elif special == 1:
        labels["disk"] = "fast"
    elif special == 2:
        spec["unschedulable"] = True
    elif special == 3:
        del labels["rack"]
    elif special == 4 and not gpus:
        offer[MIG] = "2"
        labels[names.MIG_STRATEGY_LABEL] = "mixed"
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": offer}}


# ------------------------------------------------------------------------------------------------------------- queues
def _resource(draw: st.DrawFn, amounts: list[float]) -> Fields:
    limits = [-1, -1, *amounts]
    return {
        "quota": draw(st.sampled_from([0, *amounts, -1])),
        "limit": draw(st.sampled_from(limits)),
        "overQuotaWeight": draw(st.sampled_from([1, 1, 2, 0])),
    }


FREE: Fields = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


@st.composite
def queue(draw: st.DrawFn, name: str, parent: str = "") -> Fields:
    resources = {"cpu": FREE, "memory": FREE, "gpu": _resource(draw, [1, 2, 3, 4])}
    if draw(st.integers(0, 3)) == 0:
        resources["cpu"] = _resource(draw, [1000, 4000])
    spec: Fields = {"resources": resources, "parentQueue": parent}
    if draw(st.integers(0, 2)) == 0:
        spec["priority"] = draw(st.sampled_from([50, 200]))
    return {"metadata": {"name": name, "creationTimestamp": _created(draw)}, "spec": spec}


def _created(draw: st.DrawFn) -> str:
    return rfc3339(NOW - 1000 - draw(st.integers(0, 2)))


@st.composite
def queues(draw: st.DrawFn) -> list[Fields]:
    """A forest of two levels, leaves last in each branch."""
    found = []
    for root in range(draw(st.integers(1, 2))):
        found.append(draw(queue(f"d{root}")))
        found.extend(draw(queue(f"d{root}-q{leaf}", f"d{root}")) for leaf in range(draw(st.integers(1, 3))))
    return found


# -------------------------------------------------------------------------------------------------------------- gangs
@dataclass(frozen=True)
class Shape:
    """Sub-groups with their pods; the spec fields that say how many of them are needed."""

    spec: Fields
    members: tuple[tuple[str, int], ...]
    """(sub-group, pods)."""


def _topology(draw: st.DrawFn) -> Fields:
    if draw(st.integers(0, 3)):
        return {}
    kind = draw(st.sampled_from(["requiredTopologyLevel", "preferredTopologyLevel"]))
    return {"topologyConstraint": {"topology": "site", kind: draw(st.sampled_from(LEVELS))}}


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["single", "single", "gang", "elastic", "sub-groups", "nested"]))
    if kind == "single":
        return Shape({"minMember": 1}, (("", 1),))
    if kind in ("gang", "elastic"):
        least = draw(st.integers(1, 3))
        more = draw(st.integers(1, 2)) if kind == "elastic" else 0
        return Shape({"minMember": least, **_topology(draw)}, (("", least + more),))
    groups = []
    members = []
    for name in ("one", "two", "three")[: draw(st.integers(2, 3))]:
        least = draw(st.integers(0, 2))
        parent = {"parent": "both"} if kind == "nested" and name != "three" else {}
        groups.append({"name": name, "minMember": least, **parent, **_topology(draw)})
        members.append((name, max(least + draw(st.integers(-1, 1)), 0)))
    spec: Fields = {"subGroups": groups, **_topology(draw)}
    if kind == "nested":
        groups.append({"name": "both", **_few(draw, 2), **_topology(draw)})
    else:
        spec.update(_few(draw, len(groups)))
    return Shape(spec, tuple(members))


def _few(draw: st.DrawFn, most: int) -> Fields:
    return {"minSubGroup": draw(st.integers(1, most))} if draw(st.booleans()) else {}


def _wishes(draw: st.DrawFn) -> Fields:
    """Where the pods of a gang may go."""
    wish = draw(st.integers(0, 9))
    if wish == 0:
        return {"nodeSelector": {"block": draw(st.sampled_from("ab"))}}
    if wish == 1:
        term = {"matchExpressions": [{"key": "disk", "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}]}
        required = {"nodeSelectorTerms": [term]}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    if wish == 2:
        return {"tolerations": [{"key": "special", "operator": "Exists"}]}
    return {}


def _group(draw: st.DrawFn, name: str, leaf: str, spec: Fields) -> Fields:
    rank = draw(st.sampled_from(["", "low", "train", "build", "inference"]))
    stated = draw(st.sampled_from(["", "", "preemptible", "non-preemptible"]))
    full = {"queue": leaf, "priorityClassName": rank, "preemptibility": stated, **spec}
    return {"metadata": {"name": name, "namespace": "ns", "creationTimestamp": _created(draw)}, "spec": full}


def _pod(name: str, group: str, sub_group: str, ask: Ask, wishes: Fields) -> Fields:
    requests, annotations = ask
    container = {"name": "main", "resources": {"requests": requests}}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "labels": {names.SUBGROUP_LABEL: sub_group} if sub_group else {},
            "annotations": {names.POD_GROUP_ANNOTATION: group, **annotations},
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **wishes},
        "status": {"phase": "Pending"},
    }


# ------------------------------------------------------------------------------------------------------------ lodging
def amount(text: str) -> float:
    scales = {"m": 1e-3, "Gi": 2.0**30}
    return next((float(text.removesuffix(u)) * by for u, by in scales.items() if text.endswith(u)), None) or float(text)


@dataclass
class Lodging:
    """The rooms of a node while a cluster is drawn: what is left, and who shares which device."""

    node: Fields
    left: dict[str, float]
    shared: dict[str, float] = field(default_factory=dict)
    """Device -> MiB in use."""

    @classmethod
    def of(cls, item: Fields) -> Lodging:
        return cls(item, {name: amount(text) for name, text in item["status"]["allocatable"].items()})

    @property
    def memory(self) -> int:
        value = int(self.node["metadata"]["labels"].get(names.GPU_MEMORY_LABEL, 100))
        return value - value % 100

    def take(self, cluster: Cluster, pod: Fields) -> bool:
        """Lodge a pod if there is room."""
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        wanted = {"pods": 1.0, **{name: amount(text) for name, text in requests.items()}}
        notes = pod["metadata"]["annotations"]
        groups = self._devices(cluster, notes)
        fresh = [group for group in groups if group not in self.shared]
        wanted["pods"] += len(fresh)
        wanted[names.NVIDIA_GPU] = wanted.get(names.NVIDIA_GPU, 0.0) + len(fresh)
        if None in groups or any(self.left.get(name, 0.0) < value for name, value in wanted.items() if value):
            return False
        for name, value in wanted.items():
            self.left[name] = self.left.get(name, 0.0) - value
        for group in groups:
            self.shared[group] = self.shared.get(group, 0.0) + self._mib(notes)
        name = self.node["metadata"]["name"]
        pod.update(running(pod, name, tuple(groups)))
        cluster.pods.extend(reservation(name, group) for group in fresh)
        return True

    def _mib(self, notes: Fields) -> int:
        return int(notes.get(names.GPU_MEMORY) or float(notes[names.GPU_FRACTION]) * self.memory)

    def _devices(self, cluster: Cluster, notes: Fields) -> list[Any]:
        if names.GPU_FRACTION not in notes and names.GPU_MEMORY not in notes:
            return []
        known = names.GPU_MEMORY_LABEL in self.node["metadata"]["labels"]
        if self._mib(notes) > self.memory or (names.GPU_MEMORY in notes and not known):
            return [None]
        count = int(notes.get(names.GPU_FRACTION_DEVICES, 1))
        open_ = [group for group, used in self.shared.items() if used + self._mib(notes) <= self.memory]
        found = open_[:count]
        while len(found) < count:
            cluster.devices += 1
            found.append(f"{self.node['metadata']['name']}-gpu-{cluster.devices}")
        return found


def running(pod: Fields, node_name: str, groups: tuple[str, ...]) -> Fields:
    """The pod as it runs on a node."""
    pod = deepcopy(pod)
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if not key.startswith(names.GPU_GROUP_LABEL)}
    if len(groups) == 1:
        labels[names.GPU_GROUP_LABEL] = groups[0]
    labels.update({f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in groups if len(groups) > 1})
    pod["metadata"]["labels"] = labels
    pod["spec"]["nodeName"] = node_name
    pod["status"] = {"phase": "Running"}
    return pod


def waiting(pod: Fields) -> Fields:
    """The pod as its owner makes it again."""
    pod = running(pod, "", ())
    pod["metadata"].pop("deletionTimestamp", None)
    return {**pod, "status": {"phase": "Pending"}}


def reservation(node_name: str, group: str) -> Fields:
    """What holds a shared device for those who share it."""
    container = {"name": "main", "resources": {"requests": {names.NVIDIA_GPU: "1"}}}
    labels = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group}
    return {
        "metadata": {"name": f"gpu-reservation-{group}", "namespace": names.RESERVATION_NAMESPACE, "labels": labels},
        "spec": {"nodeName": node_name, "containers": [container]},
        "status": {"phase": "Running"},
    }


# ------------------------------------------------------------------------------------------------------------ clusters
@st.composite
def clusters(draw: st.DrawFn, asks: tuple[str, ...] = tuple(ASKS), most: int = 8) -> Cluster:
    """A few nodes, a forest of queues and gangs of all kinds, some of them running."""
    found = Cluster(queues=draw(queues()))
    found.nodes = [draw(node(f"n{number}")) for number in range(draw(st.integers(1, 5)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    parents = {item["spec"]["parentQueue"] for item in found.queues}
    leaves = [item["metadata"]["name"] for item in found.queues if item["metadata"]["name"] not in parents]
    for number in range(draw(st.integers(1, most))):
        shape = draw(shapes())
        found.groups.append(_group(draw, f"g{number}", draw(st.sampled_from(leaves)), shape.spec))
        _add_pods(draw, found, shape, asks, lodgings)
    return found


def _add_pods(draw: st.DrawFn, found: Cluster, shape: Shape, asks: tuple[str, ...], lodgings: list[Lodging]) -> None:
    """Pods of the last gang; it runs, or waits, or has lost some of its pods."""
    group = found.groups[-1]["metadata"]["name"]
    ask, wishes = ASKS[draw(st.sampled_from(asks))], _wishes(draw)
    runs = draw(st.booleans())
    stays = draw(st.integers(0, 3))
    first = draw(st.integers(0, len(lodgings) - 1))
    for sub_group, count in shape.members:
        for number in range(count):
            pod = _pod(f"{group}-{sub_group}{number}", group, sub_group, ask, wishes)
            lodged = runs and any(room.take(found, pod) for room in lodgings[first:] + lodgings[:first])
            if lodged and stays == 0 and number == 0:
                pod["metadata"]["deletionTimestamp"] = rfc3339(NOW - 1)
            found.pods.append(pod)


# ---------------------------------------------------------------------------------------------------------- execution
def carried_out(cluster: Cluster, plan: Plan, now: float) -> Cluster:
    """The cluster after everything the plan asks for has happened: who left is made again and waits."""
    binds = {bind.pod[1]: bind for bind in plan.binds}
    evicted = {eviction.pod[1] for eviction in plan.evictions}
    after = Cluster(cluster.nodes, cluster.queues, [_marked(g, plan) for g in cluster.groups], [], cluster.devices)
    known: dict[str, str] = {}
    for pod in cluster.pods:
        name = pod["metadata"]["name"]
        if pod["metadata"]["namespace"] != "ns":
            continue
        if name in evicted or "deletionTimestamp" in pod["metadata"]:
            pod = waiting(pod)
        elif name in binds:
            groups = [_device(after, known, binds[name].node, group) for group in binds[name].gpu_groups]
            pod = running(pod, binds[name].node, tuple(groups))
        after.pods.append(pod)
    after.pods.extend(_reservations(after.pods))
    return after


def _device(after: Cluster, known: dict[str, str], node_name: str, group: str) -> str:
    """A device that is new in the plan gets a name of its own."""
    if not group.startswith("new-"):
        return group
    if group not in known:
        after.devices += 1
        known[group] = f"{node_name}-gpu-{after.devices}"
    return known[group]


def _reservations(pods: list[Fields]) -> list[Fields]:
    held: dict[str, str] = {}
    for pod in pods:
        for key, group in pod["metadata"]["labels"].items():
            if key.startswith(names.GPU_GROUP_LABEL) and pod["spec"].get("nodeName"):
                held[group] = pod["spec"]["nodeName"]
    return [reservation(node_name, group) for group, node_name in held.items()]


def _marked(group: Fields, plan: Plan) -> Fields:
    annotations = dict(group["metadata"].get("annotations") or {})
    kinds_of = {
        "last-start": names.LAST_START_TIMESTAMP,
        "last-eviction": names.LAST_EVICTION_TIMESTAMP,
        "stale": names.STALE_TIMESTAMP,
    }
    for mark in plan.marks:
        if mark.gang[1] == group["metadata"]["name"]:
            annotations.pop(kinds_of[mark.what], None)
            if mark.at is not None:
                annotations[kinds_of[mark.what]] = rfc3339(mark.at)
    return {**group, "metadata": {**group["metadata"], "annotations": annotations}}
