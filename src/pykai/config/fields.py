"""Validation errors that name a field: FieldError carries the path and says what is expected.

`name` to `taints` validate parts that many objects have, as the API server does; each yields (path, message) pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, TypeVar

from msgspec import ValidationError, convert

from pykai.objects.names import is_subdomain
from pykai.objects.units import QuantityError, parse_quantity

T = TypeVar("T")
Step = str | int
"""One step of a path: a key of a map, or an index of a list."""
_MESSAGE_WITH_PATH = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*?)`)?$", re.DOTALL)
_STEP = re.compile(r"\.?[^.\[\]]+|\[\d+\]|\[\.\.\.\]")
_ELIDED_KEY = "[...]"
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
    match = _MESSAGE_WITH_PATH.match(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    return FieldError(join_path(above, path), _plain_message(what))


@contextmanager
def path_prefix(place: str) -> Iterator[None]:
    """Prefix the path of a FieldError raised inside with a parent path, or with `FILE: `."""
    try:
        yield
    except FieldError as error:
        path = f"{place}{error.path}" if place.endswith(": ") else join_path(place, error.path)
        raise FieldError(path.removesuffix(": "), error.message) from error


def converted(document: object, kind: type[T], above: str = "") -> T:
    """Convert a document to a type; FieldError names the invalid field by its path below `above`."""
    try:
        return convert(document, kind)
    except ValidationError as error:
        raise located_error(error, document, lambda part: convert(part, kind), above) from error


def located_error(error: ValidationError, document: Any, read: Callable[[Any], object], above: str = "") -> FieldError:
    """Convert an error of msgspec like `field_error`, and complete the map keys that msgspec writes as `[...]`.

    `read` is the failed conversion. It is repeated on the document reduced to one key after the other: the key whose
    conversion fails with the same error is the one.
    """
    elided = field_error(error)
    steps: list[Step] = []
    for step in _STEP.findall(elided.path):
        if step != _ELIDED_KEY:
            steps.append(int(step[1:-1]) if step.startswith("[") else step.removeprefix("."))
            continue
        elements = reduce(lambda part, at: part[at], steps, document)
        reduced = {key: _reduced_to_key(document, steps, key) for key in elements}
        key = next((key for key, part in reduced.items() if _error_message(read, part) == str(error)), "")
        document = reduced.get(key, document)
        steps.append(key)
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return FieldError(join_path(above, path), elided.message)


def _error_message(read: Callable[[Any], object], document: Any) -> str:
    try:
        read(document)
    except ValidationError as error:
        return str(error)
    return ""


def _reduced_to_key(part: Any, steps: Sequence[Step], key: str) -> Any:
    """Return the document reduced to one key in the map at the end of the steps."""
    if not steps:
        return {key: part[key]}
    step, rest = steps[0], steps[1:]
    if isinstance(part, dict):
        return {**part, step: _reduced_to_key(part[step], rest, key)}
    return [_reduced_to_key(each, rest, key) if index == step else each for index, each in enumerate(part)]


def join_path(parent: str, path: str) -> str:
    """Join two parts of a path."""
    path = path.removeprefix(".")
    if not parent or not path or path.startswith("["):
        return parent + path
    return f"{parent}.{path}"


def _plain_message(what: str) -> str:
    """Return a message of msgspec, such as `Expected `int | null`, got `str``, with YAML's names of types."""
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


def texts(given: object, path: str) -> Problems:
    """Validate a map of strings, whose unquoted values YAML may have read as numbers."""
    for key, value in given.items() if isinstance(given, dict) else ():
        if not isinstance(value, str):
            yield f"{path}.{key}", f"expected a string, got {value!r}: put it in quotes"


def labels(given: object, path: str) -> Problems:
    """Validate a map of labels."""
    yield from texts(given, path)
    for key, value in given.items() if isinstance(given, dict) else ():
        if not is_label_name(key):
            yield f"{path}.{key}", "cannot be a label: use letters, digits, - _ . and at most one prefix such as a.b/"
        if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
            what = "is longer than 63 characters" if len(value) > 63 else "use letters, digits and inner - _ ."
            yield f"{path}.{key}", f"{value!r} cannot be the value of a label: {what}"


def is_label_name(key: str) -> bool:
    """Whether the key is a qualified name, as labels, taints and resources have."""
    prefix, slash, own = key.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(own)) and (not slash or is_subdomain(prefix))


def amounts(given: object, path: str) -> Problems:
    """Validate a map of non-negative quantities by resource name."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        yield path, "expected a map of quantities"
        return
    for resource, text in given.items():
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


def taints(given: list[dict[str, Any]], path: str) -> Problems:
    """Validate the taints of a node."""
    for number, taint in enumerate(given):
        here = f"{path}[{number}]"
        yield from ((f"{here}.{field}", "unknown field") for field in taint if field not in _TAINT_FIELDS)
        if not isinstance(key := taint.get("key"), str) or not is_label_name(key):
            yield f"{here}.key", "is missing" if not key else f"{key!r} cannot be the name of a taint"
        if (effect := taint.get("effect")) not in TAINT_EFFECTS:
            yield f"{here}.effect", f"expected one of {', '.join(TAINT_EFFECTS)}, got {effect!r}"
