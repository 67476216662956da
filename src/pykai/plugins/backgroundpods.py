"""Which pods are background pods: those that a label selector picks, by default `kai.scheduler/background=true`.

The cache collects pods with the default label, so that a cluster without any costs nothing. Another selector is
evaluated for every pod of this scheduler in every cycle.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pykai.kernels.selectors import selects
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.kinds import Expression, LabelSelector

DEFAULT = f"{names.BACKGROUND_LABEL}=true"
_TERM = re.compile(r"(?P<absent>!)?(?P<key>[A-Za-z0-9._/-]+)(?:(?P<operator>==?|!=)(?P<value>[A-Za-z0-9._-]*))?")


@dataclass(frozen=True)
class BackgroundPods:
    """Pods that use idle capacity and are evicted as soon as a workload can use it."""

    selector: LabelSelector | None = None
    """None: those with the default label."""

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, str]) -> BackgroundPods:
        """By argument `labelSelector`: terms `key=value`, `key!=value`, `key`, `!key`, separated by commas."""
        text = arguments.get("labelSelector", DEFAULT).replace(" ", "")
        return cls() if text == DEFAULT else cls(_parsed(text))

    def background_pods(self, snapshot: Snapshot) -> Collection[int]:
        pods = snapshot.pods
        if self.selector is None:
            return pods.background
        rows = (row for row, gang in enumerate(pods.gang.tolist()) if gang >= 0)
        return [row for row in rows if selects(self.selector, pods.objects[row].metadata.labels or {})]


def _parsed(text: str) -> LabelSelector:
    found = []
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None or (match["absent"] and match["operator"]):
            raise ValueError(f"arguments.labelSelector: {term!r} is not key=value, key!=value, key or !key")
        found.append(_requirement(match["key"], match["operator"], match["value"] or "", bool(match["absent"])))
    return LabelSelector(match_expressions=found)


def _requirement(key: str, operator: str | None, value: str, absent: bool) -> Expression:
    if operator is None:
        return Expression(key=key, operator="DoesNotExist" if absent else "Exists", values=[])
    return Expression(key=key, operator="NotIn" if operator == "!=" else "In", values=[value])
