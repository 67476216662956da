"""Hypothetical changes of a cluster, decided on before they are made: more nodes, another quota, fewer workloads.

Each is a value whose method `of(decided)` returns the objects that would change; ChangeError names missing ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pykai.cache.cluster import Change
from pykai.explain.source import Decided
from pykai.explain.why import STARTS, VICTIMS, Explanation, explain
from pykai.model.plan import Key
from pykai.objects import kinds, names
from pykai.objects.kinds import ABSENT
from pykai.observe.wording import suggestion

RESOURCES = ("gpu", "cpu", "memory")
_UNITS = {"cpu": "millicores", "memory": "megabytes"}
"""The units of amounts in the spec of a Queue."""
FIELDS = {"quota": "quota", "limit": "limit", "overQuotaWeight": "over_quota_weight"}
HOSTNAME = "kubernetes.io/hostname"
ADDED = "-added-"
"""Part of the names of nodes and pods that a change adds."""
_GONE = ("Succeeded", "Failed")


class ChangeError(ValueError):
    """A change names something that does not exist, or cannot be made."""


class ClusterChange(Protocol):
    """One change of a cluster."""

    def of(self, decided: Decided) -> Iterable[Change]:
        """Return the objects that would change; ChangeError if it names something that does not exist."""
        ...


@dataclass(frozen=True)
class AddNodes:
    """Add nodes like an existing one; `gpus` None: with the same number of devices."""

    count: int
    like: str = ""
    """Name of the node to copy; empty: one of the most common shape."""
    gpus: int | None = None

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the new nodes."""
        model = decided.cache.of(kinds.Node).get(("", self.like)) if self.like else _usual_node(decided)
        if model is None:
            raise ChangeError(f"there is no node {self.like}" if self.like else "there is no node to copy")
        status = model.status
        if self.gpus is not None:
            amounts = {**msgspec.json.decode(status.allocatable), names.NVIDIA_GPU: str(self.gpus)}
            status = replace(status, allocatable=Raw(msgspec.json.encode(amounts)))
        for number in range(self.count):
            name = f"{model.metadata.name}{ADDED}{number}"
            labels = {**(model.metadata.labels or {}), HOSTNAME: name}
            spec = replace(model.spec, unschedulable=False)
            meta = replace(model.metadata, name=name, uid=name, labels=labels)
            yield Change(replace(model, metadata=meta, spec=spec, status=status))


def _usual_node(decided: Decided) -> Any:
    """Return a node of the most common shape; ties go to the one with most GPUs, then to the first by name."""
    shapes: dict[bytes, list[Any]] = {}
    for node in decided.cache.of(kinds.Node).values():
        shapes.setdefault(bytes(node.status.allocatable), []).append(node)
    if not shapes:
        return None
    most = max(shapes.values(), key=lambda alike: (len(alike), bytes(alike[0].status.allocatable)))
    return min(most, key=lambda node: node.metadata.name)


@dataclass(frozen=True)
class SetQueue:
    """Set an amount of a queue: `resource` gpu, cpu or memory, `field` quota, limit or overQuotaWeight."""

    queue: str
    resource: str
    field: str
    value: float

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the queue with the new amount."""
        queue = decided.cache.of(kinds.Queue).get(("", self.queue))
        if queue is None:
            raise ChangeError(f"there is no queue {self.queue}{suggestion(self.queue, decided.snapshot.queues.rows)}")
        resources = queue.spec.resources or kinds.QueueResources()
        share = replace(getattr(resources, self.resource), **{FIELDS[self.field]: self.value})
        spec = replace(queue.spec, resources=replace(resources, **{self.resource: share}))
        yield Change(replace(queue, spec=spec))


@dataclass(frozen=True)
class Drain:
    """Cordon and drain a node: pods that a controller re-creates become pending."""

    node: str

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the cordoned node and its pods, pending or deleted."""
        node = decided.cache.of(kinds.Node).get(("", self.node))
        if node is None:
            raise ChangeError(f"there is no node {self.node}{suggestion(self.node, decided.snapshot.nodes.rows)}")
        yield Change(replace(node, spec=replace(node.spec, unschedulable=True)))
        for pod in list(decided.cache.of(kinds.Pod).values()):
            if pod.spec.node_name != self.node or pod.status.phase in _GONE:
                continue
            owners = {owner.kind for owner in pod.metadata.owner_references or ()}
            if "DaemonSet" in owners or "Node" in owners:
                continue
            yield Change(pod, gone=True)
            if owners:
                yield Change(without_place(pod))


def without_place(pod: kinds.Pod) -> kinds.Pod:
    """Return the pod as its controller re-creates it: without a node, under another name."""
    meta = pod.metadata
    labels = {key: value for key, value in (meta.labels or {}).items() if not key.startswith(names.GPU_GROUP_LABEL)}
    name = f"{meta.name}-again"
    metadata = replace(meta, name=name, uid=f"{meta.uid}-again", labels=labels, deletion_timestamp=None)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=kinds.PodStatus())


@dataclass(frozen=True)
class Delete:
    """Delete a workload: the PodGroups of these gangs and their pods."""

    gangs: tuple[Key, ...]

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the deletions."""
        rows = decided.snapshot.gangs.rows_of(self.gangs)
        for gang in self.gangs:
            if gang not in rows:
                raise ChangeError(f"there is no PodGroup {'/'.join(gang)}")
            for pod in decided.snapshot.gangs.pods(rows[gang]):
                meta = decided.snapshot.pods.objects[pod].metadata
                yield Change(decided.cache.of(kinds.Pod)[meta.key], gone=True)
            yield Change(decided.cache.of(kinds.PodGroup)[gang], gone=True)


@dataclass(frozen=True)
class EditPods:
    """Change fields of the spec of a gang's pending pods; None removes a field."""

    gang: Key
    fields: tuple[tuple[str, Any], ...]

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the changed pods."""
        snapshot = decided.snapshot
        row = snapshot.gangs.rows_of([self.gang])[self.gang]
        changed = {name: ABSENT if value is None else Raw(msgspec.json.encode(value)) for name, value in self.fields}
        for pod in snapshot.gangs.pods(row):
            if snapshot.pods.node[pod] < 0:
                meta = snapshot.pods.objects[pod].metadata
                found = decided.cache.of(kinds.Pod)[meta.key]
                yield Change(replace(found, spec=replace(found.spec, **changed)))


@dataclass(frozen=True)
class EditGroup:
    """Change fields of the spec of a PodGroup."""

    gang: Key
    fields: tuple[tuple[str, Any], ...]

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the changed PodGroup."""
        group = decided.cache.of(kinds.PodGroup)[self.gang]
        yield Change(replace(group, spec=replace(group.spec, **dict(self.fields))))


@dataclass(frozen=True)
class AddPods:
    """Add pods to a gang, like its first pending one."""

    gang: Key
    count: int

    def of(self, decided: Decided) -> Iterator[Change]:
        """Return the new pods."""
        snapshot = decided.snapshot
        row = snapshot.gangs.rows_of([self.gang])[self.gang]
        first = snapshot.pods.objects[snapshot.gangs.pods(row)[0]].metadata
        model = decided.cache.of(kinds.Pod)[first.namespace, first.name]
        for number in range(self.count):
            name = f"{first.name}{ADDED}{number}"
            spec = replace(model.spec, node_name="", scheduling_gates=ABSENT)
            yield Change(replace(model, metadata=replace(first, name=name, uid=name), spec=spec))


def helped(decided: Decided, gang: Key, edits: Sequence[ClusterChange]) -> Explanation | None:
    """Return the explanation of a gang after these edits; None if they do not place it."""
    alone = placed_alone(decided, gang, edits)
    return None if alone is None else started(alone.for_all(), gang)


def placed_alone(decided: Decided, gang: Key, edits: Sequence[ClusterChange]) -> Decided | None:
    """Return the state after these edits, decided as if only this gang had a turn; None if that does not place it.

    Never None if the plan has evictions, because then the turns of other gangs may help this one. Without evictions,
    other pending gangs can only take capacity from it.
    """
    alone = decided.again([change for edit in edits for change in edit.of(decided)], gang)
    return alone if decided.plan.evictions or started(alone, gang) is not None else None


def started(decided: Decided, gang: Key) -> Explanation | None:
    """Return the explanation of a gang that is placed, now or once victims have terminated; None otherwise."""
    found = explain(decided, gang, with_position=False)
    return found if found.state in (STARTS, VICTIMS) else None


def parse_set(text: str) -> SetQueue:
    """Parse `queue/NAME.gpu.quota=16`; ChangeError names the problem."""
    target, found, value = text.partition("=")
    kind, _, rest = target.partition("/")
    name, resource, field = ([*rest.rsplit(".", 2), "", "", ""])[:3]
    if not found or kind.lower() not in ("queue", "queues") or not name or not field:
        raise ChangeError(f"{text!r} is not of the form queue/NAME.gpu.quota=16")
    if resource not in RESOURCES:
        raise ChangeError(f"{text!r}: {resource!r} is none of {', '.join(RESOURCES)}")
    if field not in FIELDS:
        raise ChangeError(f"{text!r}: {field!r} is none of {', '.join(FIELDS)}")
    try:
        amount = float(value)
    except ValueError as error:
        unit = _UNITS.get(resource, "")
        raise ChangeError(f"{text!r}: {value!r} is not a number{f' of {unit}' if unit else ''}") from error
    if not (amount == -1 or 0 <= amount < float("inf")):
        raise ChangeError(f"{text!r}: {value} is neither an amount nor -1 (unlimited)")
    return SetQueue(name, resource, field, amount)
