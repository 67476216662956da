"""Which taints of all nodes a list of tolerations does not tolerate.

Ten thousand nodes have a few distinct taints, or one each where every team has its own nodes. So each distinct taint is
compared once with each toleration, as codes of its key, value and effect. `tolerates` is the plain version of the same
rules, and the twin that tests compare with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pykai.kernels.selectors import LabelColumns, meeting
from pykai.model.resources import Mask, Rows
from pykai.objects.kinds import Expression, Taint
from pykai.objects.pod_template import Toleration

_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,18})$")
_PARTS = ("key", "value", "effect")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration tolerates a taint; an empty key or effect of a toleration stands for all of them."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            return toleration.value == taint.value
        case "Lt" | "Gt" as operator if _INTEGER.match(toleration.value) and _INTEGER.match(taint.value):
            bound, value = int(toleration.value), int(taint.value)
            return value < bound if operator == "Lt" else value > bound
    return False


class TaintTable:
    """The taints with some effects that nodes have; `taints`: those of each node."""

    def __init__(self, taints: Sequence[Sequence[Taint]], effects: Sequence[str]) -> None:
        numbers: dict[tuple[str, str, str], int] = {}
        pairs = [
            (node, numbers.setdefault((taint.key, taint.value, taint.effect), len(numbers)))
            for node, some in enumerate(taints)
            for taint in some
            if taint.effect in effects
        ]
        self._count = len(taints)
        self._nodes, self._numbers = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self._distinct = [Taint(*parts) for parts in numbers]
        self._columns = LabelColumns([dict(zip(_PARTS, parts, strict=True)) for parts in numbers])

    @property
    def empty(self) -> bool:
        """Whether no node has such a taint."""
        return not self._distinct

    def untolerated(self, tolerations: Sequence[Toleration]) -> Rows:
        """By node how many of its taints no toleration tolerates."""
        failing = self._columns.all()
        for toleration in tolerations:
            failing &= ~self._tolerated(toleration)
        return np.bincount(self._nodes[failing[self._numbers]], minlength=self._count)

    def _tolerated(self, toleration: Toleration) -> Mask:
        """Which of the distinct taints a toleration tolerates."""
        wanted = [("key", toleration.key), ("effect", toleration.effect)]
        mask = self._equal([(part, value) for part, value in wanted if value])
        if toleration.operator in ("Equal", ""):
            mask &= self._equal([("value", toleration.value)])
        elif toleration.operator != "Exists":
            for number in np.flatnonzero(mask).tolist():
                mask[number] = tolerates(toleration, self._distinct[number])
        return mask

    def _equal(self, parts: Sequence[tuple[str, str]]) -> Mask:
        return meeting(self._columns, [Expression(key=part, operator="In", values=[value]) for part, value in parts])
