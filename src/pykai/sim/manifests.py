"""Kubernetes YAML from files and directories, document by document; each knows where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykai.config import documents
from pykai.config.fields import FieldError

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


def read(paths: Iterable[Path]) -> list[Manifest]:
    """Every object in files and directories (their YAML and JSON files by name, not deeper), in order."""
    return [manifest for path in paths for manifest in _read(path)]


def _read(path: Path) -> list[Manifest]:
    found = [manifest for file in _files(path) for manifest in parse(_text(file), str(file))]
    if not found:
        raise ManifestError(Origin(str(path)), "", "holds no object")
    return found


def _text(file: Path) -> str:
    try:
        return documents.text_of(file)
    except FieldError as error:
        raise ManifestError(Origin(str(file)), "", error.message) from error


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
    number = 1
    try:
        for document in documents.each(text):
            if document is not None:
                found.extend(_objects(document, Origin(file, number)))
            number += 1
    except FieldError as error:
        raise ManifestError(Origin(file, number), "", error.message) from error
    return found


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
