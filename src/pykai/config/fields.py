"""Validation errors that name a field: FieldError carries the path and says what is expected.

`name` to `taints` validate parts that many objects have, as the API server does; each yields (path, message) pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import ValidationError, convert

from pykai.objects.names import is_subdomain
from pykai.objects.units import QuantityError, parse_quantity

T = TypeVar("T")
Step = str | int
"""One step of a path: a key of a map, or an index of a list."""
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
    """A field is invalid; `path` is empty for the document as a whole."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


def field_error(error: ValidationError, above: str = "") -> FieldError:
    """Convert an error of msgspec: its path below `above`, its message in YAML's terms."""
    match = _AT.match(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    return FieldError(joined(above, path), _plain(what))


@contextmanager
def below(place: str) -> Iterator[None]:
    """Prefix the path of a FieldError raised inside with a parent path, or with `FILE: `."""
    try:
        yield
    except FieldError as error:
        path = f"{place}{error.path}" if place.endswith(": ") else joined(place, error.path)
        raise FieldError(path.removesuffix(": "), error.message) from error


def converted(document: object, kind: type[T], above: str = "") -> T:
    """Convert a document to a type; FieldError names the invalid field by its path below `above`."""
    try:
        return convert(document, kind)
    except ValidationError as error:
        raise named(error, document, lambda part: convert(part, kind), above) from error


def named(error: ValidationError, document: Any, read: Callable[[Any], object], above: str = "") -> FieldError:
    """Convert an error of msgspec like `field_error`, and complete the map keys that msgspec writes as `[...]`.

    `read` is the failed conversion. It is repeated on the document reduced to one key after the other: the key whose
    conversion fails with the same error is the one.
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
    """The document reduced to one key in the map at the end of the steps."""
    if not steps:
        return {key: part[key]}
    step, rest = steps[0], steps[1:]
    if isinstance(part, dict):
        return {**part, step: _with_only(part[step], rest, key)}
    return [_with_only(each, rest, key) if at == step else each for at, each in enumerate(part)]


def _written(steps: Sequence[Step]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def joined(above: str, below: str) -> str:
    """Join two parts of a path."""
    below = below.removeprefix(".")
    if not above or not below or below.startswith("["):
        return above + below
    return f"{above}.{below}"


def _plain(what: str) -> str:
    """A message of msgspec, such as `Expected `int | null`, got `str``, with YAML's names of types."""
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


Problem = tuple[str, str]
Problems = Iterator[Problem]

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_TAINT_FIELDS = ("key", "value", "effect", "timeAdded")


def name(text: object, path: str) -> Problems:
    """Validate the name of an object."""
    if not text:
        yield path, "is missing"
    elif not isinstance(text, str):
        yield path, f"expected a string, got {text!r}: put it in quotes"
    elif not is_subdomain(text):
        yield path, f"{text!r} cannot be a name: use lower-case letters, digits, inner dashes and dots"


def texts(found: object, path: str) -> Problems:
    """Validate a map of strings, whose unquoted values YAML may have read as numbers."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if not isinstance(value, str):
            yield f"{path}.{key}", f"expected a string, got {value!r}: put it in quotes"


def labels(found: object, path: str) -> Problems:
    """Validate a map of labels."""
    yield from texts(found, path)
    for key, value in found.items() if isinstance(found, dict) else ():
        if not is_label_name(key):
            yield f"{path}.{key}", "cannot be a label: use letters, digits, - _ . and at most one prefix such as a.b/"
        if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
            what = "is longer than 63 characters" if len(value) > 63 else "use letters, digits and inner - _ ."
            yield f"{path}.{key}", f"{value!r} cannot be the value of a label: {what}"


def is_label_name(key: str) -> bool:
    """Whether the key is a qualified name, as labels, taints and resources have."""
    prefix, slash, own = key.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(own)) and (not slash or is_subdomain(prefix))


def amounts(found: object, path: str) -> Problems:
    """Validate a map of non-negative quantities by resource name."""
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield path, "expected a map of quantities"
        return
    for resource, text in found.items():
        yield from amount(text, f"{path}.{resource}")


def amount(text: object, path: str) -> Problems:
    """Validate a non-negative quantity."""
    try:
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise QuantityError(f"expected a quantity such as 500m or 16Gi, got {text!r}")
        if parse_quantity(text) < 0:
            raise QuantityError(f"{text} is negative")
    except QuantityError as error:
        yield path, str(error)


def taints(found: list[dict[str, Any]], path: str) -> Problems:
    """Validate the taints of a node."""
    for number, taint in enumerate(found):
        here = f"{path}[{number}]"
        yield from ((f"{here}.{field}", "unknown field") for field in taint if field not in _TAINT_FIELDS)
        if not isinstance(key := taint.get("key"), str) or not is_label_name(key):
            yield f"{here}.key", "is missing" if not key else f"{key!r} cannot be the name of a taint"
        if (effect := taint.get("effect")) not in TAINT_EFFECTS:
            yield f"{here}.effect", f"expected one of {', '.join(TAINT_EFFECTS)}, got {effect!r}"
