"""A selector over columns says what it says of each set of labels."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from pykai.kernels import selectors
from pykai.kernels.selectors import LabelColumns, selected, selects
from pykai.objects.kinds import Expression, LabelSelector

KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["x", "y", "1", "2", "-3"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
LABELS = st.dictionaries(KEYS, VALUES)
EXPRESSIONS = st.builds(Expression, key=KEYS, operator=OPERATORS, values=st.lists(VALUES, max_size=2))
SELECTORS = st.builds(LabelSelector, match_labels=LABELS, match_expressions=st.lists(EXPRESSIONS, max_size=3))


@given(st.lists(LABELS, max_size=8), st.one_of(st.none(), SELECTORS), st.integers(0, 2))
def test_columns_agree_with_single_sets(labels: list[dict[str, str]], selector: LabelSelector | None, few: int) -> None:
    """Beyond a few keys, columns are made of what one pass over all sets has found."""
    with patch.object(selectors, "FEW_KEYS", few):
        assert selected(LabelColumns(labels), selector).tolist() == [selects(selector, one) for one in labels]
