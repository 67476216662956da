"""How many PodGroups of a queue have which resource status: the sum of a queue without a visit to every group.

Groups of one kind of workload have equal statuses, so a queue with ten thousand groups has a few dozen different ones;
each is counted here as groups come, change and go, and enters the queue's sum once, multiplied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pykai.objects.kinds import PodGroup
from pykai.objects.units import ResourceList

Lists = tuple[tuple[tuple[str, str | int | float], ...], ...]

_LISTS = ("requested", "allocated", "allocatedNonPreemptible")
_NUMBER = re.compile(r"[+-]?[0-9.]+")


class GroupTally:
    """Counts of equal statuses by queue."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Lists]] = {}

    def change(self, old: PodGroup | None, new: PodGroup | None) -> set[str]:
        """A group came (`old` None), changed or went (`new` None); the queues whose sums may now be others."""
        before, after = _entry(old), _entry(new)
        if before == after:
            return set()
        for entry, by in ((before, -1), (after, 1)):
            if entry is not None:
                self._add(*entry, by)
        return {entry[0] for entry in (before, after) if entry is not None}

    def _add(self, queue: str, lists: Lists, by: int) -> None:
        counts = self._counts.setdefault(queue, Counter())
        counts[lists] += by
        if not counts[lists]:
            del counts[lists]
        if not counts:
            del self._counts[queue]

    def groups(self, queue: str) -> list[dict[str, Any]]:
        """As PodGroups, one per different status, whose sum is the sum over all groups of the queue."""
        counted = self._counts.get(queue, Counter())
        return [
            {"spec": {"queue": queue}, "status": {"resourcesStatus": _times(lists, count)}}
            for lists, count in counted.items()
        ]


def _entry(group: PodGroup | None) -> tuple[str, Lists] | None:
    """Queue and status of a group; None where it adds nothing to any queue."""
    if group is None or not group.spec.queue or group.status.resources_status is None:
        return None
    status = group.status.resources_status
    lists = (status.requested, status.allocated, status.allocated_non_preemptible)
    return group.spec.queue, tuple(tuple(sorted((each or {}).items())) for each in lists)


def _times(lists: Lists, count: int) -> Mapping[str, ResourceList]:
    return {
        name: {resource: times(amount, count) for resource, amount in each}
        for name, each in zip(_LISTS, lists, strict=True)
    }


def times(quantity: str | int | float, count: int) -> str:
    """A quantity `count` times, in the same unit: 3 × 500m is 1500m, 2 × 1.5Gi is 3.0Gi."""
    text = str(quantity)
    number = _NUMBER.match(text)
    if number is None:
        raise ValueError(f"{text!r} is not a quantity")
    return f"{Decimal(number[0]) * count:f}{text[number.end() :]}"
