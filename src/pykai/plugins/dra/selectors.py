"""CEL selectors of device classes and requests: does this expression pick this device?

An evaluation costs a fraction of a millisecond and a cluster has tens of thousands of devices, most of them alike.
So an expression is compiled once, and its answers are kept by the facts that it reads: `read_facts` finds those in the
text, or says that it may read them all. The CEL library is imported when the first selector turns up that is more than
a few comparisons (`plain_selectors`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any

from pykai.plugins.dra.functions import FUNCTIONS
from pykai.plugins.dra.plain_selectors import Fact, conditions
from pykai.plugins.dra.plain_selectors import answer as plain_answer

Facts = Mapping[Fact, Hashable]
"""Values are bool, int, str, Semver or Quantity."""

_QUOTED = r"""(?:"[^"\\]*"|'[^'\\]*')"""
_ACCESS = re.compile(
    rf"(?:(?P<inside>{_QUOTED})\s+in\s+)?device\.(?P<kind>attributes|capacity)\s*\[\s*(?P<domain>{_QUOTED})\s*\]"
    rf"(?:\s*\.\s*(?P<field>\w+)\b(?!\s*\()|\s*\[\s*(?P<index>{_QUOTED})\s*\])?"
)
_DEVICE = re.compile(r"\bdevice\b")
_DRIVER = re.compile(r"\bdevice\.driver\b")
_BIND = re.compile(r"\bcel\.bind\s*\(")


class SelectorError(ValueError):
    """A selector cannot be compiled, or fails on a device."""


def selects(expression: str, driver: str, facts: Facts) -> bool:
    """Whether the expression is true for a device of the driver with these facts."""
    plain = conditions(expression)
    known = None if plain is None else plain_answer(plain, driver, facts)
    if known is not None:
        return known
    read = read_facts(expression)
    seen = facts.items() if read is None else [(fact, facts[fact]) for fact in read if fact in facts]
    answer = _answer(expression, driver, frozenset(seen))
    if isinstance(answer, str):
        raise SelectorError(f"selector {expression!r} {answer}")
    return answer


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


@lru_cache(maxsize=65536)
def _answer(expression: str, driver: str, facts: frozenset[tuple[Fact, Hashable]]) -> bool | str:
    """The value of the expression, or why it has none; kept either way."""
    from celpy import celtypes

    program = _program(expression)
    if isinstance(program, str):
        return program
    try:
        result = program.evaluate({"device": _device(driver, facts)})
    except Exception as error:
        return f"failed: {_reason(error)}"
    if not isinstance(result, bool | celtypes.BoolType):
        return f"must be a condition, its value is {result!r}"
    return bool(result)


@lru_cache(maxsize=4096)
def _program(expression: str) -> Any:
    """The compiled expression, or why it cannot be compiled."""
    import celpy

    environment = celpy.Environment()
    try:
        return environment.program(environment.compile(expand_bindings(expression)), functions=_functions())
    except Exception as error:
        return f"cannot be compiled: {_reason(error)}"


def _reason(error: Exception) -> str:
    """The first line of what the library says, without its dump of everything it knows."""
    return str(error.args[0] if error.args else error).split(" (in activation")[0].strip().splitlines()[0]


def expand_bindings(expression: str) -> str:
    """`cel.bind(name, value, body)` written with the macros that the CEL library knows."""
    while (match := _BIND.search(expression)) is not None:
        arguments, end = _arguments(expression, match.end())
        if len(arguments) != 3:
            raise SelectorError("cel.bind takes a name, a value and an expression")
        name, value, body = arguments
        expression = f"{expression[: match.start()]}[{value}].map({name.strip()}, {body})[0]{expression[end:]}"
    return expression


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose opening parenthesis ends before `start`, and where the call ends."""
    found: list[str] = []
    depth, quote, begin = 0, "", start
    for at in range(start, len(text)):
        char = text[at]
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char == ")":
            return [*found, text[begin:at]], at + 1
        elif char == "," and not depth:
            found.append(text[begin:at])
            begin = at + 1
    raise SelectorError("the call of cel.bind is not closed")


def _device(driver: str, facts: frozenset[tuple[Fact, Hashable]]) -> Any:
    """The variable `device` as Kubernetes gives it: facts by domain and name, an unknown domain being empty."""
    from celpy import celtypes

    class ByDomain(celtypes.MapType):
        def __getitem__(self, domain: Any) -> Any:
            try:
                return super().__getitem__(domain)
            except KeyError:
                return celtypes.MapType({})

    maps: dict[str, dict[str, Any]] = {"attributes": {}, "capacity": {}}
    for (kind, domain, name), value in facts:
        inner = maps[kind].setdefault(domain, celtypes.MapType({}))
        inner[celtypes.StringType(name)] = _cel(value)
    fields: dict[Any, Any] = {celtypes.StringType("driver"): celtypes.StringType(driver)}
    for kind, domains in maps.items():
        fields[celtypes.StringType(kind)] = ByDomain({celtypes.StringType(k): v for k, v in domains.items()})
    return celtypes.MapType(fields)


def _cel(value: Any) -> Any:
    from celpy import celtypes

    if isinstance(value, bool):
        return celtypes.BoolType(value)
    if isinstance(value, list):
        return celtypes.ListType([_cel(item) for item in value])
    kinds: dict[type, Any] = {int: celtypes.IntType, float: celtypes.DoubleType, str: celtypes.StringType}
    return next((as_cel(value) for kind, as_cel in kinds.items() if isinstance(value, kind)), value)


@lru_cache(maxsize=1)
def _functions() -> dict[str, Callable[..., Any]]:
    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: _cel(function(*arguments))

    return {name: wrapped(function) for name, function in FUNCTIONS.items()}
