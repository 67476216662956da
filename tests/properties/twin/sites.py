"""Random small clusters with topologies: uneven racks, nodes without some labels, gangs of all shapes whose sub-groups
ask for levels of one topology or of several, some of them running, some of those leaving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names
from pykai.objects.units import rfc3339
from tests.properties.clusters import ASKS, FREE, Ask, Lodging, Shape, group_of, leaves, pod_of
from tests.properties.contended import deep_forests
from tests.properties.small_world import NOW, Cluster, Fields, snapshot_of

NIC = "example.com/nic"
OFFERED: dict[str, Ask] = {
    **ASKS,
    "three gpus": ({"cpu": "1", names.NVIDIA_GPU: "3"}, {}),
    "nic": ({"cpu": "1", NIC: "1"}, {}),
}
WHOLE = ("gpu", "gpu", "two gpus", "cpu", "much cpu", "nothing", "nic", "three gpus")
SHARED = ("half", "third", "most", "two halves", "gpu", "cpu")
BY_MEMORY = ("memory", "much memory", "half", "gpu")
PLENTY = "110"
TOPOLOGIES: Mapping[str, Sequence[tuple[str, str]]] = {
    "deep": (("block", "wide"), ("rack", "narrow"), ("host", "")),
    "power": (("feed", ""),),
}
"""Levels as (label, alias), beside the topology `site` that all small worlds have."""
LEVELS = {
    "site": ("block", "rack"),
    **{name: tuple(label for label, _ in levels) for name, levels in TOPOLOGIES.items()},
}
ALIASES = {(name, label): alias for name, levels in TOPOLOGIES.items() for label, alias in levels if alias}


def snapshot_with_topologies(cluster: Cluster) -> Snapshot:
    more: list[Any] = []
    for name, levels in TOPOLOGIES.items():
        spec = {"levels": [{"nodeLabel": label, **({"alias": alias} if alias else {})} for label, alias in levels]}
        item = {"metadata": {"name": name}, "spec": spec}
        more.append(kinds.decode(msgspec.json.encode(item), kinds.Topology))
    return snapshot_of([*cluster.objects(), *more])


@st.composite
def sites(draw: st.DrawFn, most: int = 5) -> Cluster:
    """Up to seven nodes and up to `most` gangs."""
    asks = draw(st.sampled_from([WHOLE, WHOLE, WHOLE[:3], SHARED, BY_MEMORY]))
    found = _empty(draw, asks)
    lodgings = [Lodging.of(item) for item in found.nodes]
    for number in range(draw(st.integers(1, most))):
        pods = _gang(draw, found, f"g{number}", _kind(draw, asks))
        if draw(st.integers(0, 2)) == 0:
            _run(draw, found, pods, lodgings)
        found.pods.extend(pods)
    return found


@st.composite
def sites_of_lookalikes(draw: st.DrawFn) -> Cluster:
    """Gangs of two kinds, more of them than there is room for."""
    asks = draw(st.sampled_from([WHOLE, WHOLE[:3], SHARED]))
    found = _empty(draw, asks)
    chosen = [_kind(draw, asks) for _ in range(2)]
    for number in range(draw(st.integers(3, 10))):
        found.pods.extend(_gang(draw, found, f"g{number}", draw(st.sampled_from(chosen))))
    return found


@st.composite
def crowded_sites(draw: st.DrawFn) -> Cluster:
    """Queues with quotas; most gangs run, and somebody waits for a domain that others are in."""
    asks = draw(st.sampled_from([WHOLE[:3], WHOLE[:3], ("gpu",), SHARED]))
    found = _empty(draw, asks)
    found.queues = draw(deep_forests())
    lodgings = [Lodging.of(item) for item in found.nodes]
    waiting = draw(st.integers(1, 2))
    for number in range(draw(st.integers(waiting + 2, 7))):
        pods = _gang(draw, found, f"g{number}", _kind(draw, asks))
        if number >= waiting:
            _run(draw, found, pods, lodgings)
        found.pods.extend(pods)
    return found


def _empty(draw: st.DrawFn, asks: Sequence[str]) -> Cluster:
    """Nodes and queues."""
    found, resources = Cluster(), {"cpu": FREE, "memory": FREE, "gpu": FREE}
    for name, parent in (("d", ""), ("q0", "d"), ("q1", "d")):
        found.queues.append({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}})
    tight = draw(st.booleans()) and not {"half", "memory"} & set(asks)
    found.nodes = [_node(draw, f"n{number}", tight) for number in range(draw(st.integers(1, 7)))]
    return found


def _node(draw: st.DrawFn, name: str, tight: bool) -> Fields:
    labels = {"block": draw(st.sampled_from("ab")), "rack": draw(st.sampled_from("xyz"))}
    labels |= {"host": draw(st.sampled_from([name, name, "h"])), "feed": draw(st.sampled_from("12"))}
    if draw(st.integers(0, 6)) == 6:
        del labels[draw(st.sampled_from(sorted(labels)))]
    offer = {"cpu": draw(st.sampled_from("12346")) if tight else "64", "memory": "64Gi"}
    offer["pods"] = draw(st.sampled_from(["1", "2", "3", PLENTY])) if tight else PLENTY
    gpus = draw(st.sampled_from([1, 2, 2, 3, 4, 0]))
    if gpus:
        offer[names.NVIDIA_GPU] = str(gpus)
        labels[names.GPU_MEMORY_LABEL] = draw(st.sampled_from(["16384", "40960"]))
    if draw(st.integers(0, 2)):
        offer[NIC] = str(draw(st.integers(1, 2)))
    spec = {"unschedulable": True} if draw(st.integers(0, 9)) == 9 else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": offer}}


# ---------------------------------------------------------------------------------------------------------------- gangs
Kind = tuple[Fields, tuple[tuple[str, int], ...], tuple[str, str]]
"""Spec fields, (sub-group, pods) pairs, and what every other pod asks for."""


def _kind(draw: st.DrawFn, asks: Sequence[str]) -> Kind:
    spec, members = draw(shapes_with_levels())
    first = draw(st.sampled_from(asks))
    return spec, members, (first, draw(st.sampled_from(asks)) if draw(st.integers(0, 2)) == 0 else first)


def _gang(draw: st.DrawFn, found: Cluster, name: str, kind: Kind) -> list[Fields]:
    spec, members, asks = kind
    found.groups.append(group_of(draw, name, draw(st.sampled_from(leaves(found.queues))), spec))
    found.groups[-1]["spec"]["preemptibility"] = "preemptible"
    return [
        pod_of(name, (sub_group, number), OFFERED[asks[number % 2]], {})
        for sub_group, count in members
        for number in range(count)
    ]


def _levels(draw: st.DrawFn, likely: int = 2) -> Fields:
    """A constraint of a sub-group, or none; names are wrong now and then."""
    if draw(st.integers(0, likely)) == 0:
        return {}
    topology = draw(st.sampled_from(["site"] * 5 + ["deep"] * 4 + ["power"] * 2))
    levels = LEVELS[topology]
    kind = draw(st.sampled_from(["required"] * 3 + ["preferred"] * 3 + ["both"] * 3 + ["wrong"]))
    wish: Fields = {"topology": topology}
    if kind in ("required", "both"):
        wish["requiredTopologyLevel"] = draw(st.sampled_from(levels))
    if kind in ("preferred", "both"):
        wish["preferredTopologyLevel"] = draw(st.sampled_from(levels))
    if kind == "both" and draw(st.integers(0, 3)):
        at, wider = (levels.index(wish[f"{k}TopologyLevel"]) for k in ("preferred", "required"))
        wish["preferredTopologyLevel"], wish["requiredTopologyLevel"] = levels[max(at, wider)], levels[min(at, wider)]
    if kind == "wrong":
        wish.update(draw(st.sampled_from([{}, {"topology": "none"}, {"requiredTopologyLevel": "row"}])))
    return {"topologyConstraint": wish}


@st.composite
def shapes_with_levels(draw: st.DrawFn) -> Shape:
    kind = draw(st.sampled_from(["gang", "gang", "elastic", "sub-groups", "sub-groups", "nested"]))
    if kind in ("gang", "elastic"):
        least = draw(st.integers(1, 4))
        more = draw(st.integers(1, 3)) if kind == "elastic" else 0
        return {"minMember": least, **_levels(draw, 4)}, (("", least + more),)
    parts = ("one", "two", "three")[: draw(st.integers(2, 3))]
    least_of = {name: draw(st.integers(0, 3)) for name in parts}
    above = {name: {"parent": "both"} for name in parts if name != "three" and kind == "nested"}
    groups: list[Fields] = [{"name": n, "minMember": least_of[n], **above.get(n, {}), **_levels(draw)} for n in parts]
    if above:
        groups.append({"name": "both", **_at_least(draw, len(above)), **_levels(draw)})
    members = tuple((name, max(least + draw(st.integers(-1, 1)), 0)) for name, least in least_of.items())
    top = len(parts) - len(above) + bool(above)
    return {"subGroups": groups, **_at_least(draw, top), **_levels(draw, 1)}, members


def _at_least(draw: st.DrawFn, most: int) -> Fields:
    return {"minSubGroup": draw(st.integers(1, most))} if draw(st.booleans()) else {}


def _run(draw: st.DrawFn, found: Cluster, pods: list[Fields], lodgings: list[Lodging]) -> None:
    """Let a part of the gang run, its pods here or there; one in four is about to lose a pod."""
    together, first = draw(st.booleans()), draw(st.integers(0, len(lodgings) - 1))
    leaving, upto = draw(st.integers(0, 3)) == 0, draw(st.integers(1, max(len(pods), 1)))
    for number, pod in enumerate(pods[:upto]):
        start = first if together else (first + number) % len(lodgings)
        if any(room.take(found, pod) for room in lodgings[start:] + lodgings[:start]) and leaving and number == 0:
            pod["metadata"]["deletionTimestamp"] = rfc3339(NOW - 1)
