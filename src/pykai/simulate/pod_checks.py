"""Validation of pods and pod templates, with the rules of an API server and of the admission webhooks.

Each check yields (path of the field, problem); paths begin with `below`, which ends in a dot or is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import ValidationError, convert

from pykai.config.fields import Problems, amounts, is_label_name, located_error
from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.pod_template import Affinity, Container, PodClaim, Toleration
from pykai.objects.units import parse_quantity

PARTS: Object = {
    "containers": list[Container],
    "initContainers": list[Container] | None,
    "affinity": Affinity | None,
    "tolerations": list[Toleration] | None,
    "resourceClaims": list[PodClaim] | None,
    "nodeSelector": dict[str, str] | None,
    "volumes": list[Object] | None,
    "schedulingGates": list[Object] | None,
}
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def template(obj: Object, below: str = "") -> Problems:
    """Check a pod or a pod template."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        yield f"{below}spec.containers", "is missing: a pod needs at least one container"
        return
    yield from shapes(spec, f"{below}spec")
    yield from _duplicate_names(spec, below)
    for path, resources in _resources(spec):
        yield from _container_amounts(resources, f"{below}{path}")
    yield from amounts(spec.get("overhead"), f"{below}spec.overhead")


def shapes(spec: Object, path: str) -> Problems:
    """Yield the parts of a pod's spec whose type is not the one that the scheduler reads."""
    for part, shape in PARTS.items():
        if part in spec:
            yield from _shape(spec[part], shape, f"{path}.{part}")


def _shape(found: Any, shape: Any, path: str) -> Problems:
    try:
        convert(found, shape)
    except ValidationError as error:
        problem = located_error(error, found, lambda part: convert(part, shape), path)
        yield problem.path, problem.message


def _duplicate_names(spec: Object, below: str) -> Problems:
    """Yield duplicate names of containers and init containers, which share one namespace."""
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(part) or ()):
            if container.get("name") in seen:
                yield f"{below}spec.{part}[{number}].name", f"{container['name']!r} is the name of another container"
            seen.add(container.get("name"))


def _resources(spec: Object) -> Iterator[tuple[str, Object]]:
    for part in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(part) or ()):
            yield f"spec.{part}[{number}].resources", container.get("resources") or {}


def _container_amounts(resources: Object, path: str) -> Problems:
    """Check requests and limits: valid resources and amounts, and no request above its limit."""
    asked, most = resources.get("requests") or {}, resources.get("limits") or {}
    wrong = [*amounts(asked, f"{path}.requests"), *amounts(most, f"{path}.limits")]
    yield from wrong
    if wrong:
        return
    for part, found in (("requests", asked), ("limits", most)):
        for name, text in found.items():
            yield from _resource(name, text, f"{path}.{part}.{name}")
    for name, text in asked.items():
        if name in most and parse_quantity(text) > parse_quantity(most[name]):
            yield f"{path}.requests.{name}", f"{text} is more than the limit of {most[name]}"
        elif _is_extended(name) and (name not in most or parse_quantity(text) != parse_quantity(most[name])):
            yield f"{path}.limits.{name}", f"must be there and be equal to the request of {text}"


def _resource(name: str, text: Any, path: str) -> Problems:
    if not is_label_name(name) or not ("/" in name or name in _NATIVE or name.startswith("hugepages-")):
        hint = f": GPUs are {names.NVIDIA_GPU}" if "gpu" in name.lower() else ""
        yield path, f"there is no such resource (expected {', '.join(_NATIVE)}, or a name such as a.com/b){hint}"
    elif _is_extended(name) and parse_quantity(text).denominator != 1:
        hint = f"; annotation {names.GPU_FRACTION} asks for a part of a GPU" if name == names.NVIDIA_GPU else ""
        yield path, f"must be a whole number, not {text}{hint}"


def _is_extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
