"""The objects of the simulated cluster, as an API server would hold them, and the changes nobody has read yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import json

from pykai.cache.cluster import Change
from pykai.objects import kinds
from pykai.sim.admission import KINDS
from pykai.sim.manifests import Object

Key = tuple[str, str]


class Store:
    """Objects by kind, namespace and name. Writing one leaves a Change behind, if the scheduler reads its kind."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self._changes: list[Change] = []

    def put(self, obj: Object) -> None:
        """Create or replace an object."""
        self._objects[obj["kind"]][key_of(obj)] = obj
        self._note(obj, gone=False)

    def remove(self, kind: str, key: Key) -> None:
        """Delete an object; one that does not exist is not missed."""
        obj = self._objects[kind].pop(key, None)
        if obj is not None:
            self._note(obj, gone=True)

    def _note(self, obj: Object, gone: bool) -> None:
        shape = KINDS[obj["kind"]].shape
        if shape is not None:
            self._changes.append(Change(kinds.decode(json.encode(obj), shape), gone))

    def changed(self) -> bool:
        """Whether there is a change nobody has read yet."""
        return bool(self._changes)

    def drain(self) -> Iterator[Change]:
        """The changes since the last call, in order; once read they are gone."""
        changes, self._changes = self._changes, []
        yield from changes

    def find(self, kind: str, key: Key) -> Object | None:
        """The object; None where there is none."""
        return self._objects[kind].get(key)

    def all(self, kind: str) -> list[Object]:
        """Every object of a kind, in order of creation."""
        return list(self._objects[kind].values())

    # The two questions a pod grouper may ask (controllers.grouping.Lookup); it gets kinds it does not find as absent.
    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """The object; the namespace is ignored for cluster-wide kinds."""
        row = KINDS.get(kind)
        if row is None or row.api_version != api_version:
            return None
        return self.find(kind, (namespace if row.namespaced else "", name))

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Objects of a namespace with all these labels."""
        if kind not in KINDS or KINDS[kind].api_version != api_version:
            return []
        wanted = labels.items()
        return [
            obj
            for (home, _), obj in self._objects[kind].items()
            if home in ("", namespace) and wanted <= (obj["metadata"].get("labels") or {}).items()
        ]


def key_of(obj: Object) -> Key:
    """Namespace and name; cluster-wide objects have an empty namespace."""
    meta: dict[str, Any] = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]
