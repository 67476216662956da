"""Validation of Queues: amounts must be valid, and the ancestors must end at a root.

The other queues are a mapping from name to their current object. Quota comparisons with parent and children are
optional and only warn, because an administrator may overcommit. Unlimited (-1) exceeds every amount and is exceeded by
none; a missing amount is 0.

A reduction below the queue's current allocation is admitted, warned about or denied according to `enforcement`; running
workloads are not affected. Probable mistakes give a warning: an omitted limit, which counts as 0, a quota above the
limit, a parent that does not exist.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from pykai.admission.verdict import AdmissionVerdict, DeniedError, declared, judged
from pykai.kube.api import Fields
from pykai.objects import crds, units
from pykai.objects.kinds import Queue, QueueResource, QueueResources
from pykai.objects.names import GPU_MEMORY_RESOURCE, MIG_PREFIX

UNLIMITED = -1.0

NO_RESOURCES = "resources must be specified"
Resource = Literal["CPU", "GPU", "Memory"]
Enforcement = Literal["None", "Warning", "Block"]
ENFORCEMENTS: tuple[Enforcement, ...] = ("None", "Warning", "Block")
_FORMAT: dict[Resource, str] = {"CPU": ".0f", "GPU": ".2f", "Memory": ".0f"}
_RESOURCES = {"gpu": "GPUs", "cpu": "CPU", "memory": "memory"}


@dataclass(frozen=True)
class QueueRules:
    """What a queue is checked against: the existing queues, and whether quotas are compared along the tree."""

    queues: Fields = field(default_factory=dict)
    compare_quotas: bool = False
    enforcement: Enforcement = "None"


@judged
def validate_queue(queue: object, old: object, rules: QueueRules) -> AdmissionVerdict:
    """Admit a new queue (`old` is None) or a changed one."""
    _check_numbers(queue)
    new = _queue("queue", queue)
    if new.spec.resources is None:
        raise DeniedError(NO_RESOURCES, (NO_RESOURCES,))
    _check_amounts(new.spec.resources)
    _check_ancestry(new, rules.queues)
    advice = tuple(_advice(queue, new, rules))
    below = list(_reductions(new, old)) if old is not None and rules.enforcement != "None" else []
    if below and rules.enforcement == "Block":
        raise DeniedError(f"queue {new.metadata.name} update rejected: {'; '.join(below)}")
    warnings = []
    if rules.compare_quotas and (parent := new.spec.parent_queue):
        warnings += _against_parent(new, parent, rules.queues)
    if rules.compare_quotas and old is not None and _children(_queue("oldQueue", old)):
        warnings += _against_children(new, rules.queues)
    return AdmissionVerdict(warnings=(*warnings, *below), advice=advice)


@judged
def validate_queue_deletion(queue: object, queues: Fields | None = None) -> AdmissionVerdict:
    """Admit the deletion of a queue without children, even with invalid fields; warn while its workloads run.

    Its status may list a child that was just deleted: with `queues` given, only children among them count.
    """
    metadata, status = (_map(_map(queue).get(part)) for part in ("metadata", "status"))
    name, listed = metadata.get("name") or "", status.get("childQueues")
    children = [str(child) for child in listed] if isinstance(listed, list) else []
    if children := [child for child in children if not queues or child in queues]:
        raise DeniedError(f"cannot delete queue {name}: it has child queues [{' '.join(children)}]")
    held = [f"{resource}: {amount}" for resource, amount in sorted(_map(status.get("allocated")).items())]
    held = [text for text in held if _is_positive(text.rpartition(" ")[2])]
    if not held:
        return AdmissionVerdict()
    warning = f"workloads of queue {name} still hold {', '.join(held)}: they run on, but none starts again"
    return AdmissionVerdict(warnings=(f"{warning} until there is a queue of this name",))


def _queue(name: str, value: object) -> Queue:
    return declared(crds.QUEUE, Queue, name, value)


def _map(value: object) -> Fields:
    return value if isinstance(value, Mapping) else {}


def _is_positive(amount: str) -> bool:
    try:
        return units.parse_quantity(amount) > 0
    except units.QuantityError:
        return False


def _check_numbers(queue: object) -> None:
    """Deny amounts beyond the range of a float, which cannot be converted to a Queue."""
    for resource, amounts in _given(queue).items():
        for name, value in _map(amounts).items():
            if isinstance(value, int | float) and (abs(value) > sys.float_info.max or math.isnan(value)):
                raise DeniedError(f"queue.spec.resources.{resource}.{name}: must be a finite number")


def _given(queue: object) -> Fields:
    """Return `spec.resources` as written; empty if missing."""
    return _map(_map(_map(queue).get("spec")).get("resources"))


def _check_amounts(resources: QueueResources) -> None:
    for name in _RESOURCES:
        path, amounts = f"queue.spec.resources.{name}", getattr(resources, name)
        for part, value in (("quota", amounts.quota), ("limit", amounts.limit)):
            if value < 0 and value != -1:
                raise DeniedError(f"{path}.{part}: must be -1 (unlimited) or a number of at least 0, given {value:g}")
        if amounts.over_quota_weight < 0:
            weight = amounts.over_quota_weight
            raise DeniedError(f"{path}.overQuotaWeight: must be a number of at least 0, given {weight:g}")


def _check_ancestry(queue: Queue, queues: Fields) -> None:
    """Deny a cycle of parents; a parent that does not exist (yet) ends the walk."""
    name, parent = queue.metadata.name, queue.spec.parent_queue
    path = {name: None}
    while parent and parent not in path:
        path[parent] = None
        try:
            parent = _queue("queue", queues.get(parent)).spec.parent_queue
        except DeniedError:
            parent = ""
    if parent and parent == name:
        raise DeniedError(f"queue.spec.parentQueue: cycle of queues {' -> '.join([*path, parent])}")


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


def _against_parent(queue: Queue, parent: str, queues: Fields) -> list[str]:
    """Return warnings for quotas of the queue, or of all siblings together, above the parent's quota.

    A parent without quotas is denied.
    """
    if parent not in queues:
        raise DeniedError(f'failed to get parent queue {parent}: queues.scheduling.run.ai "{parent}" not found')
    above = _queue("parentQueue", queues[parent])
    if above.spec.resources is None:
        raise DeniedError(f"parent queue {parent} has no resources defined")
    siblings = _existing(_children(above), queues, besides=queue.metadata.name)
    where, warnings = f"parent queue {parent}", []
    for resource in _FORMAT:
        warnings += _exceeds("child queue", resource, _quota(queue, resource), (where, above))
        warnings += _exceeds("total children", resource, _total((queue, *siblings), resource), (where, above))
    return warnings


def _against_children(queue: Queue, queues: Fields) -> list[str]:
    """Return warnings for quotas of the children, each (CPU) and together, above the queue's own."""
    below = _existing(_children(queue), queues, besides="")
    warnings = []
    for child in below:
        quota = _quota(child, "CPU")
        warnings += _exceeds(f"child queue {child.metadata.name}", "CPU", quota, ("parent", queue))
    for resource in _FORMAT:
        warnings += _exceeds("total children", resource, _total(below, resource), ("parent", queue))
    return warnings


def _children(queue: Queue) -> list[str]:
    """Return the names of the queue's children from its status."""
    return queue.status.child_queues or []


def _existing(names: list[str], queues: Fields, besides: str) -> list[Queue]:
    return [_queue(f"queue {name}", queues[name]) for name in names if name in queues and name != besides]


def _quota(queue: Queue, resource: Resource) -> float:
    resources = queue.spec.resources
    return 0.0 if resources is None else float(getattr(resources, resource.lower()).quota)


def _exceeds(what: str, resource: Resource, quota: float, bound: tuple[str, Queue]) -> list[str]:
    where, queue = bound
    allowed, form = _quota(queue, resource), _FORMAT[resource]
    if allowed == UNLIMITED or (quota != UNLIMITED and quota <= allowed):
        return []
    shown = "unlimited" if quota == UNLIMITED else f"{quota:{form}}"
    return [f"{what} {resource} quota ({shown}) exceeds {where} {resource} quota ({allowed:{form}})"]


def _total(queues: Sequence[Queue], resource: Resource) -> float:
    quotas = [_quota(queue, resource) for queue in queues]
    return UNLIMITED if UNLIMITED in quotas else sum(quotas)


# -------------------------------------------------------------------------------------------------- reductions in use
_UNITS: dict[Resource, tuple[str, float]] = {"GPU": ("", 1.0), "CPU": (" cores", 1e-3), "Memory": (" bytes", 1e6)}
"""The suffix of amounts in messages, and the value of one unit of a Queue's spec in that unit."""


def _reductions(new: Queue, old: object) -> Iterator[str]:
    """Yield a line for every limit and quota that an update reduces below the queue's current allocation."""
    before = _queue("oldQueue", old)
    status = new.status if new.status.allocated or new.status.allocated_non_preemptible else before.status
    for resource, (unit, scale) in _UNITS.items():
        bounds: list[QueueResource] = [
            getattr(queue.spec.resources or QueueResources(), resource.lower()) for queue in (before, new)
        ]
        held, fixed = (_held(each, resource) for each in (status.allocated, status.allocated_non_preemptible))
        if (limit := _reduced(bounds[0].limit, bounds[1].limit)) is not None and _rounded(limit * scale) < held:
            shown = f"{_shown(limit * scale)}{unit}"
            yield f"{resource} limit ({shown}) is below the currently allocated {_shown(held)}{unit}"
        if (quota := _reduced(bounds[0].quota, bounds[1].quota)) is not None and _rounded(quota * scale) < fixed:
            shown = f"{_shown(quota * scale)}{unit}"
            yield f"{resource} quota ({shown}) is below the non-preemptible allocation ({_shown(fixed)}{unit})"


def _reduced(before: float, now: float) -> float | None:
    """Return the new bound if it is lower than before, else None; unlimited is the highest."""
    return now if now != UNLIMITED and (before == UNLIMITED or now < before) else None


def _held(amounts: Mapping[str, str | int | float] | None, resource: Resource) -> float:
    """Return the amount of a resource in a status, in the units of messages.

    GPUs of all kinds are summed: whole ones, shares of them, MIG instances, devices of claims.
    """
    found = 0.0
    for name, text in (amounts or {}).items():
        gpu = name != GPU_MEMORY_RESOURCE and (name.startswith(MIG_PREFIX) or "gpu" in name.lower())
        if name == resource.lower() or (resource == "GPU" and gpu):
            with suppress(units.QuantityError):
                found += float(units.parse_quantity(text))
    return _rounded(found)


def _rounded(value: float) -> float:
    return round(value, 4)


def _shown(value: float) -> str:
    value = _rounded(value)
    return str(int(value)) if value.is_integer() else str(value)
