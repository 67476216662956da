"""What Kubernetes adds to CEL: versions, quantities and strings. Methods get their object first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pykai.plugins.dra.values import Quantity, Semver, normalized


def _semver(text: Any, lenient: Any = False) -> Semver:
    return Semver(normalized(str(text)) if lenient else str(text))


def _reads(kind: Callable[..., Any]) -> Callable[..., bool]:
    """Whether a text is a value of a kind."""

    def readable(*arguments: Any) -> bool:
        try:
            kind(*arguments)
        except ValueError:
            return False
        return True

    return readable


def _quantity(text: Any) -> Quantity:
    return Quantity(str(text))


def _whole(amount: Quantity) -> int:
    if amount.value.denominator != 1:
        raise ValueError("the quantity is not a whole number")
    return int(amount.value)


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else int(end)
    if not 0 <= start <= last <= len(text):
        raise ValueError(f"substring {start} to {last} of a text of {len(text)} characters")
    return text[int(start) : last]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        return list(text)
    return str(text).split(str(separator), -1 if limit < 0 else int(limit) - 1)


def _found(text: str, pattern: str) -> str:
    match = re.search(str(pattern), str(text))
    return match[0] if match else ""


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "semver": _semver,
    "isSemver": _reads(_semver),
    "major": lambda version: version.parts[0],
    "minor": lambda version: version.parts[1],
    "patch": lambda version: version.parts[2],
    "quantity": _quantity,
    "isQuantity": _reads(_quantity),
    "add": lambda a, b: a.plus(b),
    "sub": lambda a, b: a.minus(b),
    "sign": lambda amount: (amount.value > 0) - (amount.value < 0),
    "isInteger": lambda amount: amount.value.denominator == 1,
    "asInteger": _whole,
    "asApproximateFloat": lambda amount: float(amount.value),
    "compareTo": lambda a, b: (a > b) - (a < b),
    "isGreaterThan": lambda a, b: a > b,
    "isLessThan": lambda a, b: a < b,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "charAt": lambda text, at: _substring(text, at, min(at + 1, len(text))),
    "indexOf": lambda text, part, start=0: str(text).find(str(part), int(start)),
    "lastIndexOf": lambda text, part: str(text).rfind(str(part)),
    "replace": lambda text, old, new, limit=-1: str(text).replace(str(old), str(new), int(limit)),
    "split": _split,
    "join": lambda parts, separator="": str(separator).join(str(part) for part in parts),
    "substring": _substring,
    "find": _found,
}
