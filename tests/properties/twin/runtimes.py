"""§16.9 minimum run times and §5.6 preemption delays, from the JSON of queues and gangs.

Only the clock and the cluster's objects are asked: neither the tables of the snapshot nor the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pykai.objects import names
from tests.properties.small_world import Fields

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|ms|s|m|h|d|w)")


def seconds(text: str | None) -> float | None:
    """A duration such as "1h30m"; None if there is none or it makes no sense."""
    parts = PART.findall(text or "")
    if not text or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def instant(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None


@dataclass(frozen=True)
class Arguments:
    """defaultPreemptMinRuntime, defaultReclaimMinRuntime, reclaimResolveMethod, as texts."""

    preempt: str = ""
    reclaim: str = ""
    method: str = ""

    def default(self, action: str) -> float:
        """0s; parse error/negative -> 0."""
        return seconds({"preempt": self.preempt, "reclaim": self.reclaim}[action]) or 0.0

    def plugin(self) -> dict[str, str]:
        given = {
            "defaultPreemptMinRuntime": self.preempt,
            "defaultReclaimMinRuntime": self.reclaim,
            "reclaimResolveMethod": self.method,
        }
        return {key: value for key, value in given.items() if value}


class Runtimes:
    """What the queues of a cluster say."""

    def __init__(self, queues: Sequence[Fields], arguments: Arguments) -> None:
        self.specs: Mapping[str, Fields] = {queue["metadata"]["name"]: queue["spec"] for queue in queues}
        self.arguments = arguments

    def path(self, queue: str) -> list[str]:
        """From the top-level queue down."""
        found: list[str] = []
        while queue:
            found.insert(0, queue)
            queue = self.specs[queue].get("parentQueue") or ""
        return found

    def minimum(self, action: str, evictor: str, victim: str) -> float:
        """Seconds for which a gang of queue `victim` may not be evicted for one of queue `evictor`."""
        ours, theirs = self.path(evictor), self.path(victim)
        if action == "preempt" or self.arguments.method == "queue":
            return self._first(action, theirs)
        if ours[0] != theirs[0]:
            return self._first(action, theirs[:1])
        shared = sum(one == other for one, other in zip(ours, theirs, strict=False))
        return self._first(action, theirs[: shared + 1])

    def _first(self, action: str, path: Sequence[str]) -> float:
        """The first value found on the way up, else the default."""
        for queue in reversed(path):
            found = seconds(self.specs[queue].get(f"{action}MinRuntime"))
            if found is not None:
                return found
        return self.arguments.default(action)

    def protected(self, action: str, evictor: Fields, victim: Fields, now: float) -> bool:
        """Gangs are PodGroups."""
        start = instant((victim["metadata"].get("annotations") or {}).get(names.LAST_START_TIMESTAMP))
        minimum = self.minimum(action, evictor["spec"]["queue"], victim["spec"]["queue"])
        return start is not None and now < start + minimum


def delayed(group: Fields, now: float) -> bool:
    """§5.6: whether a gang may not cause evictions yet."""
    meta = group["metadata"]
    evicted = instant((meta.get("annotations") or {}).get(names.LAST_EVICTION_TIMESTAMP))
    since = [at for at in (instant(meta.get("creationTimestamp")), evicted) if at is not None]
    delay = seconds(group["spec"].get("preemptionDelay")) or 0.0
    return delay > 0 and bool(since) and now < max(since) + delay
