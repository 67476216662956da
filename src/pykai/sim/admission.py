"""From manifests to objects that can be simulated: every kind we know, what is checked of it, what is filled in.

All problems are collected before anything is refused, so that a user mends a file in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pykai.config.object_fields import Problems
from pykai.hollow import spans
from pykai.hollow.spans import Span
from pykai.objects import kinds, names
from pykai.sim import checks
from pykai.sim.hints import hints
from pykai.sim.manifests import Manifest, ManifestError, Object
from pykai.sim.object_checks import problems

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class KindRow:
    """One kind of the table. `shape` None: the scheduler never sees it, its metadata alone is read.

    `once`: it cannot be applied again.
    """

    api_version: str
    shape: type[Any] | None
    check: Callable[[Object], Problems] = checks.nothing
    namespaced: bool = False
    once: bool = False


KINDS: Mapping[str, KindRow] = {
    "Node": KindRow("v1", kinds.Node, checks.node),
    "Queue": KindRow("scheduling.run.ai/v2", kinds.Queue, checks.queue),
    "Pod": KindRow("v1", kinds.Pod, checks.pod, namespaced=True, once=True),
    "Job": KindRow("batch/v1", None, checks.job, namespaced=True, once=True),
    "PriorityClass": KindRow("scheduling.k8s.io/v1", kinds.PriorityClass),
    "PodGroup": KindRow("scheduling.run.ai/v2alpha2", kinds.PodGroup, checks.pod_group, namespaced=True),
    "Topology": KindRow("kai.scheduler/v1alpha1", kinds.Topology),
    "ConfigMap": KindRow("v1", kinds.ConfigMap, checks.config_map, namespaced=True),
    "Namespace": KindRow("v1", None),
}
"""Namespaces need not exist in a simulation; manifests that make them are common."""


class ManifestsError(ValueError):
    """Some manifests are refused; the text has a line for each problem."""

    def __init__(self, errors: Sequence[ManifestError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors


@dataclass(frozen=True)
class Admitted:
    """An object that can be simulated, and when it arrives."""

    manifest: Manifest
    row: KindRow
    obj: Object
    arrives: Span
    remarks: Sequence[str] = ()
    """What its author should know, though it can be simulated."""

    @property
    def key(self) -> tuple[str, str, str]:
        meta = self.obj["metadata"]
        return self.obj["kind"], meta.get("namespace", ""), meta["name"]


Webhook = Callable[[Object], str]
"""Why an object is refused on its way into the cluster; empty where it is not."""


def no_webhook(_: Object) -> str:
    """Everything that is well formed comes in."""
    return ""


def admit(manifests: Sequence[Manifest], webhook: Webhook = no_webhook) -> list[Admitted]:
    """The objects of the manifests in order; raises ManifestsError with everything that is wrong with them."""
    errors: list[ManifestError] = []
    found: list[Admitted] = []
    for manifest in manifests:
        try:
            found.append(_admitted(manifest, webhook))
        except ManifestError as error:
            errors.append(error)
    for check in (_repeated, _queue_tree, _astray):
        errors.extend(check(found, _names(manifests)))
    if errors:
        raise ManifestsError(errors)
    return found


def _admitted(manifest: Manifest, webhook: Webhook) -> Admitted:
    row = _row(manifest)
    obj = _filled(manifest, row)
    for path, message in problems(obj, row.shape or kinds.ConfigMap, row.check):
        raise ManifestError(manifest, path, message)
    if refusal := webhook(obj):
        raise ManifestError(manifest, "", refusal)
    if obj["kind"] == "Node":
        obj = _offering(obj)
    annotations = obj["metadata"].get("annotations") or {}
    remarks = [str(ManifestError(manifest, path, message)) for path, message in hints(obj)]
    return Admitted(manifest, row, obj, spans.durations(annotations.get(names.ARRIVES, "0s")), remarks)


def _row(manifest: Manifest) -> KindRow:
    kind = manifest.obj.get("kind")
    row = KINDS.get(kind) if isinstance(kind, str) else None
    if row is None:
        what = "is missing" if kind is None else f"{kind!r} cannot be simulated"
        raise ManifestError(manifest, "kind", f"{what} (known kinds: {', '.join(KINDS)})")
    version = manifest.obj.get("apiVersion")
    if version != row.api_version:
        raise ManifestError(manifest, "apiVersion", f"{kind} is {row.api_version}, not {version!r}")
    return row


def _filled(manifest: Manifest, row: KindRow) -> Object:
    """The object with a namespace, where its kind has one, and without where it has none."""
    meta = manifest.obj.get("metadata")
    if not isinstance(meta, dict):
        raise ManifestError(manifest, "metadata", "is missing" if meta is None else "expected a map")
    own = {key: value for key, value in meta.items() if key != "namespace"}
    home = {"namespace": meta.get("namespace") or DEFAULT_NAMESPACE} if row.namespaced else {}
    return {**manifest.obj, "metadata": {**own, **home}}


def _offering(node: Object) -> Object:
    """The node with all of its capacity to offer, where it does not say what it offers."""
    status = node["status"]
    return {**node, "status": {**status, "allocatable": status.get("allocatable") or status["capacity"]}}


Named = Set[tuple[str, str]]
"""Kind and name of everything that was written, also of what was refused."""


def _names(manifests: Sequence[Manifest]) -> Named:
    found = [(one.obj.get("kind"), one.obj.get("metadata")) for one in manifests]
    return {(str(kind), str(meta.get("name"))) for kind, meta in found if isinstance(meta, dict)}


def _repeated(found: Sequence[Admitted], _: Named) -> Iterator[ManifestError]:
    """Objects written twice; a later arrival of one that can be applied again is a change of it."""
    seen: dict[tuple[str, str, str], Admitted] = {}
    for one in found:
        other = seen.setdefault(one.key, one)
        if other is not one and (one.row.once or one.arrives == other.arrives):
            yield ManifestError(one.manifest, "metadata.name", f"already defined in {other.manifest.origin}")


def _queue_tree(found: Sequence[Admitted], there: Named) -> Iterator[ManifestError]:
    """Queues whose parent does not exist, or which are their own ancestor."""
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


def _astray(found: Sequence[Admitted], there: Named) -> Iterator[ManifestError]:
    """Pods that are on a node, or of a priority class, which does not exist; templates count as pods."""
    for one in found:
        below, spec = _pod_spec(one.obj)
        for field, (kind, title) in _REFERENCES.items():
            if (name := spec.get(field)) and (kind, name) not in there:
                yield ManifestError(one.manifest, f"{below}{field}", f"there is no {title} {name!r}")


def _pod_spec(obj: Object) -> tuple[str, Object]:
    """The spec of the pods that an object is or makes, with its path; an empty one where it makes none."""
    if obj["kind"] == "Job":
        return "spec.template.spec.", obj["spec"]["template"]["spec"]
    return "spec.", obj["spec"] if obj["kind"] == "Pod" else {}


def _parent(queue: Object) -> str:
    return (queue.get("spec") or {}).get("parentQueue") or ""
