"""What a pod asks for and what it is doing.

Not compared, because it has no counterpart here: the received type (it follows from the request) and the status of
`pod_gpu_request`, which that operation only carries along.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pykai.cache.pods import pod_status
from pykai.cache.requests import GpuRequest, gpu_request, pod_amounts
from pykai.model.pods import GpuKind
from pykai.model.status import Status
from pykai.objects import kinds
from pykai.objects.names import MIG_PREFIX
from pykai.objects.pod_template import decode_template
from tests.conformance.adapters import clusters
from tests.conformance.cases import choose

Case = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RELATIVE = re.compile(r"@now-([0-9.]+)s")
OWN_PLACE = ("cpu", "memory")


def requirement(request: GpuRequest) -> Case:
    return {
        "devices": request.devices,
        "gpu_memory_mib": request.memory_mib,
        "gpus": request.gpus,
        "portion": request.portion,
    }


def resource_request(given: Case) -> Case:
    amounts = pod_amounts(decode_template(clusters.as_kind(kinds.Pod, given["pod"]).spec))
    asked = {name: value for name, value in amounts.items() if value and name not in OWN_PLACE}
    mig = {name: value for name, value in asked.items() if name.startswith(MIG_PREFIX)}
    scalar = {name: value for name, value in asked.items() if name not in mig and not name.endswith("gpu")}
    return {
        "cpu": amounts.get("cpu", 0),
        "memory": amounts.get("memory", 0),
        "gpu": {**requirement(gpu_request(amounts, {})), "dra_gpus": {}, "mig": mig},
        "scalar": scalar,
    }


def gpu_annotations(given: Case) -> Case:
    """What annotations and labels change in a pod whose whole devices were counted before.

    A legacy MIG pod is only marked here; in the cases it requests the instances of its annotations instead.
    """
    before = given["state_before"]
    pod = clusters.as_kind(kinds.Pod, given["pod"])
    annotations = pod.metadata.annotations or {}
    request = gpu_request({}, annotations)
    groups = clusters.snapshot([pod]).pods.gpu_groups.get(0)
    regular = request.kind is GpuKind.REGULAR
    wanted, kind = {**before["gpu_requirement"], **requirement(request)}, request.kind.value
    if request.legacy_mig:
        instances = {name: int(count) for name, count in annotations.items() if name.startswith(MIG_PREFIX)}
        wanted, kind = {**wanted, "mig": instances}, GpuKind.MIG.value
    elif regular:
        wanted, kind = before["gpu_requirement"], before["request_type"]
    return {
        "gpu_groups": list(groups) if groups else None,
        "gpu_requirement": wanted,
        "is_legacy_mig_task": request.legacy_mig,
        "request_type": kind,
    }


def status(given: Case) -> Case:
    fields = dict(given["pod"])
    meta = dict(fields.get("metadata", {}))
    if match := RELATIVE.fullmatch(meta.get("deletionTimestamp", "")):
        meta["deletionTimestamp"] = (NOW - timedelta(seconds=float(match[1]))).isoformat()
    pod = clusters.as_kind(kinds.Pod, {**fields, "metadata": meta})
    found = pod_status(pod, False, NOW.timestamp(), given["stuck_in_releasing_threshold_seconds"])
    gated = found is Status.PENDING and decode_template(pod.spec).gated
    return {"status": (Status.GATED if gated else found).title}


OPERATIONS: dict[str, Callable[[Case], Case]] = {
    "pod_resource_request": resource_request,
    "pod_gpu_request": gpu_annotations,
    "pod_status": status,
}


def pod_requests(case: Case, _document: Case) -> list[str]:
    expected = case["expected"]
    got = choose(OPERATIONS, case["input"]["operation"])(case["input"])
    return [
        f"{k}: expected {expected.get(k)}, got {v}" for k, v in got.items() if (expected.get(k) or None) != (v or None)
    ]


SUITES = {"podgroup/pod_requests": pod_requests}
