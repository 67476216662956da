"""What an API server and the admission webhooks would refuse, found before anything runs.

Each check yields (path of the field, what is wrong with it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import ValidationError, convert, json

from pykai.cache.podgroups import SubGroupError, sub_group_tree
from pykai.config.fields import Problems, amounts, labels, name, named, texts
from pykai.hollow.kubelet_settings import duration_span, seconds_span
from pykai.objects import kinds, names
from pykai.simulate import pod_checks
from pykai.simulate.manifests import Object

_STORY = {names.ARRIVES: duration_span, names.RUN_SECONDS: seconds_span, names.STOP_SECONDS: seconds_span}
_WHOLE_NUMBERS = {names.GPU_MEMORY_LABEL: " of MiB", names.GPU_COUNT_LABEL: ""}
_PREFIX = names.ARRIVES.partition("/")[0] + "/"


def metadata(meta: Object, below: str = "") -> Problems:
    """Name, labels and annotations; a template has no name."""
    if not below:
        yield from name(meta.get("name"), "metadata.name")
    yield from labels(meta.get("labels"), f"{below}metadata.labels")
    yield from texts(meta.get("annotations"), f"{below}metadata.annotations")


def shaped(obj: Object, shape: type[Any]) -> Problems:
    """What of an object has not the type that the scheduler reads."""

    def read(part: Object) -> object:
        return json.decode(json.encode(part), type=shape)

    try:
        read(obj)
    except ValidationError as error:
        problem = named(error, obj, read)
        yield problem.path, problem.message


def story(obj: Object) -> Problems:
    """The annotations that say when an object comes and how long its pods run."""
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
    yield from pod_checks.template(obj, "")


def pods_in(obj: Object) -> Iterator[tuple[str, Object]]:
    """The pod an object is, or the templates of pods anywhere in it, with the path before their `spec`."""
    if obj.get("kind") == "Pod":
        yield "", obj
        return
    yield from _templates(obj.get("spec"), "spec.")


def _templates(part: object, below: str) -> Iterator[tuple[str, Object]]:
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from _templates(item, f"{below[:-1]}[{number}].")
    elif isinstance(part, dict):
        for name, value in part.items():
            spec = value.get("spec") if isinstance(value, dict) else None
            if isinstance(spec, dict) and "containers" in spec:
                yield f"{below}{name}.", value
            else:
                yield from _templates(value, f"{below}{name}.")


def workload(obj: Object) -> Problems:
    """A workload of which only the templates of its pods are checked."""
    found = list(pods_in(obj))
    if not found:
        yield "spec", "holds no template of pods"
    for below, template in found:
        yield from metadata(template.get("metadata") or {}, below)
        yield from ((f"{below}{path}", message) for path, message in story(template))
        yield from pod_checks.template(template, below)


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
    as_pod = {"metadata": {"name": "pod"}, **template}
    yield from ((f"spec.template.{path}", message) for path, message in shaped(as_pod, kinds.Pod))
    yield from metadata(template.get("metadata") or {}, "spec.template.")
    yield from ((f"spec.template.{path}", message) for path, message in story(template))
    yield from pod_checks.template(template, "spec.template.")


def node(obj: Object) -> Problems:
    """A Node and what it offers."""
    status = obj.get("status")
    offered = [part for part in ("allocatable", "capacity") if isinstance(status, dict) and status.get(part)]
    if not isinstance(status, dict) or not offered:
        yield "status.allocatable", "is missing: the node would offer nothing"
        return
    for part in offered:
        yield from amounts(status[part], f"status.{part}")
    found = (obj.get("metadata") or {}).get("labels") or {}
    for label, unit in _WHOLE_NUMBERS.items():
        if label in found and not found[label].isdigit():
            yield f"metadata.labels.{label}", f"expected a whole number{unit}, got {found[label]!r}"


def config_map(obj: Object) -> Problems:
    """A ConfigMap."""
    yield from texts(obj.get("data"), "data")


def queue(obj: Object) -> Problems:
    """A Queue's own figures; -1 is unlimited."""
    resources = (obj.get("spec") or {}).get("resources")
    if not isinstance(resources, dict):
        yield "spec.resources", "is missing: a queue without it can run nothing"
        return
    for resource, share in resources.items():
        for field, least in (("quota", -1), ("limit", -1), ("overQuotaWeight", 0)):
            value = (share or {}).get(field, 0)
            if isinstance(value, int | float) and value < least:
                unlimited = " (-1 means unlimited)" if least else ""
                yield f"spec.resources.{resource}.{field}", f"{value} is negative{unlimited}"


def pod_group(obj: Object) -> Problems:
    """A PodGroup's tree of sub-groups."""
    try:
        sub_group_tree(convert(obj, kinds.PodGroup))
    except SubGroupError as error:
        yield "spec.subGroups", str(error)


def nothing(obj: Object) -> Problems:
    """Kinds of which only the shape is checked."""
    yield from ()
