"""Sums of Kubernetes resource lists ({"cpu": "500m", "memory": "2Gi"}), written as the API server writes them.

Exact down to a billionth of a unit, the finest a quantity can be: no sum passes through a float. The text of an amount
depends on the amount and on its family (binary suffixes where a part had one) only, not on the order of the parts, so
the same state always gives the same text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from pykai.objects import quantity

ResourceList = Mapping[str, str | int | float]

_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANOS = 10**9


def total(lists: Iterable[ResourceList | None]) -> dict[str, str]:
    """The sum by resource name, names in order; a resource that some list names stays, even at 0."""
    sums: dict[str, int] = {}
    binary: set[str] = set()
    for resources in lists:
        for name, text in (resources or {}).items():
            amount, is_binary = _nanos(text)
            sums[name] = sums.get(name, 0) + amount
            if is_binary:
                binary.add(name)
    return {name: _text(sums[name], name in binary) for name in sorted(sums)}


def canonical(value: Fraction) -> str:
    """The shortest decimal quantity of an amount; what is finer than a nano unit is rounded up to one."""
    return _text(math.ceil(value * _NANOS), False)


@lru_cache(maxsize=65536)
def _nanos(text: str | int | float) -> tuple[int, bool]:
    """Billionths of a unit, rounded up, and whether the text has a binary suffix."""
    return math.ceil(quantity.parse(text) * _NANOS), str(text).endswith("i")


def _text(nanos: int, binary: bool) -> str:
    """The amount in the largest unit in which it is whole; small amounts are decimal also in the binary family."""
    if binary and nanos % _NANOS == 0 and abs(nanos) >= 1024 * _NANOS:
        return _scaled(nanos // _NANOS, 1024, _BINARY_SUFFIXES)
    return _scaled(nanos, 1000, _DECIMAL_SUFFIXES)


def _scaled(number: int, step: int, suffixes: tuple[str, ...]) -> str:
    if number == 0:
        return "0"
    power = 0
    while number % step == 0 and power < len(suffixes) - 1:
        number, power = number // step, power + 1
    return f"{number}{suffixes[power]}"
