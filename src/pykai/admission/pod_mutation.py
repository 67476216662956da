"""A pod under mutation: a copy with its own editable parts; all other parts are shared with the original.

The pod has passed the schema check, so that all present fields have the right type. Invariant: an unchanged copy equals
its pod, because keys are added only with a value; the JSON patch (RFC 6902) between the two is exactly what the rules
changed. Lists are compared by index, which gives the shortest patch for append and replace. Values are compared as
JSON: `1` and `true` differ, unlike in Python. Why no library is used: docs/adr/0014.
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
    """Return a copy that this module may edit without changing the pod."""
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
    """Return the pod's annotations; a new empty mapping if it has none."""
    return pod["metadata"].get("annotations") or {}


def annotate(mutated: PodObject, key: str, value: str) -> None:
    """Set one annotation of the copy."""
    mutated["metadata"]["annotations"] = {**annotations_of(mutated), key: value}


def pod_label(pod: Fields) -> str:
    """Return `namespace/name` for messages."""
    metadata = pod["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def regular_containers(pod: Fields) -> list[ContainerObject]:
    """Return the pod's containers without its init containers."""
    return pod["spec"].get("containers") or []


def init_containers(pod: Fields) -> list[ContainerObject]:
    """Return the pod's init containers, native sidecars among them."""
    return pod["spec"].get("initContainers") or []


def fraction_container_of(pod: Fields) -> ContainerRef:
    """Return the container that receives the pod's share of a GPU; deny the pod if the annotations name none."""
    init_names = [container.get("name") or "" for container in init_containers(pod)]
    names = [container.get("name") or "" for container in regular_containers(pod)]
    try:
        return fraction_container(annotations_of(pod), init_names, names)
    except GpuRequestError as problem:
        raise DeniedError(f"failed to get fraction container ref: {problem}") from None


def container_at(pod: Fields, place: ContainerRef) -> ContainerObject:
    """Return the container that the reference names."""
    return (init_containers(pod) if place.init else regular_containers(pod))[place.index]


def containers_without_share(pod: Fields) -> Iterator[ContainerObject]:
    """Return all init and regular containers except the one that receives the pod's share of a GPU.

    The pod is denied if its annotations name a container for the share that it does not have.
    """
    shared = shares_gpu(annotations_of(pod)) and regular_containers(pod)
    holder = container_at(pod, fraction_container_of(pod)) if shared else None
    for container in (*init_containers(pod), *regular_containers(pod)):
        if container is not holder:
            yield container


def set_environment(container: ContainerObject, entry: Object) -> None:
    """Set the environment variable: replace the first entry of its name and drop duplicates, or append it."""
    entries = container.get("env") or []
    same = [index for index, old in enumerate(entries) if old.get("name") == entry["name"]]
    place = same[0] if same else len(entries)
    rest = [old for old in entries[place:] if old.get("name") != entry["name"]]
    container["env"] = [*entries[:place], entry, *rest]


def set_volume(mutated: PodObject, volume: Object) -> None:
    """Add the volume; replace one of the same name unless it already refers to the same ConfigMap."""
    spec = mutated["spec"]
    others = []
    for old in spec.get("volumes") or []:
        if old.get("name") != volume["name"]:
            others.append(old)
        elif (old.get("configMap") or {}).get("name") == volume["configMap"]["name"]:
            return
    spec["volumes"] = [*others, volume]


def difference(old: Any, new: Any, path: str = "") -> Iterator[PatchOperation]:
    """Yield the operations that, applied in order to `old`, give `new`; `path` is the JSON pointer of both."""
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
