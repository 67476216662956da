"""Signatures of what failed (§16.1) save searches and decide nothing: who would get its place without them gets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.decide import decide
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from tests import builders
from tests.properties.clusters import clusters
from tests.properties.contended import contended, rivals, scattered
from tests.properties.small_world import NOW, PACKING, Cluster
from tests.unit.engine.clusters import evicted, gang, node, pod, promised, seen

PREEMPT, CONSOLIDATE = ("allocate", "preempt"), ("allocate", "consolidation")
EVERYTHING = ("allocate", "consolidation", "reclaim", "preempt")
FAST = {"nodeSelector": {"disk": "fast"}}


def planned(snapshot: Snapshot, actions: tuple[str, ...], signatures: bool) -> Plan:
    params = replace(snapshot.params, use_signatures=signatures)
    return decide(replace(snapshot, params=params), replace(PACKING, actions=actions), NOW)


def memory(name: str, mib: int, on: str = "") -> Any:
    """A pod that takes so much of the device `d`."""
    found = pod(name, on, None, **({"device": "d"} if on else {}))
    found.metadata.annotations[names.GPU_MEMORY] = str(mib)
    return found


def queue(name: str, **gpu: int) -> Any:
    return builders.queue(name, gpu={"quota": 0, **gpu}, priority=200 if "limit" in gpu else 100)


TORN = [
    *(node("fast", gpus=1, labels={"disk": "fast"}), node("slow", gpus=2)),
    *(gang(f"low{n}", "low", age=900) for n in range(3)),
    *(pod(f"low{n}-0", on, gpus=1) for n, on in enumerate(["fast", "slow", "slow"])),
    *(gang("older", age=90, minMember=3), gang("younger", age=80, minMember=3)),
    *(pod(f"older-{n}", gpus=1, spec=spec) for n, spec in enumerate([FAST, FAST, {}])),
    *(pod(f"younger-{n}", gpus=1, spec=spec) for n, spec in enumerate([FAST, {}, {}])),
]
"""Two pods of the older gang want the one fast device, one of the younger does."""
MEMORY = [
    *(node("n", gpus=1), gang("firm", "low", age=900, preemptibility="non-preemptible"), gang("low", "low", age=900)),
    *(memory("firm-0", 8000, "n"), memory("low-0", 8000, "n"), gang("older", age=90), gang("younger", age=80)),
    *(memory("older-0", 12000), memory("younger-0", 4000)),
]
"""Half of a device is not to be had; the older gang wants more than that, the younger less."""
HALVES = [
    *(node("n", gpus=2), gang("older", age=90), gang("younger", age=80)),
    *(gang(f"firm{n}", "low", age=900, preemptibility="non-preemptible") for n in "ab"),
    *(gang(f"low{n}", "low", age=900) for n in "ab"),
    *(pod(f"{name}{n}-0", "n", share="0.5", device=n) for name in ("firm", "low") for n in "ab"),
    *(pod("older-0", gpus=1), pod("younger-0", share="0.5", devices=2)),
]
"""Half of each of two devices is not to be had; the older gang wants a whole one, the younger two halves."""
LIMITED = [
    *(queue("small", limit=1), queue("large"), node("a", gpus=2), node("b", gpus=2)),
    *(gang(f"low{n}", "low", age=900, queue="large") for n in "ab"),
    *(pod(f"low{n}-0", n, gpus=1) for n in "ab"),
    *(gang("older", age=90, queue="small"), gang("younger", age=80, queue="large")),
    *(pod("older-0", gpus=2), pod("younger-0", gpus=2)),
]
"""The older gang's queue may not use two devices."""

FIRM, LOW = (
    gang(name, "low", age=900, preemptibility=which)
    for name, which in (("firm", "non-preemptible"), ("low", "preemptible"))
)
MIXED = [
    *(node("n", gpus=2), FIRM, LOW, pod("firm-0", "n", gpus=1), pod("low-0", "n", gpus=1)),
    *(gang("older", age=90), gang("younger", age=80)),
    *(pod("older-0", gpus=2, cpu="1"), pod("younger-0", gpus=1, cpu="2")),
]
"""Two devices are not to be had; the younger gang wants one, and more CPU than the older."""
SIDECAR = {
    "initContainers": [{"name": "side", "restartPolicy": "Always", "ports": [{"containerPort": 80, "hostPort": 80}]}]
}
PORTS = [
    *(node("n", gpus=2), FIRM, LOW, pod("firm-0", "n", gpus=1, spec=SIDECAR), pod("low-0", "n", gpus=1)),
    *(gang("older", age=90), gang("younger", age=80)),
    *(pod("older-0", gpus=1, spec=SIDECAR), pod("younger-0", gpus=1)),
]
"""A sidecar of the older gang wants a port that is not to be had."""
SHUNS = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {names.SUBGROUP_LABEL: "default"}}, "topologyKey": "name"}
            ]
        }
    }
}
SHUNNED = [
    *(node("n", gpus=2), FIRM, LOW, pod("firm-0", "n", gpus=1, spec=SHUNS), pod("low-0", "n", gpus=1)),
    *(gang("older", age=90), gang("younger", age=80)),
    *(pod("older-0", gpus=1, part="default"), pod("younger-0", gpus=1)),
]
"""Who cannot be evicted shuns the label that the older gang has."""
RESTED = [
    *(node("a", gpus=2), node("b", gpus=2), FIRM, gang("low", "low", age=900, evicted=100)),
    *(pod("low-0", "a", gpus=1), pod("firm-0", "b", gpus=1)),
    *(gang("older", age=200), gang("younger", age=50), pod("older-0", gpus=2), pod("younger-0", gpus=2)),
]
"""The one who could move was evicted since the older gang came, and rests; before the younger one it does not."""


@pytest.mark.parametrize(
    ("objects", "actions"),
    [
        *((TORN, PREEMPT), (MEMORY, PREEMPT), (HALVES, PREEMPT), (LIMITED, CONSOLIDATE), (MIXED, PREEMPT)),
        *((PORTS, PREEMPT), (SHUNNED, PREEMPT), (RESTED, CONSOLIDATE)),
    ],
    ids=["torn", "memory", "halves", "limited", "mixed", "ports", "shunned", "rested"],
)
def test_who_asks_for_something_else_is_searched_for(objects: list[Any], actions: tuple[str, ...]) -> None:
    found, expected = (planned(seen(*objects), actions, signatures) for signatures in (True, False))
    assert evicted(expected)
    assert (evicted(found), promised(found)) == (evicted(expected), promised(expected))


def acts(plan: Plan) -> bool:
    return bool(plan.binds or plan.nominations or plan.evictions)


@given(st.one_of(contended(), clusters(), rivals(), scattered()), st.sampled_from([PREEMPT, CONSOLIDATE, EVERYTHING]))
def test_where_something_can_be_done_something_is_done(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot = cluster.snapshot()
    assert acts(planned(snapshot, actions, True)) or not acts(planned(snapshot, actions, False))
