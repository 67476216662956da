"""A strict YAML reader for user-written files; errors name line and column.

Duplicate keys are an error instead of the last one silently winning. Keys are strings and timestamps stay strings,
whatever YAML would resolve them to; numbers must be finite and fit 64 bits. File size, nesting depth and the expansion
of aliases are limited, so that a small text cannot become a huge document.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pykai.config.fields import FieldError

_LARGEST = 2**63 - 1
MAX_BYTES = 512 * 2**20
MAX_NODES = 5_000_000
MAX_DEPTH = 200
_BRACKETS = re.compile(r"[\[\]{}]")
_DEEP_INDENTATION = re.compile(rf"^[ \-?]{{{MAX_DEPTH}}}", re.MULTILINE)


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader with our rules for keys, numbers and timestamps; `aliased`: the text may contain aliases."""

    aliased = False

    def construct_document(self, node: yaml.Node) -> Any:
        """Construct the document; an error if its aliases expand too far."""
        if self.aliased:
            _count_expanded(node, {})
        return super().construct_document(node)


def _count_expanded(node: yaml.Node, seen: dict[int, int]) -> int:
    """Count the nodes with aliases expanded; ConstructorError if there are too many, or an alias contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in seen:
        seen[id(node)] = MAX_NODES
        children = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        seen[id(node)] = 1 + sum(_count_expanded(part, seen) for part in children)
    if seen[id(node)] >= MAX_NODES:
        problem = f"aliases expand to more than {MAX_NODES:,} values"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return seen[id(node)]


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key is None or key in seen:
            problem = "a key must be a string" if key is None else f"key {key!r} is written twice"
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    return {key.value: loader.construct_object(value, deep=True) for key, value in node.value}


def _construct_number(loader: Any, node: yaml.ScalarNode) -> int | float:
    """Construct a number; ConstructorError for one that JSON or 64 bits cannot represent."""
    value: int | float = (
        loader.construct_yaml_int(node) if node.tag.endswith(":int") else loader.construct_yaml_float(node)
    )
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > _LARGEST):
        problem = f"{node.value} is not a finite 64-bit number"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return value


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _construct_number)
_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def read_text(file: Path) -> str:
    """Read a UTF-8 file; FieldError names the file if it cannot be read."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise FieldError(str(file), f"cannot be read: it is larger than {MAX_BYTES // 2**20} MiB")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise FieldError(str(file), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FieldError(str(file), f"cannot be read: line {line} is not UTF-8 text") from error


def read_all(text: str) -> Iterator[object]:
    """Parse the documents of a text, None for an empty one; FieldError if it is not YAML."""
    loader = None
    try:
        _check_depth(text)
        loader = _Loader(text)
        loader.aliased = "&" in text and "*" in text
        while loader.check_data():
            yield loader.get_data()
    except yaml.YAMLError as error:
        raise FieldError("", f"not YAML: {_located_message(error, text)}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _check_depth(text: str) -> None:
    """Raise FieldError for excessive nesting, which would overflow the stack of libyaml's composer.

    Brackets and indentation give an upper bound, enough for most texts; otherwise the parser's events are counted.
    """
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(text):
        depth = depth + 1 if bracket[0] in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    if deepest <= MAX_DEPTH and not _DEEP_INDENTATION.search(text):
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise FieldError("", f"not YAML: line {event.start_mark.line + 1} is nested deeper than {MAX_DEPTH} levels")


def read_one(text: str) -> object:
    """Parse the only document of a text, None if it is empty; FieldError if it is not YAML or has several documents."""
    present = [document for document in read_all(text) if document is not None]
    if len(present) > 1:
        raise FieldError("", f"expected one YAML document, got {len(present)}")
    return present[0] if present else None


def _located_message(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return str(problem)
    line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    tab = line[mark.column : mark.column + 1] == "\t"
    return f"line {mark.line + 1}, column {mark.column + 1}: {'a tab: indent with spaces' if tab else problem}"
