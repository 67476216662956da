"""Selectors that are read without the CEL library say what the library says, or nothing."""

from __future__ import annotations

from itertools import product

import pytest

from pykai.plugins.dra.plain_selectors import Condition, answer, conditions
from pykai.plugins.dra.selectors import _answer
from pykai.plugins.dra.values import Semver

D = "gpu.example.com"
FACTS = {
    ("attributes", D, "model"): "H100",
    ("attributes", D, "index"): 3,
    ("attributes", D, "healthy"): True,
    ("attributes", D, "driverVersion"): Semver("550.1.0"),
}
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
    found = answer(plain, D, FACTS)
    assert found is None or found is _answer(expression, D, frozenset(FACTS.items()))
