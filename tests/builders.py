"""Kubernetes objects for tests: the manifests that users, controllers and the scheduler write.

A builder takes by keyword what tests vary and fills in what every object of the kind has. `decoded` turns a manifest
into the product's kind, `snapshot` takes manifests through the cache the way the product does. A module that tests in
terms of its own (a pod named `a-0` belongs to gang `a`) wraps a builder instead of writing the object out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from pykai.cache.cluster import ClusterCache
from pykai.model.params import SchedulerParams
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names
from pykai.objects.units import rfc3339

Manifest = dict[str, Any]
K = TypeVar("K")

GPU: Final = names.NVIDIA_GPU
NOW: Final = 1_800_000_000.0
"""The time of the tests that need one."""
UNLIMITED: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
READY: Final = {"type": "Ready", "status": "True"}


# ------------------------------------------------------------------------------------------------------------ manifests
def node(
    name: str,
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Manifest:
    """A ready node of 8 cores and `gpus` devices; `allocatable` changes amounts, `conditions` replace Ready."""
    amounts = {"cpu": "8", "memory": "8G", "pods": "110", **({GPU: str(gpus)} if gpus else {}), **(allocatable or {})}
    conditions = spec.pop("conditions", [READY])
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": dict(amounts), "conditions": conditions},
    }


def queue(name: str = "q", parent: str = "", **spec: Any) -> Manifest:
    """A queue without bounds; `cpu`, `memory` and `gpu` change the share of a resource: `gpu={"quota": 4}`."""
    shares = {resource: {**UNLIMITED, **spec.pop(resource, {})} for resource in ("cpu", "memory", "gpu")}
    above = {"parentQueue": parent} if parent else {}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {**above, "resources": shares, **spec},
    }


def pod_group(
    name: str, queue: str = "q", min_member: int = 1, metadata: Mapping[str, Any] | None = None, **spec: Any
) -> Manifest:
    """A pod group of namespace `ns`."""
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ns", **(metadata or {})},
        "spec": {"queue": queue, "minMember": min_member, **spec},
    }


def pod(
    name: str,
    group: str = "",
    node: str = "",
    requests: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Manifest:
    """A pod of namespace `ns` for this scheduler, pending, or running on `node`.

    `group` names its pod group. In `requests` the key `gpu` stands for the resource of whole GPUs; amounts are limits
    as well, as they must be for devices. `terminating` marks the pod as deleted; what is left goes to its metadata.
    """
    amounts = {GPU if key == "gpu" else key: str(amount) for key, amount in (requests or {}).items()}
    if metadata.pop("terminating", False):
        metadata["deletionTimestamp"] = rfc3339(NOW - 1)
    annotations = {**({names.POD_GROUP_ANNOTATION: group} if group else {}), **metadata.pop("annotations", {})}
    container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": dict(amounts)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations, **metadata},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            **({"nodeName": node} if node else {}),
            "containers": [container],
            **(spec or {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def bind_request(pod: str, node: str, phase: str = "", **metadata: Any) -> Manifest:
    """The scheduler's request to bind a pod of namespace `ns`, whose uid is its name."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod}
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": pod, "namespace": "ns", "ownerReferences": [owner], **metadata},
        "spec": {"podName": pod, "selectedNode": node},
        "status": {"phase": phase} if phase else {},
    }


def priority_class(name: str, value: int) -> Manifest:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


# -------------------------------------------------------------------------------------------------- the product's forms
def decoded(manifest: Manifest) -> Any:
    """The object as the product reads it, of the kind the manifest names."""
    return as_kind(getattr(kinds, manifest["kind"]), manifest)


def as_kind(kind: type[K], fields: Mapping[str, Any]) -> K:
    """Fields of an object, which need not name its kind, as the product reads them."""
    found: K = kinds.decode(msgspec.json.encode(fields), kind)
    return found


def snapshot(objects: Iterable[Any], now: float = NOW, params: SchedulerParams | None = None) -> Snapshot:
    """The snapshot of a cache that has seen these manifests or kinds, without regard to node pools."""
    cache = ClusterCache(params or SchedulerParams(partitioned=False))
    cache.load([decoded(item) if isinstance(item, dict) else item for item in objects])
    return cache.snapshot(now)
