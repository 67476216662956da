"""Hollow nodes: what their Node objects say, and the file that describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.local.shapes import GpuShape, NodeShape, allocatable, devices, node_object, read_shapes, repeat

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
        ("nodes: [{name: a, gpus: {count: 0}}]", r"nodes\[0\]: count must be at least 1.*\.gpus"),
        ("nodes: [{name: a, gpus: {timeSlices: 0}}]", "timeSlices must be at least 1"),
        ("nodes: [{name: a, cpu: lots}]", "'lots' is not a quantity"),
        ("nodes: [{name: a, colour: red}]", "unknown field `colour`"),
        ("nodes: [{cpu: '1'}]", "missing required field `name`"),
        ("nodes: [{name: a}, {name: a}]", "name 'a' is used twice"),
        ("nodes: [{name: a, count: 0}]", "count must be at least 1"),
        ("nodes: [{name: A_b}]", "name 'A_b'"),
        ("{}", "missing required field `nodes`"),
        ("nodes: [", "nodes.yaml"),
    ],
)
def test_file_errors_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_shapes(path)
