"""Victims that move: with other devices on their own node, and where they still are while they do."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.plugins.ports import HostPorts
from tests.unit.plugins import small_clusters as small
from tests.unit.plugins.dra.dra_objects import allocated, claim, device, device_class, devices_slice, request

from .clusters import evicted, gang, node, plan, pod, promised

MODEL_A = {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'a'"}}


def test_a_victim_that_gets_another_device_of_its_node_moves() -> None:
    """Only the device of old-0 will do; old-0 can have that of old-1."""
    devices = [device("d0", model="b"), device("d1", model="a")]
    claims = [
        claim("c0", status=allocated("n", "d1", holders=("old-0",))),
        claim("c1", status=allocated("n", "d0", holders=("old-1",))),
        claim("c2", request(selectors=[MODEL_A])),
    ]
    pods = [
        pod(name, on, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": named}]})
        for name, on, named in (("old-0", "n", "c0"), ("old-1", "n", "c1"), ("new-0", "", "c2"))
    ]
    groups = [gang("old", "low", age=9), gang("new")]
    found = plan(node("n"), device_class(), devices_slice({"nodeName": "n"}, devices), *claims, *groups, *pods)
    assert promised(found) == {"new-0": "n", "old-0": "n"}
    assert evicted(found) == {"old-0", "old-1"}


def test_a_port_is_free_when_the_pod_that_moves_is_gone() -> None:
    web = {"name": "m", "ports": [{"hostPort": 80, "containerPort": 80}], "resources": {"requests": {"cpu": "1"}}}
    pods = [small.pod("old", {"containers": [web], "nodeName": "a"}), small.pod("new", {"containers": [web]})]
    of = small.cycle([small.node("a"), small.node("b"), *pods], [HostPorts()])
    old, new = small.row(of, "old"), small.row(of, "new")
    mark = of.trial.mark()
    of.trial.suppose_evicted(old)
    of.resources.release(old)
    of.trial.place(old, 1, wait=True)
    of.resources.reserve(old)
    assert of.resources.must_wait(new, 0)
    of.trial.undo_to(mark)
    assert not of.resources.must_wait(new, 0)


@pytest.mark.parametrize(
    ("fixed", "moved"), [((), {"one-0"}), (("one",), {"two-0"}), (("two",), {"one-0"}), (("one", "two"), set())]
)
def test_consolidation_moves_no_pod_that_is_not_safe_to(fixed: tuple[str, ...], moved: set[str]) -> None:
    def settled(name: str, age: int) -> Any:
        return gang(name, age=age, safeToConsolidate=name not in fixed)

    groups = [settled("one", 8), settled("two", 9), gang("new")]
    pods = [pod("one-0", "a", gpus=1), pod("two-0", "b", gpus=1), pod("new-0", gpus=2)]
    assert evicted(plan(node("a", 2), node("b", 2), *groups, *pods)) == moved
