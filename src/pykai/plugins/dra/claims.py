"""The claims of a pod, and what a ResourceClaim asks for.

A request with `firstAvailable` offers alternatives, the first that can be had is taken; results name it
`request/alternative`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from msgspec import json

from pykai.objects.kinds import Pod, ResourceClaim
from pykai.objects.pod_template import PodClaim, decode_claims
from pykai.objects.units import parse_quantity

Key = tuple[str, str]
"""Namespace and name of a claim."""
MOST_RESULTS = 32
"""A claim cannot record more devices than this."""


class DemandError(ValueError):
    """A claim asks for something that cannot be given, whatever the devices."""


@dataclass(frozen=True)
class DeviceRequest:
    """Devices of one class; `count` is not used where all matching devices are wanted."""

    name: str
    device_class: str
    selectors: tuple[str, ...]
    count: int
    every: bool
    admin: bool
    tolerations: tuple[tuple[tuple[str, Any], ...], ...] = ()
    """Field by field, so that requests can be compared."""
    capacity: tuple[tuple[str, Fraction], ...] = ()
    """How much of what the device must have, and of a device that is shared how much the request consumes."""

    @property
    def parent(self) -> str:
        """The request this is an alternative of, or its own name."""
        return self.name.split("/", 1)[0]


Alternatives = tuple[DeviceRequest, ...]


@dataclass(frozen=True)
class AttributeConstraint:
    """Devices of these requests (none named: of all) have the same value of an attribute, or all different ones."""

    attribute: str
    requests: frozenset[str]
    distinct: bool = False

    def covers(self, request: DeviceRequest) -> bool:
        return not self.requests or request.name in self.requests or request.parent in self.requests


@dataclass(frozen=True)
class ClaimDemand:
    """Requests in order, each with its alternatives; `signature` is equal for claims that ask for the same."""

    requests: tuple[Alternatives, ...]
    constraints: tuple[AttributeConstraint, ...]
    config: tuple[Mapping[str, Any], ...]
    signature: bytes

    @cached_property
    def least(self) -> int:
        """The fewest devices that serve all its requests."""
        return sum(min(1 if r.every else r.count for r in request) for request in self.requests)

    def alternatives(self) -> Iterator[DeviceRequest]:
        for request in self.requests:
            yield from request


class Demands(dict[Key, ClaimDemand]):
    """Key -> demand of the claim, read on first access; DemandError as by `claim_demand`."""

    def __init__(self, claims: Mapping[Key, ResourceClaim]) -> None:
        self._claims = claims

    def __missing__(self, key: Key) -> ClaimDemand:
        demand = self[key] = claim_demand(self._claims[key].spec)
        return demand


def claim_demand(spec: Mapping[str, Any]) -> ClaimDemand:
    """The demand of a claim's spec; DemandError names the field that cannot be served."""
    return _demand(json.encode(spec.get("devices") or {}, order="deterministic"))


@lru_cache(maxsize=4096)
def _demand(signature: bytes) -> ClaimDemand:
    """Claims that ask for the same are read once."""
    devices = json.decode(signature)
    return ClaimDemand(
        requests=tuple(_alternatives(request) for request in devices.get("requests") or ()),
        constraints=tuple(_constraint(at, item) for at, item in enumerate(devices.get("constraints") or ())),
        config=tuple(devices.get("config") or ()),
        signature=signature,
    )


def exact_spec(requests: Iterable[tuple[str, str, int]]) -> dict[str, Any]:
    """The spec of a claim that asks for (request name, device class, count), in v1 form."""
    return {
        "devices": {
            "requests": [
                {
                    "name": name,
                    "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count},
                }
                for name, device_class, count in requests
            ]
        }
    }


def _alternatives(request: Mapping[str, Any]) -> Alternatives:
    name = str(request.get("name", ""))
    offered = request.get("firstAvailable")
    if offered:
        return tuple(_request(f"{name}/{item.get('name', '')}", item) for item in offered)
    return (_request(name, request.get("exactly") or {}),)


def _request(name: str, fields: Mapping[str, Any]) -> DeviceRequest:
    mode = fields.get("allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        raise DemandError(f"request {name}: allocationMode {mode!r} is not supported (ExactCount or All)")
    if not fields.get("deviceClassName"):
        raise DemandError(f"request {name}: deviceClassName is missing")
    return DeviceRequest(
        name=name,
        device_class=str(fields["deviceClassName"]),
        selectors=cel_expressions(fields),
        count=max(int(fields.get("count") or 1), 1),
        every=mode == "All",
        admin=bool(fields.get("adminAccess")),
        tolerations=tuple(tuple(sorted(item.items())) for item in fields.get("tolerations") or ()),
        capacity=_capacity(name, fields),
    )


def _capacity(name: str, fields: Mapping[str, Any]) -> tuple[tuple[str, Fraction], ...]:
    wanted = (fields.get("capacity") or {}).get("requests") or {}
    try:
        return tuple((what, parse_quantity(text)) for what, text in sorted(wanted.items()))
    except ValueError as error:
        raise DemandError(f"request {name}: capacity: {error}") from error


def cel_expressions(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The CEL expressions of a request's or a device class's `selectors`."""
    expressions = []
    for at, selector in enumerate(fields.get("selectors") or ()):
        expression = (selector.get("cel") or {}).get("expression")
        if not expression:
            raise DemandError(f"selectors[{at}]: only cel selectors are supported")
        expressions.append(str(expression))
    return tuple(expressions)


def _constraint(at: int, fields: Mapping[str, Any]) -> AttributeConstraint:
    requests = frozenset(fields.get("requests") or ())
    if fields.get("matchAttribute"):
        return AttributeConstraint(str(fields["matchAttribute"]), requests)
    if fields.get("distinctAttribute"):
        return AttributeConstraint(str(fields["distinctAttribute"]), requests, distinct=True)
    raise DemandError(f"constraints[{at}]: only matchAttribute and distinctAttribute are supported")


# ------------------------------------------------------------------------------------------------------ claims of a pod
@dataclass(frozen=True)
class Reference:
    """A claim of a pod: its name in the pod, the ResourceClaim (None: not made yet), and whether others may use it."""

    name: str
    key: Key | None
    shared: bool


def references(pod: Pod) -> tuple[Reference, ...]:
    """The pod's claims in order; a generated claim that turned out not to be needed is left out."""
    generated = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    namespace, found = pod.metadata.namespace, []
    for claim in decode_claims(pod.spec):
        own = claim.resource_claim_name
        name = own or generated.get(claim.name)
        if name != "":
            found.append(Reference(claim.name, None if name is None else (namespace, name), bool(own)))
    return tuple(found)


def unavailable(title: str, claims: Sequence[PodClaim]) -> str:
    """Why a pod with claims cannot be placed in a cluster without DRA."""
    listed = ", ".join(claim.name for claim in claims)
    return (
        f"pod {title} cannot be scheduled, it references resource claims <{listed}> "
        "while dynamic resource allocation is not available in the cluster"
    )
