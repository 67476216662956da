"""What a pod that moves twice, or moves and loses its place, leaves behind: only the place it ran in."""

from __future__ import annotations

import pytest

from pykai.engine.trial import Trial
from pykai.model.resources import GPU
from pykai.model.status import Status
from pykai.objects import names
from tests.properties.clusters import ASKS, pod_of
from tests.properties.small_world import Cluster, running

ASKED = {"whole": "gpu", "share": "half"}


def trial_of(ask: str) -> Trial:
    labels = {names.GPU_MEMORY_LABEL: "16384"}
    offer = {"cpu": "8", "memory": "8Gi", "pods": "110", names.NVIDIA_GPU: "1"}
    nodes = [{"metadata": {"name": n, "labels": labels}, "spec": {}, "status": {"allocatable": offer}} for n in "abc"]
    pod = running(pod_of("g", ("", 0), ASKS[ASKED[ask]], {}), "a", ("d",) if ask == "share" else ())
    return Trial(Cluster(nodes=nodes, pods=[pod]).snapshot())


def move(trial: Trial, node: int | None, group: str) -> None:
    trial.suppose_evicted(0)
    if node is not None:
        trial.place(0, node, (group,) if trial.gpu_groups else (), wait=True)
    trial.decide({0: "why"})


@pytest.mark.parametrize("ask", ASKED)
def test_only_the_place_it_ran_in_is_released(ask: str) -> None:
    trial = trial_of(ask)
    move(trial, 1, "new-1")
    assert trial.releasing[GPU].tolist() == [1, -1, 0]
    move(trial, 2, "new-2")
    assert trial.releasing[GPU].tolist() == [1, 0, -1]
    move(trial, None, "")
    assert trial.releasing[GPU].tolist() == [1, 0, 0]
    assert trial.idle[GPU].tolist() == [0, 1, 1]
    assert (trial.status[0], trial.node[0], list(trial.evicted)) == (Status.RELEASING, 0, [0])
