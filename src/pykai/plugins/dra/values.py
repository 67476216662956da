"""Versions and quantities as CEL selectors see them: the two attribute types that CEL itself does not know."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache, total_ordering

from pykai.objects import units

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
Rank = tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]


@total_ordering
class Semver:
    """A semantic version, ordered by precedence: a pre-release comes before its release, build data does not count."""

    def __init__(self, text: str) -> None:
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a semantic version (expected something like 1.2.3)")
        self.text = text
        major, minor, patch, pre = match.groups()
        self.parts = (int(major), int(minor), int(patch))
        self.rank: Rank = (self.parts, pre is None, tuple(_identifier(p) for p in pre.split(".")) if pre else ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.rank == other.rank

    def __lt__(self, other: Semver) -> bool:
        return self.rank < other.rank

    def __hash__(self) -> int:
        return hash(self.rank)


def normalized(text: str) -> str:
    """A version written loosely (`v1.02`) in the strict form (`1.2.0`)."""
    plain = text.removeprefix("v")
    numbers = re.split("[-+]", plain, maxsplit=1)[0]
    parts = [str(int(part)) if part.isdigit() else part for part in numbers.split(".")]
    return ".".join([*parts, "0", "0"][: max(3, len(parts))]) + plain[len(numbers) :]


def _identifier(text: str) -> tuple[bool, int, str]:
    """Numbers compare as numbers and come before words."""
    return (False, int(text), "") if text.isdigit() else (True, 0, text)


@lru_cache(maxsize=4096)
def quantity(amount: str | int | float) -> Quantity:
    """Kept: thousands of devices have the same few capacities."""
    return Quantity(amount)


@total_ordering
class Quantity:
    """A Kubernetes quantity, exact."""

    def __init__(self, value: str | int | float | Fraction) -> None:
        self.value = value if isinstance(value, Fraction) else units.parse_quantity(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __lt__(self, other: Quantity) -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def plus(self, other: Quantity | int) -> Quantity:
        return Quantity(self.value + (other.value if isinstance(other, Quantity) else Fraction(int(other))))

    def minus(self, other: Quantity | int) -> Quantity:
        return Quantity(self.value - (other.value if isinstance(other, Quantity) else Fraction(int(other))))
