"""Kubernetes quantities ("500m", "16Gi", "2e3") as exact rational amounts.

`parse` is exact (Fraction) and strict; `amount` is the float most callers want and remembers what it has seen:
a cluster has thousands of objects and a few dozen distinct quantities.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_NUMBER = r"[+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})"
_FORM = re.compile(rf"({_NUMBER})(?:[eE]([+-]?[0-9]{{1,3}})|([numkMGTPE]|[KMGTPE]i)?)")
_SCALE: dict[str | None, Fraction] = {
    None: Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    **{s: Fraction(10 ** (6 + 3 * i)) for i, s in enumerate("MGTPE")},
    **{s + "i": Fraction(1024 ** (1 + i)) for i, s in enumerate("KMGTPE")},
}

_WHOLE = re.compile(r"([0-9]{1,18})(m|[kMGTPE]|[KMGTPE]i)?")
_THOUSANDTHS = {suffix: int(scale * 1000) for suffix, scale in _SCALE.items() if suffix not in ("n", "u")}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


def parse(text: str | int | float) -> Fraction:
    """The exact amount in base units (cores, bytes, devices); refuses what the API server would refuse."""
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise QuantityError(
            f"{text!r} is not a quantity (expected a number with an optional suffix, such as 500m or 16Gi)"
        )
    number, exponent, suffix = match.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _SCALE[suffix]
    return Fraction(number) * scale


def _thousandths(text: str | int | float) -> int | None:
    """A whole number of thousandths, exact, for the way nearly all quantities are written; None: ask `parse`.

    Where every pod has a request of its own, a rational number for each takes longer than anything else about it.
    """
    match = _WHOLE.fullmatch(str(text))
    return None if match is None else int(match[1]) * _THOUSANDTHS[match[2]]


@lru_cache(maxsize=65536)
def amount(text: str | int | float) -> float:
    """The amount in base units as a float."""
    exact = _thousandths(text)
    return float(parse(text)) if exact is None else exact / 1000


@lru_cache(maxsize=65536)
def milli(text: str | int | float) -> float:
    """The amount in thousandths, rounded up to a whole one, as the API server does."""
    exact = _thousandths(text)
    return float(-((-parse(text) * 1000) // 1)) if exact is None else float(exact)


def render(value: float) -> str:
    """A quantity for an amount: plain where it is whole, milli where it is not."""
    if value == int(value):
        return str(int(value))
    return f"{round(value * 1000)}m"
