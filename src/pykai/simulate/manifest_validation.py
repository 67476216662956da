"""Validation of manifests for simulation: the known kinds, their checks and defaults.

All problems are collected before manifests are rejected, so that users can fix a file in one pass. Labels and
annotations that resemble ours but have no effect, misspelt or in the wrong place, only cause hints: any key is allowed
on an object, but a misspelt GPU annotation would otherwise run a pod without a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from pykai.config.fields import Problems
from pykai.hollow.kubelet_settings import Span, duration_span
from pykai.kube import api_resources as known
from pykai.kube.api import Object, Resource
from pykai.objects import kinds, names
from pykai.simulate import checks, pod_checks
from pykai.simulate.checks import problems
from pykai.simulate.manifests import Arrival, Manifest, ManifestError, is_read_from_a_cluster
from pykai.simulate.workloads import WORKLOADS

_LABELS: Final = frozenset(
    {names.QUEUE_LABEL, names.LEGACY_QUEUE_LABEL, names.NODE_POOL_LABEL, names.PRIORITY_CLASS_LABEL}
)
_POD_ANNOTATIONS: Final = frozenset(
    {
        names.GPU_FRACTION,
        names.GPU_MEMORY,
        names.GPU_FRACTION_DEVICES,
        names.GPU_FRACTION_CONTAINER,
        names.GPU_FRACTION_CONTAINER_TYPE,
    }
)
_OTHERS: Final = frozenset(
    {
        names.SUBGROUP_LABEL,
        names.TASK_PRIORITY_LABEL,
        names.PREEMPTIBILITY_LABEL,
        names.POD_GROUP_ANNOTATION,
        names.SKIP_PODGROUPER,
        names.PREEMPTION_DELAY,
        names.STALENESS_GRACE_PERIOD,
        names.BATCH_MIN_MEMBER,
        names.TOPOLOGY,
        names.TOPOLOGY_REQUIRED,
        names.TOPOLOGY_PREFERRED,
        names.SEGMENT_SIZE,
        names.SEGMENT_TOPOLOGY_REQUIRED,
        names.SEGMENT_TOPOLOGY_PREFERRED,
    }
)
_KNOWN: Final = {key.lower(): key for key in _LABELS | _POD_ANNOTATIONS | _OTHERS}
_NAMES: Final = frozenset(value for value in vars(names).values() if isinstance(value, str))
_SIMILARITY: Final = 0.9


def hints(obj: Object) -> Iterator[tuple[str, str]]:
    """Yield (path, hint) for a Pod, or a workload and its templates; nothing for other kinds."""
    found = list(checks.pods_in(obj))
    if found:
        yield from _misread(obj["metadata"], "metadata", pod=obj["kind"] == "Pod")
    for below, template in found:
        if below:
            yield from _misread(template.get("metadata") or {}, f"{below}metadata", pod=True)


def _misread(meta: Object, path: str, pod: bool) -> Iterator[tuple[str, str]]:
    for key in meta.get("labels") or {}:
        here = f"{path}.labels.{key}"
        if key in _POD_ANNOTATIONS:
            yield here, "has no effect as a label: write it as an annotation"
        else:
            yield from _misspelt(key, here)
    for key in meta.get("annotations") or {}:
        here = f"{path}.annotations.{key}"
        if key in _LABELS:
            yield here, "has no effect as an annotation: write it as a label"
        elif key in _POD_ANNOTATIONS and not pod:
            yield here, "has no effect here, it is read of pods: write it under spec.template.metadata.annotations"
        else:
            yield from _misspelt(key, here)


def _misspelt(key: str, here: str) -> Iterator[tuple[str, str]]:
    if meant := _similar_key(key):
        yield here, f"has no effect: did you mean {meant}?"


@cache
def _similar_key(key: str) -> str:
    """Return our key that an unknown key resembles most; empty for a known key or without a similar one."""
    found = [] if key in _NAMES else get_close_matches(key.lower(), _KNOWN, n=1, cutoff=_SIMILARITY)
    return _KNOWN[found[0]] if found else ""


DEFAULT_NAMESPACE = "default"


Check = Callable[[Object], Problems]


@dataclass(frozen=True)
class KindRow:
    """One kind of the table. `shape` None: only metadata is read. `once`: it cannot be applied again."""

    resource: Resource
    shape: type[Any] | None = None
    check: Check = checks.nothing
    once: bool = False


KINDS: Mapping[str, KindRow] = {
    row.resource.kind: row
    for row in (
        KindRow(known.NODE, kinds.Node, checks.node),
        KindRow(known.QUEUE, kinds.Queue, checks.queue),
        KindRow(known.POD, kinds.Pod, pod_checks.template, once=True),
        KindRow(known.JOB, None, checks.job, once=True),
        KindRow(known.PRIORITY_CLASS, kinds.PriorityClass),
        KindRow(known.POD_GROUP, kinds.PodGroup, checks.pod_group),
        KindRow(known.TOPOLOGY, kinds.Topology),
        KindRow(known.CONFIG_MAP, kinds.ConfigMap, checks.config_map),
        KindRow(known.NAMESPACE),
        KindRow(known.CRON_JOB, None, checks.workload, once=True),
        *(KindRow(each.resource, None, checks.workload, once=True) for each in WORKLOADS),
        KindRow(known.BIND_REQUEST),
        KindRow(known.PERSISTENT_VOLUME),
        KindRow(known.PERSISTENT_VOLUME_CLAIM),
        KindRow(known.STORAGE_CLASS),
        KindRow(known.RESOURCE_CLAIM),
        KindRow(known.RESOURCE_CLAIM_TEMPLATE),
        KindRow(known.RESOURCE_SLICE),
        KindRow(known.DEVICE_CLASS),
    )
}
"""Namespaces need not exist in a simulation, but manifests may contain them."""
OWN_GROUPS = frozenset(row.resource.group for row in KINDS.values()) - {""}
"""API groups in which an unknown kind is a typo."""


class ManifestsError(ValueError):
    """Some manifests are rejected; the message has a line for each problem."""

    def __init__(self, errors: Sequence[ManifestError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors


@dataclass(frozen=True)
class Admitted:
    """A valid object and its arrival."""

    manifest: Manifest
    row: KindRow
    obj: Object
    arrives: Span
    remarks: Sequence[str] = ()
    """Hints about a valid object."""

    @property
    def key(self) -> tuple[str, str, str]:
        meta = self.obj["metadata"]
        return self.obj["kind"], meta.get("namespace", ""), meta["name"]

    def arrival(self, seed: int) -> Arrival:
        """Return its arrival; a time range is drawn by this seed."""
        at = self.arrives.draw(f"{seed}/{'/'.join(self.key)}/arrives")
        exists = is_read_from_a_cluster(self.obj)
        return Arrival(at, self.row.resource, self.obj, f"{self.manifest.origin} ({self.manifest.title})", exists)


def admit(manifests: Sequence[Manifest], there: Set[tuple[str, str]] = frozenset()) -> list[Admitted]:
    """Return the objects of the manifests in order; ManifestsError lists all their problems. `there`: kind and name of
    existing objects, to which they may refer."""
    errors: list[ManifestError] = []
    found: list[Admitted] = []
    sound = set[bytes]()
    for manifest in manifests:
        try:
            found.append(_admitted(manifest, sound))
        except ManifestError as error:
            errors.append(error)
    for check in (_duplicates, _queue_tree, _missing_references):
        errors.extend(check(found, _identities(manifests) | there))
    if errors:
        raise ManifestsError(errors)
    return found


def relevant(manifests: Sequence[Manifest]) -> tuple[list[Manifest], str]:
    """Return the manifests of kinds that affect scheduling, and a note on the others; empty without any."""
    kept, passed = list[Manifest](), Counter[str]()
    for manifest in manifests:
        kind, group = manifest.obj.get("kind"), str(manifest.obj.get("apiVersion") or "").rpartition("/")[0]
        ours = not isinstance(kind, str) or (kind in KINDS and group == KINDS[kind].resource.group)
        if ours or not _is_kind(str(kind), group):
            kept.append(manifest)
        else:
            passed[str(kind)] += 1
    if not passed:
        return kept, ""
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(passed.items()))
    return kept, f"passed over, since they do not matter to scheduling: {counted}"


def _is_kind(kind: str, group: str) -> bool:
    """Whether the kind may exist: Kubernetes has it, or its group is not ours."""
    return any(row.kind == kind and row.group == group for row in known.BUILT_IN) or (
        group != "" and group not in OWN_GROUPS
    )


def _admitted(manifest: Manifest, sound: set[bytes]) -> Admitted:
    row = _kind_row(manifest)
    obj = _with_namespace(manifest, row)
    found = checks.shaped(obj, row.shape) if row.shape else iter(())
    if not is_read_from_a_cluster(obj):
        found = problems(obj, row.shape or kinds.ConfigMap, row.check, sound)
    for path, message in found:
        raise ManifestError(manifest, path, message)
    if obj["kind"] == "Node":
        status = obj["status"]
        obj = {**obj, "status": {**status, "allocatable": status.get("allocatable") or status["capacity"]}}
    annotations = obj["metadata"].get("annotations") or {}
    written = [] if is_read_from_a_cluster(obj) else hints(obj)
    remarks = [str(ManifestError(manifest, path, message)) for path, message in written]
    return Admitted(manifest, row, obj, duration_span(annotations.get(names.ARRIVES, "0s")), remarks)


def _kind_row(manifest: Manifest) -> KindRow:
    kind = manifest.obj.get("kind")
    row = KINDS.get(kind) if isinstance(kind, str) else None
    if row is None:
        what = "is missing" if kind is None else f"{kind!r} cannot be simulated"
        raise ManifestError(manifest, "kind", what + checks.similar_or_all(str(kind or ""), KINDS))
    version = manifest.obj.get("apiVersion")
    if version != row.resource.api_version:
        raise ManifestError(manifest, "apiVersion", f"{kind} is {row.resource.api_version}, not {version!r}")
    return row


def _with_namespace(manifest: Manifest, row: KindRow) -> Object:
    """Return the object with a namespace if its kind is namespaced, else without."""
    meta = manifest.obj.get("metadata")
    if not isinstance(meta, dict):
        raise ManifestError(manifest, "metadata", "is missing" if meta is None else "expected a map")
    own = {key: value for key, value in meta.items() if key != "namespace"}
    home = {"namespace": meta.get("namespace") or DEFAULT_NAMESPACE} if row.resource.namespaced else {}
    return {**manifest.obj, "metadata": {**own, **home}}


Named = Set[tuple[str, str]]
"""Kind and name of all given objects, including rejected ones."""


def _identities(manifests: Sequence[Manifest]) -> Named:
    found = [(one.obj.get("kind"), one.obj.get("metadata")) for one in manifests]
    return {(str(kind), str(meta.get("name"))) for kind, meta in found if isinstance(meta, dict)}


def _duplicates(found: Sequence[Admitted], _: Named) -> Iterator[ManifestError]:
    """Yield duplicate objects; a later arrival of an object that can be applied again is an update."""
    seen: dict[tuple[str, str, str], Admitted] = {}
    for one in found:
        other = seen.setdefault(one.key, one)
        if other is not one and (one.row.once or one.arrives == other.arrives):
            yield ManifestError(one.manifest, "metadata.name", f"already defined in {other.manifest.origin}")


def _queue_tree(found: Sequence[Admitted], there: Named) -> Iterator[ManifestError]:
    """Yield queues whose parent does not exist, or which are their own ancestor."""
    queues = [one for one in found if one.obj["kind"] == "Queue"]
    parents = {one.key[2]: _parent(one.obj) for one in queues}
    for one in queues:
        field, path, parent = "spec.parentQueue", [one.key[2]], _parent(one.obj)
        if parent and ("Queue", parent) not in there:
            yield ManifestError(one.manifest, field, f"there is no queue {parent!r}")
        while parent and parent not in path:
            path.append(parent)
            parent = parents.get(parent, "")
        if parent == path[0]:
            yield ManifestError(one.manifest, field, f"cycle of queues {' -> '.join([*path, parent])}")


_REFERENCES = {"nodeName": ("Node", "node"), "priorityClassName": ("PriorityClass", "priority class")}


def _missing_references(found: Sequence[Admitted], there: Named) -> Iterator[ManifestError]:
    """Yield pods (and templates) that name a missing node or priority class."""
    for one in found:
        for below, pod in checks.pods_in(one.obj):
            for field, (kind, title) in _REFERENCES.items():
                if (name := (pod.get("spec") or {}).get(field)) and (kind, name) not in there:
                    yield ManifestError(one.manifest, f"{below}spec.{field}", f"there is no {title} {name!r}")


def _parent(queue: Object) -> str:
    return (queue.get("spec") or {}).get("parentQueue") or ""
