"""From manifests to objects that can be simulated: every kind we know, what is checked of it, what is filled in.

All problems are collected before anything is refused, so that a user mends a file in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec import ValidationError, json

from pykai.config.fields import field_error
from pykai.kube.memory.schema import violations
from pykai.objects import kinds, names
from pykai.objects.crds import DEFINITIONS
from pykai.sim import checks, spans
from pykai.sim.checks import Problem, Problems
from pykai.sim.manifests import Manifest, ManifestError, Object
from pykai.sim.spans import Span

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class KindRow:
    """One kind of the table. `shape` None: the scheduler never sees it. `once`: it cannot be applied again."""

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
    "ConfigMap": KindRow("v1", kinds.ConfigMap, namespaced=True),
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

    @property
    def key(self) -> tuple[str, str, str]:
        meta = self.obj["metadata"]
        return self.obj["kind"], meta.get("namespace", ""), meta["name"]


def admit(manifests: Sequence[Manifest]) -> list[Admitted]:
    """The objects of the manifests in order; raises ManifestsError with everything that is wrong with them."""
    errors: list[ManifestError] = []
    found: list[Admitted] = []
    for manifest in manifests:
        try:
            found.append(_admitted(manifest))
        except ManifestError as error:
            errors.append(error)
    errors.extend(_repeated(found))
    errors.extend(_queue_tree(found))
    errors.extend(_homeless(found))
    if errors:
        raise ManifestsError(errors)
    return found


def _admitted(manifest: Manifest) -> Admitted:
    row = _row(manifest)
    obj = _filled(manifest, row)
    for path, message in _problems(obj, row):
        raise ManifestError(manifest, path, message)
    if obj["kind"] == "Node":
        obj = _offering(obj)
    annotations = obj["metadata"].get("annotations") or {}
    return Admitted(manifest, row, obj, spans.durations(annotations.get(names.ARRIVES, "0s")))


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
    """The object with a namespace, where its kind has one."""
    meta = manifest.obj.get("metadata")
    if not isinstance(meta, dict):
        raise ManifestError(manifest, "metadata", "is missing" if meta is None else "expected a map")
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ManifestError(manifest, "metadata.name", "is missing" if not meta.get("name") else "expected a string")
    meta = {**meta, **({"namespace": meta.get("namespace") or DEFAULT_NAMESPACE} if row.namespaced else {})}
    return {**manifest.obj, "metadata": meta}


def _offering(node: Object) -> Object:
    """The node with all of its capacity to offer, where it does not say what it offers."""
    status = node["status"]
    return {**node, "status": {**status, "allocatable": status.get("allocatable") or status["capacity"]}}


def _problems(obj: Object, row: KindRow) -> Problems:
    """What is wrong with one object, the plainest reason first."""
    yield from checks.texts(obj["metadata"])
    yield from _custom(obj)
    shape = row.shape or kinds.ConfigMap  # of a kind the scheduler never sees, the metadata alone
    try:
        json.decode(json.encode(obj), type=shape)
    except (ValidationError, TypeError, ValueError) as error:
        problem = field_error(error) if isinstance(error, ValidationError) else None
        yield (problem.path, problem.message) if problem else ("", str(error))
        return
    yield from checks.story(obj)
    yield from row.check(obj)


@cache
def _schemas() -> dict[str, Any]:
    return {
        definition.kind: definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for definition in DEFINITIONS
    }


def _custom(obj: Object) -> Problems:
    """What the definition of a custom resource says of it; a field it does not know is a typo."""
    schema = _schemas().get(obj["kind"])
    if schema is not None:
        yield from _unknown_fields(obj, schema, "")
        yield from violations(obj, schema)


def _unknown_fields(value: object, schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_fields(item, schema.get("items") or {}, f"{path}[{number}]")
        return
    known = schema.get("properties")
    if not isinstance(value, dict) or not known:
        return
    for name, item in value.items():
        below = f"{path}.{name}" if path else name
        if name not in known:
            yield below, f"unknown field (known: {', '.join(known)})"
        else:
            yield from _unknown_fields(item, known[name], below)


def _repeated(found: Sequence[Admitted]) -> Iterator[ManifestError]:
    """Objects written twice; a later arrival of one that can be applied again is a change of it."""
    seen: dict[tuple[str, str, str], Admitted] = {}
    for one in found:
        other = seen.setdefault(one.key, one)
        if other is not one and (one.row.once or one.arrives == other.arrives):
            yield ManifestError(one.manifest, "metadata.name", f"already defined in {other.manifest.origin}")


def _queue_tree(found: Sequence[Admitted]) -> Iterator[ManifestError]:
    """Queues whose parent does not exist, or which are their own ancestor."""
    queues = [one for one in found if one.obj["kind"] == "Queue"]
    parents = {one.key[2]: _parent(one.obj) for one in queues}
    for one in queues:
        field, path, parent = "spec.parentQueue", [one.key[2]], _parent(one.obj)
        if parent and parent not in parents:
            yield ManifestError(one.manifest, field, f"there is no queue {parent!r}")
        while parent and parent not in path:
            path.append(parent)
            parent = parents.get(parent, "")
        if parent == path[0]:
            yield ManifestError(one.manifest, field, f"cycle of queues {' -> '.join([*path, parent])}")


def _homeless(found: Sequence[Admitted]) -> Iterator[ManifestError]:
    """Pods that are on a node which does not exist."""
    nodes = {one.key[2] for one in found if one.obj["kind"] == "Node"}
    for one in found:
        home = one.obj["spec"].get("nodeName") if one.obj["kind"] == "Pod" else None
        if home and home not in nodes:
            yield ManifestError(one.manifest, "spec.nodeName", f"there is no node {home!r}")


def _parent(queue: Object) -> str:
    return (queue.get("spec") or {}).get("parentQueue") or ""
