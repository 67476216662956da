"""What the judge counts of nodes, devices and queues: compute modes, instances, resources that claims stand in for."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.model.params import SchedulerParams
from pykai.model.plan import Bind, Evict, Plan
from pykai.objects import names
from pykai.verify.judge import verify
from tests import builders
from tests.properties import small_world

MIG, NIC = "nvidia.com/mig-2g.10gb", "example.com/nic"
SIZE, MODE = {names.GPU_MEMORY_LABEL: "16000"}, "nvidia.com/container.main.gpu-compute.mode"
MODES = {"sm": names.SM_SHARING, "time": names.TIME_SLICING}
ONE_MODE, PLACE = "a device has one compute mode", "a node may have the pod"


def sharer(name: str, mode: str, on: str = "") -> list[Any]:
    """A gang of one pod with half a device: device `d` of node `on`."""
    annotations = {names.GPU_FRACTION: "0.5", MODE: MODES[mode]}
    labels = {names.GPU_GROUP_LABEL: "d"} if on else {}
    pod = builders.pod(f"{name}-0", name, on, {"cpu": 1}, annotations=annotations, labels=labels)
    return [builders.pod_group(name), pod]


def bind(name: str, *groups: str, on: str = "n", **fields: Any) -> Bind:
    amounts = {"devices": 1, "portion": 0.5} if groups else {"devices": 0, "portion": 0.0}
    return Bind(("ns", name), on, "Regular", **{**amounts, **fields}, gpu_groups=groups)


def judged(plan: Plan, *objects: Any, **params: Any) -> list[str]:
    found = builders.snapshot([builders.queue(), *objects], params=SchedulerParams(partitioned=False, **params))
    return [str(violation) for violation in verify(found, plan)]


@pytest.mark.parametrize(
    ("held", "reservation", "asked", "holds"),
    [
        ("time", "time", "time", True),
        ("sm", "sm", "sm", True),
        ("time", "time", "sm", False),
        ("sm", "sm", "time", False),
        ("sm", "time", "time", True),  # the device has the mode of its reservation pod
    ],
)
def test_a_device_keeps_its_compute_mode(held: str, reservation: str, asked: str, holds: bool) -> None:
    holder = {"kind": "Pod", **small_world.reservation("n", "d", MODES[reservation])}
    running, pending = sharer("old", held, "n"), sharer("new", asked)
    found = judged(Plan((bind("new-0", "d"),)), builders.node("n", 2, SIZE), *running, holder, *pending)
    assert found == ([] if holds else [f"{ONE_MODE}: d on n: ns/new-0"])


def test_pods_of_two_modes_do_not_share_a_new_device() -> None:
    objects = [builders.node("n", 2, SIZE), *sharer("a", "sm"), *sharer("b", "time")]
    assert judged(Plan((bind("a-0", "x"), bind("b-0", "x"))), *objects) == [f"{ONE_MODE}: x on n: ns/b-0"]
    assert judged(Plan((bind("a-0", "x"), bind("b-0", "y"))), *objects) == []


@pytest.mark.parametrize(("limit", "violations"), [(2, 0), (1, 1)])
def test_an_instance_counts_against_its_queue_by_its_size(limit: int, violations: int) -> None:
    objects = [
        builders.queue("bounded", gpu={"limit": limit}),
        builders.node("n", allocatable={MIG: "1"}),
        builders.pod_group("g", "bounded"),
        builders.pod("p", "g", requests={MIG: 1}),
    ]
    expected = ["a queue keeps its limit: bounded: 0 + 2 of 1 GPUs"] * violations
    assert judged(Plan((bind("p"),)), *objects) == expected


@pytest.mark.parametrize("ready", [True, False])
def test_shares_go_to_nodes_that_are_ready_for_them(ready: bool) -> None:
    conditions = [builders.READY, *({"type": kind, "status": "True"} for kind in names.FRACTIONS_READY if ready)]
    node = builders.node("n", 2, SIZE, conditions=conditions)
    whole = [builders.pod_group("whole"), builders.pod("whole-0", "whole", requests={"gpu": 1})]
    plan = Plan((bind("new-0", "d"), bind("whole-0", devices=1, portion=1.0)))
    found = judged(plan, node, *sharer("new", "time"), *whole, nvfractions=True)
    refused = f"{PLACE}: ns/new-0 on n: node is not ready for fractional GPU scheduling. "
    assert [text[: len(refused)] for text in found] == ([] if ready else [refused])


@pytest.mark.parametrize(
    ("named", "allocatable", "holds"), [(NIC, None, True), (None, None, False), (NIC, "1", False), (NIC, "2", True)]
)
def test_devices_of_a_class_stand_in_for_a_resource_the_node_lacks(
    named: str | None, allocatable: str | None, holds: bool
) -> None:
    spec = {"extendedResourceName": named} if named else {}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "nics"}, "spec": spec}
    offered = {NIC: allocatable} if allocatable else {}
    objects = [kind, builders.node("n", allocatable=offered), builders.pod_group("g")]
    found = judged(Plan((bind("p"),)), *objects, builders.pod("p", "g", requests={NIC: 2}))
    offers = 1000 * int(allocatable or 0)
    figures = f"a node holds its pods: n: 0 + 2000 of {offers} {NIC}"
    assert found == ([] if holds else [f"{figures} {when}" for when in ("now", "then")])


@pytest.mark.parametrize(("on", "holds"), [("n", True), ("m", False)])
def test_a_background_pod_leaves_its_node_for_a_workload_there(on: str, holds: bool) -> None:
    running = [builders.pod_group("low"), builders.pod("low-0", "low", "n", {"cpu": 1})]
    pending = [builders.pod_group("new"), builders.pod("new-0", "new", requests={"cpu": 1})]
    plan = Plan((bind("new-0", on=on),), (), (Evict(("ns", "low-0"), ("ns", "low"), "backgroundpods", "", None, 1),))
    rule = "a background pod leaves for a workload on its node"
    expected = [] if holds else [f"{rule}: ns/low-0: nothing is placed there"]
    assert judged(plan, builders.node("n"), builders.node("m"), *running, *pending) == expected
