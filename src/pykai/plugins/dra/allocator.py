"""The structured allocator: which devices of a node serve some claims together, or that none do.

An exhaustive search in a fixed order, so equal input gives equal output: claims and requests as written, alternatives
by preference, devices by driver, pool and slice; the devices of one request in ascending order, so that no set is
tried twice. Constraints only ever get harder to meet as devices are added, which lets the search turn back early.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pykai.plugins.dra.claims import MOST_RESULTS, AttributeConstraint, ClaimDemand, DemandError, DeviceRequest
from pykai.plugins.dra.devices import Counter, Device, DeviceId, qualified
from pykai.plugins.dra.selectors import SelectorError
from pykai.plugins.dra.values import Semver

MOST_STEPS = 20_000
"""Devices tried before a node is given up: selectors and constraints can make the search exponential."""


class Grant(NamedTuple):
    """A device for a request."""

    request: DeviceRequest
    device: Device


class Candidates(NamedTuple):
    """The devices of a node that a request accepts, taken or not; `spoilt`: a taint keeps it off one of the others."""

    devices: Sequence[Device]
    spoilt: bool = False
    failing: Mapping[DeviceId, str] = {}
    """Those among the devices for which a selector has no value, and why."""


@dataclass(frozen=True)
class Site:
    """A node as the allocator sees it: candidates by request, which devices are taken, what counters have left."""

    matching: Callable[[DeviceRequest], Candidates]
    taken: Callable[[DeviceId], bool]
    counters: Mapping[Counter, float] = field(default_factory=dict)
    settled: bool = True
    """Whether all pools within reach are known in full: only then can it be told what "all" devices are."""


def allocate(site: Site, demands: Sequence[ClaimDemand]) -> list[list[Grant]] | None:
    """Devices for each claim, in order; None where the node has none. DemandError: no node can serve a claim.

    SelectorError: a device that came into question could not be judged.
    """
    for demand in demands:
        least = sum(min(1 if r.every else r.count for r in request) for request in demand.requests)
        if least > MOST_RESULTS:
            raise DemandError(f"number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}")
    search = _Search(site, [(at, request) for at, demand in enumerate(demands) for request in demand.requests])
    search.rules = [[_Rule(constraint) for constraint in demand.constraints] for demand in demands]
    if not search.slot(0):
        return None
    granted: list[list[Grant]] = [[] for _ in demands]
    for claim, grant in search.chosen:
        granted[claim].append(grant)
    return granted


class _Rule:
    """A constraint and the values of the devices chosen so far."""

    def __init__(self, constraint: AttributeConstraint) -> None:
        self.constraint = constraint
        self.values: list[tuple[type, Hashable]] = []

    def value(self, device: Device) -> tuple[type, Hashable] | None:
        fact = device.facts.get(("attributes", *qualified(self.constraint.attribute, device.driver)))
        if isinstance(fact, Semver):  # equal rank is not enough: build data counts here
            return Semver, fact.text
        return None if fact is None else (type(fact), fact)

    def admits(self, device: Device) -> bool:
        value = self.value(device)
        if value is None:
            return False
        return value not in self.values if self.constraint.distinct else self.values[:1] in ([], [value])


class _Search:
    def __init__(self, site: Site, slots: Sequence[tuple[int, tuple[DeviceRequest, ...]]]) -> None:
        self.site = site
        self.slots = slots
        self.rules: list[list[_Rule]] = []
        self.chosen: list[tuple[int, Grant]] = []
        self.held: set[DeviceId] = set()
        self.left = dict(site.counters)
        self.steps = 0

    def slot(self, at: int) -> bool:
        """Serve the requests from number `at` on."""
        if at == len(self.slots):
            return True
        return any(self._whole(at, r) if r.every else self._several(at, r) for r in self.slots[at][1])

    def _several(self, at: int, request: DeviceRequest) -> bool:
        """As many devices as the request wants, then the rest; too few free ones are not tried in every combination."""
        if not self._room(at, request.count):
            return False
        candidates = self.site.matching(request)
        if request.count > 1 and sum(map(self._open(request), candidates.devices)) < request.count:
            return False
        return self._some(at, request, request.count, 0)

    def _some(self, at: int, request: DeviceRequest, missing: int, start: int) -> bool:
        """Find `missing` more devices for the request among its candidates from `start` on, then serve the rest."""
        if not missing:
            return self.slot(at + 1)
        candidates = self.site.matching(request)
        for position in range(start, len(candidates.devices) - missing + 1):
            device = candidates.devices[position]
            if self._admissible(at, request, device):
                _judged(candidates, device)
                self._take(at, request, device)
                if self._some(at, request, missing - 1, position + 1):
                    return True
                self._give_back()
        return False

    def _whole(self, at: int, request: DeviceRequest) -> bool:
        """Every device that matches, or nothing."""
        candidates = self.site.matching(request)
        for device in candidates.devices:
            _judged(candidates, device)
        if not candidates.devices or candidates.spoilt or not self.site.settled:
            return False
        return self._room(at, len(candidates.devices)) and self._all(at, request, candidates.devices)

    def _all(self, at: int, request: DeviceRequest, devices: Sequence[Device]) -> bool:
        before = len(self.chosen)
        for device in devices:
            if not self._admissible(at, request, device):
                break
            self._take(at, request, device)
        else:
            if self.slot(at + 1):
                return True
        while len(self.chosen) > before:
            self._give_back()
        return False

    def _room(self, at: int, more: int) -> bool:
        """Whether the claim of a request can record so many more devices."""
        claim = self.slots[at][0]
        return more + sum(1 for owner, _ in self.chosen if owner == claim) <= MOST_RESULTS

    def _open(self, request: DeviceRequest) -> Callable[[Device], bool]:
        return lambda device: request.admin or self._free(device)

    def _admissible(self, at: int, request: DeviceRequest, device: Device) -> bool:
        self.steps += 1
        if self.steps > MOST_STEPS:
            return False
        if not request.admin and not self._free(device):
            return False
        return all(rule.admits(device) for rule in self._rules(at, request))

    def _free(self, device: Device) -> bool:
        if device.id in self.held or self.site.taken(device.id):
            return False
        return all(self.left.get(counter, 0.0) >= amount for counter, amount in device.consumes.items())

    def _rules(self, at: int, request: DeviceRequest) -> list[_Rule]:
        return [rule for rule in self.rules[self.slots[at][0]] if rule.constraint.covers(request)]

    def _take(self, at: int, request: DeviceRequest, device: Device) -> None:
        self.chosen.append((self.slots[at][0], Grant(request, device)))
        for rule in self._rules(at, request):
            rule.values.append(rule.value(device) or (type(None), None))
        if not request.admin:
            self.held.add(device.id)
            self._count(device, -1)

    def _give_back(self) -> None:
        claim, (request, device) = self.chosen.pop()
        for rule in self.rules[claim]:
            if rule.constraint.covers(request):
                rule.values.pop()
        if not request.admin:
            self.held.discard(device.id)
            self._count(device, 1)

    def _count(self, device: Device, sign: int) -> None:
        for counter, amount in device.consumes.items():
            self.left[counter] = self.left.get(counter, 0.0) + sign * amount


def _judged(candidates: Candidates, device: Device) -> None:
    if device.id in candidates.failing:
        raise SelectorError(candidates.failing[device.id])
