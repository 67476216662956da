from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest

from pykai.objects.units import canonical, sum_resources


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["500m", "500m"], "1"),
        (["400m"], "400m"),
        (["1G", "500M"], "1500M"),
        (["2Gi", "2Gi"], "4Gi"),
        (["512Mi", "512Mi"], "1Gi"),
        (["1Gi", "1"], "1073741825"),
        (["1000"], "1k"),
        (["1000Ki"], "1000Ki"),
        (["0.5Ki"], "512"),
        (["0.5Ki", "488"], "1k"),
        (["0"], "0"),
        (["0.1n"], "1n"),
        ([3, "2"], "5"),
        (["1e3"], "1k"),
        (["16E", "16E"], "32E"),
    ],
)
def test_sums_are_written_as_the_api_server_writes_them(parts: list[str | int], text: str) -> None:
    assert sum_resources({"x": part} for part in parts) == {"x": text}


def test_the_order_of_the_parts_does_not_matter() -> None:
    parts = [{"memory": "1Gi", "cpu": "1"}, {"memory": "1G"}, {"memory": "0"}, None]
    assert {tuple(sum_resources(order).items()) for order in permutations(parts)} == {
        (("cpu", "1"), ("memory", "2073741824"))
    }


def test_an_amount_without_end_is_rounded_up_to_a_billionth() -> None:
    assert canonical(Fraction(1, 3)) == "333333334n"


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'lots' is not a quantity"):
        sum_resources([{"cpu": "lots"}])
