"""Is an object well formed: fields that there are, of the types they have, with values an API server would take?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from pykai.config.fields import Problem, Problems
from pykai.objects.crds import DEFINITIONS
from pykai.objects.validation import violations
from pykai.simulate import checks, core_fields
from pykai.simulate.manifests import Object

Schema = Mapping[str, Any]


def problems(obj: Object, shape: type[Any], check: Callable[[Object], Problems]) -> Problems:
    """What is wrong with an object that has a kind and metadata, the plainest reason first.

    `shape` is what the scheduler reads of it, `check` looks at the rest. After the first problem nothing more can be
    relied on.
    """
    yield from checks.metadata(obj["metadata"])
    if obj["kind"] in core_fields.ROWS or obj["kind"] in _definitions():
        yield from _unknown_fields(obj, _schema(obj["kind"]), "")
    if obj["kind"] in _definitions():
        yield from violations(obj, _schema(obj["kind"]))
    yield from checks.shaped(obj, shape)
    if obj["kind"] in core_fields.ROWS:
        yield from violations(obj, _schema(obj["kind"]))
    yield from checks.story(obj)
    yield from check(obj)


@cache
def _definitions() -> dict[str, Schema]:
    return {
        definition.kind: definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for definition in DEFINITIONS
    }


@cache
def _schema(kind: str) -> Schema:
    """The fields of a kind; a field that is not among them is a typo."""
    if kind in core_fields.ROWS:
        return core_fields.schema_of(kind)
    schema = _definitions()[kind]
    return {**schema, "properties": {**schema["properties"], "metadata": core_fields.schema_of("Metadata")}}


def _meant(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name: the one like it, else all there are."""
    alike = {field.lower(): field for field in known}
    found = get_close_matches(str(name).lower(), alike, n=1)
    return f": did you mean {alike[found[0]]}?" if found else f" (known: {', '.join(alike.values())})"


def _unknown_fields(value: object, schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_fields(item, schema.get("items") or {}, f"{path}[{number}]")
        return
    known = schema.get("properties")
    if not isinstance(value, dict) or not known:
        return
    for name, item in value.items():
        below = f"{path}.{name}" if path else name
        if name not in known:
            yield below, f"unknown field{_meant(name, known)}"
        else:
            yield from _unknown_fields(item, known[name], below)
