"""Nodes, gangs and pods of function cases as the product's own objects; no suite of its own.

Statuses of a case are authoritative: pods are built pending and given their status in the pod table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import kinds, names
from tests.conformance.cases import choose

Case = dict[str, Any]
K = TypeVar("K")
STATUSES = {status.title: status for status in Status} | dict.fromkeys(("", "Unset"), Status.PENDING)
UNITS = {"cpu": "m", "memory": "", "gpu": ""}
RESOURCE_NAMES = {"gpu": names.NVIDIA_GPU}


def as_kind(kind: type[K], fields: Case) -> K:
    found: K = kinds.decode(msgspec.json.encode({"metadata": {}, **fields}), kind)
    return found


def quantities(vector: Mapping[str, float]) -> dict[str, str]:
    """A vector of the cases (cpu in millicores) as Kubernetes writes it; the pod slot is not asked for."""
    asked = {name: value for name, value in vector.items() if value and name != "pods"}
    return {RESOURCE_NAMES.get(name, name): f"{value:.0f}{UNITS.get(name, '')}" for name, value in asked.items()}


def node(given: Case) -> kinds.Node:
    memory = given.get("gpu_memory_mib")
    labels = {names.GPU_MEMORY_LABEL: str(memory)} if memory else {}
    meta = {"name": given["name"] or "unnamed", "labels": {**labels, **given.get("labels", {})}}
    allocatable = {"pods": "110", **quantities(given["allocatable"])}
    return as_kind(kinds.Node, {"metadata": meta, "status": {"allocatable": allocatable}})


def share_annotations(task: Case) -> dict[str, str]:
    portion, memory = task.get("gpu_portion", 0), task.get("gpu_memory_mib", 0)
    devices = task.get("gpu_devices") or 1
    if memory:
        return {names.GPU_MEMORY: str(memory), names.GPU_FRACTION_DEVICES: str(devices)}
    if 0 < portion < 1:
        return {names.GPU_FRACTION: str(portion), names.GPU_FRACTION_DEVICES: str(devices)}
    return {}


def pod(name: str, task: Case, group: str = "", podset: str = "") -> kinds.Pod:
    """A pod that asks for what the task asks for; `podset` empty: no sub-group label."""
    shared = share_annotations(task)
    request = {r: v for r, v in task.get("request", {}).items() if r != "gpu" or not shared}
    meta = {
        "name": name,
        "uid": name,
        "labels": {names.SUBGROUP_LABEL: podset} if podset else {},
        "annotations": {names.POD_GROUP_ANNOTATION: group, **shared},
    }
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "containers": [{"name": "main", "resources": {"requests": quantities(request)}}],
    }
    return as_kind(kinds.Pod, {"metadata": meta, "spec": spec})


def sub_groups(tree: Case, parent: str = "") -> Iterable[Case]:
    """The flat list of sub-groups that makes up a tree below its root."""
    above = {"parent": parent} if parent else {}
    for podset in tree.get("pod_sets", ()):
        yield {"name": podset["name"], "minMember": podset.get("min_available", 0), **above}
    for group in tree.get("sub_group_sets", ()):
        name = group["name"].lower()
        yield {"name": name, **minimum(group), **above}
        yield from sub_groups(group, name)


def minimum(group: Case) -> Case:
    return {"minSubGroup": group["min_sub_group"]} if "min_sub_group" in group else {}


def pod_group(name: str, tree: Case) -> kinds.PodGroup:
    spec = {"subGroups": list(sub_groups(tree)), **minimum(tree)}
    return as_kind(kinds.PodGroup, {"metadata": {"name": name}, "spec": spec})


def podsets(tree: Case) -> Iterable[Case]:
    yield from tree.get("pod_sets", ())
    for group in tree.get("sub_group_sets", ()):
        yield from podsets(group)


def snapshot(objects: Iterable[Any], statuses: Mapping[str, str] | None = None) -> Snapshot:
    """The objects as tables; `statuses`: pod name -> status, for pods that are not pending."""
    cache = ClusterCache(SchedulerParams())
    cache.load(objects)
    found = cache.snapshot(now=0.0)
    status = [choose(STATUSES, (statuses or {}).get(name, "Pending")) for name in found.pods.names]
    return replace(found, pods=replace(found.pods, status=np.array(status, dtype=np.int64)))
