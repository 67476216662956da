"""Every conformance case that has an adapter is one test; the folder is ../shared/conformance or $PYKAI_CONFORMANCE."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.adapters.scheduler import matched, unexplained, unlike_observed
from tests.conformance.cases import NotApplicable
from tests.conformance.runner import cases_folder, documents, load_adapters

SUITES = load_adapters()


def _parameters(prefix: str = "") -> list[Any]:
    folder = cases_folder()
    if not folder.is_dir():
        reason = f"no conformance folder at {folder}"
        return [pytest.param(None, None, None, marks=pytest.mark.skip(reason=reason), id="absent")]
    return [
        pytest.param(SUITES.adapters[suite], case, document, id=case["id"])
        for suite, document in documents(folder, prefix)
        if suite in SUITES.adapters
        for case in document["cases"]
        if case["id"] not in SUITES.not_applicable
    ]


@pytest.mark.parametrize(("adapter", "case", "document"), _parameters())
def test_case(adapter: Any, case: Any, document: Any) -> None:
    try:
        found = adapter(case, document)
    except NotApplicable as reason:
        pytest.skip(f"not applicable: {reason}")
    assert found == []


@pytest.mark.parametrize(("_adapter", "case", "document"), _parameters("scheduler/"))
def test_the_cluster_ends_as_kai_left_it_and_what_waits_has_a_reason(_adapter: Any, case: Any, document: Any) -> None:
    """More than the cases ask for; a difference may be right: it then goes to docs/compatibility.md and is left out."""
    session = matched(case, document["profiles"][case["scheduler_profile"]])
    assert unlike_observed(case, session) == []
    assert unexplained(session) == []
