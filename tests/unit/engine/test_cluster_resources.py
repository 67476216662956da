"""What there is to share: ready nodes of ours, less what pods of other schedulers use of them."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.cycle import cluster_resources
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.objects import kinds, names
from tests.builders import as_kind

from .clusters import node

THEIRS = node("theirs", gpus=8, labels={names.NODE_POOL_LABEL: "other"})
BROKEN = as_kind(
    kinds.Node,
    {
        "metadata": {"name": "broken"},
        "status": {"allocatable": {"cpu": "64"}, "conditions": [{"type": "Ready", "status": "False"}]},
    },
)


def daemon(on: str) -> Any:
    """A pod of another scheduler: a core and two GPUs."""
    spec = {"schedulerName": "default-scheduler", "nodeName": on}
    requests = {"requests": {"cpu": "1", names.NVIDIA_GPU: 2}}
    return as_kind(
        kinds.Pod,
        {
            "metadata": {"name": f"daemon-{on}", "namespace": "ns", "uid": f"daemon-{on}"},
            "spec": {**spec, "containers": [{"name": "main", "resources": requests}]},
            "status": {"phase": "Running" if on else "Pending"},
        },
    )


WHERE = [("mine", 7000, 6), ("theirs", 8000, 8), ("broken", 8000, 8), ("unknown", 8000, 8), ("", 8000, 8)]


@pytest.mark.parametrize(("on", "cores", "gpus"), WHERE)
def test_pods_of_others_count_where_they_are(on: str, cores: float, gpus: float) -> None:
    cache = ClusterCache(SchedulerParams(partitioned=True))
    cache.load([node("mine", gpus=8), THEIRS, BROKEN, daemon(on)])
    total = cluster_resources(Trial(cache.snapshot(0.0)))
    assert (total[0], total[2]) == (cores, gpus)


@pytest.mark.parametrize(("restricted", "cores", "gpus"), [(False, 24000, 24), (True, 16000, 8)])
def test_with_worker_labels_only_gpu_workers_have_gpus_to_share(restricted: bool, cores: float, gpus: float) -> None:
    params = SchedulerParams(restrict_nodes=restricted)
    workers = [
        node("gpu", gpus=8, labels={params.gpu_worker_key: ""}),
        node("cpu", gpus=8, labels={params.cpu_worker_key: ""}),
    ]
    cache = ClusterCache(params)
    cache.load([*workers, node("neither", gpus=8)])
    total = cluster_resources(Trial(cache.snapshot(0.0)))
    assert (total[0], total[2]) == (cores, gpus)
