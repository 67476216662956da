"""Refusals that name a field: every wrong input is answered with where it is and what was expected."""

from __future__ import annotations

import re

from msgspec import ValidationError

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<path>.*?)`)?$", re.DOTALL)
_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a map",
    "array": "a list",
    "null": "nothing",
}


class FieldError(ValueError):
    """A field is wrong; `path` is empty where the document as a whole is."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


def field_error(error: ValidationError, below: str = "") -> FieldError:
    """msgspec's complaint as a path below `below` and a sentence."""
    match = _AT.match(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    return FieldError(joined(below, path), _plain(what))


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
    wrong = re.fullmatch(r"Expected `(.+)`, got `(.+)`", what)
    if wrong is None:
        return what
    wanted = [_TYPE_NAMES.get(name, name) for name in wrong[1].split(" | ") if name != "null"]
    return f"expected {' or '.join(wanted)}, got {_TYPE_NAMES.get(wrong[2], wrong[2])}"
