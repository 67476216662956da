"""A table of taints says of each node what the plain rule says of its taints."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.kernels.taints import TaintTable, tolerates
from pykai.objects.kinds import Taint
from pykai.objects.pod_template import Toleration

KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["", "x", "1", "05", "7", "-3"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
OPERATORS = st.sampled_from(["", "Equal", "Exists", "Lt", "Gt", "Almost"])
TAINTS = st.lists(st.lists(st.builds(Taint, key=KEYS, value=VALUES, effect=EFFECTS), max_size=3), max_size=6)
TOLERATIONS = st.lists(
    st.builds(Toleration, key=KEYS | st.just(""), operator=OPERATORS, value=VALUES, effect=EFFECTS | st.just("")),
    max_size=3,
)


@given(taints=TAINTS, tolerations=TOLERATIONS, effects=st.lists(EFFECTS, unique=True))
def test_a_table_counts_what_is_not_tolerated(
    taints: list[list[Taint]], tolerations: list[Toleration], effects: list[str]
) -> None:
    table = TaintTable(taints, effects)
    relevant = [[taint for taint in some if taint.effect in effects] for some in taints]
    assert table.empty is not any(relevant)
    assert table.untolerated(tolerations).tolist() == [
        sum(not any(tolerates(each, taint) for each in tolerations) for taint in some) for some in relevant
    ]
