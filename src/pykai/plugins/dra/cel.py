"""CEL expressions about devices: compiled once, evaluated within a cost limit.

Users write these expressions, and one scheduler evaluates them for all, so no expression may take long. Regular
expressions run in linear time (RE2), texts cannot grow without bound, and an evaluation that visits too many parts of
its expression ends with an error, as on the API server. The CEL library is imported with the first expression: its
grammar alone takes a quarter of a second to load. It knows neither `cel.bind` nor optional values: both are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from pykai.plugins.dra.values import Quantity, Semver, normalized

Fact = tuple[str, str, str]
"""`attributes` or `capacity`, domain, name within the domain."""
MULTIPLE: Fact = ("allowMultipleAllocations", "", "")
"""The fact of a device that several requests may share."""
MAX_COST = 10_000
"""Of one evaluation, some 10 microseconds each: a part of the expression that is visited, or 100 characters or elements
of its value. Selectors of real clusters cost less than 500."""
MAX_LENGTH = 10 * 1024
"""Characters of an expression: the API server's limit."""
MAX_TEXT = 100_000
"""Characters that a function may return."""
_BIND = re.compile(r"\bcel\.bind\s*\(")


class CostExceededError(Exception):
    """An evaluation reached its cost limit. No operand of `||` makes up for that, as for other errors."""


class Evaluation(NamedTuple):
    """The value of an expression for one device, or why there is none, and what finding out cost."""

    value: bool | str
    cost: int


@lru_cache(maxsize=65536)
def evaluate(expression: str, driver: str, facts: frozenset[tuple[Fact, Hashable]]) -> Evaluation:
    """Evaluate an expression for a device; kept, because most devices of a cluster are alike."""
    from celpy import celtypes

    compiled = _compiled(expression)
    if isinstance(compiled, str):
        return Evaluation(compiled, 0)
    cost = [0]
    try:
        result = compiled(cost, {"device": _device(driver, facts)})
    except CostExceededError as error:
        return Evaluation(f"failed: {error}", cost[0])
    except Exception as error:  # noqa: BLE001 - celpy raises anything
        return Evaluation(f"failed: {_reason(error)}", cost[0])
    if not isinstance(result, bool | celtypes.BoolType):
        return Evaluation(f"must be a condition, its value is {result!r}"[:200], cost[0])
    return Evaluation(bool(result), cost[0])


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> Callable[[list[int], Any], Any] | str:
    """A function that evaluates the expression, or why it cannot be compiled."""
    import celpy

    if len(expression) > MAX_LENGTH:
        return f"cannot be compiled: it has {len(expression)} characters, at most {MAX_LENGTH} are allowed"
    environment = celpy.Environment()
    try:
        tree = environment.compile(expand_optionals(expand_bindings(expression)))
    except Exception as error:  # noqa: BLE001 - celpy raises anything
        return f"cannot be compiled: {_reason(error)}"
    program, evaluator = environment.program(tree, functions=_functions()), _evaluator()
    return lambda cost, names: evaluator(tree, program.new_activation(), cost).evaluate(names)


@lru_cache(maxsize=1)
def _evaluator() -> Any:
    """The library's evaluator with a cost limit."""
    from celpy.evaluation import Evaluator

    class BoundedEvaluator(Evaluator):
        def __init__(self, ast: Any, activation: Any, cost: list[int]) -> None:
            super().__init__(ast, activation)
            self.cost = cost

        def sub_evaluator(self, ast: Any) -> BoundedEvaluator:
            return BoundedEvaluator(ast, self.activation, self.cost)

        def visit_children(self, tree: Any) -> list[Any]:
            self.cost[0] += len(tree.children)
            if self.cost[0] > MAX_COST:
                raise CostExceededError(f"it exceeds the cost limit of an evaluation ({MAX_COST})")
            values: list[Any] = super().visit_children(tree)
            self.cost[0] += sum(len(value) // 100 for value in values if isinstance(value, str | bytes | list | dict))
            return values

    return BoundedEvaluator


def _reason(error: Exception) -> str:
    """The first line of what a function or the library says, without its dump of everything it knows."""
    what, *why = error.args or (error,)
    if len(why) == 2 and why[0] is ValueError and why[1]:  # of a function: the library calls all of them overflows
        what = why[1][0]
    text = str(what).split(" (in activation")[0].strip()
    return text.splitlines()[0] if text else type(error).__name__


# ------------------------------------------------------------------------------------------------------------- cel.bind
def expand_bindings(expression: str) -> str:
    """`cel.bind(name, value, body)` written with the macros that the CEL library knows."""
    while (match := _BIND.search(expression)) is not None:
        arguments, end = _arguments(expression, match.end())
        if len(arguments) != 3:
            raise ValueError("cel.bind takes a name, a value and an expression")
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
    raise ValueError("the call of cel.bind is not closed")


# ------------------------------------------------------------------------------------------------------------ optionals
_TOKEN = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\.\s*\?\s*(?P<field>[A-Za-z_]\w*)|(?P<index>\[\s*\?)
    |\boptional\s*\.\s*(?P<made>of|none|ofNonZeroValue)\b|\.\s*(?P<macro>optMap|optFlatMap)\s*\(
    |(?P<open>[(\[{])|(?P<close>[)\]}])""",
    re.VERBOSE,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MACROS = {"optMap": ").optFirst()", "optFlatMap": ").optFlat()"}


def expand_optionals(expression: str) -> str:
    """Optional syntax (`a.?b`, `a[?b]`, `optional.of(a)`, `a.optMap(b, c)`) written as calls of functions."""
    pending: list[str] = []

    def rewritten(match: re.Match[str]) -> str:
        if match["field"]:
            return f'.optField("{match["field"]}")'
        if match["index"]:
            pending.append(")")
            return ".optField("
        if match["made"]:
            return f"optional_{match['made']}"
        if match["macro"]:
            pending.append(_MACROS[match["macro"]])
            return ".optList().map("
        if match["open"]:
            pending.append(_CLOSING[match["open"]])
        elif match["close"] and pending:
            return pending.pop()
        return match[0]

    return _TOKEN.sub(rewritten, expression) if "?" in expression or "opt" in expression else expression


@lru_cache(maxsize=1)
def _optional() -> Any:
    """The type of optional values. A field of one is an optional value again, so it is a map to the library."""
    from celpy import celtypes

    class Optional(celtypes.MapType):
        def __init__(self, *held: Any) -> None:
            super().__init__({})
            self.held = held
            """One value or none."""

        def __getitem__(self, key: Any) -> Any:
            return _entry(self, key)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Optional) and self.held == other.held

    return Optional


def _entry(container: Any, key: Any) -> Any:
    """The entry of a map or list, or of one in an optional value, as an optional value."""
    optional = _optional()
    if isinstance(container, optional):
        return optional(*(value for held in container.held for value in _entry(held, key).held))
    try:
        return optional(container[key])
    except (KeyError, IndexError):
        return optional()


def _value(optional: Any) -> Any:
    if not optional.held:
        raise ValueError("the optional value is absent")
    return optional.held[0]


# --------------------------------------------------------------------------------------------------------------- values
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
        if kind not in maps:
            continue
        inner = maps[kind].setdefault(domain, celtypes.MapType({}))
        inner[celtypes.StringType(name)] = _cel(value)
    fields: dict[Any, Any] = {celtypes.StringType("driver"): celtypes.StringType(driver)}
    fields[celtypes.StringType(MULTIPLE[0])] = celtypes.BoolType((MULTIPLE, True) in facts)
    for kind, domains in maps.items():
        fields[celtypes.StringType(kind)] = ByDomain({celtypes.StringType(k): v for k, v in domains.items()})
    return celtypes.MapType(fields)


def _cel(value: Any) -> Any:
    from celpy import celtypes

    if isinstance(value, bool | celtypes.BoolType):
        return celtypes.BoolType(value)
    if isinstance(value, list):
        return celtypes.ListType([_cel(item) for item in value])
    kinds: dict[type, Any] = {int: celtypes.IntType, float: celtypes.DoubleType, str: celtypes.StringType}
    return next((as_cel(value) for kind, as_cel in kinds.items() if isinstance(value, kind)), value)


# ------------------------------------------------------------------------------------------------------------ functions
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


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    times = str(text).count(str(old)) if limit < 0 else min(str(text).count(str(old)), int(limit))
    _refuse_above(len(text) + times * (len(new) - len(old)))
    return str(text).replace(str(old), str(new), int(limit))


def _join(parts: Iterable[Any], separator: str = "") -> str:
    texts = [str(part) for part in parts]
    _refuse_above(sum(map(len, texts)) + len(separator) * len(texts))
    return str(separator).join(texts)


def _refuse_above(length: int) -> None:
    if length > MAX_TEXT:
        raise CostExceededError(f"a text of {length} characters is too long (at most {MAX_TEXT})")


def _found(text: str, pattern: str) -> str:
    import re2

    try:
        match = re2.search(str(pattern), str(text))
    except re2.error as error:
        raise ValueError(f"{str(pattern)[:100]!r} is not a regular expression") from error
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
    "replace": _replace,
    "split": _split,
    "join": _join,
    "substring": _substring,
    "find": _found,
    "optional_of": lambda value: _optional()(value),
    "optional_none": lambda: _optional()(),
    "optional_ofNonZeroValue": lambda value: _optional()(*([value] if value else [])),
    "optField": _entry,
    "optList": lambda optional: list(optional.held),
    "optFirst": lambda values: _optional()(*values),
    "optFlat": lambda values: values[0] if values else _optional()(),
    "hasValue": lambda optional: bool(optional.held),
    "value": _value,
    "or": lambda optional, other: optional if optional.held else other,
    "orValue": lambda optional, other: optional.held[0] if optional.held else other,
}
"""What Kubernetes adds to CEL: versions, quantities, strings and optional values. Methods get their object first."""


@lru_cache(maxsize=1)
def _functions() -> dict[str, Callable[..., Any]]:
    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: _cel(function(*arguments))

    return {name: wrapped(function) for name, function in FUNCTIONS.items()}
