"""Validation of Queues: amounts must be amounts, and the parents must lead to a root.

The other queues are given as a mapping from name to object, as the API server holds them now. Quota comparisons with
parent and children only warn, and only when they are asked for: an administrator may well overcommit. Unlimited (-1) is
compared there as a plain number and a missing amount as 0, so a child with any quota exceeds an unlimited parent: a
known oddity of KAI, kept because the texts are only warnings.

Advice goes with every queue that is probably not what its author means: a limit that was left out and counts as 0, a
quota above the limit, a parent that does not exist.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pykai.admission.verdict import RefusedError, Verdict, declared, judged
from pykai.objects import crds, units
from pykai.objects.kinds import Queue, QueueResources

NO_RESOURCES = "resources must be specified"
Resource = Literal["CPU", "GPU", "Memory"]
_FORMAT: dict[Resource, str] = {"CPU": ".0f", "GPU": ".2f", "Memory": ".0f"}
_RESOURCES = {"gpu": "GPUs", "cpu": "CPU", "memory": "memory"}


@dataclass(frozen=True)
class QueueRules:
    """What a queue is judged against: the queues there are, and whether quotas are compared along the tree."""

    queues: Mapping[str, Any] = field(default_factory=dict)
    compare_quotas: bool = False


@judged
def validate_queue(queue: object, old: object, rules: QueueRules) -> Verdict:
    """Admit a new queue (`old` is None) or a changed one."""
    _check_numbers(queue)
    new = _queue("queue", queue)
    if new.spec.resources is None:
        raise RefusedError(NO_RESOURCES, (NO_RESOURCES,))
    _check_amounts(new.spec.resources)
    _check_ancestry(new, rules.queues)
    advice = tuple(_advice(queue, new, rules))
    if not rules.compare_quotas:
        return Verdict(advice=advice)
    return Verdict(warnings=tuple(_quota_warnings(new, old, rules.queues)), advice=advice)


@judged
def validate_queue_deletion(queue: object, queues: Mapping[str, Any] | None = None) -> Verdict:
    """Admit the deletion of a queue without children, whatever its fields look like; warn while its workloads run.

    Its status may list a child that has just been deleted: only those among `queues` count, where they are known.
    """
    metadata, status = (_map(_map(queue).get(part)) for part in ("metadata", "status"))
    name, listed = metadata.get("name") or "", status.get("childQueues")
    children = [str(child) for child in listed] if isinstance(listed, list) else []
    if children := [child for child in children if not queues or child in queues]:
        raise RefusedError(f"cannot delete queue {name}: it has child queues [{' '.join(children)}]")
    held = [f"{resource}: {amount}" for resource, amount in sorted(_map(status.get("allocated")).items())]
    held = [text for text in held if _is_positive(text.rpartition(" ")[2])]
    if not held:
        return Verdict()
    warning = f"workloads of queue {name} still hold {', '.join(held)}: they run on, but none starts again"
    return Verdict(warnings=(f"{warning} until there is a queue of this name",))


def _queue(name: str, value: object) -> Queue:
    return declared(crds.QUEUE, Queue, name, value)


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_positive(amount: str) -> bool:
    try:
        return units.parse_quantity(amount) > 0
    except units.QuantityError:
        return False


def _check_numbers(queue: object) -> None:
    """Refuse amounts beyond all floats first: they would not survive the conversion to a Queue."""
    for resource, amounts in _given(queue).items():
        for name, value in _map(amounts).items():
            if isinstance(value, int | float) and (abs(value) > sys.float_info.max or math.isnan(value)):
                raise RefusedError(f"queue.spec.resources.{resource}.{name}: must be a finite number")


def _given(queue: object) -> Mapping[str, Any]:
    """`spec.resources` as it was written; empty where there is none."""
    return _map(_map(_map(queue).get("spec")).get("resources"))


def _check_amounts(resources: QueueResources) -> None:
    for name in _RESOURCES:
        path, amounts = f"queue.spec.resources.{name}", getattr(resources, name)
        for part, value in (("quota", amounts.quota), ("limit", amounts.limit)):
            if value < 0 and value != -1:
                raise RefusedError(f"{path}.{part}: must be -1 (unlimited) or a number of at least 0, given {value:g}")
        if amounts.over_quota_weight < 0:
            weight = amounts.over_quota_weight
            raise RefusedError(f"{path}.overQuotaWeight: must be a number of at least 0, given {weight:g}")


def _check_ancestry(queue: Queue, queues: Mapping[str, Any]) -> None:
    """Refuse parents that lead back to the queue; a parent that does not exist (yet) ends the walk."""
    name, parent = queue.metadata.name, queue.spec.parent_queue
    path = {name: None}
    while parent and parent not in path:
        path[parent] = None
        parent = _parent_of(queues.get(parent))
    if parent and parent == name:
        raise RefusedError(f"queue.spec.parentQueue: cycle of queues {' -> '.join([*path, parent])}")


def _parent_of(queue: object) -> str:
    try:
        return _queue("queue", queue).spec.parent_queue
    except RefusedError:
        return ""


def _advice(queue: object, new: Queue, rules: QueueRules) -> Iterator[str]:
    given = _given(queue)
    for name, title in _RESOURCES.items():
        path, amounts = f"spec.resources.{name}", getattr(new.spec.resources, name)
        if (given.get(name) or {}).get("limit") is None:
            yield f"{path}.limit is not set and counts as 0: the queue can use no {title}; -1 is unlimited"
        elif amounts.limit != -1 and (amounts.quota == -1 or amounts.quota > amounts.limit):
            quota = "unlimited" if amounts.quota == -1 else f"{amounts.quota:g}"
            yield f"{path}.quota ({quota}) is above its limit ({amounts.limit:g}): the queue never gets all of it"
    parent = new.spec.parent_queue
    if parent and rules.queues and parent not in rules.queues:  # none at all: they are not known yet
        yield f"parent queue {parent!r} does not exist: workloads of this queue wait until it does"


def _quota_warnings(queue: Queue, old: object, queues: Mapping[str, Any]) -> list[str]:
    warnings = []
    if parent := queue.spec.parent_queue:
        warnings += _against_parent(queue, parent, queues)
    if old is not None and _children(_queue("oldQueue", old)):
        warnings += _against_children(queue, queues)
    return warnings


def _against_parent(queue: Queue, parent: str, queues: Mapping[str, Any]) -> list[str]:
    """Quotas of a queue (and of its siblings, for CPU) above its parent's; a parent without quotas is refused."""
    if parent not in queues:
        raise RefusedError(f'failed to get parent queue {parent}: queues.scheduling.run.ai "{parent}" not found')
    above = _queue("parentQueue", queues[parent])
    if above.spec.resources is None:
        raise RefusedError(f"parent queue {parent} has no resources defined")
    siblings = [_quota(each, "CPU") for each in _existing(_children(above), queues, besides=queue.metadata.name)]
    where = f"parent queue {parent}"
    return [
        *_exceeds("child queue", "CPU", _quota(queue, "CPU"), (where, above)),
        *_exceeds("total children", "CPU", _quota(queue, "CPU") + sum(siblings), (where, above)),
        *_exceeds("child queue", "GPU", _quota(queue, "GPU"), (where, above)),
        *_exceeds("child queue", "Memory", _quota(queue, "Memory"), (where, above)),
    ]


def _against_children(queue: Queue, queues: Mapping[str, Any]) -> list[str]:
    """Quotas of the queue's children, each (CPU) and together, above its own."""
    below = _existing(_children(queue), queues, besides="")
    warnings = []
    for child in below:
        quota = _quota(child, "CPU")
        warnings += _exceeds(f"child queue {child.metadata.name}", "CPU", quota, ("parent", queue))
    for resource in _FORMAT:
        total = sum(_quota(child, resource) for child in below)
        warnings += _exceeds("total children", resource, total, ("parent", queue))
    return warnings


def _children(queue: Queue) -> list[str]:
    """The names of the queue's children, as its status lists them."""
    return queue.status.child_queues or []


def _existing(names: list[str], queues: Mapping[str, Any], besides: str) -> list[Queue]:
    return [_queue(f"queue {name}", queues[name]) for name in names if name in queues and name != besides]


def _quota(queue: Queue, resource: Resource) -> float:
    resources = queue.spec.resources
    return 0.0 if resources is None else float(getattr(resources, resource.lower()).quota)


def _exceeds(what: str, resource: Resource, quota: float, bound: tuple[str, Queue]) -> list[str]:
    where, queue = bound
    allowed, form = _quota(queue, resource), _FORMAT[resource]
    if quota <= allowed:
        return []
    return [f"{what} {resource} quota ({quota:{form}}) exceeds {where} {resource} quota ({allowed:{form}})"]
