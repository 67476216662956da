"""A pod under mutation: a copy whose editable parts are fresh and whose other parts are shared with the original.

The pod has passed the shape check, so what is present has the right type. Keys are added only when there is something
to write: an untouched copy equals its pod, and the difference of the two, a JSON patch (RFC 6902), is exactly what the
rules changed. Lists are compared by place: what admission does to a list is append and replace, for which that is the
shortest form. Values are equal when their JSON is: `1` and `true` differ although Python says they do not. Why there is
no library for it: docs/adr/0014.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykai.admission.verdict import DeniedError, PatchOperation
from pykai.kube.api import Fields, Object
from pykai.objects.gpu_request import ContainerRef, GpuRequestError, fraction_container, shares_gpu

PodObject = Object
ContainerObject = Object

_CONTAINER_LISTS = ("initContainers", "containers")


def mutable_copy(pod: Fields) -> PodObject:
    """A copy that may be edited through this module without touching the pod."""
    metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
    if metadata.get("annotations") is not None:
        metadata["annotations"] = dict(metadata["annotations"])
    for field in _CONTAINER_LISTS:
        if spec.get(field) is not None:
            spec[field] = [_container_copy(container) for container in spec[field]]
    if spec.get("volumes") is not None:
        spec["volumes"] = list(spec["volumes"])
    return {**pod, "metadata": metadata, "spec": spec}


def _container_copy(container: ContainerObject) -> ContainerObject:
    lists = {field: list(container[field]) for field in ("env", "envFrom") if container.get(field) is not None}
    return {**container, **lists}


def annotations_of(pod: Fields) -> dict[str, str]:
    """The pod's annotations; an empty mapping, not part of the pod, when it has none."""
    return pod["metadata"].get("annotations") or {}


def annotate(mutated: PodObject, key: str, value: str) -> None:
    """Set one annotation of the copy."""
    mutated["metadata"]["annotations"] = {**annotations_of(mutated), key: value}


def pod_label(pod: Fields) -> str:
    """`namespace/name` as messages show a pod."""
    metadata = pod["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def regular_containers(pod: Fields) -> list[ContainerObject]:
    """The pod's containers without its init containers."""
    return pod["spec"].get("containers") or []


def init_containers(pod: Fields) -> list[ContainerObject]:
    """The pod's init containers, native sidecars among them."""
    return pod["spec"].get("initContainers") or []


def fraction_container_of(pod: Fields) -> ContainerRef:
    """Which container receives the pod's share of a GPU; refused when the annotations name none."""
    init_names = [container.get("name") or "" for container in init_containers(pod)]
    names = [container.get("name") or "" for container in regular_containers(pod)]
    try:
        return fraction_container(annotations_of(pod), init_names, names)
    except GpuRequestError as problem:
        raise DeniedError(f"failed to get fraction container ref: {problem}") from None


def container_at(pod: Fields, place: ContainerRef) -> ContainerObject:
    """The container at that place of the pod."""
    return (init_containers(pod) if place.init else regular_containers(pod))[place.index]


def containers_without_share(pod: Fields) -> Iterator[ContainerObject]:
    """Every init and regular container but the one, if any, that receives the pod's share of a GPU."""
    holder = _holder(pod)
    for container in (*init_containers(pod), *regular_containers(pod)):
        if container is not holder:
            yield container


def _holder(pod: Fields) -> ContainerObject | None:
    try:
        return container_at(pod, fraction_container_of(pod)) if shares_gpu(annotations_of(pod)) else None
    except DeniedError:
        return None


def set_environment(container: ContainerObject, entry: Object) -> None:
    """Put the entry where the first of its name stands, drop the others (the last one would win), else append."""
    entries = container.get("env") or []
    same = [index for index, old in enumerate(entries) if old.get("name") == entry["name"]]
    place = same[0] if same else len(entries)
    rest = [old for old in entries[place:] if old.get("name") != entry["name"]]
    container["env"] = [*entries[:place], entry, *rest]


def set_volume(mutated: PodObject, volume: Object) -> None:
    """Add the volume; one of the same name is replaced unless it already shows the same ConfigMap."""
    spec = mutated["spec"]
    others = []
    for old in spec.get("volumes") or []:
        if old.get("name") != volume["name"]:
            others.append(old)
        elif (old.get("configMap") or {}).get("name") == volume["configMap"]["name"]:
            return
    spec["volumes"] = [*others, volume]


def difference(old: Any, new: Any, path: str = "") -> Iterator[PatchOperation]:
    """Operations that, applied in order to `old`, give `new`; `path` is the JSON pointer of the two values."""
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _object_difference(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _list_difference(old, new, path)
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": path, "value": new}


def _object_difference(old: Object, new: Object, path: str) -> Iterator[PatchOperation]:
    for key in (key for key in old if key not in new):
        yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in new.items():
        place = f"{path}/{_escaped(key)}"
        if key in old:
            yield from difference(old[key], value, place)
        else:
            yield {"op": "add", "path": place, "value": value}


def _list_difference(old: list[Any], new: list[Any], path: str) -> Iterator[PatchOperation]:
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        yield from difference(before, after, f"{path}/{index}")
    for index in range(len(old) - 1, len(new) - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for value in new[len(old) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
