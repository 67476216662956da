"""Shares of devices: which device exists now, and how much of it a request for memory counts."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.amounts import PodAmounts
from pykai.engine.cycle import Cycle
from pykai.engine.place import choose_devices
from pykai.engine.trial import Trial
from pykai.model.resources import GPU
from pykai.objects import kinds, names
from tests import builders
from tests.builders import NOW, as_kind, decoded
from tests.properties.small_world import PACKING
from tests.unit.plugins.small_clusters import Fields

from .clusters import bound, gang, node, plan, pod, promised, reservation, seen


def on(name: str) -> dict[str, Any]:
    return {"nodeSelector": {"name": name}}


def test_a_share_starts_on_an_idle_device_that_a_waiting_gang_was_promised() -> None:
    """One half of the gang waits for cores on m, so that the other one waits, too: on n, where all devices are idle."""
    leaving = [gang("old"), pod("old-0", "m!", cpu="8")]
    pair = [gang("pair", age=100, minMember=2), pod("pair-0", share="0.3", spec=on("n"))]
    pair.append(pod("pair-1", share="0.3", cpu="1", spec=on("m")))
    found = plan(node("n", gpus=2), node("m", gpus=1), *leaving, *pair, gang("one"), pod("one-0", share="0.3", cpu="1"))
    assert (bound(found), promised(found)) == ({"one-0": "n"}, {"pair-0": "n", "pair-1": "m"})


def test_a_device_that_was_given_and_then_promised_is_there_at_once() -> None:
    snapshot = seen(node("n", gpus=1), gang("a"), pod("a-0", share="0.3"))
    trial = Trial(snapshot)
    trial.place(0, 0, ("new-1",), wait=False)
    trial.wait_instead(0)
    (share,) = trial.shares[0].values()
    assert (share.met, share.holds_now(10.0, 16000.0), share.holds_now(16001.0, 16000.0)) == (True, True, False)


@pytest.mark.parametrize("status", ["", "!"])
def test_a_share_on_a_node_that_is_gone_takes_nothing_from_another(status: str) -> None:
    ghost = [gang("ghost"), pod("ghost-0", "gone" + status, share="0.5", device="d")]
    found = plan(node("n", gpus=1), *ghost, gang("new"), pod("new-0", gpus=1))
    assert bound(found) == {"new-0": "n"}


def charged(trial: Trial) -> tuple[float, float]:
    return float(trial.idle[GPU, 0]), float(trial.releasing[GPU, 0])


def one_leaves_another_waits(*more: Any) -> Trial:
    """A device of which somebody has a half, and which somebody was promised the other half of."""
    running, waiting = pod("a-0", "n", share="0.5", device="d"), pod("b-0", share="0.5")
    trial = Trial(seen(node("n", gpus=3), gang("a"), running, gang("b"), waiting, *more))
    trial.place(1, 0, ("d",), wait=True)
    return trial


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_device_is_given_up_in_whatever_order_its_sharers_go(order: tuple[int, int]) -> None:
    trial = one_leaves_another_waits()
    for row in order:
        trial.suppose_evicted(row)
    assert charged(trial) == (2.0, 1.0)


def test_a_device_is_not_idle_while_one_leaves_it_and_another_waits_for_it() -> None:
    trial = one_leaves_another_waits()
    trial.suppose_evicted(0)
    assert charged(trial) == (2.0, 0.0)
    trial.keep(0)
    assert charged(trial) == (2.0, 0.0)


def test_a_device_that_is_given_up_counts_also_where_others_are_promised() -> None:
    """Two whole devices are idle and promised: they are no reason to think that the third is not there."""
    trial = one_leaves_another_waits(gang("c"), pod("c-0", gpus=1), pod("c-1", gpus=1))
    trial.place(2, 0, wait=True)
    trial.place(3, 0, wait=True)
    trial.suppose_evicted(1)
    trial.suppose_evicted(0)
    assert charged(trial) == (2.0, -1.0)


@pytest.mark.parametrize(
    ("devices", "share", "pods", "wait", "expected"),
    [
        (1, "0.5", 9, False, (("d",), False)),  # the device that is shared already
        (1, "0.6", 9, False, (("new-1",), False)),
        (2, "0.5", 9, False, (("d", "new-1"), False)),
        (2, "0.5", 9, True, (("d", "new-1"), True)),
        (2, "0.6", 9, False, (("new-1", "new-2"), False)),
        (3, "0.6", 9, False, None),  # two devices are idle
        (4, "0.5", 9, False, None),
        (2, "0.6", 5, False, (("new-1", "new-2"), False)),
        (2, "0.6", 4, False, None),  # no slots for two reservation pods
    ],
)
def test_devices_of_a_node_are_chosen_or_are_too_few(
    devices: int, share: str, pods: int, wait: bool, expected: tuple[tuple[str, ...], bool] | None
) -> None:
    """Of three devices one is shared, with half of it left."""
    held = [gang("old"), pod("old-0", "n", share="0.5", device="d"), reservation("n", "d")]
    snapshot = seen(node("n", gpus=3, pods=pods), *held, gang("a"), pod("a-0", share=share, devices=devices))
    cycle = Cycle(snapshot, PACKING, NOW)
    pod_class = cycle.trial.of_class(snapshot.pods.names.index("a-0"))
    assert choose_devices(cycle, pod_class, 0, wait) == expected


MEMORY = [(1, 0.01), (7, 0.08), (14, 0.15), (50, 0.5), (55, 0.56), (56, 0.57), (100, 1.0)]
"""MiB of 100 -> portion: the quotient of floats is rounded up, and that may lie above the true one."""


@pytest.mark.parametrize(("mebibytes", "portion"), MEMORY)
def test_portions_of_memory_are_rounded_up_as_kai_does(mebibytes: int, portion: float) -> None:
    asks: Fields = {"metadata": {"annotations": {names.GPU_MEMORY: str(mebibytes), names.POD_GROUP_ANNOTATION: "a"}}}
    asks["metadata"] |= {"name": "a-0", "namespace": "ns", "uid": "a-0"}
    wish = as_kind(kinds.Pod, {**asks, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "c"}]}})
    snapshot = seen(node("n", gpus=1, labels={names.GPU_MEMORY_LABEL: "100"}), gang("a"), wish)
    assert PodAmounts(snapshot).share_portion(snapshot.pods.of_class(0), 0) == portion


def test_the_judge_rounds_portions_of_memory_alike() -> None:
    """8800 of 16000 MiB are 0.56 of a device, not 0.55: a plan that the judge refuses would bind nobody."""
    asks = {names.GPU_MEMORY: "8800"}
    found = plan(node("n", gpus=1), gang("a"), decoded(builders.pod("a-0", "a", annotations=asks)))
    assert [(bind.node, bind.portion) for bind in found.binds] == [("n", 0.56)]


def test_the_smallest_shares_are_on_one_device() -> None:
    """0.0001 of 9000 MiB is less than one: it counts as one, or the device would not count as shared."""
    sharers = [each for name in "abc" for each in (gang(name), pod(f"{name}-0", share="0.0001"))]
    found = plan(node("n", gpus=1, labels={names.GPU_MEMORY_LABEL: "9000"}), *sharers)
    assert len({bind.gpu_groups for bind in found.binds}) == 1
    assert len(found.binds) == 3
