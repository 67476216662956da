"""Between the typed objects of the shared watches and the plain ones that rules and writes use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct, json

from pykai.kube.replica import Key
from pykai.kube.watch import SharedWatch
from pykai.objects import kinds

K = TypeVar("K")
Object = dict[str, Any]


def plain(item: Struct, **more: str) -> Object:
    """A typed object as JSON has it, `spec` and `status` always there; `more` are fields to put in front.

    Fields at their default may be left out.
    """
    decoded: Object = json.decode(json.encode(item))
    return {**more, "spec": {}, "status": {}, **decoded}


def plain_pod(pod: kinds.Pod) -> Object:
    """A pod as rules read it: the fields our watches keep, its phase always among them."""
    found = plain(pod, apiVersion="v1", kind="Pod")
    return {**found, "status": {"phase": pod.status.phase, **found["status"]}}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    """The merge patch (RFC 7386) that turns `old` into `new`: empty where they agree, None where a field must go."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


class PlainView(Mapping[K, Object]):
    """The objects of a watch as plain ones, made when they are looked up; `key` is the place of one in the watch."""

    def __init__(self, watch: SharedWatch[Any], key: Callable[[K], Key]) -> None:
        self._watch = watch
        self._key = key

    def __getitem__(self, wanted: K) -> Object:
        namespace, name = self._key(wanted)
        found = self._watch.get(name, namespace)
        if found is None:
            raise KeyError(wanted)
        return plain(found)

    def __iter__(self) -> Iterator[K]:
        raise TypeError("objects of a watch are looked up, not listed")

    def __len__(self) -> int:
        return len(self._watch)
