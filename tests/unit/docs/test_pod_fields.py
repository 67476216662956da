"""The table of pod fields names tests that exist."""

from __future__ import annotations

import re

import pytest
from docs.generate.site import ROOT

PAGE = (ROOT / "docs/reference/pod-fields.md").read_text()
FIELDS = [
    "affinity",
    "containers",
    "hostNetwork",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "os",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
    "workloadRef",
]
"""Of a pod's spec (core/v1), as far as they concern scheduling."""
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_that_is_named_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    assert re.search(rf"^(?:async )?def {name}\(" if name else r"^(async )?def test_", text, re.MULTILINE)


def test_every_honoured_field_names_a_test() -> None:
    honoured = PAGE.split("## Not honoured")[0]
    rows = [line for line in honoured.splitlines() if line.startswith("| ") and not line.startswith("| field")]
    assert rows
    assert [line for line in rows if "`tests/" not in line] == []


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_that_concerns_scheduling_is_on_the_page(field: str) -> None:
    assert re.search(rf"^\|.*`{field}\b.*\|.*\|", PAGE, re.MULTILINE)
