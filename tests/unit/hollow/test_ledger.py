"""The kubelet's accounting: never more than the node has, never one device twice."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.hollow.ledger import NodeLedger, RefusalError, pod_requests
from pykai.hollow.shapes import GpuShape, NodeShape, allocatable, devices


def ledger(shape: NodeShape) -> NodeLedger:
    return NodeLedger(devices(shape), allocatable(shape))


def gpus(count: int) -> dict[str, Fraction]:
    return {"nvidia.com/gpu": Fraction(count)}


def container(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


def sidecar(**requests: str) -> dict[str, Any]:
    return container(**requests) | {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container(cpu="1"), container(cpu="500m")]}, "1.5"),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, "3"),
        ({"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="1")]}, "2"),
        ({"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="1"), container(cpu="3")]}, "4"),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3"), sidecar(cpu="1")]}, "3"),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, "1.25"),
        ({"containers": [{}]}, "0"),
    ],
)
def test_requests_of_a_pod(spec: dict[str, Any], cpu: str) -> None:
    requests = pod_requests(spec)
    assert requests.get("cpu", Fraction(0)) == Fraction(cpu)
    assert requests["pods"] == 1


def test_devices_are_given_in_order_and_given_back() -> None:
    book = ledger(NodeShape("n", GpuShape(3)))
    first, second = book.admit("a", gpus(1)), book.admit("b", gpus(2))
    assert [device.index for device in (*first, *second)] == [0, 1, 2]
    book.release("a")
    assert book.admit("c", gpus(1)) == first


def test_too_much_is_refused_as_a_kubelet_does() -> None:
    book = ledger(NodeShape("n", GpuShape(2)))
    book.admit("a", gpus(1))
    with pytest.raises(RefusalError) as refusal:
        book.admit("b", gpus(2))
    assert refusal.value.reason == "OutOfnvidia.com/gpu"
    assert str(refusal.value) == (
        "Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 1, capacity: 2"
    )
    assert len(book.admit("c", gpus(1))) == 1, "a refused pod holds nothing"


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({"cpu": Fraction(65)}, "OutOfcpu"),
        ({"memory": Fraction(2**50)}, "OutOfmemory"),
        ({"example.com/fpga": Fraction(1)}, "OutOfexample.com/fpga"),
    ],
)
def test_every_resource_counts(requests: dict[str, Fraction], reason: str) -> None:
    with pytest.raises(RefusalError) as refusal:
        ledger(NodeShape("n")).admit("a", requests)
    assert refusal.value.reason == reason


def test_pods_are_counted() -> None:
    book = ledger(NodeShape("n", pods=1))
    book.admit("a", {"pods": Fraction(1)})
    with pytest.raises(RefusalError, match="pods"):
        book.admit("b", {"pods": Fraction(1)})


def test_admitting_twice_gives_the_same() -> None:
    book = ledger(NodeShape("n", GpuShape(2)))
    assert book.admit("a", gpus(1)) == book.admit("a", gpus(1))
    assert book.used()["nvidia.com/gpu"] == 1


def test_a_pod_gets_back_the_device_it_had() -> None:
    shape = NodeShape("n", GpuShape(4))
    wanted = devices(shape)[2]
    assert ledger(shape).admit("a", gpus(1), prefer=wanted.uuid) == (wanted,)


def test_slices_spread_over_devices() -> None:
    book = ledger(NodeShape("n", GpuShape(2, time_slices=2)))
    assert [book.admit(str(number), gpus(1))[0].index for number in range(4)] == [0, 1, 0, 1]
    with pytest.raises(RefusalError):
        book.admit("fifth", gpus(1))


def test_a_shrunk_node_takes_no_more() -> None:
    book = ledger(NodeShape("n", GpuShape(4)))
    book.admit("a", gpus(2))
    book.resize({"nvidia.com/gpu": "2"})
    with pytest.raises(RefusalError):
        book.admit("b", gpus(1))


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 4), st.booleans()), max_size=60))
def test_no_device_twice(steps: list[tuple[str, int, bool]]) -> None:
    book = ledger(NodeShape("n", GpuShape(4)))
    held: dict[str, tuple[Any, ...]] = {}
    for pod, count, leave in steps:
        if leave:
            book.release(pod)
            held.pop(pod, None)
            continue
        try:
            held[pod] = book.admit(pod, gpus(count))
        except RefusalError:
            assert sum(map(len, held.values())) + count > 4
        given_out = [device for devices_ in held.values() for device in devices_]
        assert len(given_out) == len(set(given_out)) <= 4
