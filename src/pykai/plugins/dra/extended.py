"""Extended resources backed by DRA: container requests that device classes serve on nodes without a device plugin.

A class serves the name in its `extendedResourceName`, and always `deviceclass.resource.kubernetes.io/<class>`. On a
node that does not offer such a resource itself, the pod's requests become a claim of its own: one device request per
container and resource. An ordinary init container reuses devices of the containers that run after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykai.objects.pod_template import Container, PodTemplate
from pykai.objects.quantity import amount
from pykai.plugins.dra.demand import ClaimDemand, claim_demand, exact_spec

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


@dataclass(frozen=True)
class ExtendedDemand:
    """The claim a pod needs for its extended resources, and which request serves which container."""

    demand: ClaimDemand
    requests: list[dict[str, Any]]
    mappings: list[dict[str, str]]


def served_names(classes: Mapping[str, Any]) -> dict[str, str]:
    """Extended resource -> device class; of several classes for one resource the newest, then the first by name."""

    def age(name: str) -> tuple[float, str]:
        created = classes[name].metadata.creation_timestamp
        return (-created.timestamp() if created else 0.0, name)

    found: dict[str, str] = {}
    for name in sorted(classes, key=age):
        found[IMPLICIT_PREFIX + name] = name
        explicit = classes[name].spec.get("extendedResourceName")
        if explicit:
            found.setdefault(str(explicit), name)
    return found


def wanted_names(template: PodTemplate) -> set[str]:
    """Resources that some container of the pod asks for."""
    return {name for c in _containers(template) for name, count in _requests(c).items() if count > 0}


def extended_demand(template: PodTemplate, classes: Mapping[str, str]) -> ExtendedDemand | None:
    """The claim for those resources of the pod that `classes` (resource -> device class) serve; None: none of them."""
    draft = _Draft(classes)
    init = template.init_containers
    for at, container in enumerate(_containers(template)):
        if at >= len(init) or container.restart_policy == "Always":
            draft.add(at, container)
    for at, container in enumerate(init):
        if container.restart_policy != "Always":
            draft.reuse(at, container)
    if not draft.made:
        return None
    spec = exact_spec((made.name, classes[made.resource], made.devices) for made in draft.made)
    return ExtendedDemand(claim_demand(spec), spec["devices"]["requests"], draft.mappings)


def _containers(template: PodTemplate) -> Sequence[Container]:
    return [*template.init_containers, *template.containers]


def _requests(container: Container) -> dict[str, int]:
    """Whole devices by resource name; limits stand in for requests."""
    texts = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {name: int(amount(text)) for name, text in sorted(texts.items()) if "/" in name}


class _Made(NamedTuple):
    """A device request: `position` of the container it was made for, `beside`: that one runs beside the others."""

    name: str
    resource: str
    devices: int
    position: int
    beside: bool


@dataclass
class _Draft:
    classes: Mapping[str, str]
    made: list[_Made] = field(default_factory=list)
    mappings: list[dict[str, str]] = field(default_factory=list)

    def add(self, position: int, container: Container) -> None:
        """A container that runs beside the others: devices of its own."""
        for at, resource, count in self._served(container):
            self._make(_Made(f"container-{position}-request-{at}", resource, count, position, True), container)

    def reuse(self, position: int, container: Container) -> None:
        """A container that runs before the others: their devices, and more only where those are too few."""
        for at, resource, missing in self._served(container):
            for made in self.made:
                running_already = made.beside and made.position < position
                if made.resource == resource and made.devices <= missing and not running_already:
                    self._map(container, made)
                    missing -= made.devices
            if missing:
                self._make(_Made(f"container-{position}-request-{at}", resource, missing, position, False), container)

    def _served(self, container: Container) -> Iterator[tuple[int, str, int]]:
        asked = [(name, count) for name, count in _requests(container).items() if count > 0 and name in self.classes]
        yield from ((at, name, count) for at, (name, count) in enumerate(asked))

    def _make(self, made: _Made, container: Container) -> None:
        self.made.append(made)
        self._map(container, made)

    def _map(self, container: Container, made: _Made) -> None:
        entry = {"containerName": container.name, "resourceName": made.resource, "requestName": made.name}
        self.mappings.append(entry)
