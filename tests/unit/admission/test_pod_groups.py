"""Pod groups: sound trees, and findings that refuse or only warn."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.admission.podgroups import validate_pod_group
from pykai.admission.verdict import Verdict
from tests.unit.admission.bad_input_objects import MID_LEVEL, group, leaf, node

TOO_MANY = "minSubGroup (3) exceeds the number of direct child SubGroups (1)"


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"spec": {}},
        group(minMember=0),
        group(leaf("a"), leaf("b"), minSubGroup=0),
        group(node("p", minSubGroup=1), leaf("c", "p"), minSubGroup=1),
        group(node("p"), leaf("c", "p", minMember=0)),
        group(preemptibility="non-preemptible", preemptionDelay="10m", stalenessGracePeriod="-1s"),
    ],
)
@pytest.mark.parametrize("creating", [True, False])
def test_admitted(item: dict[str, Any], creating: bool) -> None:
    assert validate_pod_group(item, creating) == Verdict()


@pytest.mark.parametrize("creating", [True, False])
def test_more_children_than_there_are_only_warns(creating: bool) -> None:
    item = group(node("p", minSubGroup=3), leaf("c", "p"), minSubGroup=3)
    assert validate_pod_group(item, creating) == Verdict(warnings=(f'subgroup "p": {TOO_MANY}', TOO_MANY))


def test_pods_asked_of_a_mid_level_warn_once_the_group_exists() -> None:
    item, message = group(leaf("p"), leaf("c", "p")), f'subgroup "p": {MID_LEVEL}'
    assert validate_pod_group(item, creating=True) == Verdict(False, message)
    assert validate_pod_group(item, creating=False) == Verdict(warnings=(message,))


def test_a_refusal_carries_the_warnings_beside_it() -> None:
    item = group(node("a"), minSubGroup=3)
    assert validate_pod_group(item, creating=False) == Verdict(False, "subgroup a: minMember is required", (TOO_MANY,))


def test_a_chain_of_thousands_is_walked_once() -> None:
    chain = [node("n0"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, 5000)), leaf("end", "n4999")]
    assert validate_pod_group(group(*chain), creating=True) == Verdict()
