"""Hollow nodes: what their Node objects say, and the file that describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.config.fields import FieldError
from pykai.hollow.shapes import GpuShape, NodeShape, allocatable, devices, node_object, read_shapes, repeat

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
    assert len({device.uuid for device in devices(WHOLE)}) == 2
    assert len({device.uuid for device in devices(SLICED)}) == 1
    assert len(set(devices(SLICED))) == 4


def test_uuids_are_stable_and_differ_between_nodes() -> None:
    first, second = repeat(WHOLE, 2)
    assert (first.name, second.name) == ("a100-0", "a100-1")
    assert devices(first) == devices(first)
    assert {d.uuid for d in devices(first)}.isdisjoint(d.uuid for d in devices(second))


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
