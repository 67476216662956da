"""What the tables answer where there is little or nothing to answer with."""

from __future__ import annotations

import numpy as np
import pytest

from pykai.cache.readings import rows_of_ids
from pykai.model.plan import Verdict
from pykai.objects import names
from tests import builders


@pytest.mark.parametrize("wanted", [[5], list(range(40))])
def test_rows_in_an_empty_table(wanted: list[int]) -> None:
    assert rows_of_ids(np.zeros(0, dtype=np.int64), wanted) == [-1] * len(wanted)


@pytest.mark.parametrize(("not_ready", "ready"), [("", True), ("2 of 3 pods", False)])
def test_a_gang_is_ready_without_a_reason_against_it(not_ready: str, ready: bool) -> None:
    assert Verdict(("ns", "g"), (), "", {}, not_ready=not_ready).ready is ready


@pytest.mark.parametrize(("written", "read"), [("2026-01-01T00:00:00Z", 1767225600.0), ("yesterday", None)])
def test_timestamps_that_cannot_be_read_are_none(written: str, read: float | None) -> None:
    group = builders.pod_group("g", metadata={"annotations": {names.LAST_START_TIMESTAMP: written}})
    snapshot = builders.snapshot([builders.queue(), group])
    assert snapshot.gangs.last_start(0) == read
