"""What the grouping benchmark makes of its readings, and where it writes them."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.grouping import GROUPER, Outcome, Progress, outcome
from bench.live_load import Meter
from bench.page import kept_in, with_section

PROGRESS = Progress(born={"a": 1.0, "b": 2.0}, grouped={"a": 4.0, "b": 6.0})
BEFORE = Meter(Counter({("PATCH", "pods"): 3}), {})
AFTER = Meter(
    Counter({("PATCH", "pods"): 5, ("POST", "podgroups"): 1, ("POST", "pods"): 2, ("PUT", "jobs/status"): 7}),
    {GROUPER: 0.5, "etcd": 9.0},
)


@pytest.mark.parametrize(("since", "seconds", "wait"), [(0.0, 5.0, 3.5), (3.0, 3.0, 2.0)])
def test_time_counts_from_when_pods_could_be_grouped(since: float, seconds: float, wait: float) -> None:
    assert outcome("load", PROGRESS, BEFORE, AFTER, since) == Outcome("load", 2, seconds, wait, 1, 2, 0.5)


def test_figures_are_shown_for_each_pod() -> None:
    row = Outcome("load", 2000, 4.0, 0.25, 200, 2000, 3.0).row()
    assert row == ["load", "2,000", "4.0", "500", "0.25 s", "0.100", "1.000", "1.50"]


def test_a_section_is_added_replaced_and_kept_when_the_page_is_written_anew() -> None:
    one = with_section("# Page\n", "bench-one", "first\n")
    both = with_section(with_section(one, "bench-two", "other\n"), "bench-one", "second\n")
    assert "first" not in both
    assert both.index("second") < both.index("other")
    again = kept_in("# New\n", both)
    assert again.startswith("# New\n")
    assert with_section(again, "bench-one", "third\n") == again.replace("second", "third")
