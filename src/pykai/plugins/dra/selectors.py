"""CEL selectors of device classes and requests: does this expression pick this device?

An evaluation costs a fraction of a millisecond and a cluster has tens of thousands of devices, most of them alike. So
answers are kept by the facts that an expression reads: `read_facts` finds those in the text, or says that it may read
them all. Most device classes name nothing but their driver: conditions joined by `&&` that compare the driver or an
attribute with a constant need no CEL. Where such a comparison has no plain answer (the attribute is missing, or of
another type) CEL decides, and explains: there is no second meaning of CEL.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import NamedTuple

from pykai.plugins.dra.cel import Evaluation, Fact, evaluate

Facts = Mapping[Fact, Hashable]
"""Values are bool, int, str, Semver or Quantity."""
MAX_EXPRESSION_COST = 1_000_000
"""Of all evaluations of one expression in a cycle: 100 of the most expensive ones, thousands of ordinary ones."""
DRIVER: Fact = ("driver", "", "")

_QUOTED = r"""(?:"[^"\\]*"|'[^'\\]*')"""
_ACCESS = re.compile(
    rf"(?:(?P<inside>{_QUOTED})\s+in\s+)?device\.(?P<kind>attributes|capacity)\s*\[\s*(?P<domain>{_QUOTED})\s*\]"
    rf"(?:\s*\.\s*(?P<field>\w+)\b(?!\s*\()|\s*\[\s*(?P<index>{_QUOTED})\s*\])?"
)
_CONDITION = re.compile(
    rf"""\s*device\.(?:(?P<driver>driver)|attributes\s*\[\s*(?P<domain>{_QUOTED})\s*\]\s*\.\s*(?P<name>[A-Za-z_]\w*))
    \s*==\s*(?P<value>{_QUOTED}|true|false|-?\d{{1,18}})\s*(?P<more>&&|$)""",
    re.VERBOSE,
)
_DEVICE = re.compile(r"\bdevice\b")
_DRIVER = re.compile(r"\bdevice\.driver\b")


class SelectorError(ValueError):
    """A selector cannot be compiled, fails on a device, or exceeds its cost limit."""


class Selectors:
    """Evaluates the selectors of one cycle. The same cycle always gives the same answers: what an evaluation cost
    counts whether or not an earlier cycle has paid for it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, frozenset[tuple[Fact, Hashable]]], Evaluation] = {}
        self._spent: dict[str, int] = {}

    def selects(self, expression: str, driver: str, facts: Facts) -> bool:
        """Whether the expression is true for a device of the driver with these facts."""
        plain = conditions(expression)
        known = None if plain is None else plain_answer(plain, driver, facts)
        if known is not None:
            return known
        read = read_facts(expression)
        seen = facts.items() if read is None else [(fact, facts[fact]) for fact in read if fact in facts]
        key = (expression, driver, frozenset(seen))
        found = self._known.get(key)
        if found is None:
            spent = self._spent.get(expression, 0)
            if spent >= MAX_EXPRESSION_COST:
                raise SelectorError(f"selector {expression!r} exceeds the cost limit of a cycle")
            found = self._known[key] = evaluate(*key)
            self._spent[expression] = spent + found.cost
        if isinstance(found.value, str):
            raise SelectorError(f"selector {expression!r} {found.value}")
        return found.value


@lru_cache(maxsize=4096)
def read_facts(expression: str) -> tuple[Fact, ...] | None:
    """The facts of a device that an expression names; None where it may look at any."""
    found, complete = set(), len(_DRIVER.findall(expression))
    for match in _ACCESS.finditer(expression):
        name = match["field"] or match["index"] or match["inside"]
        if name is None or (match["inside"] and (match["field"] or match["index"])):
            return None
        found.add((match["kind"], match["domain"][1:-1], name.strip("\"'")))
        complete += 1
    return tuple(sorted(found)) if complete == len(_DEVICE.findall(expression)) else None


# ----------------------------------------------------------------------------------------------------- plain conditions
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


@lru_cache(maxsize=4096)
def answer_for_driver(expression: str, driver: str) -> bool | None:
    """Whether an expression that names nothing but the driver is true for its devices; None: it reads more."""
    plain = conditions(expression)
    if plain is None or any(fact is not DRIVER for fact, _ in plain):
        return None
    return plain_answer(plain, driver, {})


def _constant(text: str) -> str | bool | int:
    if text[0] in "\"'":
        return text[1:-1]
    return text == "true" if text in ("true", "false") else int(text)


def plain_answer(wanted: tuple[Condition, ...], driver: str, facts: Facts) -> bool | None:
    """Whether a device meets all conditions; None: it takes CEL to say."""
    unknown = False
    for fact, value in wanted:
        have = driver if fact is DRIVER else facts.get(fact)
        if type(have) is not type(value):
            unknown = True
        elif have != value:
            return False
    return None if unknown else True
