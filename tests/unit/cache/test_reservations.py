"""Reservation pods: the device of one that nobody needs any more is not free before the pod is gone."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.model.resources import GPU
from tests import builders
from tests.builders import decoded


def node() -> Any:
    return decoded(builders.node("n", 2, {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "40000"}))


def pod(name: str, labels: dict[str, str], annotations: dict[str, str], gpus: int) -> Any:
    requests = {"cpu": "1"} | ({"gpu": gpus} if gpus else {})
    spec = {"schedulerName": "default-scheduler"}
    return decoded(builders.pod(name, "", "n", requests, spec, labels=labels, annotations=annotations))


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
