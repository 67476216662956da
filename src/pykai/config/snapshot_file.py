"""Reads KAI's snapshot file: the objects, configuration and parameters of one scheduling cycle."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, field, json

from pykai.config.fields import FieldError, located_error
from pykai.model.params import SchedulerParams
from pykai.objects import kinds, names
from pykai.objects.kinds import Kind, PodGroup
from pykai.objects.units import parse_timestamp


class Partition(Kind):
    key: str = field(default="", name="NodePoolLabelKey")
    value: str = field(default="", name="NodePoolLabelValue")


class Params(Kind):
    """The scheduler's flags. Durations are in nanoseconds; a missing field has its zero value."""

    scheduler_name: str = "kai-scheduler"
    restrict_scheduling_nodes: bool = False
    partition_params: Partition = Partition()
    max_number_consolidation_preemptees: int = 0
    schedule_csi_storage: bool = field(default=False, name="scheduleCSIStorage")
    use_scheduling_signatures: bool = False
    full_hierarchy_fairness: bool = False
    allow_consolidating_reclaim: bool = False
    global_default_staleness_grace_period: int = 0
    stuck_in_releasing_threshold: int = 0
    detailed_fit_errors: bool = False
    update_pod_eviction_condition: bool = False
    queue_label_key: str = "kai.scheduler/queue"
    gpu_sharing_mode: str = ""


class RawObjects(Kind):
    pods: list[kinds.Pod] | None = None
    nodes: list[kinds.Node] | None = None
    queues: list[kinds.Queue] | None = None
    pod_groups: list[kinds.PodGroup] | None = None
    bind_requests: list[kinds.BindRequest] | None = None
    priority_classes: list[kinds.PriorityClass] | None = None
    namespaces: list[kinds.Namespace] | None = None
    pod_disruption_budgets: list[kinds.PodDisruptionBudget] | None = None
    config_maps: list[kinds.ConfigMap] | None = None
    persistent_volumes: list[kinds.PersistentVolume] | None = None
    persistent_volume_claims: list[kinds.PersistentVolumeClaim] | None = None
    csi_storage_capacities: list[kinds.CSIStorageCapacity] | None = None
    storage_classes: list[kinds.StorageClass] | None = None
    csi_drivers: list[kinds.CSIDriver] | None = None
    csi_nodes: list[kinds.CSINode] | None = None
    resource_claims: list[kinds.ResourceClaim] | None = None
    resource_slices: list[kinds.ResourceSlice] | None = None
    device_classes: list[kinds.DeviceClass] | None = None
    device_taint_rules: list[kinds.DeviceTaintRule] | None = None
    topologies: list[kinds.Topology] | None = None
    node_resource_topologies: list[kinds.NodeResourceTopology] | None = None

    def all(self) -> Iterator[Any]:
        return chain.from_iterable(getattr(self, name) or () for name in self.__struct_fields__)


class SnapshotFile(Struct, rename="camel"):
    raw_objects: RawObjects
    config: dict[str, Any] = {}
    scheduler_params: Params = Params()
    discovery: dict[str, Any] | None = None


MEMBER = "snapshot.json"
MAX_BYTES = 2 * 2**30
"""Limit of the uncompressed size: about ten times that of 5,000 nodes and 50,000 pods."""
_NANOSECONDS = 1e9
_DRA_GROUP = "resource.k8s.io/"
_TIMESTAMP_ANNOTATIONS = (names.LAST_START_TIMESTAMP, names.LAST_EVICTION_TIMESTAMP, names.STALE_TIMESTAMP)


def load(path: Path) -> SnapshotFile:
    """Load a snapshot from a zip archive; FieldError names the invalid field."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as member:
            data = member.read(MAX_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise FieldError(str(path), f"not a zip archive: {error}") from error
    except KeyError as error:
        raise FieldError(str(path), f"the archive holds no {MEMBER}: not a snapshot") from error
    if len(data) > MAX_BYTES:
        raise FieldError(f"{path}: {MEMBER}", f"larger than {MAX_BYTES // 2**20} MiB: not a snapshot")
    try:
        return json.decode(data, type=SnapshotFile)
    except ValidationError as error:
        located = located_error(
            error, json.decode(data), lambda document: json.decode(json.encode(document), type=SnapshotFile)
        )
        raise FieldError(": ".join(filter(None, (str(path), MEMBER, located.path))), located.message) from error
    except DecodeError as error:
        raise FieldError(f"{path}: {MEMBER}", f"not JSON: {error}") from error


def raw_objects(path: Path) -> dict[str, list[Any]]:
    """Return the complete objects of a valid snapshot, by section (`pods`, `nodes` ...)."""
    with zipfile.ZipFile(path) as archive:
        found: dict[str, list[Any]] = json.decode(archive.read(MEMBER))["rawObjects"]
    return found


def params(file: SnapshotFile) -> SchedulerParams:
    """Return the parameters that the scheduler ran with; one that the file lacks has its zero value."""
    flags = file.scheduler_params
    # Without discovery data, DRA counts as served: other clusters have no objects of it.
    resources = (file.discovery or {}).get("resources")
    return SchedulerParams(
        scheduler_name=flags.scheduler_name,
        node_pool_key=flags.partition_params.key,
        node_pool=flags.partition_params.value,
        partitioned=bool(flags.partition_params.key),
        restrict_nodes=flags.restrict_scheduling_nodes,
        queue_label_key=flags.queue_label_key,
        max_consolidation_victims=flags.max_number_consolidation_preemptees,
        schedule_csi_storage=flags.schedule_csi_storage,
        use_signatures=flags.use_scheduling_signatures,
        full_hierarchy_fairness=flags.full_hierarchy_fairness,
        allow_consolidating_reclaim=flags.allow_consolidating_reclaim,
        staleness_grace=flags.global_default_staleness_grace_period / _NANOSECONDS,
        stuck_in_releasing=flags.stuck_in_releasing_threshold / _NANOSECONDS,
        detailed_fit_errors=flags.detailed_fit_errors,
        update_eviction_condition=flags.update_pod_eviction_condition,
        dra_enabled=not resources
        or any(str(each.get("groupVersion", "")).startswith(_DRA_GROUP) for each in resources),
        nvfractions=flags.gpu_sharing_mode == names.NVFRACTIONS,
    )


def observed_at(file: SnapshotFile) -> float | None:
    """Return the time of the snapshot: its newest timestamp, in seconds since the epoch; None if it has none."""
    return max(_timestamps(file), default=None)


def _timestamps(file: SnapshotFile) -> Iterator[float]:
    for obj in file.raw_objects.all():
        meta = obj.metadata
        for timestamp in (meta.creation_timestamp, meta.deletion_timestamp):
            if timestamp is not None:
                yield timestamp.timestamp()
        if isinstance(obj, PodGroup):
            annotated = (parse_timestamp((meta.annotations or {}).get(key)) for key in _TIMESTAMP_ANNOTATIONS)
            yield from (timestamp for timestamp in annotated if timestamp is not None)
