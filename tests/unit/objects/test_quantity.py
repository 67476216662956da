"""Quantities as floats: the short cut for whole numbers gives what exact arithmetic gives."""

from __future__ import annotations

import pytest

from pykai.objects.units import QuantityError, amount, milli, parse_quantity

NUMBERS = ["0", "1", "7", "999", "1023", "123456789012345678", "0.5", "1.25", ".3", "-2", "1234567890123456789012"]
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", NUMBERS)
def test_floats_are_those_of_the_exact_amount(number: str, suffix: str) -> None:
    exact = parse_quantity(number + suffix)
    assert amount(number + suffix) == float(exact)
    assert milli(number + suffix) == float(-((-exact * 1000) // 1))


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1mi", "one", "1e9999", "--1", "1Gim"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    for read in (amount, milli, parse_quantity):
        with pytest.raises(QuantityError):
            read(text)
