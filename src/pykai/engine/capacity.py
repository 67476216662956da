"""Whether queues may take more: their limits, and quotas of work that cannot be preempted (spec/scheduling.md §8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykai.engine.quota import QueueBook, Triple
from pykai.model.resources import UNLIMITED

OVER_LIMIT, OVER_QUOTA = "OverLimit", "NonPreemptibleOverQuota"


@dataclass(frozen=True)
class OverCapacity:
    """A queue on the path cannot take the request: which one, in which resource, and by what rule."""

    reason: str
    """OVER_LIMIT or OVER_QUOTA."""
    queue: int
    resource: int
    request: Triple
    used: Triple
    bound: Triple
    title: str

    @property
    def message(self) -> str:
        name, unit, scale = _UNITS[self.resource]
        bound, used, request = (human(x[self.resource], scale) for x in (self.bound, self.used, self.request))
        if self.reason == OVER_LIMIT:
            return (
                f"{self.title} quota has reached the allowable limit of {name}. "
                f"Limit is {bound} {unit}, currently {used} {unit} allocated and workload requested {request} {unit}"
            )
        what = "GB memory" if self.resource == 1 else name
        return (
            f"Non-preemptible workload is over quota. Workload requested {request} {what}, but {self.title} quota is "
            f"{bound} {unit}, while {used} {unit} are already allocated for non-preemptible pods. "
            "Use a preemptible workload to go over quota."
        )


_UNITS = (("CPU cores", "cores", 1e3), ("memory", "GB", 1e9), ("GPUs", "GPUs", 1.0))


def human(value: float, scale: float = 1.0) -> str:
    """At most three decimals, no trailing zeros."""
    if value == UNLIMITED:
        return "Unlimited"
    return f"{round(value / scale, 3):.3f}".rstrip("0").rstrip(".")


def over_limit(book: QueueBook, queue: int, request: Triple) -> OverCapacity | None:
    """The first queue from here to the root whose limit the request would pass."""
    return _first_over(book, queue, request, (OVER_LIMIT, book.limit, book.allocated))


def over_held_quota(book: QueueBook, queue: int, request: Triple) -> OverCapacity | None:
    """The first queue from here to the root whose quota non-preemptible work would pass."""
    return _first_over(book, queue, request, (OVER_QUOTA, book.deserved, book.held))


Rule = tuple[str, Sequence[Triple], Sequence[Triple]]


def _first_over(book: QueueBook, queue: int, request: Triple, rule: Rule) -> OverCapacity | None:
    reason, bounds, used = rule
    for q in book.paths[queue]:
        bound = bounds[q]
        for resource in (0, 1, 2):
            wanted, limit = request[resource], bound[resource]
            if wanted > 0 and limit != UNLIMITED and limit < round(used[q][resource] + wanted, 4):
                return OverCapacity(reason, q, resource, request, used[q], bound, book.titles[q])
    return None
