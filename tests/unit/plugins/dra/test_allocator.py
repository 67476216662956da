"""Which devices serve claims: counts, selectors, constraints, pools, taints, partitions."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.journal import Journal
from pykai.objects import kinds
from pykai.objects.units import parse_quantity
from pykai.plugins.dra.allocator import Candidates, Site, allocate
from pykai.plugins.dra.allocator_cache import AllocatorCache
from pykai.plugins.dra.claims import Reference, claim_demand
from pykai.plugins.dra.devices import Inventory, TaintRules, consumption
from pykai.plugins.dra.ledger import open_ledger
from tests.builders import as_kind
from tests.unit.plugins.dra.dra_objects import (
    CLASS,
    DRIVER,
    allocated,
    claim,
    device,
    device_class,
    devices_of,
    devices_slice,
    gpus,
    request,
)
from tests.unit.plugins.small_clusters import cycle, node

HERE = {"nodeName": "n"}


def offer(claims: list[Any], others: list[Any], classes: list[Any] | None = None, **labels: str) -> list[str] | str:
    """The devices that the unallocated claims get on node n, or why they get none; `others`: slices and taint rules."""
    objects = [node("n", labels), *claims, *others, *(classes or [device_class()])]
    snapshot = cycle(objects, ()).snapshot
    rules = TaintRules(snapshot.objects.device_taint_rules, snapshot.objects.device_classes)
    inventory = Inventory(snapshot.objects.resource_slices, snapshot.nodes, rules)
    ledger = open_ledger(Journal(), inventory, snapshot.objects.resource_claims, frozenset())
    desk = AllocatorCache(snapshot, ledger, inventory)
    wanted = [Reference(c.metadata.name, ("ns", c.metadata.name), True) for c in claims if c.status is None]
    answer = desk.offer(wanted, 0, None)
    if isinstance(answer, str):
        return answer
    return [name for _, allocation in answer for name in devices_of(allocation)]


NONE = "cannot allocate all DRA claims on node(s)"


def mixed() -> Any:
    models = ("A100", "H100", "A100", "H100")
    return devices_slice(HERE, [device(str(i), model=model, root=i // 2) for i, model in enumerate(models)])


def expression(text: str) -> list[Any]:
    return [{"cel": {"expression": f'device.attributes["{DRIVER}"].{text}'}}]


ONE_ROOT = [{"matchAttribute": f"{DRIVER}/root"}]
CASES: dict[str, tuple[list[Any], list[Any], Any]] = {
    "first devices in order": ([claim("a", request(count=2))], [gpus("n", 4)], ["n/0", "n/1"]),
    "more than there are": ([claim("a", request(count=3))], [gpus("n", 2)], NONE),
    "taken ones are left alone": ([claim("a"), claim("b", status=allocated("n", "0"))], [gpus("n", 2)], ["n/1"]),
    "two claims do not share": ([claim("a"), claim("b")], [gpus("n", 2)], ["n/0", "n/1"]),
    "all of them": ([claim("a", request(allocationMode="All"))], [gpus("n", 3)], ["n/0", "n/1", "n/2"]),
    "all, but one is taken": (
        [claim("a", request(allocationMode="All")), claim("b", status=allocated("n", "1"))],
        [gpus("n", 2)],
        NONE,
    ),
    "all of nothing": ([claim("a", request(allocationMode="All"))], [gpus("other", 2)], NONE),
    "selector": ([claim("a", request(selectors=expression('model == "H100"')))], [mixed()], ["n/1"]),
    "requests compete: the picky one comes last": (
        [claim("a", request("any"), request("picky", selectors=expression('model == "A100"')))],
        [devices_slice(HERE, [device("0", model="A100", root=1), device("1", model="B", root=1)])],
        ["n/1", "n/0"],
    ),
    "same root": ([claim("a", request(count=2), constraints=ONE_ROOT)], [mixed()], ["n/0", "n/1"]),
    "same root of another model": (
        [claim("a", request(count=2, selectors=expression('model == "H100"')), constraints=ONE_ROOT)],
        [mixed()],
        NONE,
    ),
    "constraint on one request only": (
        [
            claim(
                "a",
                request("x", count=1),
                request("y", count=2),
                constraints=[{**ONE_ROOT[0], "requests": ["y"]}],
            )
        ],
        [mixed()],
        ["n/0", "n/2", "n/3"],
    ),
    "distinct root": (
        [claim("a", request(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/root"}])],
        [mixed()],
        ["n/0", "n/2"],
    ),
    "attribute that devices lack": (
        [claim("a", request(count=2), constraints=[{"matchAttribute": "x/y"}])],
        [mixed()],
        NONE,
    ),
    "admin access looks at devices in use": (
        [claim("a", request(adminAccess=True)), claim("b", status=allocated("n", "0"))],
        [gpus("n", 1)],
        ["n/0"],
    ),
    "first alternative that can be had": (
        [
            claim(
                "a",
                {
                    "name": "gpu",
                    "firstAvailable": [
                        {"name": "big", "deviceClassName": CLASS, "count": 4},
                        {"name": "small", "deviceClassName": CLASS, "count": 2},
                    ],
                },
            )
        ],
        [gpus("n", 3)],
        ["n/0", "n/1"],
    ),
    "newest generation only": (
        [claim("a", request(count=2))],
        [
            devices_slice(HERE, [device("old"), device("older")], generation=1),
            devices_slice(HERE, [device("x")], generation=2),
        ],
        NONE,
    ),
    "an incomplete pool gives single devices": ([claim("a")], [devices_slice(HERE, [device("x")], count=2)], ["n/x"]),
    "but not all": ([claim("a", request(allocationMode="All"))], [devices_slice(HERE, [device("x")], count=2)], NONE),
    "a pool with a name twice is not used": ([claim("a")], [devices_slice(HERE, [device("x"), device("x")])], NONE),
    "devices of all nodes": ([claim("a")], [devices_slice({"allNodes": True}, [device("x")])], ["pool/x"]),
    "devices of selected nodes": (
        [claim("a")],
        [
            devices_slice(
                {
                    "nodeSelector": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
                        ]
                    }
                },
                [device("x")],
            )
        ],
        ["pool/x"],
    ),
    "devices that choose their nodes themselves": (
        [claim("a")],
        [
            devices_slice(
                {"perDeviceNodeSelection": True},
                [device("far", {"nodeName": "m"}), device("near", {"nodeName": "n"})],
            )
        ],
        ["pool/near"],
    ),
    "a tainted device": (
        [claim("a")],
        [devices_slice(HERE, [device("x", {"taints": [{"key": "k", "effect": "NoSchedule"}]}), device("y")])],
        ["n/y"],
    ),
    "a tolerated one": (
        [claim("a", request(tolerations=[{"key": "k", "operator": "Exists"}]))],
        [devices_slice(HERE, [device("x", {"taints": [{"key": "k", "effect": "NoSchedule"}]}), device("y")])],
        ["n/x"],
    ),
    "all, but one is tainted": (
        [claim("a", request(allocationMode="All"))],
        [devices_slice(HERE, [device("x", {"taints": [{"key": "k", "effect": "NoSchedule"}]}), device("y")])],
        NONE,
    ),
    "all, while another pool is being updated": (
        [claim("a", request(allocationMode="All", selectors=expression("big")))],
        [
            devices_slice(HERE, [device("x", big=True)]),
            devices_slice(HERE, [device("y", big=False)], pool="other", count=2),
        ],
        NONE,
    ),
    "all, while a pool that other nodes reach is being updated": (
        [claim("a", request(allocationMode="All"))],
        [gpus("n", 1), devices_slice({"nodeName": "m"}, [device("y")], count=2)],
        ["n/0"],
    ),
    "all, while a pool has a name twice": (
        [claim("a", request(allocationMode="All"))],
        [gpus("n", 1), devices_slice(HERE, [device("y"), device("y")], pool="other")],
        NONE,
    ),
    "all of two requests together are more than a claim can hold": (
        [claim("a", request("x", count=20), request("y", allocationMode="All", adminAccess=True))],
        [gpus("n", 20)],
        NONE,
    ),
    "versions differ by their build": (
        [claim("a", request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/driver"}])],
        [
            devices_slice(
                HERE,
                [device(str(i), {"attributes": {"driver": {"version": f"1.0.0+{i}"}}}) for i in range(2)],
            )
        ],
        NONE,
    ),
    "a selector fails on a device that is not looked at": (
        [claim("a", request(selectors=expression("big")))],
        [devices_slice(HERE, [device("x", big=True), device("y")])],
        ["n/x"],
    ),
    "a selector fails on a device in use": (
        [claim("a", request(selectors=expression("big"))), claim("b", status=allocated("n", "x"))],
        [devices_slice(HERE, [device("x"), device("y", big=True)])],
        ["n/y"],
    ),
    "more than a claim can hold": (
        [claim("a", request(count=33))],
        [gpus("n", 40)],
        "cannot allocate DRA claims on node(s): number of requested devices 33 exceeds the claim limit of 32",
    ),
    "a selector that fails": (
        [claim("a", request(selectors=expression("nothing == 1")))],
        [gpus("n", 1)],
        f"cannot allocate DRA claims on node(s): selector 'device.attributes[\"{DRIVER}\"].nothing == 1' failed: "
        "no such member in mapping: 'nothing'",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_allocation(case: str) -> None:
    claims, slices, expected = CASES[case]
    assert offer(claims, slices, zone="z1") == expected


def test_a_class_narrows_all_its_requests() -> None:
    picky = device_class(CLASS, f'device.attributes["{DRIVER}"].model == "H100"')
    assert offer([claim("a", request(count=2))], [mixed()], [picky]) == ["n/1", "n/3"]


def test_partitions_draw_on_common_counters() -> None:
    def part(name: str, slots: int) -> Any:
        use = [{"counterSet": "gpu0", "counters": {"slots": {"value": str(slots)}}}]
        return device(name, {"consumesCounters": use})

    counters = [{"name": "gpu0", "counters": {"slots": {"value": "4"}}}]
    pool = devices_slice(HERE, [part("whole", 4), part("half-0", 2), part("half-1", 2)], sharedCounters=counters)
    in_use = claim("b", status=allocated("n", "half-0"))
    assert offer([claim("a"), in_use], [pool]) == ["n/half-1"]
    assert offer([claim("a", request(count=2)), in_use], [pool]) == NONE


VALUES = {"default": "4Gi", "validValues": ["4Gi", "8Gi"]}
RANGE = {"default": "3Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "3Gi"}}


@pytest.mark.parametrize(
    ("policy", "wanted", "expected"),
    [
        (None, None, "10Gi"),
        (None, "3Gi", "3Gi"),
        (None, "11Gi", None),
        ({"default": "2Gi"}, None, "2Gi"),
        (VALUES, None, "4Gi"),
        (VALUES, "1Gi", "4Gi"),
        (VALUES, "5Gi", "8Gi"),
        (VALUES, "9Gi", None),
        (RANGE, None, "3Gi"),
        (RANGE, "1Gi", "2Gi"),
        (RANGE, "2Gi", "2Gi"),
        (RANGE, "3Gi", "5Gi"),
        (RANGE, "6Gi", "8Gi"),
        (RANGE, "9Gi", None),
    ],
)
def test_requests_are_rounded_up_to_what_the_policy_allows(policy: Any, wanted: Any, expected: Any) -> None:
    stated = {"value": "10Gi"} | ({"requestPolicy": policy} if policy else {})
    pool = devices_slice(HERE, [device("0", {"allowMultipleAllocations": True, "capacity": {"mem": stated}})])
    (found,) = Inventory([pool], cycle([node("n")], ()).snapshot.nodes).devices(0)
    asked = {} if wanted is None else {"mem": parse_quantity(wanted)}
    assert consumption(found, asked) == (None if expected is None else {"mem": parse_quantity(expected)})


def test_one_request_may_have_a_shared_device_twice_unless_it_wants_distinct_ones() -> None:
    fields = {"allowMultipleAllocations": True, "capacity": {"mem": {"value": "10Gi"}}}
    pool = devices_slice(HERE, [device("0", fields, idx=0), device("1", fields, idx=1)])
    asked = request(count=2, capacity={"requests": {"mem": "4Gi"}})
    assert offer([claim("a", asked)], [pool]) == ["n/0", "n/0"]
    distinct = [{"distinctAttribute": f"{DRIVER}/idx"}]
    assert offer([claim("a", asked, constraints=distinct)], [pool]) == ["n/0", "n/1"]
    assert offer([claim("a", {**asked, "exactly": {**asked["exactly"], "count": 5}})], [pool]) == NONE
    shared_only = request(selectors=[{"cel": {"expression": "device.allowMultipleAllocations"}}])
    assert offer([claim("a", shared_only)], [gpus("n", 1)]) == NONE
    assert offer([claim("a", shared_only)], [pool]) == ["n/0"]


@pytest.mark.parametrize(
    ("selector", "effect", "expected"),
    [
        ({"driver": DRIVER, "pool": "n", "device": "0"}, "NoSchedule", ["n/1"]),
        ({"device": "0"}, "NoExecute", ["n/1"]),
        ({"device": "0"}, "None", ["n/0"]),
        ({"pool": "other"}, "NoSchedule", ["n/0"]),
        ({"driver": DRIVER}, "NoSchedule", NONE),
        ({}, "NoSchedule", NONE),
        (None, "NoSchedule", ["n/0"]),
        ({"selectors": expression("idx == 0")}, "NoSchedule", ["n/1"]),
        ({"selectors": expression("missing == 0")}, "NoSchedule", ["n/0"]),
        ({"deviceClassName": "odd"}, "NoSchedule", ["n/0"]),
        ({"deviceClassName": "odd", "device": "1"}, "NoSchedule", ["n/0"]),
        ({"deviceClassName": "nobody's"}, "NoSchedule", ["n/0"]),
    ],
)
def test_a_device_taint_rule_taints_what_it_selects(selector: Any, effect: str, expected: Any) -> None:
    taint = {"taint": {"key": "broken", "effect": effect}}
    spec = taint if selector is None else {"deviceSelector": selector, **taint}
    rule = as_kind(kinds.DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec})
    pool = devices_slice(HERE, [device("0", idx=0), device("1", idx=1)])
    classes = [device_class(), device_class("odd", f'device.attributes["{DRIVER}"].idx == 1')]
    assert offer([claim("a")], [pool, rule], classes) == expected
    tolerant = request(tolerations=[{"key": "broken", "operator": "Exists"}])
    assert offer([claim("a", tolerant)], [pool, rule], classes) == ["n/0"]


def test_counters_are_drawn_on_from_other_nodes_too() -> None:
    """One box of four slots behind two nodes: what is used through the other node is gone here as well."""
    use = {"consumesCounters": [{"counterSet": "box", "counters": {"slots": {"value": "3"}}}]}
    devices = [device("near", {"nodeName": "n", **use}), device("far", {"nodeName": "m", **use})]
    counters = [{"name": "box", "counters": {"slots": {"value": "4"}}}]
    pool = devices_slice({"perDeviceNodeSelection": True}, devices, sharedCounters=counters)
    assert offer([claim("a")], [pool]) == ["pool/near"]
    assert offer([claim("a"), claim("b", status=allocated("pool", "far"))], [pool]) == NONE


def test_too_few_free_devices_are_found_out_at_once() -> None:
    """21 of 64 are free and 22 wanted: none of the two million combinations is tried."""
    snapshot = cycle([node("n"), gpus("n", 64)], ()).snapshot
    candidates = Candidates(Inventory(snapshot.objects.resource_slices, snapshot.nodes).devices(0))
    asked = []

    def matching(wanted: Any) -> Candidates:
        asked.append(wanted)
        return candidates

    site = Site(matching, lambda device: int(device[2]) % 3 > 0 or device[2] == "63")
    assert allocate(site, [claim_demand(claim("a", request(count=22)).spec)]) is None
    assert len(asked) == 1
    granted = allocate(site, [claim_demand(claim("a", request(count=21)).spec)])
    assert granted is not None
    assert len(granted[0]) == 21


def test_a_search_without_end_finds_nothing() -> None:
    """Eight of 24 devices on seven roots cannot be on different ones: that is not looked for in every combination."""
    spread = [{"distinctAttribute": f"{DRIVER}/root"}]
    pool = devices_slice(HERE, [device(str(at), root=at % 7) for at in range(24)])
    assert offer([claim("a", request(count=8), constraints=spread)], [pool]) == NONE
    assert offer([claim("a", request(count=7), constraints=spread)], [pool]) == [f"n/{at}" for at in range(7)]


def test_the_result_carries_configuration_and_reach() -> None:
    shared = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
    objects = [
        node("n"),
        claim("a", request("x"), request("y"), config=[{"requests": ["y"], **shared}, {"requests": ["z"], **shared}]),
        gpus("n", 2),
        device_class(CLASS, config=[shared]),
    ]
    snapshot = cycle(objects, ()).snapshot
    inventory = Inventory(snapshot.objects.resource_slices, snapshot.nodes)
    ledger = open_ledger(Journal(), inventory, snapshot.objects.resource_claims, frozenset())
    desk = AllocatorCache(snapshot, ledger, inventory)
    answer = desk.offer([Reference("c", ("ns", "a"), True)], 0, None)
    assert not isinstance(answer, str)
    assert answer[0][1] == {
        "devices": {
            "results": [
                {"request": "x", "driver": DRIVER, "pool": "n", "device": "0"},
                {"request": "y", "driver": DRIVER, "pool": "n", "device": "1"},
            ],
            "config": [
                {"source": "FromClass", "requests": ["x", "y"], **shared},
                {"source": "FromClaim", "requests": ["y"], **shared},
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
        },
    }
