"""Unstructured objects, as JSON has them: from the typed objects of the informers, and the patches between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct, json

from pykai.kube.api import Fields, Object
from pykai.kube.informer import SharedInformer
from pykai.kube.informer_store import Key
from pykai.objects import kinds

K = TypeVar("K")


def to_unstructured(item: Struct, **more: str) -> Object:
    """Return a typed object as JSON has it, `spec` and `status` always present; `more` are further fields.

    Fields at their default may be absent.
    """
    decoded: Object = json.decode(json.encode(item))
    return {**more, "spec": {}, "status": {}, **decoded}


def unstructured_pod(pod: kinds.Pod) -> Object:
    """Return a pod as rules read it: the fields of our informers, its phase always among them."""
    found = to_unstructured(pod, apiVersion="v1", kind="Pod")
    return {**found, "status": {"phase": pod.status.phase, **found["status"]}}


def merge_patch_between(old: Fields, new: Fields) -> Object:
    """Return the merge patch (RFC 7386) that turns `old` into `new`: None for removed fields, empty if they agree."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch_between(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


class UnstructuredView(Mapping[K, Object]):
    """The objects of an informer, converted on access; `key` maps a key of this view to one of the informer."""

    def __init__(self, watch: SharedInformer[Any], key: Callable[[K], Key]) -> None:
        self._watch = watch
        self._key = key

    def __getitem__(self, wanted: K) -> Object:
        namespace, name = self._key(wanted)
        found = self._watch.get(name, namespace)
        if found is None:
            raise KeyError(wanted)
        return to_unstructured(found)

    def __iter__(self) -> Iterator[K]:
        raise TypeError("objects of an informer are looked up, not listed")

    def __len__(self) -> int:
        return len(self._watch)
