"""CEL selectors: what Kubernetes documents for devices, and which facts an expression reads."""

from __future__ import annotations

import time
from collections.abc import Hashable
from itertools import pairwise, product

import pytest

from pykai.plugins.dra import selectors
from pykai.plugins.dra.cel import MAX_COST, Fact, evaluate
from pykai.plugins.dra.selectors import Condition, SelectorError, Selectors, conditions, plain_answer, read_facts
from pykai.plugins.dra.values import Quantity, Semver

D = "gpu.example.com"
FACTS: dict[Fact, Hashable] = {
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
    (f'device.attributes["{D}"].?model.orValue("none") == "H100"', True),
    (f'device.attributes["{D}"].?missing.orValue("a.?b[?c]") == "a.?b[?c]"', True),
    (f'device.attributes[?"{D}"].?index.hasValue() && !device.attributes[?"nobody.org"].?rack.hasValue()', True),
    (f'device.attributes[?"{D}"].index.orValue(0) == 3 && device.attributes[?"{D}"]["missing"].orValue(7) == 7', True),
    (f'device.capacity["{D}"].?memory.value().isGreaterThan(quantity("1Gi"))', True),
    (f'device.attributes["{D}"].?missing.or(device.attributes["{D}"].?index).value() == 3', True),
    (f'device.attributes["{D}"].?index.optMap(i, i * 2 > (5)).orValue(false)', True),
    (f'device.attributes["{D}"].?index.optFlatMap(i, optional.none()).hasValue()', False),
    ("optional.of(1) == optional.ofNonZeroValue(1) && optional.ofNonZeroValue(0) == optional.none()", True),
    ("[1, 2][?1].value() == 2 && ![1, 2][?2].hasValue() && (true ? [1] : [2]) == [1]", True),
]


@pytest.mark.parametrize(("expression", "selected"), CASES)
def test_expressions(expression: str, selected: bool) -> None:
    assert Selectors().selects(expression, D, FACTS) is selected


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
        (f'device.attributes["{D}"].?missing.value() == 1', "failed: the optional value is absent"),
        (f'device.attributes["{D}"].?model', "must be a condition"),
        ("{?'a': 1} == {}", "cannot be compiled"),
    ],
)
def test_bad_expressions_say_what_is_wrong(expression: str, complaint: str) -> None:
    with pytest.raises(SelectorError, match=complaint):
        Selectors().selects(expression, D, FACTS)


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
        ('device.attributes["a"].?b.orValue(1) == 1', None),
        ('device.attributes[?"a"].?b.orValue(1) == 1', None),
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


# ---------------------------------------------------------------------------------------------------------- cost limits
TWENTY = str(list(range(20)))
DOUBLED = "'ab'" + "".join(f".replace('{letter}', 'abab')" for letter in "ab" * 20)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        (f"{TWENTY}.all(a, {TWENTY}.all(b, {TWENTY}.all(c, a + b + c >= 0)))", "exceeds the cost limit"),
        (f"{DOUBLED}.size() > 0", "too long"),
        (f"{TWENTY}.map(a, 'x'.replace('', 'y')).join('{'z' * 9000}') == ''", "too long"),
        ("cel.bind(a, '" + "x" * 5000 + f"', {TWENTY}.all(i, {TWENTY}.all(j, a + a != '')))", "exceeds the cost limit"),
        (" || ".join(["device.driver == 'x'"] * 1000), "at most 10240 are allowed"),
    ],
    ids=["nested loops", "doubled text", "long separator", "long texts in loops", "long expression"],
)
def test_an_expensive_expression_is_a_reason_not_a_stall(expression: str, complaint: str) -> None:
    began = time.process_time()
    with pytest.raises(SelectorError, match=complaint):
        Selectors().selects(expression, D, FACTS)
    assert time.process_time() - began < 1.5


@pytest.mark.parametrize("call", ["find('(a+)+$') == ''", "matches('^(a+)+$') == false"])
def test_regular_expressions_take_linear_time(call: str) -> None:
    began = time.process_time()
    assert Selectors().selects(f"'{'a' * 5000}!'.{call}", D, FACTS)
    assert time.process_time() - began < 1.5


def test_a_pattern_outside_re2_is_refused() -> None:
    with pytest.raises(SelectorError, match="is not a regular expression"):
        Selectors().selects(r"'aa'.find('(a)\\1') == 'aa'", D, FACTS)


def test_ordinary_selectors_are_far_from_the_limit() -> None:
    assert max(evaluate(expression, D, frozenset(FACTS.items())).cost for expression, _ in CASES) < MAX_COST / 20


def test_an_expression_that_is_dear_on_many_devices_ends_with_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "MAX_EXPRESSION_COST", 300)
    expression, cycle = f'device.attributes["{D}"].index * 2 >= 0', Selectors()
    devices: list[dict[Fact, Hashable]] = [{("attributes", D, "index"): number} for number in range(100)]
    cost = evaluate(expression, D, frozenset(devices[0].items())).cost
    affordable = -(-300 // cost)
    assert 1 < affordable < 100
    assert all(cycle.selects(expression, D, facts) for facts in devices[:affordable])
    for facts in devices[affordable:]:
        with pytest.raises(SelectorError, match="cost limit of a cycle"):
            cycle.selects(expression, D, facts)
    assert cycle.selects(expression, D, devices[0])  # what is known costs nothing more
    assert Selectors().selects(expression, D, devices[99])  # the next cycle begins anew


# ----------------------------------------------------------------------------------------------------- plain conditions
MODEL = ("attributes", D, "model")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("device.driver == 'd'", (Condition(("driver", "", ""), "d"),)),
        (f'  device.attributes["{D}"].model=="a && b"  ', (Condition(MODEL, "a && b"),)),
        (f"device.attributes['{D}'].model == -7", (Condition(MODEL, -7),)),
        (f"device.attributes['{D}'].model == 'x' || true", None),
        (f"device.attributes['{D}'].model != 'x'", None),
        (f"device.attributes['{D}'].model == 'x' &&", None),
        (f"device.attributes['{D}'].model == 1.5", None),
        (f"device.attributes['{D}'].model == r'x'", None),
        (f"device.attributes['{D}'].model() == 'x'", None),
        ("'d' == device.driver", None),
        ("", None),
    ],
)
def test_only_joined_comparisons_with_constants_are_plain(
    expression: str, expected: tuple[Condition, ...] | None
) -> None:
    assert conditions(expression) == expected


PARTS = [
    f"device.driver == '{D}'",
    'device.driver == "other"',
    f"device.attributes['{D}'].model == 'H100'",
    f"device.attributes['{D}'].model == 7",
    f"device.attributes['{D}'].index == 3",
    f"device.attributes['{D}'].index == 4",
    f"device.attributes['{D}'].healthy == true",
    f"device.attributes['{D}'].healthy == false",
    f"device.attributes['{D}'].missing == 'x'",
    f"device.attributes['{D}'].driverVersion == '550.1.0'",
    "device.attributes['nobody.org'].rack == 'r1'",
]


@pytest.mark.parametrize("pair", list(product(PARTS, PARTS)), ids=" && ".join)
def test_an_answer_is_that_of_the_library(pair: tuple[str, str]) -> None:
    expression = " && ".join(pair)
    plain = conditions(expression)
    assert plain is not None
    found = plain_answer(plain, D, FACTS)
    assert found is None or found is evaluate(expression, D, frozenset(FACTS.items())).value
