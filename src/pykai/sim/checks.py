"""What an API server and the admission webhooks would refuse, found before anything runs.

Each check yields (path of the field, what is wrong with it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import ValidationError, convert

from pykai.cache.gangs import SubGroupError, sub_group_tree
from pykai.config.fields import field_error
from pykai.objects import kinds, names
from pykai.objects.gpu_request import GpuRequestError
from pykai.objects.gpu_request import check as check_gpu_request
from pykai.objects.pod_template import Affinity, Container, PodClaim, Toleration
from pykai.objects.quantity import QuantityError, parse
from pykai.sim import spans
from pykai.sim.manifests import Object

Problem = tuple[str, str]
Problems = Iterator[Problem]

_POD_PARTS: dict[str, Any] = {
    "containers": list[Container],
    "initContainers": list[Container] | None,
    "affinity": Affinity | None,
    "tolerations": list[Toleration] | None,
    "resourceClaims": list[PodClaim] | None,
    "nodeSelector": dict[str, str] | None,
    "volumes": list[dict[str, Any]] | None,
}
_STORY = {names.ARRIVES: spans.durations, names.RUN_SECONDS: spans.seconds, names.STOP_SECONDS: spans.seconds}
_PREFIX = names.ARRIVES.partition("/")[0] + "/"


def texts(meta: Object) -> Problems:
    """Labels and annotations, whose values YAML likes to read as numbers."""
    for part in ("labels", "annotations"):
        found = meta.get(part)
        for key, value in found.items() if isinstance(found, dict) else ():
            if not isinstance(value, str):
                yield f"metadata.{part}.{key}", f"expected a string, got {value!r}: put it in quotes"


def story(obj: Object) -> Problems:
    """The annotations that tell when an object comes and how long its pods run."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    for key, text in annotations.items():
        if not key.startswith(_PREFIX):
            continue
        path = f"metadata.annotations.{key}"
        if key not in _STORY:
            yield path, f"there is no such annotation (there are: {', '.join(_STORY)})"
            continue
        try:
            _STORY[key](text)
        except ValueError as error:
            yield path, str(error)


def pod(obj: Object) -> Problems:
    """A Pod."""
    yield from _template(obj, "")


def job(obj: Object) -> Problems:
    """A Job and the pods it makes."""
    spec = obj.get("spec") or {}
    for field in ("parallelism", "completions"):
        value = spec.get(field, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f"spec.{field}", f"expected a whole number of at least 0, got {value!r}"
    template = spec.get("template")
    if not isinstance(template, dict):
        yield "spec.template", "is missing: a Job needs a pod template"
        return
    yield from ((f"spec.template.{path}", message) for path, message in story(template))
    yield from _template(template, "spec.template.")


def _template(obj: Object, below: str) -> Problems:
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        yield f"{below}spec.containers", "is missing: a pod needs at least one container"
        return
    for part, shape in _POD_PARTS.items():
        try:
            convert(spec.get(part), shape) if part in spec else None
        except ValidationError as error:
            problem = field_error(error, f"{below}spec.{part}")
            yield problem.path, problem.message
            return
    yield from _container_amounts(spec, below)
    yield from amounts(spec.get("overhead"), f"{below}spec.overhead")
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    try:
        check_gpu_request(annotations, _limits_whole_gpus(spec))
    except GpuRequestError as error:
        yield f"{below}metadata.annotations", str(error)


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for part in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(part) or ()):
            yield f"spec.{part}[{number}].resources", container.get("resources") or {}


def _container_amounts(spec: Object, below: str) -> Problems:
    for path, resources in _containers(spec):
        for field in ("requests", "limits"):
            yield from amounts(resources.get(field), f"{below}{path}.{field}")


def _limits_whole_gpus(spec: Object) -> bool:
    return any(names.NVIDIA_GPU in (resources.get("limits") or {}) for _, resources in _containers(spec))


def amounts(found: object, path: str) -> Problems:
    """Quantities by resource name, none of them negative."""
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield path, "expected a map of quantities"
        return
    for name, text in found.items():
        try:
            if isinstance(text, bool) or not isinstance(text, str | int | float):
                raise QuantityError(f"expected a quantity such as 500m or 16Gi, got {text!r}")
            if parse(text) < 0:
                raise QuantityError(f"{text} is negative")
        except QuantityError as error:
            yield f"{path}.{name}", str(error)


def node(obj: Object) -> Problems:
    """A Node and what it offers."""
    status = obj.get("status")
    offered = [name for name in ("allocatable", "capacity") if isinstance(status, dict) and status.get(name)]
    if not isinstance(status, dict) or not offered:
        yield "status.allocatable", "is missing: the node would offer nothing"
        return
    for name in offered:
        yield from amounts(status[name], f"status.{name}")


def queue(obj: Object) -> Problems:
    """A Queue's own figures; -1 is unlimited."""
    resources = (obj.get("spec") or {}).get("resources")
    if not isinstance(resources, dict):
        yield "spec.resources", "is missing: a queue without it can run nothing"
        return
    for name, share in resources.items():
        for field, least in (("quota", -1), ("limit", -1), ("overQuotaWeight", 0)):
            value = (share or {}).get(field, 0)
            if isinstance(value, int | float) and value < least:
                unlimited = " (-1 means unlimited)" if least else ""
                yield f"spec.resources.{name}.{field}", f"{value} is negative{unlimited}"


def pod_group(obj: Object) -> Problems:
    """A PodGroup's tree of sub-groups."""
    try:
        sub_group_tree(convert(obj, kinds.PodGroup))
    except SubGroupError as error:
        yield "spec.subGroups", str(error)


def nothing(obj: Object) -> Problems:
    """Kinds of which only the shape is checked."""
    yield from ()
