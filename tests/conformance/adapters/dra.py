"""dra/prefilter: whether the gate of the DRA plugin lets a pod through, and what it says otherwise."""

from __future__ import annotations

from typing import Any

from pykai.cache.cluster import ClusterCache
from pykai.engine.cycle import Cycle
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.objects import kinds
from pykai.plugins.dra import DynamicResources
from tests.conformance.adapters.clusters import as_kind

Case = dict[str, Any]
KINDS: dict[str, type[kinds.Kind]] = {
    "ResourceClaim": kinds.ResourceClaim,
    "ResourceSlice": kinds.ResourceSlice,
    "DeviceClass": kinds.DeviceClass,
}


def cluster(case: Case) -> ClusterCache:
    given, resolved = case["input"], case["resolved"]
    enabled = given["feature_gates"]["dynamic_resources_enabled"]
    cache = ClusterCache(SchedulerParams(dra_enabled=enabled, queue_label_key=given["queue_label_key"]))
    cache.load(as_kind(kinds.Pod, pod["k8s"]) for pod in resolved["pods"].values())
    cache.load(as_kind(KINDS[item["kind"]], item) for item in resolved.get("dra_objects", ()))
    for job in given["jobs"]:
        meta = {"name": job["name"], "namespace": job.get("namespace", "")}
        cache.load([as_kind(kinds.PodGroup, {"metadata": meta, "spec": {"queue": job["queue_name"]}})])
    return cache


def prefilter(case: Case, _: Case) -> list[str]:
    gate = DynamicResources()
    cycle = Cycle(cluster(case).snapshot(0.0), Policy((gate,)), 0.0)
    rows = {name: row for row, name in enumerate(cycle.snapshot.pods.names)}
    bad = []
    for name, wanted in case["expected"].get("tasks", {}).items():
        refusal = gate.refuse(cycle, rows[name])
        said = None if refusal is None else refusal.message
        if said != wanted.get("error") or (said is None) != wanted["schedulable"]:
            bad.append(f"{name}: {said!r} != {wanted.get('error')!r}")
    return bad


SUITES = {"dra/prefilter": prefilter}
