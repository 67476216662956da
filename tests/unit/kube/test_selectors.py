"""Selectors accept and refuse what the server does."""

from __future__ import annotations

import pytest

from pykai.kube.errors import BadRequest
from pykai.kube.memory.selectors import fields_matching, labels_matching
from pykai.kube.resources import NODE, POD

LABELS = {"app": "web", "tier": "2", "example.org/zone": "a"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app == web", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app in (web, db),tier", True),
        ("app notin (web)", False),
        ("missing notin (web)", True),
        ("example.org/zone in (a)", True),
        ("tier>1", True),
        ("tier<2", False),
        ("app>1", False),
        ("app=web,tier=3", False),
        ("app=", False),
    ],
)
def test_labels(selector: str, expected: bool) -> None:
    assert labels_matching(selector)(LABELS) is expected


@pytest.mark.parametrize("selector", ["app in web", "=x", "a b", "app in (a", "-x=1"])
def test_broken_label_selectors(selector: str) -> None:
    with pytest.raises(BadRequest):
        labels_matching(selector)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=n1,status.phase=Running", False),
        ("spec.hostNetwork=false", True),
        ("status.podIP=", True),
        ("metadata.name==p", True),
    ],
)
def test_fields(fields: str, expected: bool) -> None:
    test = fields_matching(fields, POD)
    assert test is not None
    assert test({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {}}) is expected


def test_fields_that_are_not_indexed() -> None:
    assert fields_matching("", POD) is None
    with pytest.raises(BadRequest, match="not supported"):
        fields_matching("spec.nodeName=n1", NODE)
    with pytest.raises(BadRequest):
        fields_matching("spec.nodeName", POD)
