"""Reads Kubernetes YAML and JSON from files and directories; each object keeps its origin."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pykai.config import documents
from pykai.config.fields import FieldError
from pykai.kube.api import Object, Resource

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Origin:
    """The origin of an object: file and number of the document in it, from 1; 0: the whole file."""

    file: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.file}: document {self.number}" if self.number else self.file


@dataclass(frozen=True)
class Manifest:
    """One object as written in a file."""

    origin: Origin
    obj: Object

    @property
    def title(self) -> str:
        """Return kind and name, as far as they are present."""
        meta = self.obj.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        return " ".join(str(part) for part in (self.obj.get("kind"), name) if part)


@dataclass(frozen=True)
class Arrival:
    """An object that is created `at` seconds after the start; `source`: its origin.

    `exists`: it was read from a cluster and is stored unchanged.
    """

    at: float
    resource: Resource
    obj: Object
    source: str = ""
    exists: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace (empty for cluster-scoped kinds) and name."""
        meta = self.obj["metadata"]
        return meta.get("namespace", ""), meta["name"]


class ManifestError(ValueError):
    """An object is invalid for simulation; the message names file, document and field."""

    def __init__(self, where: Manifest | Origin, field: str, message: str) -> None:
        origin = where.origin if isinstance(where, Manifest) else where
        title = where.title if isinstance(where, Manifest) else ""
        parts = [f"{origin}{f' ({title})' if title else ''}", *([field] if field else []), message]
        super().__init__(": ".join(parts))
        self.field = field


STANDARD = Path("-")
"""Standard input."""


def is_read_from_a_cluster(obj: Object) -> bool:
    """Whether an object is output of `kubectl get -o yaml`, not written by hand."""
    meta = obj.get("metadata")
    return isinstance(meta, dict) and bool(meta.get("uid")) and "creationTimestamp" in meta


def read(paths: Iterable[Path], recursive: bool = False) -> list[Manifest]:
    """Return all objects in files and directories (YAML and JSON files by name) in order; `-` is standard input.

    `recursive`: include subdirectories.
    """
    return [manifest for path in paths for manifest in _read(path, recursive)]


def _read(path: Path, recursive: bool) -> list[Manifest]:
    if path == STANDARD:
        found = parse(sys.stdin.read(), "standard input")
    else:
        found = [manifest for file in _files(path, recursive) for manifest in parse(_text(file), str(file))]
    if not found:
        raise ManifestError(Origin(str(path)), "", "holds no object")
    return found


def _text(file: Path) -> str:
    try:
        return documents.read_text(file)
    except FieldError as error:
        raise ManifestError(Origin(str(file)), "", error.message) from error


def _files(path: Path, recursive: bool) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = path.rglob("*") if recursive else path.iterdir()
    found = sorted(file for file in inside if file.suffix in SUFFIXES and file.is_file())
    if not found:
        deeper = "" if recursive else " (-R reads the directories in it, too)"
        names = ", ".join(SUFFIXES)
        raise ManifestError(Origin(str(path)), "", f"the directory holds no file that ends in {names}{deeper}")
    return found


def parse(text: str, file: str) -> list[Manifest]:
    """Return every object in a text; `file` is its name in messages."""
    found: list[Manifest] = []
    number = 1
    try:
        for document in documents.read_all(text):
            if document is not None:
                found.extend(_objects(document, Origin(file, number)))
            number += 1
    except FieldError as error:
        raise ManifestError(Origin(file, number), "", error.message) from error
    return found


def _objects(document: object, origin: Origin) -> Iterator[Manifest]:
    """Yield the object, or the items of a `kind: List`."""
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
