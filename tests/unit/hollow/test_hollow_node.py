"""Hollow nodes: what their Node objects say, and the file that describes them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.config.fields import FieldError
from pykai.hollow.hollow_node import (
    FakeNvml,
    GpuShape,
    NodeLedger,
    NodeShape,
    NVMLError,
    RefusalError,
    allocatable,
    node_object,
    pod_requests,
    read_shapes,
    repeat,
    shape_devices,
)

WHOLE = NodeShape("a100", GpuShape(2, 40960, "NVIDIA-A100-SXM4-40GB"))
SLICED = NodeShape("l4", GpuShape(1, 23034, "NVIDIA-L4", time_slices=4), cpu="4", memory="16Gi")
PLAIN = NodeShape("cpu", labels={"zone": "a"}, taints=[{"key": "k", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("shape", "gpus", "labels"),
    [
        (WHOLE, "2", {"gpu.count": "2", "gpu.memory": "40960", "gpu.product": "NVIDIA-A100-SXM4-40GB"}),
        (SLICED, "4", {"gpu.count": "1", "gpu.memory": "23034", "gpu.product": "NVIDIA-L4-SHARED"}),
        (SLICED, "4", {"gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}),
        (PLAIN, None, {"gpu.count": None, "gpu.present": None}),
    ],
)
def test_gpu_labels_and_resources(shape: NodeShape, gpus: str | None, labels: dict[str, str | None]) -> None:
    node = node_object(shape, "2030-01-01T00:00:00Z")
    for key, value in labels.items():
        assert node["metadata"]["labels"].get(f"nvidia.com/{key}") == value
    assert node["status"]["allocatable"].get("nvidia.com/gpu") == gpus
    assert node["status"]["capacity"] == node["status"]["allocatable"] == allocatable(shape)


def test_node_is_ready_and_carries_what_was_asked() -> None:
    node = node_object(PLAIN, "2030-01-01T00:00:00Z", kubelet_port=1234)
    conditions = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}
    assert conditions == {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "cpu"
    assert node["spec"]["taints"] == PLAIN.taints
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 1234


def test_slices_of_a_device_share_its_uuid() -> None:
    assert len({device.uuid for device in shape_devices(WHOLE)}) == 2
    assert len({device.uuid for device in shape_devices(SLICED)}) == 1
    assert len(set(shape_devices(SLICED))) == 4


def test_uuids_are_stable_and_differ_between_nodes() -> None:
    first, second = repeat(WHOLE, 2)
    assert (first.name, second.name) == ("a100-0", "a100-1")
    assert shape_devices(first) == shape_devices(first)
    assert {d.uuid for d in shape_devices(first)}.isdisjoint(d.uuid for d in shape_devices(second))


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(
        """
nodes:
- name: h100
  count: 2
  gpus: {count: 8, memoryMiB: 81559, product: NVIDIA-H100-80GB-HBM3}
  resources: {rdma/hca: "4"}
- name: l4
  gpus: {count: 1, timeSlices: 4, product: NVIDIA-L4}
- name: cpu
  cpu: "8"
"""
    )
    shapes = read_shapes(path)
    assert [shape.name for shape in shapes] == ["h100-0", "h100-1", "l4", "cpu"]
    assert allocatable(shapes[0])["rdma/hca"] == "4"
    assert allocatable(shapes[2])["nvidia.com/gpu"] == "4"
    assert shapes[3].gpus is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [{name: a, gpus: {count: 0}}]", "nodes[0].gpus.count: must be at least 1, not 0"),
        ("nodes: [{name: a, gpus: {timeSlices: 0}}]", "nodes[0].gpus.timeSlices: must be at least 1, not 0"),
        ("nodes: [{name: a, gpus: 8}]", "nodes[0].gpus: expected a map, got a whole number"),
        (
            "nodes: [{name: a, gpus: {memoryMiB: 80Gi}}]",
            "nodes[0].gpus.memoryMiB: expected a whole number",
        ),
        ("nodes: [{name: a, gpus: {product: A 100}}]", "nodes[0].gpus.product: 'A 100' cannot be the value of a label"),
        ("nodes: [{name: a, cpu: lots}]", "nodes[0].cpu: 'lots' is not a quantity"),
        ("nodes: [{name: a, memory: -5Gi}]", "nodes[0].memory: -5Gi is negative"),
        ("nodes: [{name: a, pods: -1}]", "nodes[0].pods: must be at least 0"),
        ("nodes: [{name: a, resources: {rdma/hca: few}}]", "nodes[0].resources.rdma/hca: 'few' is not a quantity"),
        ("nodes: [{name: a, labels: {rack: 7}}]", "nodes[0].labels.rack: expected a string, got a whole number"),
        ("nodes: [{name: a, labels: {a b: c}}]", "nodes[0].labels.a b: cannot be a label"),
        ("nodes: [{name: a, taints: [{key: a, effect: no}]}]", "nodes[0].taints[0].effect: expected one of NoSchedule"),
        ("nodes: [{name: a, taints: [{effect: NoExecute}]}]", "nodes[0].taints[0].key: is missing"),
        ("nodes: [{name: a, colour: red}]", "nodes[0]: unknown field 'colour'"),
        ("nodes: [{cpu: '1'}]", "nodes[0]: name is missing"),
        ("nodes: [{name: a}, {name: a}]", "nodes: name 'a' is used twice"),
        ("nodes: [{name: a, count: 0}]", "nodes[0].count: expected a whole number of at least 1, got 0"),
        ("nodes: [{name: A_b}]", "nodes[0].name: 'A_b' cannot be a name"),
        ("nodes: [{name: a..b}]", "nodes[0].name: 'a..b' cannot be a name"),
        ("{}", "nodes is missing"),
        ("", "expected a map, got nothing"),
        ("nodes: [", "not YAML: line 2, column 1"),
        ("nodes:\n\t- name: a", "not YAML: line 2, column 1: a tab: indent with spaces"),
        ("nodes: []\n---\nnodes: []", "expected one YAML document, got 2"),
    ],
)
def test_file_errors_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    with pytest.raises(FieldError) as refused:
        read_shapes(path)
    assert str(refused.value).startswith(f"{path}: {message}")


def test_amounts_may_be_numbers(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("nodes: [{name: a, cpu: 8, resources: {rdma/hca: 4}}]")
    (shape,) = read_shapes(path)
    assert (allocatable(shape)["cpu"], allocatable(shape)["rdma/hca"]) == ("8", "4")


def ledger(shape: NodeShape) -> NodeLedger:
    return NodeLedger(shape_devices(shape), allocatable(shape))


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
    wanted = shape_devices(shape)[2]
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


FUNCTIONS = [name for name in vars(FakeNvml) if name.startswith("nvml")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_are_those_of_the_binding(name: str) -> None:
    assert callable(getattr(pynvml, name))


def test_a_container_sees_its_devices_only() -> None:
    third = shape_devices(NodeShape("n", GpuShape(4)))[2]
    nvml = FakeNvml([third])
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUUID(handle) == third.uuid
    assert nvml.nvmlDeviceGetName(handle) == third.product
    with pytest.raises(NVMLError):
        nvml.nvmlDeviceGetHandleByIndex(1)


def test_slices_of_one_device_are_one_device() -> None:
    nvml = FakeNvml(shape_devices(NodeShape("n", GpuShape(1, time_slices=4))))
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1


def test_needs_init() -> None:
    with pytest.raises(NVMLError, match="Uninitialized"):
        FakeNvml([]).nvmlDeviceGetCount()
