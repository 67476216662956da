"""Validation of Queues: amounts must be amounts, and the parents must lead to a root.

The other queues are given as a mapping from name to object, as the API server holds them now. Quota comparisons with
parent and children only warn, and only when they are asked for: an administrator may well overcommit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.admission import queue_quotas, shapes
from pykai.admission.shapes import Queue, QueueResources
from pykai.admission.verdict import RefusedError, Verdict, judged
from pykai.objects import units

NO_RESOURCES = "resources must be specified"


@dataclass(frozen=True)
class QueueRules:
    """What a queue is judged against: the queues there are, and whether quotas are compared along the tree."""

    queues: Mapping[str, Any] = field(default_factory=dict)
    compare_quotas: bool = False


@judged
def validate_queue(queue: object, old: object, rules: QueueRules) -> Verdict:
    """Admit a new queue (`old` is None) or a changed one."""
    new = shapes.view(Queue, "queue", queue)
    if new.spec is None or new.spec.resources is None:
        raise RefusedError(NO_RESOURCES, (NO_RESOURCES,))
    _check_amounts(new.spec.resources)
    shapes.check_duration("queue.spec.preemptMinRuntime", new.spec.preempt_min_runtime)
    shapes.check_duration("queue.spec.reclaimMinRuntime", new.spec.reclaim_min_runtime)
    _check_ancestry(new, rules.queues)
    if not rules.compare_quotas:
        return Verdict()
    return Verdict(warnings=tuple(_quota_warnings(new, old, rules.queues)))


@judged
def validate_queue_deletion(queue: object) -> Verdict:
    """Admit the deletion of a queue without children."""
    gone = shapes.view(Queue, "queue", queue)
    children = (gone.status.child_queues if gone.status else None) or []
    if children:
        raise RefusedError(f"cannot delete queue {queue_name(gone)}: it has child queues [{' '.join(children)}]")
    held = [f"{name}: {amount}" for name, amount in sorted(_held(gone).items())]
    if not held:
        return Verdict()
    warning = f"workloads of queue {queue_name(gone)} still hold {', '.join(held)}: they run on, but none starts again"
    return Verdict(warnings=(f"{warning} until there is a queue of this name",))


def _held(queue: Queue) -> Mapping[str, Any]:
    """What workloads of the queue have now, as its status says."""
    amounts = (queue.status.allocated if queue.status else None) or {}
    return {name: amount for name, amount in amounts.items() if _is_some(amount)}


def _is_some(amount: Any) -> bool:
    try:
        return units.parse_quantity(amount) > 0
    except units.QuantityError:
        return False


def queue_name(queue: Queue) -> str:
    """The queue's name; empty when it has none yet."""
    return (queue.metadata.name if queue.metadata else None) or ""


def _check_amounts(resources: QueueResources) -> None:
    for kind in ("gpu", "cpu", "memory"):
        resource = getattr(resources, kind)
        if resource is None:
            continue
        path = f"queue.spec.resources.{kind}"
        shapes.check_share(f"{path}.quota", resource.quota, unlimited=True)
        shapes.check_share(f"{path}.limit", resource.limit, unlimited=True)
        shapes.check_share(f"{path}.overQuotaWeight", resource.over_quota_weight, unlimited=False)


def _check_ancestry(queue: Queue, queues: Mapping[str, Any]) -> None:
    """Refuse parents that lead back to the queue; a parent that does not exist (yet) ends the walk."""
    name = queue_name(queue)
    path, parent = {name: None}, _parent(queue)
    while parent and parent not in path:
        path[parent] = None
        parent = _parent_of(queues.get(parent))
    if parent and parent == name:
        raise RefusedError(f"queue.spec.parentQueue: cycle of queues {' -> '.join([*path, parent])}")


def _parent(queue: Queue) -> str:
    return (queue.spec.parent_queue if queue.spec else None) or ""


def _parent_of(queue: object) -> str:
    try:
        return _parent(shapes.view(Queue, "queue", queue))
    except RefusedError:
        return ""


def _quota_warnings(queue: Queue, old: object, queues: Mapping[str, Any]) -> list[str]:
    warnings = []
    if parent := _parent(queue):
        warnings += queue_quotas.against_parent(queue, parent, queues)
    if old is not None and queue_quotas.children(shapes.view(Queue, "oldQueue", old)):
        warnings += queue_quotas.against_children(queue, queues)
    return warnings
