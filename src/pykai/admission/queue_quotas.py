"""Warnings about quotas that do not add up along the tree of queues.

Unlimited (-1) is compared as a plain number and a missing amount as 0, so a child with any quota exceeds an unlimited
parent: a known oddity of the original, kept because the texts are only warnings.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

from pykai.admission import shapes
from pykai.admission.shapes import Queue
from pykai.admission.verdict import RefusedError

Kind = Literal["CPU", "GPU", "Memory"]
_LARGEST = sys.float_info.max
_FORMAT: dict[Kind, str] = {"CPU": ".0f", "GPU": ".2f", "Memory": ".0f"}


def against_parent(queue: Queue, parent: str, queues: Mapping[str, Any]) -> list[str]:
    """Quotas of a queue (and of its siblings, for CPU) above its parent's; a parent without quotas is refused."""
    above = _parent_queue(parent, queues)
    name = (queue.metadata.name if queue.metadata else None) or ""
    siblings = [_quota(sibling, "CPU") for sibling in _existing(children(above), queues, besides=name)]
    where = f"parent queue {parent}"
    return [
        *_exceeds("child queue", "CPU", _quota(queue, "CPU"), (where, above)),
        *_exceeds("total children", "CPU", _quota(queue, "CPU") + sum(siblings), (where, above)),
        *_exceeds("child queue", "GPU", _quota(queue, "GPU"), (where, above)),
        *_exceeds("child queue", "Memory", _quota(queue, "Memory"), (where, above)),
    ]


def against_children(queue: Queue, queues: Mapping[str, Any]) -> list[str]:
    """Quotas of the queue's children, each (CPU) and together, above its own."""
    below = _existing(children(queue), queues, besides="")
    names = [(child.metadata.name if child.metadata else None) or "" for child in below]
    warnings = []
    for name, child in zip(names, below, strict=True):
        warnings += _exceeds(f"child queue {name}", "CPU", _quota(child, "CPU"), ("parent", queue))
    for kind in _FORMAT:
        total = sum(_quota(child, kind) for child in below)
        warnings += _exceeds("total children", kind, total, ("parent", queue))
    return warnings


def children(queue: Queue) -> list[str]:
    """The names of the queue's children, as its status lists them."""
    return (queue.status.child_queues if queue.status else None) or []


def _parent_queue(name: str, queues: Mapping[str, Any]) -> Queue:
    if name not in queues:
        raise RefusedError(f'failed to get parent queue {name}: queues.scheduling.run.ai "{name}" not found')
    parent = shapes.view(Queue, "parentQueue", queues[name])
    if parent.spec is None or parent.spec.resources is None:
        raise RefusedError(f"parent queue {name} has no resources defined")
    return parent


def _existing(names: list[str], queues: Mapping[str, Any], besides: str) -> list[Queue]:
    return [shapes.view(Queue, f"queue {name}", queues[name]) for name in names if name in queues and name != besides]


def _quota(queue: Queue, kind: Kind) -> float:
    resources = queue.spec.resources if queue.spec else None
    resource = getattr(resources, kind.lower()) if resources else None
    quota = (resource.quota if resource else None) or 0.0
    return float(max(-_LARGEST, min(quota, _LARGEST)))


def _exceeds(who: str, kind: Kind, quota: float, limit: tuple[str, Queue]) -> list[str]:
    where, queue = limit
    allowed, form = _quota(queue, kind), _FORMAT[kind]
    if quota <= allowed:
        return []
    return [f"{who} {kind} quota ({quota:{form}}) exceeds {where} {kind} quota ({allowed:{form}})"]
