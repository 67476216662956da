"""SchedulingShards as kai-resource-management writes them for its NodePools: accepted, served, and reported in the two
conditions by which it counts a pool as served."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pykai.config.usage_db import read_usage_config
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import CONFIG_MAP, DEPLOYMENT, SHARD
from tests.unit.controllers.live import eventually

from .cluster import Bench, flags_of, operating

HERE = "kai-scheduler"
WORKERS = {
    "cpu-worker-node-label-key": "node-role.kubernetes.io/runai-cpu-worker",
    "gpu-worker-node-label-key": "node-role.kubernetes.io/runai-gpu-worker",
    "mig-worker-node-label-key": "node-role.kubernetes.io/runai-mig-enabled",
}


def usage(pool: str) -> dict[str, Any]:
    """Fair share over time: durations as Go writes them, its own names of metrics, the capacity of the pool."""
    capacity = {
        f"{name}CapacityMetric": f'resources_per_nodepool{{resource="{resource}", nodepool="{pool}"}}'
        for name, resource in (("gpu", "nvidia_com_gpu"), ("cpu", "cpu"), ("memory", "memory"))
    }
    allocation = {
        "gpuAllocationMetric": "krm_queue_allocated_gpus",
        "cpuAllocationMetric": "krm_queue_allocated_cpu_cores",
        "memoryAllocationMetric": "krm_queue_allocated_memory_bytes",
    }
    params = {
        "halfLifePeriod": "0s",
        "windowSize": "168h0m0s",
        "windowType": "sliding",
        "fetchInterval": "1m0s",
        "extraParams": {**allocation, **capacity},
    }
    return {"clientType": "prometheus", "usageParams": params}


SHARDS: list[tuple[str, str, dict[str, Any]]] = [
    ("default", "", {"args": WORKERS, "partitionLabelValue": ""}),
    (
        "gold",
        "gold",
        {
            "args": {**WORKERS, "default-staleness-grace-period": "2m0s"},
            "partitionLabelValue": "gold",
            "placementStrategy": {"gpu": "spread", "cpu": "binpack"},
            "queueDepthPerAction": {"reclaim": 5},
            "minRuntime": {"preemptMinRuntime": "10m0s", "reclaimMinRuntime": "5m0s"},
            "kValue": 1,
            "usageDBConfig": usage("gold"),
            "plugins": {"gpujoborder": {"enabled": True, "arguments": {"mode": "prefer-smaller"}}},
            "actions": {"consolidation": {"enabled": False}},
        },
    ),
]


async def write(bench: Bench, name: str, spec: dict[str, Any]) -> None:
    """Create the shard of a NodePool, which owns it."""
    owner = {"apiVersion": "kai.resources/v1alpha1", "kind": "NodePool", "name": name, "uid": "u", "controller": True}
    metadata = {"name": name, "labels": {"app": "kai-scheduler"}, "ownerReferences": [owner]}
    await bench.api.create(SHARD, {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(("name", "pool", "spec"), SHARDS)
async def test_a_pool_is_served_once_its_shard_is_deployed_and_available(
    name: str, pool: str, spec: dict[str, Any]
) -> None:
    async with operating() as bench:
        await bench.configure(prometheus={"externalPrometheusUrl": "http://there"})
        await write(bench, name, spec)

        async def conditions() -> dict[str, str] | None:
            rows = await bench.conditions(SHARD, name)
            found: dict[str, str] = {kind: rows[kind]["status"] for kind in ("Deployed", "Available") if kind in rows}
            return found if found.get("Deployed") == "True" else None

        assert await eventually(conditions) == {"Deployed": "True", "Available": "False"}
        ref = DEPLOYMENT.ref(f"kai-scheduler-{name}", HERE)
        given = flags_of(await bench.api.get(ref, Object))
        assert given.items() >= {**spec["args"], "partition-label-value": pool}.items()
        running = {
            "observedGeneration": 9,
            "updatedReplicas": 1,
            "conditions": [{"type": "Available", "status": "True"}],
        }
        await bench.api.patch(ref.sub("status"), Patch.merge({"status": running}))

        async def served() -> bool:
            return await conditions() == {"Deployed": "True", "Available": "True"}

        await eventually(served)
        stored = await bench.api.get(SHARD.ref(name), Object)
        assert stored["metadata"]["labels"] == {"app": "kai-scheduler"}
        assert stored["metadata"]["ownerReferences"][0]["kind"] == "NodePool"


async def test_what_it_says_about_past_use_reaches_the_scheduler() -> None:
    name, _, spec = SHARDS[1]
    async with operating() as bench:
        await bench.configure(prometheus={"externalPrometheusUrl": "http://there"})
        await write(bench, name, spec)

        async def text() -> str | None:
            if f"kai-scheduler-{name}" not in await bench.names(CONFIG_MAP):
                return None
            data: str = (await bench.api.get(CONFIG_MAP.ref(f"kai-scheduler-{name}", HERE), Object))["data"][
                "config.yaml"
            ]
            return data

        written = yaml.safe_load(await eventually(text))
        read = read_usage_config(written["usageDBConfig"], 0.0)
        assert read.fetch_interval == 60.0
        assert read.half_life is None
        queries = str(read)
        assert 'resources_per_nodepool{resource="nvidia_com_gpu", nodepool="gold"}' in queries
        assert "krm_queue_allocated_cpu_cores" in queries
        assert "consolidation" not in written["actions"]
        (order,) = [each for each in written["tiers"][0]["plugins"] if each["name"] == "gpujoborder"]
        assert order["arguments"] == {"mode": "prefer-smaller"}
