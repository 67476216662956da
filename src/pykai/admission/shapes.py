"""The fields admission reads, as typed views of plain objects, and the check that an object has that shape.

An API server with our CRDs sends only well-formed objects. A server without them, a simulator or a test may not, so
the shape is checked at the door and a misfit is refused with the path of the field; the rules behind it never meet a
string where a number belongs.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, ValidationError, convert

from pykai.admission.verdict import RefusedError
from pykai.objects import units

Amount = str | int | float
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Shape(Struct, rename="camel", kw_only=True):
    """What every view shares: camelCase names, unknown fields ignored."""


class OwnerReference(Shape):
    name: str = ""


class ObjectMeta(Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class EnvironmentVariable(Shape):
    name: str = ""
    value: str | None = None
    value_from: dict[str, Any] | None = None


class NamedEntry(Shape):
    name: str = ""


class ResourceRequirements(Shape):
    requests: dict[str, Amount] | None = None
    limits: dict[str, Amount] | None = None


class Container(Shape):
    name: str = ""
    env: list[EnvironmentVariable] | None = None
    env_from: list[dict[str, Any]] | None = None
    resources: ResourceRequirements | None = None


class PodSpec(Shape):
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[NamedEntry] | None = None


class Pod(Shape):
    metadata: ObjectMeta
    spec: PodSpec


class QueueResource(Shape):
    quota: int | float | None = None
    over_quota_weight: int | float | None = None
    limit: int | float | None = None


class QueueResources(Shape):
    gpu: QueueResource | None = None
    cpu: QueueResource | None = None
    memory: QueueResource | None = None


class QueueSpec(Shape):
    parent_queue: str | None = None
    resources: QueueResources | None = None
    priority: int | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class QueueStatus(Shape):
    child_queues: list[str] | None = None
    allocated: dict[str, Any] | None = None


class Queue(Shape):
    metadata: ObjectMeta | None = None
    spec: QueueSpec | None = None
    status: QueueStatus | None = None


class SubGroup(Shape):
    name: str
    parent: str | None = None
    min_member: Count | None = None
    min_sub_group: Count | None = None


class PodGroupSpec(Shape):
    min_member: Count | None = None
    min_sub_group: Count | None = None
    sub_groups: list[SubGroup] | None = None
    preemptibility: Literal["preemptible", "non-preemptible", ""] | None = None
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None


class PodGroup(Shape):
    spec: PodGroupSpec | None = None


class TopologyLevel(Shape):
    node_label: str = ""
    alias: str | None = None


class TopologySpec(Shape):
    levels: list[TopologyLevel] | None = None


class Topology(Shape):
    spec: TopologySpec | None = None


View = TypeVar("View", bound=Shape)

_LONGEST_DURATION = 64


def view(shape: type[View], name: str, value: object) -> View:
    """The value as a typed view; refused with the path of the first field that does not fit (`queue.spec.priority`)."""
    try:
        return convert(value, shape)
    except ValidationError as misfit:
        raise RefusedError(_named(name, str(misfit))) from None
    except (UnicodeError, RecursionError) as misfit:
        raise RefusedError(f"{name}: {misfit}") from None


def _named(name: str, misfit: str) -> str:
    """msgspec writes "problem - at `$.path`"; the reader wants "name.path: problem"."""
    problem, found, place = misfit.rpartition(" - at ")
    path = place.removeprefix("key in ").strip("`").removeprefix("$")
    return (f"{name}{path}: {problem}" if found else f"{name}: {misfit}").replace("`", "")


def check_duration(field: str, text: str | None) -> None:
    """Refuse what is not a duration (`90s`, `1h30m`, `-1s`); None is no duration and passes."""
    if text is None:
        return
    try:
        if len(text) > _LONGEST_DURATION:
            raise ValueError(text)
        units.parse_duration(text)
    except ValueError:
        raise RefusedError(f"{field}: {text[:_LONGEST_DURATION]!r} is not a duration such as 90s or 1h30m") from None


def check_share(field: str, value: float | None, unlimited: bool) -> None:
    """Refuse an amount of a queue that is no number of at least 0; with `unlimited`, -1 passes too."""
    if value is None or (unlimited and value == -1):
        return
    if abs(value) > sys.float_info.max or math.isnan(value):
        raise RefusedError(f"{field}: must be a finite number")
    if value < 0:
        allowed = "-1 (unlimited) or a number of at least 0" if unlimited else "a number of at least 0"
        raise RefusedError(f"{field}: must be {allowed}, given {value:g}")
