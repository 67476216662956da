"""Reservation pods: the device of one that nobody needs any more is not free before the pod is gone."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.model.resources import GPU, PODS
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


def test_reservations_of_a_node_that_is_gone_change_no_other_node() -> None:
    cache = ClusterCache(SchedulerParams())
    other = decoded(builders.node("other", 2))
    cache.load([other, RESERVATION, SHARER])
    trial = Trial(cache.snapshot(1e9))
    assert trial.releasing[PODS, 0] == 0.0


SM = {"nvidia.com/container.c.gpu-compute.mode": "sm-sharing"}
MARKED = pod("r", {"app": "kai-resource-reservation", "runai-gpu-group": "g"}, SM, 1)
SM_SHARER = pod("s", {"runai-gpu-group": "g"}, {"gpu-fraction": "0.5", **SM}, 0)


@pytest.mark.parametrize(
    ("pods", "mode"),
    [
        ([RESERVATION, SHARER], 0),
        ([SM_SHARER], 1),
        ([MARKED, SM_SHARER], 1),
        ([RESERVATION, SM_SHARER], 0),  # the reservation pod goes before those who share
    ],
)
def test_the_compute_mode_of_a_device(pods: list[Any], mode: int) -> None:
    cache = ClusterCache(SchedulerParams())
    cache.load([node(), *pods])
    assert Trial(cache.snapshot(1e9)).shares[0]["g"].mode == mode
