"""Random zones for clusters that others draw: nodes of all policies, small zones, pods of all kinds that sit there."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from pykai.objects import names
from pykai.objects.units import amount, rfc3339
from tests.properties.clusters import Ask, Lodging
from tests.properties.contended import OFFERED, deep_forests, gang_of, let_run
from tests.properties.small_world import NOW, OURS, Cluster, Fields
from tests.properties.twin.towns import pods_of
from tests.properties.twin.zones import Boards

POLICIES = (*["single-numa-node"] * 4, *["restricted"] * 4, "best-effort", "none")
REPORTED = (("cpu",), ("cpu", "gpu"), ("cpu", "gpu"), ("gpu",), ("cpu", "memory", "gpu"))
CORES: dict[str, Ask] = {f"{number} cores": ({"cpu": str(number), "memory": "1Gi"}, {}) for number in (1, 2, 3)}
GIB = 1 << 30
Parts = list[dict[str, float]]


@st.composite
def roomy(draw: st.DrawFn) -> Cluster:
    """Nodes have cores for everybody, so that only zones are short; many pods leave."""
    found = Cluster(queues=draw(deep_forests()))
    gpus = draw(st.sampled_from([{}, {names.NVIDIA_GPU: "2"}]))
    offer = {"cpu": "64", "memory": "64Gi", "pods": "110", **gpus}
    for number in range(draw(st.sampled_from([1, 1, 2, 3]))):
        labels = {names.GPU_MEMORY_LABEL: "16384"}
        metadata = {"name": f"n{number}", "labels": labels}
        found.nodes.append({"metadata": metadata, "spec": {}, "status": {"allocatable": dict(offer)}})
    lodgings = [Lodging.of(item) for item in found.nodes]
    waiting = draw(st.integers(1, 4))
    for number in range(waiting + draw(st.integers(1, 4))):
        pods = gang_of(draw, found, f"g{number}", (*CORES, *(["gpu", "half"] if gpus else [])), {**CORES, **OFFERED})
        if number >= waiting:
            let_run(draw, found, pods, lodgings)
        for pod in pods:
            if "nodeName" in pod["spec"] and draw(st.integers(0, 2)) == 0:
                pod["metadata"]["deletionTimestamp"] = rfc3339(NOW - 1)
        found.pods.extend(pods)
    return found


@st.composite
def boards(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Boards:
    found = Boards(draw(clusters), reconstructed=bool(draw(st.integers(0, 4))))
    for group in found.cluster.groups:
        limited, halved, first = (
            draw(st.sampled_from([True, True, False])),
            draw(st.booleans()),
            draw(st.integers(0, 5)),
        )
        for pod in pods_of(found.cluster, group):
            _ask(pod, limited, halved, first)
    for node in found.cluster.nodes:
        if draw(st.integers(0, 5)):
            _report(draw, found, node)
    return found


# ---------------------------------------------------------------------------------------------------------------- pods
def _ask(pod: Fields, limited: bool, halved: bool, first: int) -> None:
    """All in all pods ask for what they asked for, but for memory: in two containers, or one of them a sidecar or one
    that runs before the others."""
    container = pod["spec"]["containers"][0]
    requests = container["resources"]["requests"]
    if limited:
        requests.setdefault("memory", "1Gi")
    parts = _halves(requests) if halved else [requests]
    boxes = [{"name": f"c{number}", "resources": _resources(part, limited)} for number, part in enumerate(parts)]
    pod["spec"]["containers"] = boxes
    if first == 0 and halved:
        pod["spec"]["initContainers"] = [{**boxes[0], "restartPolicy": "Always"}]
        pod["spec"]["containers"] = boxes[1:]
    elif first == 1:
        pod["spec"]["initContainers"] = [{**boxes[0], "name": "before"}]


def _resources(requests: Fields, limited: bool) -> Fields:
    return {"requests": requests, "limits": dict(requests)} if limited else {"requests": requests}


def _halves(requests: Fields) -> list[Fields]:
    """Two parts of whole devices, cores and GiB where that goes."""
    parts: list[Fields] = [{}, {}]
    for name, text in requests.items():
        much = amount(text)
        if name == "cpu":
            whole = much // 2 if much >= 2 else much / 2
            parts[0][name], parts[1][name] = f"{round(whole * 1000)}m", f"{round((much - whole) * 1000)}m"
        elif name == "memory":
            parts[0][name] = parts[1][name] = str(round(much / 2))
        else:
            parts[0][name], parts[1][name] = str(int(much) - int(much) // 2), str(int(much) // 2)
    return [{name: text for name, text in part.items() if text != "0"} for part in parts]


# --------------------------------------------------------------------------------------------------------------- zones
def _report(draw: st.DrawFn, found: Boards, node: Fields) -> None:
    """Zones are listed backwards: their numbers order them."""
    name, count = node["metadata"]["name"], draw(st.sampled_from([1, 2, 2, 2, 3]))
    zones = [_zone(draw, node, count) for _ in range(count)]
    left = [dict(zone) for zone in zones]
    for pod in found.cluster.pods:
        if pod["metadata"]["namespace"] == OURS and pod["spec"].get("nodeName") == name:
            _sit(draw, pod, left)
    listed = [_listed(f"node-{number}", *amounts) for number, amounts in enumerate(zip(zones, left, strict=True))]
    stated = {
        "topologyManagerPolicy": draw(st.sampled_from(POLICIES)),
        "topologyManagerScope": draw(st.sampled_from(["pod", "container"])),
    }
    attributes = [{"name": key, "value": value} for key, value in stated.items()]
    found.reports[name] = {"metadata": {"name": name}, "attributes": attributes, "zones": listed[::-1]}


def _zone(draw: st.DrawFn, node: Fields, zones: int) -> dict[str, float]:
    gpus = int(node["status"]["allocatable"].get(names.NVIDIA_GPU, 0))
    amounts: dict[str, float] = {}
    for kind in draw(st.sampled_from(REPORTED)):
        if kind == "cpu":
            amounts["cpu"] = draw(st.sampled_from([2, 3, 3, 4, 4, 1, 0]))
        elif kind == "memory":
            amounts["memory"] = draw(st.integers(0, 4)) * GIB
        elif gpus:
            amounts[names.NVIDIA_GPU] = draw(st.sampled_from([gpus // zones, -(-gpus // zones), gpus]))
    return amounts


def _listed(name: str, allocatable: Fields, available: Fields) -> Fields:
    resources = [
        {"name": key, "allocatable": str(much), "available": str(max(available[key], 0))}
        for key, much in allocatable.items()
    ]
    return {"name": name, "type": "Node", "resources": resources}


def _sit(draw: st.DrawFn, pod: Fields, left: Parts) -> None:
    """Most pods sit in the first zone with room for them, some anywhere; of few nothing is known, or nonsense."""
    how = draw(st.sampled_from(["first"] * 8 + ["anywhere", "apart", "unknown", "nowhere"]))
    asked = _asked(pod, left)
    if how == "nowhere" or not asked:
        return
    rooms = [n for n, zone in enumerate(left) if all(zone.get(name, 0) >= much for name, much in asked.items())]
    zone = rooms[0] if how == "first" and rooms else draw(st.integers(0, len(left) - 1))
    shares = [(zone, asked)]
    if how == "apart" and len(left) > 1:
        shares = [(at, {name: much / 2 for name, much in asked.items()}) for at in (0, 1)]
    for at, amounts in shares if how != "unknown" else ():
        for name, much in amounts.items():
            left[at][name] = left[at].get(name, 0) - much
    record = [
        {"zone": f"node-{9 if how == 'unknown' else at}", "amount": {k: f"{round(v * 1000)}m" for k, v in some.items()}}
        for at, some in shares
    ]
    note = draw(st.sampled_from([names.NUMA_OBSERVED, names.NUMA_OBSERVED, names.NUMA_PREDICTED]))
    pod["metadata"]["annotations"][note] = json.dumps(record)


def _asked(pod: Fields, zones: Sequence[Fields]) -> dict[str, float]:
    """What the pod asks for of that which zones have."""
    found: dict[str, float] = {}
    for box in pod["spec"]["containers"]:
        for name, text in box["resources"]["requests"].items():
            if any(name in zone for zone in zones):
                found[name] = found.get(name, 0.0) + amount(text)
    return found
