"""Kubernetes YAML from files and directories, document by document; each knows where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Origin:
    """Where an object was written: file and number of the document in it, from 1; 0 is the file as a whole."""

    file: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.file}: document {self.number}" if self.number else self.file


@dataclass(frozen=True)
class Manifest:
    """One object as it was written."""

    origin: Origin
    obj: Object

    @property
    def title(self) -> str:
        """Kind and name, as far as it has them."""
        meta = self.obj.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        return " ".join(str(part) for part in (self.obj.get("kind"), name) if part)


class ManifestError(ValueError):
    """An object cannot be simulated as it is written; the text names file, document and field."""

    def __init__(self, where: Manifest | Origin, field: str, message: str) -> None:
        origin = where.origin if isinstance(where, Manifest) else where
        title = where.title if isinstance(where, Manifest) else ""
        parts = [f"{origin}{f' ({title})' if title else ''}", *([field] if field else []), message]
        super().__init__(": ".join(parts))
        self.field = field


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which a key may not be written twice: the second would silently win."""


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


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# A timestamp stays the text it is: objects carry times as strings.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def read(paths: Iterable[Path]) -> list[Manifest]:
    """Every object in files and directories (their YAML and JSON files by name, not deeper), in order."""
    return [manifest for path in paths for file in _files(path) for manifest in parse(_text(file), str(file))]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(Origin(str(file)), "", f"cannot be read: {error}") from error


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise ManifestError(Origin(str(path)), "", f"the directory holds no file that ends in {', '.join(SUFFIXES)}")
    return found


def parse(text: str, file: str) -> list[Manifest]:
    """Every object in a text; `file` is its name in messages."""
    found: list[Manifest] = []
    number = 0
    documents = yaml.load_all(text, Loader=_Loader)
    while True:
        number += 1
        try:
            document = next(documents, _END)
        except yaml.YAMLError as error:
            raise ManifestError(Origin(file, number), "", f"not YAML: {_where(error)}") from error
        if document is _END:
            return found
        if document is not None:
            found.extend(_objects(document, Origin(file, number)))


_END = object()


def _objects(document: object, origin: Origin) -> Iterator[Manifest]:
    """The object, or the items of a `kind: List`."""
    if not isinstance(document, dict):
        raise ManifestError(origin, "", f"expected an object, got {type(document).__name__}")
    if document.get("kind") != "List":
        yield Manifest(origin, document)
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise ManifestError(origin, "items", "expected a list")
    for item in items:
        yield from _objects(item, origin)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
