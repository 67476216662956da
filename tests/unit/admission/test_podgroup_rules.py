"""Pod groups: sound trees, and findings that refuse or only warn."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.admission.podgroup_rules import validate_pod_group
from pykai.admission.verdict import AdmissionVerdict
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
    assert validate_pod_group(item, creating) == AdmissionVerdict()


@pytest.mark.parametrize("creating", [True, False])
def test_more_children_than_there_are_only_warns(creating: bool) -> None:
    item = group(node("p", minSubGroup=3), leaf("c", "p"), minSubGroup=3)
    assert validate_pod_group(item, creating) == AdmissionVerdict(warnings=(f'subgroup "p": {TOO_MANY}', TOO_MANY))


def test_pods_asked_of_a_mid_level_warn_once_the_group_exists() -> None:
    item, message = group(leaf("p"), leaf("c", "p")), f'subgroup "p": {MID_LEVEL}'
    assert validate_pod_group(item, creating=True) == AdmissionVerdict(False, message)
    assert validate_pod_group(item, creating=False) == AdmissionVerdict(warnings=(message,))


def test_a_refusal_carries_the_warnings_beside_it() -> None:
    item = group(node("a"), minSubGroup=3)
    assert validate_pod_group(item, creating=False) == AdmissionVerdict(
        False, "subgroup a: minMember is required", (TOO_MANY,)
    )


def test_a_chain_of_thousands_is_walked_once() -> None:
    chain = [node("n0"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, 5000)), leaf("end", "n4999")]
    assert validate_pod_group(group(*chain), creating=True) == AdmissionVerdict()


SEMI = "semi-preemptible"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            group(minMember=1),
            group(minMember=2),
            "cannot increase minMember (1 -> 2) on a semi-preemptible PodGroup: "
            "it would reclassify running elastic pods as core",
        ),
        (
            group(),
            group(minMember=1),
            "cannot increase minMember (unset -> 1) on a semi-preemptible PodGroup: "
            "it would reclassify running elastic pods as core",
        ),
        (
            {"metadata": {"name": "g"}, "spec": {"minMember": 1}},
            {"metadata": {"name": "g"}, "spec": {"minMember": 2}},
            "cannot increase minMember (1 -> 2) on a semi-preemptible PodGroup: "
            "it would reclassify running elastic pods as core",
        ),
        (
            group(leaf("a"), leaf("b"), minSubGroup=1),
            group(leaf("a"), leaf("b"), minSubGroup=2),
            "cannot increase minSubGroup (1 -> 2) on a semi-preemptible PodGroup: "
            "it would reclassify running elastic subgroups as core",
        ),
        (
            group(leaf("a", minMember=1)),
            group(leaf("a", minMember=3)),
            'cannot increase minMember (1 -> 3) on subgroup "a" of a semi-preemptible PodGroup',
        ),
        (
            group(node("p"), leaf("c", "p")),
            group(node("p", minSubGroup=1), leaf("c", "p")),
            'cannot increase minSubGroup (unset -> 1) on subgroup "p" of a semi-preemptible PodGroup',
        ),
        (group(minMember=2), group(minMember=1), ""),
        (group(minMember=2), group(), ""),
        (group(leaf("a", minMember=1)), group(leaf("b", minMember=3)), ""),
    ],
)
@pytest.mark.parametrize("becomes", [SEMI, "preemptible"])
def test_a_semi_preemptible_group_may_not_raise_a_minimum(
    old: dict[str, Any], new: dict[str, Any], message: str, becomes: str
) -> None:
    """What counts is how the group was: otherwise two updates would do what one may not."""
    old["spec"]["preemptibility"], new["spec"]["preemptibility"] = SEMI, becomes
    assert validate_pod_group(new, False, old) == (AdmissionVerdict(False, message) if message else AdmissionVerdict())
    for other in ("preemptible", ""):
        old["spec"]["preemptibility"] = other
        assert validate_pod_group(new, False, old) == AdmissionVerdict()
