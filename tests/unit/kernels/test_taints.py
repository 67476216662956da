"""Tolerations, by the plain rule and by the table of all nodes' taints."""

from __future__ import annotations

import pytest

from pykai.kernels.taints import TaintTable, tolerates
from pykai.objects.kinds import Taint
from pykai.objects.pod_template import Toleration

CASES = [
    ({"key": "a", "value": "5"}, True),
    ({"key": "a", "value": "05"}, False),
    ({"key": "a", "operator": "Equal", "value": "5", "effect": "NoSchedule"}, True),
    ({"key": "a", "operator": "Equal", "value": ""}, False),
    ({"key": "b", "value": "5"}, False),
    ({"key": "a", "value": "5", "effect": "NoExecute"}, False),
    ({"operator": "Exists"}, True),
    ({"key": "b", "operator": "Exists"}, False),
    ({"key": "a", "operator": "Lt", "value": "6"}, True),
    ({"key": "a", "operator": "Lt", "value": "5"}, False),
    ({"key": "a", "operator": "Gt", "value": "-6"}, True),
    ({"key": "a", "operator": "Gt", "value": "05"}, False),
    ({"key": "a", "operator": "Almost", "value": "5"}, False),
]


@pytest.mark.parametrize(("toleration", "holds"), CASES)
def test_a_toleration_of_a_taint(toleration: dict[str, str], holds: bool) -> None:
    taint, asked = Taint(key="a", value="5", effect="NoSchedule"), Toleration(**toleration)
    assert tolerates(asked, taint) is holds
    assert TaintTable([[taint], []], ["NoSchedule"]).untolerated([asked]).tolist() == [int(not holds), 0]
