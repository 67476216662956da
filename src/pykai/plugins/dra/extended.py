"""Extended resources backed by DRA: container requests that device classes serve on nodes without a device plugin.

A class serves the name in its `extendedResourceName`, and always `deviceclass.resource.kubernetes.io/<class>`. On a
node that does not offer such a resource itself, the pod's requests become a claim of its own.

The devices of a resource are thought of as a line. Containers that run beside one another get stretches one behind the
other; an ordinary init container starts behind the sidecars that run already and reuses what comes there. So the line
is as long as the pod's request. Where stretches begin and end it is cut: each piece is a device request,
named after the container it is for; without init containers that is one per container and resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from pykai.objects.pod_template import Container, PodTemplate
from pykai.objects.units import amount
from pykai.plugins.dra.claims import ClaimDemand, claim_demand, exact_spec

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
    pieces = _pieces(template, sorted(wanted_names(template) & classes.keys()))
    if not pieces:
        return None
    spec = exact_spec((piece.name, classes[piece.resource], piece.devices) for piece in pieces)
    containers = _containers(template)
    uses = sorted((span, at) for at, piece in enumerate(pieces) for span in piece.users)
    mappings = [
        {
            "containerName": containers[span.position].name,
            "resourceName": pieces[at].resource,
            "requestName": pieces[at].name,
        }
        for span, at in uses
    ]
    return ExtendedDemand(claim_demand(spec), spec["devices"]["requests"], mappings)


def _containers(template: PodTemplate) -> Sequence[Container]:
    return [*template.init_containers, *template.containers]


def _requests(container: Container) -> dict[str, int]:
    """Whole devices by resource name; limits stand in for requests."""
    texts = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {name: int(amount(text)) for name, text in sorted(texts.items()) if "/" in name}


class _Span(NamedTuple):
    """A container's stretch on the line of a resource's devices; those that run `before` the others sort last."""

    before: bool
    position: int
    start: int
    end: int


class _Piece(NamedTuple):
    """A device request: the containers that use it, the one it is named after first."""

    users: tuple[_Span, ...]
    resource: str
    devices: int
    name: str


def _spans(template: PodTemplate, resource: str) -> list[_Span]:
    """The stretches of the containers that ask for a resource."""
    spans, running = [], 0
    for at, container in enumerate(_containers(template)):
        count = max(_requests(container).get(resource, 0), 0)
        before = at < len(template.init_containers) and container.restart_policy != "Always"
        if count:
            spans.append(_Span(before, at, running, running + count))
        running += 0 if before else count
    return sorted(spans)


def _pieces(template: PodTemplate, resources: Sequence[str]) -> list[_Piece]:
    """The device requests, in the order of the containers they are named after."""
    pieces: list[_Piece] = []
    for resource in resources:
        spans = _spans(template, resource)
        cuts = sorted({cut for span in spans for cut in (span.start, span.end)})
        for start, end in pairwise(cuts):
            users = tuple(span for span in spans if span.start <= start and end <= span.end)
            number = sum(1 for piece in pieces if piece.users[0].position == users[0].position)
            pieces.append(_Piece(users, resource, end - start, f"container-{users[0].position}-request-{number}"))
    return sorted(pieces, key=lambda piece: piece.users[0][:2])
