"""Reservation pods: the device of one that nobody needs any more is not free before the pod is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.model.resources import GPU
from pykai.objects import kinds


def node() -> Any:
    data = {
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "40000"}},
        "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "110"}},
    }
    return kinds.decode(json.dumps(data), kinds.Node)


def pod(name: str, labels: dict[str, str], annotations: dict[str, str], gpus: int) -> Any:
    requests = {"cpu": "1"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    data = {
        "metadata": {"name": name, "namespace": "x", "uid": name, "labels": labels, "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    return kinds.decode(json.dumps(data), kinds.Pod)


RESERVATION = pod("r", {"app": "kai-resource-reservation", "runai-gpu-group": "g"}, {}, 1)
SHARER = pod("s", {"runai-gpu-group": "g"}, {"gpu-fraction": "0.5"}, 0)


@pytest.mark.parametrize(
    ("pods", "idle", "releasing"),
    [
        ([], 2.0, 0.0),
        ([RESERVATION, SHARER], 1.0, 0.0),
        ([RESERVATION], 1.0, 1.0),
    ],
)
def test_devices(pods: list[Any], idle: float, releasing: float) -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([node(), *pods])
    trial = Trial(cache.snapshot(1e9))
    assert (trial.idle[GPU, 0], trial.releasing[GPU, 0]) == (idle, releasing)
