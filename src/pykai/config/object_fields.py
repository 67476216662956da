"""What an API server would refuse of the parts that many objects have: names, labels, amounts, taints.

Each check yields (path of the field, what is wrong with it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pykai.objects.names import is_subdomain
from pykai.objects.units import QuantityError, parse_quantity

Problem = tuple[str, str]
Problems = Iterator[Problem]

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_TAINT_FIELDS = ("key", "value", "effect", "timeAdded")


def name(text: object, path: str) -> Problems:
    """The name of an object."""
    if not text:
        yield path, "is missing"
    elif not isinstance(text, str):
        yield path, f"expected a string, got {text!r}: put it in quotes"
    elif not is_subdomain(text):
        yield path, f"{text!r} cannot be a name: use lower-case letters, digits, inner dashes and dots"


def texts(found: object, path: str) -> Problems:
    """A map of texts, which YAML likes to read as numbers."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if not isinstance(value, str):
            yield f"{path}.{key}", f"expected a string, got {value!r}: put it in quotes"


def labels(found: object, path: str) -> Problems:
    """A map of labels."""
    yield from texts(found, path)
    for key, value in found.items() if isinstance(found, dict) else ():
        if not is_label_name(key):
            yield f"{path}.{key}", "cannot be a label: use letters, digits, - _ . and at most one prefix such as a.b/"
        if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
            what = "is longer than 63 characters" if len(value) > 63 else "use letters, digits and inner - _ ."
            yield f"{path}.{key}", f"{value!r} cannot be the value of a label: {what}"


def is_label_name(key: str) -> bool:
    """Whether labels, taints and resources can have this name."""
    prefix, slash, own = key.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(own)) and (not slash or is_subdomain(prefix))


def amounts(found: object, path: str) -> Problems:
    """Quantities by resource name, none of them negative."""
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield path, "expected a map of quantities"
        return
    for resource, text in found.items():
        yield from amount(text, f"{path}.{resource}")


def amount(text: object, path: str) -> Problems:
    """A quantity that is not negative."""
    try:
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise QuantityError(f"expected a quantity such as 500m or 16Gi, got {text!r}")
        if parse_quantity(text) < 0:
            raise QuantityError(f"{text} is negative")
    except QuantityError as error:
        yield path, str(error)


def taints(found: list[dict[str, Any]], path: str) -> Problems:
    """The taints of a node."""
    for number, taint in enumerate(found):
        here = f"{path}[{number}]"
        yield from ((f"{here}.{field}", "unknown field") for field in taint if field not in _TAINT_FIELDS)
        if not isinstance(key := taint.get("key"), str) or not is_label_name(key):
            yield f"{here}.key", "is missing" if not key else f"{key!r} cannot be the name of a taint"
        if (effect := taint.get("effect")) not in TAINT_EFFECTS:
            yield f"{here}.effect", f"expected one of {', '.join(TAINT_EFFECTS)}, got {effect!r}"
