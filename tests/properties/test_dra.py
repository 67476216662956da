"""The allocator of devices and its twin find the same: the same nodes can serve the claims, and what is given breaks no
rule; of several alternatives of the first request the one that comes first.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.objects import kinds
from pykai.plugins.dra import DynamicResources, Session
from pykai.plugins.dra.selectors import Selectors
from tests.builders import as_kind
from tests.properties.dra_twin import Choice, Device, Fields, Meanings, Site, allocations, attribute, capacity
from tests.unit.plugins.small_clusters import cycle, node, pod, row

DRIVERS = ("a.example.com", "b.example.com")
A = DRIVERS[0]


def is_x(driver: str, device: Fields) -> bool:
    return attribute(driver, device, f"{A}/model") == ("string", "x")


def above_one(driver: str, device: Fields) -> bool:
    return (attribute(driver, device, f"{A}/idx") or ("int", 0))[1] > 1


def large(driver: str, device: Fields) -> bool:
    return (capacity(driver, device, f"{A}/mem") or 0) >= 20 * 2**30


MEANINGS: Meanings = {
    "true": lambda driver, device: True,
    f"device.driver == '{A}'": lambda driver, device: driver == A,
    f"device.attributes['{A}'].model == 'x'": is_x,
    f"'idx' in device.attributes['{A}'] && device.attributes['{A}'].idx > 1": above_one,
    f"has(device.capacity['{A}'].mem) && device.capacity['{A}'].mem.compareTo(quantity('20Gi')) >= 0": large,
}
Selectors().selects(
    "true", A, {}
)  # the CEL library changes the recursion limit when it is first used: not during an example
ZONES = [{"key": "zone", "operator": operator, "values": ["u"]} for operator in ("In", "NotIn")]
PLACES: list[Fields] = [
    {"nodeName": "n"},
    {"nodeName": "n"},
    {"nodeName": "m"},
    {"allNodes": True},
    *({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}} for zone in ZONES),
]
ROOTS: list[Fields] = [{"string": "1"}, {"string": "2"}, {"int": 1}, {"bool": True}, {"version": "1.0.0"}]
TAINTS: list[Fields] = [{"key": "k", "value": "1", "effect": effect} for effect in ("NoSchedule", "NoExecute", "None")]
TOLERATIONS: list[Fields] = [
    {"operator": "Exists"},
    {"key": "k", "operator": "Equal", "value": "1"},
    {"key": "k", "operator": "Exists", "effect": "NoExecute"},
]


POLICIES: list[Fields] = [
    {},
    {"default": "5Gi"},
    {"default": "4Gi", "validValues": ["4Gi", "8Gi", "20Gi"]},
    {"default": "3Gi", "validRange": {"min": "3Gi", "max": "15Gi", "step": "4Gi"}},
]


# ----------------------------------------------------------------------------------------------------- random clusters
def selectors(chance: Random) -> list[Fields]:
    texts = [chance.choice(["true"] * 4 + list(MEANINGS))] if chance.random() < 0.5 else []
    return [{"cel": {"expression": text}} for text in texts]


def device(chance: Random, name: str, counting: bool, own_place: bool) -> Fields:
    found: Fields = {"name": name, "attributes": {f"{A}/model": {"string": chance.choice("xy")}}}
    if chance.random() < 0.7:
        found["attributes"]["idx"] = {"int": chance.randint(0, 3)}
    if chance.random() < 0.7:
        found["attributes"]["x.org/root"] = chance.choice(ROOTS)
    if chance.random() < 0.7:
        found["capacity"] = {f"{A}/mem": {"value": chance.choice(["10Gi", "40Gi"])}}
    if chance.random() < 0.25:
        found["allowMultipleAllocations"] = True
        for stated in found.get("capacity", {}).values():
            stated |= {"requestPolicy": policy} if (policy := chance.choice(POLICIES)) else {}
    if chance.random() < 0.25:
        found["taints"] = [chance.choice(TAINTS)]
    if counting:
        use = {"c": {"value": str(chance.randint(1, 3))}}
        found["consumesCounters"] = [{"counterSet": "cs", "counters": use}]
    return {**found, **(chance.choice(PLACES) if own_place else {})}


def pool(chance: Random, name: str) -> list[Fields]:
    """The slices of a pool: one or two of the newest generation, perhaps one of an older, perhaps one missing."""
    driver, counting, size = chance.choice(DRIVERS), chance.random() < 0.35, chance.randint(1, 2)
    missing = int(chance.random() < 0.1)
    found = []
    for at, generation in enumerate([2] * size + [1] * int(chance.random() < 0.2)):
        own_place = chance.random() < 0.2
        where = {"perDeviceNodeSelection": True} if own_place else chance.choice(PLACES)
        some = [device(chance, f"d{at}{n}", counting, own_place) for n in range(chance.randint(1, 4))]
        stated = {"name": name, "generation": generation, "resourceSliceCount": size + missing}
        spec = {"driver": driver, "pool": stated, "devices": some, **where}
        if counting and at == 0:
            spec["sharedCounters"] = [{"name": "cs", "counters": {"c": {"value": str(chance.randint(2, 7))}}}]
        found.append(spec)
    return found


def ask(chance: Random) -> Fields:
    size = {"allocationMode": "All"} if chance.random() < 0.25 else {"count": chance.choice([1, 1, 2, 3])}
    tolerations = [chance.choice(TOLERATIONS)] if chance.random() < 0.3 else []
    chosen = chance.choice(["k1", "k2"])
    wanted = {"capacity": {"requests": {f"{A}/mem": chance.choice(["1Gi", "5Gi", "9Gi", "30Gi"])}}}
    part = wanted if chance.random() < 0.3 else {}
    return {"deviceClassName": chosen, **size, "selectors": selectors(chance), "tolerations": tolerations, **part}


def claim(chance: Random) -> Fields:
    requests: list[Fields] = []
    for at in range(chance.choice([1, 1, 2])):
        if chance.random() < 0.35:
            requests.append({"name": f"r{at}", "firstAvailable": [{"name": f"s{n}", **ask(chance)} for n in range(2)]})
        else:
            admin = {"adminAccess": True} if chance.random() < 0.15 else {}
            requests.append({"name": f"r{at}", "exactly": {**ask(chance), **admin}})
    constraint = {"matchAttribute": chance.choice(["x.org/root", f"{A}/model"])}
    named = chance.choice([["r0"], ["r0/s0"], []])
    return {"requests": requests, "constraints": [{**constraint, "requests": named}] * int(chance.random() < 0.4)}


def rule(chance: Random) -> Fields:
    names = {"driver": chance.choice(DRIVERS), "pool": "p0", "device": chance.choice(["d00", "d01"])}
    chosen = {key: name for key, name in names.items() if chance.random() < 0.6}
    return {"deviceSelector": chosen, "taint": chance.choice(TAINTS)}


def site_of(chance: Random) -> Site:
    slices = [spec for at in range(chance.randint(1, 3)) for spec in pool(chance, f"p{at}")]
    classes = {name: {"selectors": selectors(chance)} for name in ("k1", "k2")}
    site = Site("n", {"zone": chance.choice("uv")}, slices, classes, frozenset(), MEANINGS)
    used = [d for d in sorted(site.every()) if chance.random() < 0.2]
    held = frozenset(d for d in used if not site.multiple(d))
    shares = {d: Fraction(chance.choice([2, 6]) * 2**30) for d in used if site.multiple(d)}
    return replace(site, held=held, shares=shares, rules=[rule(chance) for _ in range(chance.choice([0, 0, 1, 2]))])


# --------------------------------------------------------------------------------------------------------- the product
def in_use(site: Site) -> Fields:
    """A claim that has devices already."""
    results: list[Fields] = [
        {"request": "r", "driver": d, "pool": pool, "device": name}
        | ({"shareID": name, "consumedCapacity": _memory(site, device)} if device in site.shares else {})
        for device in sorted({*site.held, *site.shares})
        for d, pool, name in [device]
    ]
    users = [{"resource": "pods", "name": "z", "uid": "z"}]
    return {"allocation": {"devices": {"results": results}}, "reservedFor": users}


def _memory(site: Site, device: Device) -> Fields:
    return {f"{A}/mem": str(site.shares[device])} if site.every()[device].get("capacity") else {}


def offered(site: Site, wanted: list[Fields]) -> list[list[Choice]] | str:
    """What the product gives the claims on the site's node, or why it gives nothing."""

    def made(name: str, asked: Fields, **rest: Any) -> Any:
        meta = {"name": name, "namespace": "ns"}
        return as_kind(kinds.ResourceClaim, {"metadata": meta, "spec": {"devices": asked}, **rest})

    objects: list[Any] = [node("m", {"zone": "u"}), node(site.node, dict(site.labels))]
    for at, spec in enumerate(site.slices):
        objects.append(as_kind(kinds.ResourceSlice, {"metadata": {"name": f"s{at}"}, "spec": spec}))
    for name, fields in site.classes.items():
        objects.append(as_kind(kinds.DeviceClass, {"metadata": {"name": name}, "spec": fields}))
    for at, spec in enumerate(site.rules):
        objects.append(as_kind(kinds.DeviceTaintRule, {"metadata": {"name": f"t{at}"}, "spec": spec}))
    objects += [made(f"c{at}", asked) for at, asked in enumerate(wanted)]
    objects.append(made("held", {"requests": []}, status=in_use(site)))
    named = [{"name": f"c{at}", "resourceClaimName": f"c{at}"} for at in range(len(wanted))]
    of = cycle([*objects, pod("p", {"resourceClaims": named})], [DynamicResources()])
    books = of.resources.get(Session)
    assert books is not None
    offer = books.offer(row(of, "p"), of.snapshot.nodes.rows[site.node])
    return offer if isinstance(offer, str) else [_choices(allocation) for _, allocation in offer]


def _choices(allocation: Any) -> list[Choice]:
    found: dict[tuple[str, bool], list[Device]] = {}
    for result in allocation["devices"]["results"]:
        key = (result["request"], bool(result.get("adminAccess")))
        found.setdefault(key, []).append((result["driver"], result["pool"], result["device"]))
    return [(request, admin, tuple(sorted(some))) for (request, admin), some in found.items()]


@settings(max_examples=250)
@given(st.integers(0, 2**32 - 1))
def test_the_allocator_and_its_twin_find_the_same(seed: int) -> None:
    chance = Random(seed)
    site, wanted = site_of(chance), [claim(chance) for _ in range(chance.choice([1, 1, 2]))]
    first = next(allocations(site, wanted), None)
    given_out = offered(site, wanted)
    if first is None:
        assert given_out == "cannot allocate all DRA claims on node(s)"
        return
    assert isinstance(given_out, list)
    assert list(allocations(site, wanted, only=[choice for choices in given_out for choice in choices])) == [given_out]
    assert given_out[0][0][0] == first[0][0][0]
