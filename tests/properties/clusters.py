"""Random clusters for hypothesis: nodes of all kinds, forests of queues, gangs of all shapes, some of them running.

A cluster is consistent: who runs has been lodged on a node with room for it. Queues may be above their limits and
gangs below their minimum, as happens when somebody changes a limit or a node dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from pykai.objects import names, nvfractions
from pykai.objects.gpu_request import shares_gpu
from pykai.objects.units import amount, rfc3339
from tests.properties.small_world import LEVELS, NOW, OURS, Cluster, Fields, reservation, running

MIG = "nvidia.com/mig-1g.5gb"
SM_SHARING = {nvfractions.key("main", nvfractions.COMPUTE_MODE): names.SM_SHARING}
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
    "half beside its like": ({"cpu": "500m"}, {names.GPU_FRACTION: "0.5", **SM_SHARING}),
    "memory beside its like": ({}, {nvfractions.key("main", nvfractions.MEMORY_REQUEST): "4000Mi", **SM_SHARING}),
    "mig": ({MIG: "1"}, {}),
}
FREE: Fields = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def created(draw: st.DrawFn) -> str:
    """Few distinct instants, so that ties happen."""
    return rfc3339(NOW - 1000 - draw(st.integers(0, 2)))


# ---------------------------------------------------------------------------------------------------------------- nodes
SPECIALS: tuple[tuple[Fields, Fields], ...] = (
    ({"taints": [{"key": "special", "effect": "NoSchedule"}]}, {}),
    ({}, {"disk": "fast"}),
    ({"unschedulable": True}, {}),
)
"""(spec, labels) of nodes that are not like the others."""


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Fields:
    gpus = draw(st.sampled_from([0, 1, 2, 2, 4]))
    labels = {level: draw(st.sampled_from("ab")) for level in LEVELS[: draw(st.sampled_from([2, 2, 2, 1]))]}
    offer = {"cpu": draw(st.sampled_from("48")), "memory": "16Gi", "pods": draw(st.sampled_from(["3", "5", "110"]))}
    if gpus:
        offer[names.NVIDIA_GPU] = str(gpus)
        memory = draw(st.sampled_from(["16384", "40960", ""]))
        labels.update({names.GPU_MEMORY_LABEL: memory} if memory else {})
        counted = draw(st.sampled_from(["", "", str(gpus), str(gpus + 1), "1"]))
        labels.update({names.GPU_COUNT_LABEL: counted} if counted else {})
    elif draw(st.booleans()):
        offer[MIG] = "2"
        labels[names.MIG_STRATEGY_LABEL] = "mixed"
    spec, more = draw(st.sampled_from([*SPECIALS, *[({}, {})] * 9]))
    return {
        "metadata": {"name": name, "labels": {**labels, **more}},
        "spec": spec,
        "status": {"allocatable": offer},
    }


# --------------------------------------------------------------------------------------------------------------- queues
def _resource(draw: st.DrawFn, amounts: Sequence[float]) -> Fields:
    return {
        "quota": draw(st.sampled_from([0, *amounts, -1])),
        "limit": draw(st.sampled_from([-1, -1, *amounts])),
        "overQuotaWeight": draw(st.sampled_from([1, 1, 2, 0])),
    }


@st.composite
def queue(draw: st.DrawFn, name: str, parent: str = "") -> Fields:
    resources = {"cpu": FREE, "memory": FREE, "gpu": _resource(draw, [1, 2, 3, 4])}
    if draw(st.integers(0, 3)) == 0:
        resources["cpu"] = _resource(draw, [1000, 4000])
    spec: Fields = {"resources": resources, "parentQueue": parent}
    if draw(st.integers(0, 2)) == 0:
        spec["priority"] = draw(st.sampled_from([50, 200]))
    return {"metadata": {"name": name, "creationTimestamp": created(draw)}, "spec": spec}


@st.composite
def forests(draw: st.DrawFn) -> list[Fields]:
    """Queues of two levels, the leaves after their parent."""
    found = []
    for root in range(draw(st.integers(1, 2))):
        found.append(draw(queue(f"d{root}")))
        found.extend(draw(queue(f"d{root}-q{leaf}", f"d{root}")) for leaf in range(draw(st.integers(1, 3))))
    return found


def leaves(queues: Sequence[Fields]) -> list[str]:
    parents = {item["spec"]["parentQueue"] for item in queues}
    return [item["metadata"]["name"] for item in queues if item["metadata"]["name"] not in parents]


# ---------------------------------------------------------------------------------------------------------------- gangs
Shape = tuple[Fields, tuple[tuple[str, int], ...]]
"""Spec fields that say how many pods are needed; (sub-group, pods) pairs."""


def _topology(draw: st.DrawFn) -> Fields:
    if draw(st.integers(0, 3)):
        return {}
    kind = draw(st.sampled_from(["requiredTopologyLevel", "preferredTopologyLevel"]))
    return {"topologyConstraint": {"topology": "site", kind: draw(st.sampled_from(LEVELS))}}


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["single", "single", "gang", "elastic", "sub-groups", "nested"]))
    if kind == "single":
        return {"minMember": 1}, (("", 1),)
    if kind in ("gang", "elastic"):
        least = draw(st.integers(1, 3))
        more = draw(st.integers(1, 2)) if kind == "elastic" else 0
        return {"minMember": least, **_topology(draw)}, (("", least + more),)
    return _tree(draw, nested=kind == "nested")


def _tree(draw: st.DrawFn, nested: bool) -> Shape:
    groups, members = [], []
    for name in ("one", "two", "three")[: draw(st.integers(2, 3))]:
        least = draw(st.integers(0, 2))
        parent = {"parent": "both"} if nested and name != "three" else {}
        groups.append({"name": name, "minMember": least, **parent, **_topology(draw)})
        members.append((name, max(least + draw(st.integers(-1, 1)), 0)))
    if nested:
        groups.append({"name": "both", **_few(draw, 2), **_topology(draw)})
    few = {} if nested else _few(draw, len(groups))
    return {"subGroups": groups, **few, **_topology(draw)}, tuple(members)


def _few(draw: st.DrawFn, most: int) -> Fields:
    return {"minSubGroup": draw(st.integers(1, most))} if draw(st.booleans()) else {}


def _wishes(draw: st.DrawFn) -> Fields:
    """Where the pods of a gang may go."""
    match draw(st.integers(0, 9)):
        case 0:
            return {"nodeSelector": {"block": draw(st.sampled_from("ab"))}}
        case 1:
            need = {"key": "disk", "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [need]}]}
            return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
        case 2:
            return {"tolerations": [{"key": "special", "operator": "Exists"}]}
    return {}


def group_of(draw: st.DrawFn, name: str, leaf: str, spec: Fields) -> Fields:
    rank = draw(st.sampled_from(["", "low", "train", "build", "inference"]))
    stated = draw(st.sampled_from(["", "", "preemptible", "non-preemptible"]))
    full = {"queue": leaf, "priorityClassName": rank, "preemptibility": stated, **spec}
    return {"metadata": {"name": name, "namespace": OURS, "creationTimestamp": created(draw)}, "spec": full}


def pod_of(group: str, member: tuple[str, int], ask: Ask, wishes: Fields) -> Fields:
    (sub_group, number), (requests, annotations) = member, ask
    name = f"{group}-{sub_group}{number}"
    container = {"name": "main", "resources": {"requests": dict(requests)}}
    return {
        "metadata": {
            "name": name,
            "namespace": OURS,
            "uid": name,
            "labels": {names.SUBGROUP_LABEL: sub_group} if sub_group else {},
            "annotations": {names.POD_GROUP_ANNOTATION: group, **annotations},
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **wishes},
        "status": {"phase": "Pending"},
    }


# -------------------------------------------------------------------------------------------------------------- lodging
@dataclass
class Lodging:
    """A node while a cluster is drawn: what is left of it, and who shares which device."""

    node: Fields
    left: dict[str, float]
    shared: dict[str, float] = field(default_factory=dict)
    """Device -> MiB in use."""
    modes: dict[str, str] = field(default_factory=dict)
    """Device -> compute mode."""

    @classmethod
    def of(cls, item: Fields) -> Lodging:
        return cls(item, {name: amount(text) for name, text in item["status"]["allocatable"].items()})

    def take(self, cluster: Cluster, pod: Fields) -> bool:
        """Lodge a pod if there is room for it."""
        notes = pod["metadata"]["annotations"]
        wanted = {name: amount(text) for name, text in pod["spec"]["containers"][0]["resources"]["requests"].items()}
        groups = self._devices(cluster, notes)
        if groups is None:
            return False
        fresh = [group for group in groups if group not in self.shared]
        wanted["pods"] = 1.0 + len(fresh)
        wanted[names.NVIDIA_GPU] = wanted.get(names.NVIDIA_GPU, 0.0) + len(fresh)
        if any(self.left.get(name, 0.0) < value for name, value in wanted.items() if value):
            return False
        self.left.update({name: self.left.get(name, 0.0) - value for name, value in wanted.items()})
        self.shared.update({group: self.shared.get(group, 0.0) + self._mib(notes) for group in groups})
        name, mode = self.node["metadata"]["name"], nvfractions.compute_mode(notes)
        self.modes.update(dict.fromkeys(groups, mode))
        pod.update(running(pod, name, tuple(groups)))
        cluster.pods.extend(reservation(name, group, mode) for group in fresh)
        return True

    @property
    def _memory(self) -> int:
        """MiB per device; 0 where it is not known."""
        value = int(self.node["metadata"]["labels"].get(names.GPU_MEMORY_LABEL, 0))
        return value - value % 100

    def _mib(self, notes: Fields) -> int:
        memory = notes.get(names.GPU_MEMORY) or nvfractions.memory_mib(notes)
        return int(memory or float(notes[names.GPU_FRACTION]) * self._memory)

    def _devices(self, cluster: Cluster, notes: Fields) -> list[Any] | None:
        """Devices for a share, those with room left first; None: this node has none of that kind."""
        if not shares_gpu(notes):
            return []
        if not self._memory or self._mib(notes) > self._memory:
            return None
        count = int(notes.get(names.GPU_FRACTION_DEVICES, 1))
        mode, left = nvfractions.compute_mode(notes), self._memory - self._mib(notes)
        found = [group for group, used in self.shared.items() if used <= left and self.modes[group] == mode][:count]
        while len(found) < count:
            cluster.devices += 1
            found.append(f"{self.node['metadata']['name']}-gpu-{cluster.devices}")
        return found


# ------------------------------------------------------------------------------------------------------------- clusters
@st.composite
def clusters(draw: st.DrawFn, asks: Sequence[str] = tuple(ASKS), most: int = 8) -> Cluster:
    """A few nodes, a forest of queues and up to `most` gangs that ask for some of `asks`."""
    found = Cluster(queues=draw(forests()))
    found.nodes = [draw(nodes(f"n{number}")) for number in range(draw(st.integers(1, 5)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    for number in range(draw(st.integers(1, most))):
        spec, members = draw(shapes())
        leaf = draw(st.sampled_from(leaves(found.queues)))
        found.groups.append(group_of(draw, f"g{number}", leaf, spec))
        ask, wishes = ASKS[draw(st.sampled_from(asks))], _wishes(draw)
        pods = [pod_of(f"g{number}", (name, n), ask, wishes) for name, count in members for n in range(count)]
        if draw(st.booleans()):
            _lodge(draw, found, pods, lodgings)
        found.pods.extend(pods)
    return found


def _lodge(draw: st.DrawFn, found: Cluster, pods: list[Fields], lodgings: list[Lodging]) -> None:
    """Let the gang run as far as there is room; one in four is about to lose its first pod."""
    first = draw(st.integers(0, len(lodgings) - 1))
    leaving = draw(st.integers(0, 3)) == 0
    for number, pod in enumerate(pods):
        lodged = any(room.take(found, pod) for room in lodgings[first:] + lodgings[:first])
        if lodged and leaving and number == 0:
            pod["metadata"]["deletionTimestamp"] = rfc3339(NOW - 1)
