"""Adapters read every case that the format allows: keys may be missing or null, and inputs other than the visible ones.

Each visible case is changed at a few places. What KAI would answer is not known then; an adapter finds mismatches or
none, or says that the case is not applicable.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tests.conformance.cases import NotApplicable, Record
from tests.conformance.runner import cases_folder, documents, load_adapters

CHANGES_PER_CASE = 6
Path = tuple[str | int, ...]

SUITES = load_adapters()
FUNCTION_SUITES = {
    suite: document for suite, document in documents(cases_folder()) if document["kind"] == "function-cases"
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The keys of a case, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def at(case: Any, path: Path) -> Any:
    """What is there; None where the case does not have the place."""
    for step in path:
        try:
            case = dict.get(case, step) if isinstance(case, dict) else case[step]
        except (IndexError, TypeError, KeyError):
            return None
    return case


def changed(case: Record, others: list[Record], chance: Random) -> Record:
    """The case without a key, with null for it, or with what a case of the same function has there."""
    found = deepcopy(case)
    path = chance.choice([path for part in ("input", "expected") for path in places(case[part], (part,))])
    holder, key = at(found, path[:-1]), path[-1]
    kind = chance.choice(["missing", "null", "other"])
    other = at(chance.choice(others), path)
    if kind == "other" and type(other) is type(holder[key]):
        holder[key] = deepcopy(other)
    elif kind == "null" and (key == "labels" or isinstance(holder[key], list)):
        holder[key] = None
    else:
        del holder[key]
    return found


def read(suite: str, case: Record) -> bool:
    """Whether an adapter can tell mismatches, or why there are none to tell."""
    try:
        return isinstance(SUITES.adapters[suite](case, FUNCTION_SUITES[suite]), list)
    except NotApplicable as reason:
        return bool(str(reason))


@pytest.mark.skipif(not FUNCTION_SUITES, reason=f"no conformance folder at {cases_folder()}")
@pytest.mark.parametrize("suite", FUNCTION_SUITES)
def test_changed_cases_are_read(suite: str) -> None:
    cases, chance = FUNCTION_SUITES[suite]["cases"], Random(suite)
    for case in cases:
        alike = [other for other in cases if other["function"] == case["function"]]
        assert all(read(suite, changed(case, alike, chance)) for _ in range(CHANGES_PER_CASE))


@pytest.mark.skipif(not FUNCTION_SUITES, reason=f"no conformance folder at {cases_folder()}")
@pytest.mark.parametrize("suite", FUNCTION_SUITES)
def test_functions_without_a_counterpart_are_not_applicable(suite: str) -> None:
    case = deepcopy(FUNCTION_SUITES[suite]["cases"][0])
    case["function"], case["input"]["operation"] = "future.Plugin.DoesMore", "does_more"
    assert read(suite, case)
