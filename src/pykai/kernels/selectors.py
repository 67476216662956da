"""Label selectors of Kubernetes, evaluated for one set of labels or for thousands at once.

Ten thousand nodes have a few distinct values of a label, so a label becomes a column of value codes and a requirement a
comparison of codes. The functions on one set of labels (`meets`, `selects`) are the plain version of the same rules,
and the twin that tests compare with.

Invariants: a missing label is code 0; it meets NotIn and DoesNotExist and nothing else. A requirement whose operator
is unknown, or that compares the size of a value that is no integer, matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pykai.model.resources import Mask, Rows
from pykai.objects.kinds import Expression, LabelSelector
from pykai.objects.pod_template import NodeTerm

Labels = Mapping[str, str]
FEW_KEYS = 16
"""Columns of so many keys are made by a pass over all sets of labels each; then one pass finds all others."""
_WHOLE = re.compile(r"[+-]?[0-9]+")


# --------------------------------------------------------------------------------------------------- one set of labels
def meets(labels: Labels, requirement: Expression) -> bool:
    """Whether one set of labels meets a requirement."""
    value, wanted = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _passes(value, requirement)
    return False


def selects(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether a selector picks a set of labels; no selector picks nothing, an empty one everything."""
    return selector is not None and all(meets(labels, requirement) for requirement in requirements(selector))


def requirements(selector: LabelSelector) -> list[Expression]:
    """Both forms of a selector as one list, all of which must be met."""
    pairs = [Expression(key=key, operator="In", values=[value]) for key, value in selector.match_labels.items()]
    return [*pairs, *selector.match_expressions]


def _passes(value: str, requirement: Expression) -> bool:
    bound = _whole(requirement.values[0]) if len(requirement.values) == 1 else None
    number = _whole(value)
    if bound is None or number is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


# ------------------------------------------------------------------------------------------------- many sets of labels
class LabelColumn(NamedTuple):
    """One label over many sets: a code per set, 0 where the label is missing."""

    codes: Rows
    code_of: Mapping[str, int]

    @property
    def size(self) -> int:
        """Number of codes, that of the missing label included."""
        return len(self.code_of) + 1


class LabelColumns(dict[str, LabelColumn]):
    """Label key -> column, made when a key is first asked for."""

    def __init__(self, labels: Sequence[Labels]) -> None:
        super().__init__()
        self.labels = labels

    def __missing__(self, key: str) -> LabelColumn:
        """Make a column by a pass over all sets; where many keys are asked for, of the sets with the key alone."""
        code_of: dict[str, int] = {}
        codes = np.zeros(len(self.labels), dtype=np.int64)
        if len(self) < FEW_KEYS:
            found = [(row, labels[key]) for row, labels in enumerate(self.labels) if key in labels]
        else:
            found = self._by_key.get(key, [])
        codes[[row for row, _ in found]] = [code_of.setdefault(value, len(code_of) + 1) for _, value in found]
        self[key] = column = LabelColumn(codes, code_of)
        return column

    @cached_property
    def _by_key(self) -> dict[str, list[tuple[int, str]]]:
        """The sets with each key, and their values."""
        found: dict[str, list[tuple[int, str]]] = {}
        for row, labels in enumerate(self.labels):
            for key, value in labels.items():
                found.setdefault(key, []).append((row, value))
        return found

    def all(self) -> Mask:
        return np.ones(len(self.labels), dtype=bool)

    def none(self) -> Mask:
        return np.zeros(len(self.labels), dtype=bool)


def _among(column: LabelColumn, requirement: Expression) -> Mask:
    codes = [column.code_of[value] for value in requirement.values if value in column.code_of]
    wanted = np.zeros(column.size, dtype=bool)
    wanted[codes] = True
    mask: Mask = column.codes == codes[0] if len(codes) == 1 else wanted[column.codes]
    return mask


def _by_size(column: LabelColumn, requirement: Expression) -> Mask:
    return np.array([False, *(_passes(value, requirement) for value in column.code_of)])[column.codes]


_RULES: dict[str, Callable[[LabelColumn, Expression], Mask]] = {
    "In": _among,
    "NotIn": lambda column, requirement: ~_among(column, requirement),
    "Exists": lambda column, _: column.codes > 0,
    "DoesNotExist": lambda column, _: column.codes == 0,
    "Gt": _by_size,
    "Lt": _by_size,
}


def meeting(columns: LabelColumns, wanted: Sequence[Expression]) -> Mask:
    """Which sets of labels meet all the requirements."""
    mask = columns.all()
    for requirement in wanted:
        rule = _RULES.get(requirement.operator)
        if rule is None:
            return columns.none()
        mask &= rule(columns[requirement.key], requirement)
    return mask


def selected(columns: LabelColumns, selector: LabelSelector | None) -> Mask:
    """Which sets of labels a selector picks; no selector picks nothing, an empty one everything."""
    return columns.none() if selector is None else meeting(columns, requirements(selector))


def in_some_term(columns: LabelColumns, fields: LabelColumns, terms: Sequence[NodeTerm]) -> Mask:
    """Which nodes meet all of at least one term; a term that demands nothing is met by none."""
    mask = columns.none()
    for term in terms:
        if term.match_expressions or term.match_fields:
            mask |= meeting(columns, term.match_expressions) & meeting(fields, term.match_fields)
    return mask
