from __future__ import annotations

import numpy as np
import pytest

from pykai.kernels.selectors import LabelColumns, in_some_term, meeting, meets, selected, selects
from pykai.objects.kinds import Expression, LabelSelector
from pykai.objects.pod_template import NodeTerm

SETS: list[dict[str, str]] = [{}, {"a": "x"}, {"a": "y", "n": "5"}, {"n": "-7"}, {"a": "x", "n": "five"}, {"n": "05"}]
REQUIREMENTS = [  # operator, key, values, rows of SETS that meet it
    ("In", "a", ["x"], {1, 4}),
    ("In", "a", ["x", "y", "never"], {1, 2, 4}),
    ("In", "a", ["never"], set()),
    ("In", "a", [], set()),
    ("NotIn", "a", ["x"], {0, 2, 3, 5}),
    ("NotIn", "a", ["never"], {0, 1, 2, 3, 4, 5}),
    ("Exists", "n", [], {2, 3, 4, 5}),
    ("DoesNotExist", "n", [], {0, 1}),
    ("Gt", "n", ["4"], {2, 5}),
    ("Gt", "n", ["5"], set()),
    ("Lt", "n", ["0"], {3}),
    ("Lt", "n", ["many"], set()),
    ("Gt", "n", [], set()),
    ("Near", "n", ["5"], set()),
]


@pytest.mark.parametrize(("operator", "key", "values", "rows"), REQUIREMENTS)
def test_requirement_by_itself_and_over_columns(operator: str, key: str, values: list[str], rows: set[int]) -> None:
    requirement = Expression(key=key, operator=operator, values=values)
    assert {row for row, labels in enumerate(SETS) if meets(labels, requirement)} == rows
    assert set(np.flatnonzero(meeting(LabelColumns(SETS), [requirement])).tolist()) == rows


SELECTORS = [
    (None, set()),
    (LabelSelector(), {0, 1, 2, 3, 4, 5}),
    (LabelSelector(match_labels={"a": "x"}), {1, 4}),
    (LabelSelector(match_labels={"a": "x"}, match_expressions=[Expression(key="n", operator="Exists")]), {4}),
]


@pytest.mark.parametrize(("selector", "rows"), SELECTORS)
def test_selector(selector: LabelSelector | None, rows: set[int]) -> None:
    assert {row for row, labels in enumerate(SETS) if selects(selector, labels)} == rows
    assert set(np.flatnonzero(selected(LabelColumns(SETS), selector)).tolist()) == rows


def test_one_met_term_is_enough_and_an_empty_one_is_met_by_none() -> None:
    columns, names = LabelColumns(SETS), LabelColumns([{"metadata.name": f"n{row}"} for row in range(len(SETS))])
    x = NodeTerm(match_expressions=[Expression(key="a", operator="In", values=["x"])])
    by_name = NodeTerm(match_fields=[Expression(key="metadata.name", operator="In", values=["n0"])])
    both = NodeTerm(match_expressions=x.match_expressions, match_fields=by_name.match_fields)
    for terms, rows in [([x, by_name], [0, 1, 4]), ([both], []), ([NodeTerm()], []), ([], [])]:
        assert np.flatnonzero(in_some_term(columns, names, terms)).tolist() == rows
