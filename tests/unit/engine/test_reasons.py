"""The meaning of reasons, and which of several dominates."""

from __future__ import annotations

import pytest

from pykai.engine.reasons import AT_FAIR_SHARE, CATEGORIES, DESCRIPTIONS, SearchToken, Token, described, rank


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (Token.SHORT, "no node has enough free"),
        (AT_FAIR_SHARE, "the queue would exceed its fair share: it may not reclaim from others"),
        ("PreemptNoSolutionFound", "no evictions that are allowed make enough room"),
        ("ConsolidationNotPreemptible", "workloads move only for preemptible ones"),
        ("ReclaimSomethingElse", ""),
        ("OverLimit", ""),
    ],
)
def test_a_code_has_the_meaning_of_its_token(code: str, meaning: str) -> None:
    assert described(code) == meaning


def test_every_token_has_a_meaning() -> None:
    assert {*Token, *SearchToken} == DESCRIPTIONS.keys()


def test_no_result_of_a_search_comes_before_capacity_or_what_a_gang_lacks() -> None:
    """A verdict on a gang that is over capacity, not ready or has stray pods needs no look at searches."""
    before = ("OverLimit", "NonPreemptibleOverQuota", Token.PODS_MISSING, Token.GATED, Token.NO_SUB_GROUP)
    assert max(map(rank, before)) < rank(AT_FAIR_SHARE) < rank("PreemptNoSolutionFound") == len(CATEGORIES)
