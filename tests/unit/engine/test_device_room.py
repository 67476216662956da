"""How many wanted pods the devices of a node could hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pykai.engine.cycle import Cycle
from pykai.engine.device_room import DeviceNeed, FreeDevices, Leaving
from pykai.engine.node_room import NodeRoom
from pykai.objects import names
from tests.builders import NOW
from tests.properties.small_world import PACKING
from tests.unit.engine.clusters import gang, node, pod, seen

HALVES = [pod(f"run-{at}", "n", share="0.5", device=f"d{at}") for at in range(3)]
"""They leave half of three devices free; a fourth is idle."""


@pytest.mark.parametrize(
    ("wanted", "now", "after"),
    [
        ([{"gpus": 1}], 1, [2, 3, 4]),
        ([{"gpus": 2}], 0, [1, 1, 2]),
        ([{"share": "0.5"}], 5, [6, 7, 8]),
        ([{"share": "0.6"}], 1, [2, 3, 4]),  # by amounts 2.5 GPUs are free, places for four of them
        ([{"share": "0.6"}, {"share": "0.3"}], 6, [8, 10, 12]),  # counted as if both asked for the least
        ([{"share": "0.5", "devices": "2"}], 2, [3, 3, 4]),
        ([{"share": "0.6", "devices": "2"}], 0, [1, 1, 2]),
    ],
)
def test_each_device_counts_by_itself(wanted: list[dict[str, Any]], now: int, after: list[int]) -> None:
    pending = [pod(f"new-{at}", **asks) for at, asks in enumerate(wanted)]
    snapshot = seen(node("n", 4), gang("run"), gang("new"), *HALVES, *pending)
    cycle = Cycle(snapshot, PACKING, NOW)
    running, waiting = (
        [at for at, name in enumerate(snapshot.pods.names) if name[:3] == kind] for kind in ("run", "new")
    )
    (need,) = DeviceNeed.of(cycle.trial, cycle.node_facts, [cycle.trial.of_class(each) for each in waiting])
    free = FreeDevices(cycle.trial, NodeRoom(cycle.trial).devices, (), np.ones(1, dtype=bool))
    assert free.places(need).tolist() == [now]
    leaving = Leaving(np.array(running), np.zeros(3, dtype=np.int64), np.ones(3, dtype=bool), np.full(3, 0.5))
    assert free.places_after(need, leaving).tolist() == after


@pytest.mark.parametrize(
    ("wanted", "now", "after"),
    [
        ({"share": "0.5"}, 2, [4, 4, 6]),
        ({"gpus": 1}, 1, [1, 1, 3]),
        ({"share": "0.5", "devices": "2"}, 0, [2, 2, 3]),
    ],
)
def test_a_pod_that_has_several_devices_leaves_all_of_them(wanted: dict[str, Any], now: int, after: list[int]) -> None:
    """Two pods have half of the same two devices each, and a third one stays where it is; a third device is idle."""
    sharers = [pod(f"run-{at}", "n", share="0.5", devices="2") for at in range(2)]
    labels = {f"{names.GPU_GROUP_LABEL_PREFIX}{device}": device for device in ("d0", "d1")}
    sharers = [replace(each, metadata=replace(each.metadata, labels=labels)) for each in sharers]
    objects = [*sharers, pod("run-2", "n", cpu="1"), gang("run"), gang("new"), pod("new-0", **wanted)]
    cycle = Cycle(seen(node("n", 3), *objects), PACKING, NOW)
    rows = {name: row for row, name in enumerate(cycle.snapshot.pods.names)}
    (need,) = DeviceNeed.of(cycle.trial, cycle.node_facts, [cycle.trial.of_class(rows["new-0"])])
    free = FreeDevices(cycle.trial, NodeRoom(cycle.trial).devices, (), np.ones(1, dtype=bool))
    assert free.places(need).tolist() == [now]
    pods = np.array([rows[name] for name in ("run-0", "run-2", "run-1")])
    leaving = Leaving(pods, np.zeros(3, dtype=np.int64), np.array([True, False, True]), np.array([1.0, 0.0, 1.0]))
    assert free.places_after(need, leaving).tolist() == after


def test_pods_that_share_and_pods_that_do_not_are_counted_apart() -> None:
    wanted = [pod("new-0", share="0.5"), pod("new-1", gpus=2), pod("new-2", gpus=1), pod("new-3", cpu="1")]
    cycle = Cycle(seen(node("n", 4), gang("new"), *wanted), PACKING, NOW)
    needs = DeviceNeed.of(cycle.trial, cycle.node_facts, [cycle.trial.of_class(each) for each in range(4)])
    assert [(need.pods, need.devices, need.memory.tolist()) for need in needs] == [(1, 1, [8000]), (2, 1, [16000])]
