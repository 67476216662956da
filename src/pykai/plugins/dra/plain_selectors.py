"""Selectors that need no CEL: conditions joined by `&&` that compare the driver or an attribute with a constant.

Most device classes name nothing but their driver. Reading such an expression here saves the CEL library, whose grammar
alone takes a quarter of a second to load. Where the comparison has no plain answer (the attribute is missing, or of
another type) the library decides, and explains: here is no second meaning of CEL.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import NamedTuple

Fact = tuple[str, str, str]
"""`attributes` or `capacity`, domain, name within the domain."""
DRIVER: Fact = ("driver", "", "")
_QUOTED = r"""(?:"[^"\\]*"|'[^'\\]*')"""
_CONDITION = re.compile(
    rf"""\s*device\.(?:(?P<driver>driver)|attributes\s*\[\s*(?P<domain>{_QUOTED})\s*\]\s*\.\s*(?P<name>[A-Za-z_]\w*))
    \s*==\s*(?P<value>{_QUOTED}|true|false|-?\d{{1,18}})\s*(?P<more>&&|$)""",
    re.VERBOSE,
)


class Condition(NamedTuple):
    """A fact of the device, and the value it must have."""

    fact: Fact
    value: str | bool | int


@lru_cache(maxsize=4096)
def conditions(expression: str) -> tuple[Condition, ...] | None:
    """The conditions that an expression joins; None where it is anything else."""
    found, at = [], 0
    while match := _CONDITION.match(expression, at):
        fact = DRIVER if match["driver"] else ("attributes", match["domain"][1:-1], match["name"])
        found.append(Condition(fact, _constant(match["value"])))
        at = match.end()
        if not match["more"]:
            return tuple(found)
    return None


def _constant(text: str) -> str | bool | int:
    if text[0] in "\"'":
        return text[1:-1]
    return text == "true" if text in ("true", "false") else int(text)


def answer(wanted: tuple[Condition, ...], driver: str, facts: Mapping[Fact, Hashable]) -> bool | None:
    """Whether a device meets all conditions; None: it takes CEL to say."""
    unknown = False
    for fact, value in wanted:
        have = driver if fact is DRIVER else facts.get(fact)
        if type(have) is not type(value):
            unknown = True
        elif have != value:
            return False
    return None if unknown else True
