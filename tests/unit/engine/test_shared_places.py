"""Shares of devices: which device exists now, and how much of it a request for memory counts."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.amounts import PodAmounts
from pykai.engine.trial import Trial
from pykai.objects import kinds, names
from tests.unit.plugins.small_clusters import kind

from .test_plans import bound, gang, node, plan, pod, promised, seen


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


MEMORY = [(1, 0.01), (7, 0.08), (14, 0.15), (50, 0.5), (55, 0.56), (56, 0.57), (100, 1.0)]
"""MiB of 100 -> portion: the quotient of floats is rounded up, and that may lie above the true one."""


@pytest.mark.parametrize(("mebibytes", "portion"), MEMORY)
def test_portions_of_memory_are_rounded_up_as_kai_does(mebibytes: int, portion: float) -> None:
    asks = {"metadata": {"annotations": {names.GPU_MEMORY: str(mebibytes), names.POD_GROUP_ANNOTATION: "a"}}}
    asks["metadata"] |= {"name": "a-0", "namespace": "ns", "uid": "a-0"}
    wish = kind(kinds.Pod, {**asks, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "c"}]}})
    snapshot = seen(node("n", gpus=1, labels={names.GPU_MEMORY_LABEL: "100"}), gang("a"), wish)
    assert PodAmounts(snapshot).share_portion(snapshot.pods.of_class(0), 0) == portion
