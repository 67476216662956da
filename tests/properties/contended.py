"""Random clusters that are too small for everybody, for the twin of the engine: queues of two and three levels, gangs
of all shapes, most of them running, some of them with pods that leave. Without what the twin does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from pykai.objects import names
from pykai.objects.units import rfc3339
from tests.properties.clusters import ASKS, FREE, Ask, Lodging, Shape, created, group_of, leaves, pod_of
from tests.properties.small_world import NOW, OURS, Cluster, Fields

WHOLE = ("cpu", "much cpu", "gpu", "gpu", "two gpus")
SHARED = ("half", "half", "third", "most", "two halves", "gpu")
BY_MEMORY = ("memory", "much memory", "half", "gpu")
OFFERED: dict[str, Ask] = {**ASKS, "three gpus": ({"cpu": "1", names.NVIDIA_GPU: "3"}, {})}
PLENTY = "110"
"""Pod slots, so that those of reservation pods do not matter."""


@st.composite
def contended(draw: st.DrawFn, most: int = 10) -> Cluster:
    """Up to three nodes, and up to `most` gangs that run or wait."""
    asks = draw(st.sampled_from([WHOLE, WHOLE, SHARED, BY_MEMORY]))
    found = Cluster(queues=draw(deep_forests()))
    tight = draw(st.booleans())
    found.nodes = [_node(draw, f"n{number}", asks, tight) for number in range(draw(st.integers(1, 3)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    waiting = draw(st.integers(1, 3))
    for number in range(draw(st.integers(waiting + 3, most))):
        pods = gang_of(draw, found, f"g{number}", asks)
        if number >= waiting:
            let_run(draw, found, pods, lodgings)
        if draw(st.integers(0, 5 if number >= waiting else 1)):
            found.groups[-1]["spec"]["preemptibility"] = "preemptible"
        found.pods.extend(pods)
    return found


@st.composite
def scattered(draw: st.DrawFn) -> Cluster:
    """Every node is used in part, and somebody waits for more than any of them has left."""
    asks = draw(st.sampled_from([("gpu",), ("gpu", "two gpus"), ("half", "most", "gpu"), ("memory", "half", "gpu")]))
    found = Cluster(queues=draw(deep_forests()))
    found.nodes = [_node(draw, f"n{number}", SHARED, tight=False) for number in range(draw(st.integers(2, 4)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    for number in range(draw(st.integers(2, 6))):
        pods = gang_of(draw, found, f"g{number}", asks)
        let_run(draw, found, pods, lodgings)
        found.groups[-1]["spec"]["preemptibility"] = "preemptible"
        found.pods.extend(pods)
    for number in range(draw(st.integers(1, 2))):
        found.pods.extend(gang_of(draw, found, f"late{number}", ("two gpus", "two gpus", "three gpus", "two halves")))
    return found


@st.composite
def rivals(draw: st.DrawFn) -> Cluster:
    """Queues compete for GPUs, all of which some hold and a part of which others deserve."""
    found = Cluster()
    owners = ["q0", "q1"][: draw(st.sampled_from([1, 1, 2]))]
    holders = [_rival(draw, found, f"g{n}", owners, [1, 1, 2, 0]) for n in range(draw(st.sampled_from([1, 2, 3])))]
    askers = [_rival(draw, found, f"late{n}", ["q2", "q3"], [0, 0, 1]) for n in range(draw(st.integers(1, 2)))]
    left = held = sum(len(pods) for pods in holders)
    while left > 0:
        gpus = draw(st.integers(1, left))
        found.nodes.append(_node(draw, f"n{len(found.nodes)}", SHARED, tight=False, gpus=gpus))
        left -= gpus
    asked = draw(st.integers(1, held))
    quotas = {"q0": held - asked, "q1": draw(st.integers(0, 1)), "q2": asked, "q3": draw(st.integers(0, 1))}
    found.queues = [_quota("d", "", -1), *(_quota(name, "d", gpus) for name, gpus in quotas.items())]
    lodgings = [Lodging.of(item) for item in found.nodes]
    for pods in holders:
        let_run(draw, found, pods, lodgings)
    found.pods.extend(pod for pods in (*holders, *askers) for pod in pods)
    return found


@st.composite
def pooled(draw: st.DrawFn) -> Cluster:
    """Nodes of two pools, and pods most of which must stay in one."""
    found = draw(st.one_of(contended(), rivals(), scattered()))
    pools = {item["metadata"]["name"]: draw(st.sampled_from("ab")) for item in found.nodes}
    for item in found.nodes:
        item["metadata"]["labels"]["pool"] = pools[item["metadata"]["name"]]
    for pod in found.pods:
        if pod["metadata"]["namespace"] == OURS and draw(st.integers(0, 3)):
            pool = pools.get(pod["spec"].get("nodeName", "")) or draw(st.sampled_from("aab"))
            pod["spec"]["nodeSelector"] = {"pool": pool}
    return found


@st.composite
def short_of_cores(draw: st.DrawFn) -> Cluster:
    """Pods leave few cores on each node, and some wait for more, mostly without GPUs. No gang has pods to spare: of
    those that are equal for the gang bounds may spare others than simulations do."""
    found = Cluster(queues=draw(deep_forests()))
    for number in range(draw(st.integers(2, 4))):
        found.nodes.append(_node(draw, f"n{number}", WHOLE, tight=False))
        found.nodes[-1]["status"]["allocatable"]["cpu"] = str(draw(st.integers(2, 6)))
    lodgings = [Lodging.of(item) for item in found.nodes]
    teams = leaves(found.queues)
    for number in range(draw(st.integers(3, 9))):
        pods = _rival(draw, found, f"g{number}", teams, [0], ("cpu", "cpu", "cpu", "much cpu", "gpu"))
        let_run(draw, found, pods, lodgings)
        found.pods.extend(pods)
    for number in range(draw(st.integers(1, 2))):
        found.pods.extend(_rival(draw, found, f"late{number}", teams, [0], ("much cpu", "much cpu", "cpu", "gpu")))
    return found


@st.composite
def lookalikes(draw: st.DrawFn) -> Cluster:
    """Gangs of few shapes, some of which have started, and nodes that run out of GPUs, cores or slots."""
    teams = [f"q{number}" for number in range(draw(st.integers(1, 3)))]
    found = Cluster(queues=[_quota("d", "", -1), *(_queue(draw, name, "d") for name in teams)])
    found.nodes = [_node(draw, f"n{n}", WHOLE, True, draw(st.integers(1, 6))) for n in range(draw(st.integers(2, 5)))]
    lodgings = [Lodging.of(item) for item in found.nodes]
    kinds = [(draw(st.integers(1, 4)), draw(st.integers(0, 3)), draw(st.sampled_from(WHOLE))) for _ in range(2)]
    for number in range(draw(st.integers(2, 7))):
        least, spare, ask = kinds[draw(st.sampled_from([0, 0, 1]))]
        found.groups.append(group_of(draw, f"g{number}", draw(st.sampled_from(teams)), {"minMember": least}))
        found.groups[-1]["spec"].update(preemptibility="preemptible", priorityClassName="train")
        pods = [pod_of(f"g{number}", ("", each), ASKS[ask], {}) for each in range(least + spare)]
        if draw(st.booleans()):
            let_run(draw, found, pods[: least + draw(st.integers(0, 1))], lodgings)
        found.pods.extend(pods)
    return found


def _rival(
    draw: st.DrawFn,
    found: Cluster,
    name: str,
    teams: Sequence[str],
    spare: Sequence[int],
    asks: Sequence[str] = ("gpu",) * 6 + ("half",),
) -> list[Fields]:
    """A preemptible gang whose pods ask for the same, by default for a GPU each or for shares of one."""
    least = draw(st.integers(1, 3))
    found.groups.append(group_of(draw, name, draw(st.sampled_from(teams)), {"minMember": least}))
    found.groups[-1]["spec"]["preemptibility"] = "preemptible"
    ask = ASKS[draw(st.sampled_from(asks))]
    return [pod_of(name, ("", number), ask, {}) for number in range(least + draw(st.sampled_from(spare)))]


def _quota(name: str, parent: str, gpus: int) -> Fields:
    resources = {"cpu": FREE, "memory": FREE, "gpu": {**FREE, "quota": gpus}}
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}}


# --------------------------------------------------------------------------------------------------------------- queues
@st.composite
def deep_forests(draw: st.DrawFn) -> list[Fields]:
    """Queues of two levels, a few of them with a third."""
    found = []
    for root in range(draw(st.sampled_from([1, 1, 2, 2, 3]))):
        found.append(_queue(draw, f"d{root}"))
        for name in [f"d{root}-q{number}" for number in range(draw(st.sampled_from([1, 2, 2, 3])))]:
            found.append(_queue(draw, name, f"d{root}"))
            below = draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
            found.extend(_queue(draw, f"{name}-{number}", name) for number in range(below))
    return found


def _queue(draw: st.DrawFn, name: str, parent: str = "") -> Fields:
    """Quotas are small, some of them for cores as well; limits are rare."""
    gpu = {"quota": draw(st.sampled_from([1, 0, 2, 1, 3, 4, -1])), "limit": -1, "overQuotaWeight": 1}
    cpu = dict(FREE)
    for unlikely, change in (
        (7, {"limit": draw(st.integers(1, 4))}),
        (3, {"overQuotaWeight": draw(st.sampled_from([0, 2, 3]))}),
    ):
        if draw(st.integers(0, unlikely)) == unlikely:
            gpu.update(change)
    if draw(st.integers(0, 3)) == 3:
        cpu.update(quota=draw(st.sampled_from([0, 1000, 2000, 4000])), limit=draw(st.sampled_from([-1, -1, 3000])))
    spec: Fields = {"resources": {"cpu": cpu, "memory": FREE, "gpu": gpu}, "parentQueue": parent}
    if draw(st.integers(0, 4)) == 4:
        spec["priority"] = draw(st.sampled_from([50, 200]))
    return {"metadata": {"name": name, "creationTimestamp": created(draw)}, "spec": spec}


# ---------------------------------------------------------------------------------------------------------------- nodes
def _node(draw: st.DrawFn, name: str, asks: Sequence[str], tight: bool, gpus: int | None = None) -> Fields:
    cores = draw(st.sampled_from("12346")) if tight else "64"
    slots = draw(st.sampled_from(["1", "3", PLENTY])) if tight and asks is WHOLE else PLENTY
    offer = {"cpu": cores, "memory": "64Gi", "pods": slots}
    gpus = draw(st.sampled_from([1, 2, 2, 3, 4, 0])) if gpus is None else gpus
    labels = {}
    if gpus:
        offer[names.NVIDIA_GPU] = str(gpus)
        labels[names.GPU_MEMORY_LABEL] = draw(st.sampled_from(["16384", "40960"]))
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": offer}}


# ---------------------------------------------------------------------------------------------------------------- gangs
def gang_of(
    draw: st.DrawFn, found: Cluster, name: str, asks: Sequence[str], offered: Mapping[str, Ask] = OFFERED
) -> list[Fields]:
    spec, members = draw(plain_shapes())
    found.groups.append(group_of(draw, name, draw(st.sampled_from(leaves(found.queues))), spec))
    first = offered[draw(st.sampled_from(asks))]
    others = offered[draw(st.sampled_from(asks))] if draw(st.integers(0, 4)) == 0 else first
    pods = []
    for sub_group, count in members:
        for number in range(count):
            pod = pod_of(name, (sub_group, number), first if number % 2 == 0 else others, {})
            if draw(st.integers(0, 7)) == 0:
                pod["metadata"]["labels"][names.TASK_PRIORITY_LABEL] = str(draw(st.integers(0, 2)))
            pods.append(pod)
    return pods


@st.composite
def plain_shapes(draw: st.DrawFn) -> Shape:
    """Singles, gangs, elastic gangs, trees of sub-groups; without topology."""
    kind = draw(st.sampled_from(["single", "single", "gang", "elastic", "elastic", "sub-groups", "nested"]))
    if kind == "single":
        return {"minMember": 1}, (("", 1),)
    if kind in ("gang", "elastic"):
        least = draw(st.integers(1, 3))
        return {"minMember": least}, (("", least + (draw(st.integers(1, 3)) if kind == "elastic" else 0)),)
    parts = ("one", "two", "three")[: draw(st.integers(2, 3))]
    least_of = {name: draw(st.integers(0, 2)) for name in parts}
    above = {name: "both" for name in parts if name != "three" and kind == "nested"}
    groups: list[Fields] = [{"name": n, "minMember": least_of[n], "parent": above.get(n, "")} for n in parts]
    if above:
        groups.append({"name": "both", **_at_least(draw, len(above))})
    top = len(parts) - len(above) + bool(above)
    members = tuple((name, max(least + draw(st.integers(-1, 1)), 0)) for name, least in least_of.items())
    return {"subGroups": groups, **_at_least(draw, top)}, members


def _at_least(draw: st.DrawFn, most: int) -> Fields:
    return {"minSubGroup": draw(st.integers(1, most))} if draw(st.booleans()) else {}


def let_run(draw: st.DrawFn, found: Cluster, pods: list[Fields], lodgings: list[Lodging]) -> None:
    """Let the gang run as far as there is room, its pods here or there; one in six is about to lose a pod."""
    together, first = draw(st.booleans()), draw(st.integers(0, len(lodgings) - 1))
    leaving = draw(st.integers(0, 5)) == 0
    for number, pod in enumerate(pods):
        start = first if together else (first + number) % len(lodgings)
        if any(room.take(found, pod) for room in lodgings[start:] + lodgings[:start]) and leaving and number == 0:
            pod["metadata"]["deletionTimestamp"] = rfc3339(NOW - 1)
