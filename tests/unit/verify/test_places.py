"""The judge reads taints and node affinity as Kubernetes does."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.model.plan import Bind, Plan
from pykai.verify.judge import verify
from tests import builders

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
LABELS = {"rack": "r1", "slots": "8", "name": "x8"}


def accepted(node: dict[str, Any], spec: dict[str, Any]) -> bool:
    """Whether the judge accepts a bind of a pod with this spec to the node."""
    objects = [node, builders.queue(), builders.pod_group("g"), builders.pod("p", "g", requests={"cpu": 1}, spec=spec)]
    plan = Plan((Bind(("ns", "p"), "n", "Regular", devices=0, portion=0.0, gpu_groups=()),))
    rules = {violation.rule for violation in verify(builders.snapshot(objects), plan)}
    assert rules <= {"a node may have the pod"}
    return not rules


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"key": "team", "operator": "Equal", "value": "a"}, True),
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], holds: bool) -> None:
    assert accepted(builders.node("n", taints=[TAINT]), {"tolerations": [toleration]}) is holds


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "rack", "operator": "In", "values": ["r1", "r2"]}, True),
        ({"key": "rack", "operator": "NotIn", "values": ["r1"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["r1"]}, True),
        ({"key": "rack", "operator": "Exists"}, True),
        ({"key": "rack", "operator": "DoesNotExist"}, False),
        ({"key": "slots", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "slots", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "name", "operator": "Gt", "values": ["7"]}, False),
        ({"key": "none", "operator": "Gt", "values": ["7"]}, False),
        ({"key": "slots", "operator": "Near", "values": ["7"]}, False),
    ],
)
def test_expressions_of_required_node_affinity(expression: dict[str, Any], holds: bool) -> None:
    assert accepted(builders.node("n", labels=LABELS), affinity({"matchExpressions": [expression]})) is holds


@pytest.mark.parametrize(
    ("terms", "holds"),
    [
        ([{}], False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}], False),
        ([{}, {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}], True),
    ],
)
def test_terms_of_required_node_affinity(terms: list[dict[str, Any]], holds: bool) -> None:
    assert accepted(builders.node("n", labels=LABELS), affinity(*terms)) is holds


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}
