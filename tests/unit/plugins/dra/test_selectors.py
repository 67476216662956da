"""CEL selectors: what Kubernetes documents for devices, and which facts an expression reads."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pykai.plugins.dra.selectors import SelectorError, read_facts, selects
from pykai.plugins.dra.values import Quantity, Semver

D = "gpu.example.com"
FACTS = {
    ("attributes", D, "model"): "H100",
    ("attributes", D, "index"): 3,
    ("attributes", D, "healthy"): True,
    ("attributes", D, "driverVersion"): Semver("550.1.0"),
    ("attributes", "other.org", "rack"): "r1",
    ("capacity", D, "memory"): Quantity("80Gi"),
}

CASES = [
    (f'device.driver == "{D}"', True),
    (f"device.driver == '{D}' && device.attributes['{D}'].model == 'A100'", False),
    (f'device.attributes["{D}"].index >= 3', True),
    (f'device.attributes["{D}"]["index"] in [1, 2]', False),
    (f'!device.attributes["{D}"].healthy', False),
    (f'device.attributes["{D}"].model.matches("^H[0-9]+$")', True),
    (f'device.attributes["{D}"].model.lowerAscii() == "h100"', True),
    ('device.attributes["other.org"].rack == "r1"', True),
    ('has(device.attributes["nobody.org"].rack)', False),
    (f'"model" in device.attributes["{D}"]', True),
    (f'device.capacity["{D}"].memory.compareTo(quantity("40Gi")) >= 0', True),
    (f'device.capacity["{D}"].memory.isLessThan(quantity("85899345920"))', False),
    (f'device.capacity["{D}"].memory == quantity("81920Mi")', True),
    (f'device.attributes["{D}"].driverVersion.isGreaterThan(semver("550.0.9"))', True),
    (f'device.attributes["{D}"].driverVersion.compareTo(semver("551.0.0-rc.1")) < 0', True),
    (f'device.attributes["{D}"].driverVersion.major() == 550', True),
    (f'device.attributes["{D}"].driverVersion.isGreaterThan(semver("v550.01", true))', False),
    ('semver("v1.02-rc.1+b", true) == semver("1.2.0-rc.1") && !isSemver("v1.2") && isSemver("v1", true)', True),
    (f'device.capacity["{D}"].memory.asApproximateFloat() > 8.5e10', True),
    (f'device.capacity["{D}"].memory.asInteger() == 85899345920 && isQuantity("1.5Gi") && !isQuantity("x")', True),
    (f'device.attributes["{D}"].model.substring(1) == "100" && "H100".charAt(0) == "H" && "a".charAt(1) == ""', True),
    ('"a,b,c".split(",") == ["a", "b", "c"] && "a,b,c".split(",", 2).join("+") == "a+b,c"', True),
    ('"banana".indexOf("an") == 1 && "banana".indexOf("an", 2) == 3 && "banana".lastIndexOf("x") == -1', True),
    ('"banana".replace("an", "o", 1) == "boana" && "gpu-17".find("[0-9]+") == "17"', True),
    (f'cel.bind(d, device.attributes["{D}"], d.index == 3 && d.model != "a, b)")', True),
    (f'device.attributes["{D}"].exists(name, name == "healthy")', True),
    (f'device.attributes["{D}"].missing == 1 || device.attributes["{D}"].index == 3', True),
]


@pytest.mark.parametrize(("expression", "selected"), CASES)
def test_expressions(expression: str, selected: bool) -> None:
    assert selects(expression, D, FACTS) is selected


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("device.driver ==", "cannot be compiled"),
        (f'device.attributes["{D}"].missing == 1', "failed: no such member"),
        (f'device.attributes["{D}"].index', "must be a condition"),
        ("cel.bind(x, 1)", "cel.bind takes a name"),
        ('quantity("1.5").asInteger() == 1', "failed"),
        ('"abc".substring(2, 1) == ""', "failed"),
        ("unknown == 1", "undeclared reference to 'unknown'$"),
    ],
)
def test_bad_expressions_say_what_is_wrong(expression: str, complaint: str) -> None:
    with pytest.raises(SelectorError, match=complaint):
        selects(expression, D, FACTS)


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        (f'device.driver == "{D}"', ()),
        ('device.attributes["a"].b == device.capacity["c"].d', (("attributes", "a", "b"), ("capacity", "c", "d"))),
        ('"b" in device.attributes["a"]', (("attributes", "a", "b"),)),
        ('device.attributes["a"].b.size() > 1', (("attributes", "a", "b"),)),
        ('device.attributes["a"].size() > 1', None),
        ('device.attributes.exists(d, d == "a")', None),
        ('cel.bind(d, device.attributes["a"], d.b == 1)', None),
        ('device["driver"] == "x"', None),
    ],
)
def test_facts_an_expression_reads(expression: str, read: object) -> None:
    assert read_facts(expression) == read


def test_versions_are_ordered_by_precedence() -> None:
    ascending = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1", "1.10.0"]
    assert all(Semver(low) < Semver(high) for low, high in pairwise(ascending))
    assert Semver("1.0.0+one") == Semver("1.0.0+two")
    with pytest.raises(ValueError, match="semantic version"):
        Semver("1.0")
