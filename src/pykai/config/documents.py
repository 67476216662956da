"""YAML that people write, read without guessing: what is wrong is told with line and column.

A key may not be written twice (the second would silently win), keys are texts whatever they look like, instants stay
the texts they are, and numbers are such as every program can hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pykai.config.fields import FieldError

_END = object()
_LARGEST = 2**63 - 1


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader with our rules for keys and instants."""


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key is None or key in seen:
            problem = "a key must be a string" if key is None else f"key {key!r} is written twice"
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    return {key.value: loader.construct_object(value, deep=True) for key, value in node.value}


def _number(loader: Any, node: yaml.ScalarNode) -> int | float:
    """A number that JSON and 64 bits can hold: others would arrive as something else."""
    value: int | float = (
        loader.construct_yaml_int(node) if node.tag.endswith(":int") else loader.construct_yaml_float(node)
    )
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > _LARGEST):
        raise yaml.constructor.ConstructorError(None, None, f"{node.value} is not a number to use", node.start_mark)
    return value


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)
_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def text_of(file: Path) -> str:
    """What a file holds; FieldError names the file that cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise FieldError(str(file), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FieldError(str(file), f"cannot be read: line {line} is not UTF-8 text") from error


def each(text: str) -> Iterator[object]:
    """The documents of a text, one after the other, None for an empty one; FieldError tells what is not YAML."""
    documents = yaml.load_all(text, Loader=_Loader)
    while True:
        try:
            document = next(documents, _END)
        except yaml.YAMLError as error:
            raise FieldError("", f"not YAML: {_where(error, text)}") from error
        if document is _END:
            return
        yield document


def only(text: str) -> object:
    """The one document of a text, None where it says nothing; FieldError tells what is not YAML, or that it is more."""
    found = [document for document in each(text) if document is not None]
    if len(found) > 1:
        raise FieldError("", f"expected one YAML document, got {len(found)}")
    return found[0] if found else None


def _where(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return str(problem)
    line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    tab = line[mark.column : mark.column + 1] == "\t"
    return f"line {mark.line + 1}, column {mark.column + 1}: {'a tab: indent with spaces' if tab else problem}"
