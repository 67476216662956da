from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.devices import Share
from pykai.engine.node_states import NormalizedScore
from pykai.engine.plugin_api import NodeLook, NodeScore, RelativeScore
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.model.resources import CPU, GPU
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names
from pykai.plugins.scoring import (
    GpuPack,
    GpuSharingOrder,
    GpuSpread,
    NodeAvailability,
    Pack,
    ResourceType,
    Spread,
    node_placement,
)

NODES = {  # name: cpu milli, GPUs, GPU count label
    "a": (4000, 8, None),
    "b": (8000, 4, "8"),
    "c": (2000, 0, None),
}
PODS = {"wants-gpu": {"nvidia.com/gpu": "1"}, "wants-cpu": {"cpu": "1"}}


def kind(cls: type[Any], **fields: Any) -> Any:
    return kinds.decode(msgspec.json.encode(fields), cls)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    cache = ClusterCache(SchedulerParams())
    for name, (cpu, gpus, count) in NODES.items():
        labels = {names.GPU_COUNT_LABEL: count} if count else {}
        allocatable = {"cpu": f"{cpu}m", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        cache.load([kind(kinds.Node, metadata={"name": name, "labels": labels}, status={"allocatable": allocatable})])
    for name, requests in PODS.items():
        spec = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
        cache.load([kind(kinds.Pod, metadata={"name": name}, spec=spec)])
    return cache.snapshot(now=0.0)


def look(snapshot: Snapshot, pod: int, nodes: list[int] | None = None, **columns: list[float]) -> NodeLook:
    """All idle, but 4000 milli of node b and 6 GPUs of node a, of which 2 are being released."""
    trial = Trial(snapshot)
    trial.idle[CPU, 1] -= 4000
    trial.idle[GPU, 0] -= 6
    trial.releasing[GPU, 0] += 2
    rows = np.array(nodes if nodes is not None else range(len(NODES)), dtype=np.int64)
    idle, free = trial.idle[:, rows], (trial.idle + trial.releasing)[:, rows]
    fits_now = np.array(columns.get("fits_now", np.ones(len(rows))), dtype=bool)
    sharable = np.array(columns.get("sharable", np.zeros(len(rows))))
    return NodeLook(trial, trial.of_class(pod), rows, idle, free, fits_now, sharable)


def packed(plugin: Pack, seen: NodeLook) -> list[float]:
    resource = plugin.measured(seen.pod_class)
    if resource is None:
        return [0.0] * len(seen.nodes)
    offered = seen.trial.snapshot.nodes.allocatable[resource, seen.nodes] > 0
    scores: list[float] = NormalizedScore(plugin, offered, seen.free[resource]).scores(seen.free[resource]).tolist()
    return scores


@pytest.mark.parametrize(
    ("pod", "resource", "scores", "spread"),
    [
        (0, GPU, [9, 9, 0], [0.5, 0.5, 0]),
        (1, CPU, [0, 0, 9], [1, 0.5, 1]),
    ],
)
def test_pack_and_spread_look_at_the_deciding_resource(
    snapshot: Snapshot, pod: int, resource: int, scores: list[float], spread: list[float]
) -> None:
    seen = look(snapshot, pod)
    assert Pack().measured(seen.pod_class) == resource
    assert packed(Pack(), seen) == scores
    np.testing.assert_array_equal(Spread().score(seen), spread)


def test_spread_counts_free_parts_of_devices() -> None:
    cache, mig = ClusterCache(SchedulerParams()), "nvidia.com/mig-2g.10gb"
    offers = {"plain": {"nvidia.com/gpu": "4"}, "shared": {"nvidia.com/gpu": "4"}, "mig": {mig: "3"}}
    for name, offer in offers.items():
        labels = {names.GPU_COUNT_LABEL: "4", names.GPU_MEMORY_LABEL: "1000"}
        status = {"allocatable": {"pods": "110", **offer}}
        cache.load([kind(kinds.Node, metadata={"name": name, "labels": labels}, status=status)])
    spec = {"containers": [{"name": "main", "resources": {"requests": PODS["wants-gpu"]}}]}
    cache.load([kind(kinds.Pod, metadata={"name": "pod"}, spec=spec)])
    found = cache.snapshot(now=0.0)
    trial, rows = Trial(found), [found.nodes.rows[name] for name in offers]
    trial.idle[GPU, found.nodes.rows["shared"]] -= 2
    staying, leaving = Share(used=250, allocated=250), Share(used=500, allocated=500, releasing=250)
    trial.shares[found.nodes.rows["shared"]] = {"a": staying, "b": leaving}
    at = np.array(rows, dtype=np.int64)
    nothing = np.zeros(len(rows))
    seen = NodeLook(trial, trial.of_class(0), at, trial.idle[:, at], trial.idle[:, at], nothing > 0, nothing)
    np.testing.assert_allclose(Spread().score(seen), [1, (2 + 0.75 + 0.75) / 4, 3 * 2 / 4])


@pytest.mark.parametrize("gpu", [True, False])
def test_each_kind_of_pod_has_its_own_strategy(snapshot: Snapshot, gpu: bool) -> None:
    for pod, mine in ((0, gpu), (1, not gpu)):
        seen = look(snapshot, pod)
        assert any(packed(Pack(gpu=gpu, cpu=not gpu), seen)) is mine
        assert bool(np.any(Spread(gpu=gpu, cpu=not gpu).score(seen))) is mine


@pytest.mark.parametrize(
    ("measure", "low", "high", "expected"),
    [
        ([0, 3, 4], 0, 4, [9, 2.25, 0]),
        ([2, 2], 2, 2, [9, 9]),
        ([0, 0], 0, 0, [0, 0]),
        ([np.nan, 1], 1, 1, [0, 9]),
        ([np.nan, np.nan], np.nan, np.nan, [0, 0]),
        ([-1, 1], -1, 1, [9, 0]),
    ],
)
def test_packing_is_relative_to_the_extremes(
    measure: list[float], low: float, high: float, expected: list[float]
) -> None:
    assert Pack().relative(np.array(measure, dtype=float), low, high).tolist() == expected


@pytest.mark.parametrize(
    ("strategies", "plugins"),
    [
        ({}, (Pack(),)),
        ({"gpu": "spread", "cpu": "spread"}, (Spread(),)),
        ({"gpu": "spread"}, (Pack(gpu=False), Spread(cpu=False))),
    ],
)
def test_placement_by_strategy(strategies: dict[str, Any], plugins: tuple[object, ...]) -> None:
    assert node_placement(**strategies) == plugins


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"arguments\.cpu: must be binpack or spread"):
        node_placement(cpu="random")


def test_cpu_pods_prefer_nodes_without_gpus(snapshot: Snapshot) -> None:
    np.testing.assert_array_equal(ResourceType().score(look(snapshot, 1)), [0, 0, 10])
    assert ResourceType().score(look(snapshot, 0)) == 0


def test_nodes_that_are_free_now_and_devices_that_are_shared(snapshot: Snapshot) -> None:
    seen = look(snapshot, 0, fits_now=[1, 0, 0], sharable=[0, 2, 0])
    np.testing.assert_array_equal(NodeAvailability().score(seen), [1000, 0, 0])
    np.testing.assert_array_equal(GpuSharingOrder().score(seen), [0, 10000, 0])


def test_scores_are_columns_over_the_nodes_of_the_look(snapshot: Snapshot) -> None:
    seen = look(snapshot, 1, nodes=[2, 0])
    assert packed(Pack(), seen) == [9, 0]
    np.testing.assert_array_equal(Spread().score(seen), [1, 1])
    np.testing.assert_array_equal(ResourceType().score(seen), [10, 0])


@pytest.mark.parametrize(("used", "pack", "spread"), [(0.0, 0.0, 1.0), (0.25, 0.25, 0.75), (1.0, 1.0, 0.0)])
def test_devices(used: float, pack: float, spread: float) -> None:
    assert GpuPack().device_score(used) == pack
    assert GpuSpread().device_score(used) == spread


def test_packing_and_spreading_are_different_points() -> None:
    assert [isinstance(Pack(), point) for point in (RelativeScore, NodeScore)] == [True, False]
    assert [isinstance(Spread(), point) for point in (RelativeScore, NodeScore)] == [False, True]
