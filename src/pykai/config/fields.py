"""Refusals that name a field: every wrong input is answered with where it is and what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import ValidationError, convert

T = TypeVar("T")
Step = str | int
"""A key of a map, or the number of an item of a list."""
_AT = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*?)`)?$", re.DOTALL)
_STEP = re.compile(r"\.?[^.\[\]]+|\[\d+\]|\[\.\.\.\]")
_SOME_KEY = "[...]"
_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a map",
    "array": "a list",
    "null": "nothing",
}
_BOUNDS = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}


class FieldError(ValueError):
    """A field is wrong; `path` is empty where the document as a whole is."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


def field_error(error: ValidationError, above: str = "") -> FieldError:
    """msgspec's complaint as a path below `above` and a sentence."""
    match = _AT.match(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    return FieldError(joined(above, path), _plain(what))


@contextmanager
def below(place: str) -> Iterator[None]:
    """What is refused inside names its place: a path above the field, or `FILE: `."""
    try:
        yield
    except FieldError as error:
        path = f"{place}{error.path}" if place.endswith(": ") else joined(place, error.path)
        raise FieldError(path.removesuffix(": "), error.message) from error


def converted(document: object, kind: type[T], above: str = "") -> T:
    """The document as a value of its kind; FieldError names what is wrong, its path below `above`."""
    try:
        return convert(document, kind)
    except ValidationError as error:
        raise named(error, document, lambda part: convert(part, kind), above) from error


def named(error: ValidationError, document: Any, read: Callable[[Any], object], above: str = "") -> FieldError:
    """msgspec's complaint about a document, below `above`, with the keys of maps that it leaves out.

    `read` reads a document and complains as it did: asked about one key after the other, it shows which was meant.
    """
    found = field_error(error)
    steps: list[Step] = []
    for step in _STEP.findall(found.path):
        if step != _SOME_KEY:
            steps.append(int(step[1:-1]) if step.startswith("[") else step.removeprefix("."))
            continue
        narrowed = {key: _with_only(document, steps, key) for key in _at(document, steps)}
        key = next((key for key, part in narrowed.items() if _complaint(read, part) == str(error)), "")
        document = narrowed.get(key, document)
        steps.append(key)
    return FieldError(joined(above, _written(steps)), found.message)


def _complaint(read: Callable[[Any], object], document: Any) -> str:
    try:
        read(document)
    except ValidationError as error:
        return str(error)
    return ""


def _at(document: Any, steps: Sequence[Step]) -> Any:
    for step in steps:
        document = document[step]
    return document


def _with_only(part: Any, steps: Sequence[Step], key: str) -> Any:
    """The document with nothing but one key in the map to which the steps lead."""
    if not steps:
        return {key: part[key]}
    step, rest = steps[0], steps[1:]
    if isinstance(part, dict):
        return {**part, step: _with_only(part[step], rest, key)}
    return [_with_only(each, rest, key) if at == step else each for at, each in enumerate(part)]


def _written(steps: Sequence[Step]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def joined(above: str, below: str) -> str:
    """Two parts of a path as one."""
    below = below.removeprefix(".")
    if not above or not below or below.startswith("["):
        return above + below
    return f"{above}.{below}"


def _plain(what: str) -> str:
    """`Expected `int | null`, got `str`` in the words of the file."""
    missing = re.fullmatch(r"Object missing required field `(.+)`", what)
    if missing:
        return f"{missing[1]} is missing"
    unknown = re.fullmatch(r"Object contains unknown field `(.+)`", what)
    if unknown:
        return f"unknown field {unknown[1]!r}"
    if what == "Expected `str`":
        return "a key must be a string"
    bound = re.fullmatch(r"Expected `(.+)` (>=|>|<=|<) (\S+)", what)
    if bound:
        return f"must be {_BOUNDS[bound[2]]} {bound[3]}"
    wrong = re.fullmatch(r"Expected `(.+)`, got `(.+)`", what)
    if wrong is None:
        return what
    wanted = [_TYPE_NAMES.get(name, name) for name in wrong[1].split(" | ") if name != "null"]
    return f"expected {' or '.join(wanted)}, got {_TYPE_NAMES.get(wrong[2], wrong[2])}"
