"""The structured allocator: which devices of a node serve some claims together, or that none do.

An exhaustive search in a fixed order, so equal input gives equal output: claims and requests as written, alternatives
by preference, devices by driver, pool and slice; the devices of one request in ascending order, so that no set is
tried twice. Constraints only ever get harder to meet as devices are added, which lets the search turn back early.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pykai.plugins.dra.demand import MOST_RESULTS, AttributeConstraint, ClaimDemand, DemandError, DeviceRequest
from pykai.plugins.dra.devices import Counter, Device, DeviceId, qualified

MOST_STEPS = 20_000
"""Devices tried before a node is given up: selectors and constraints can make the search exponential."""


class Grant(NamedTuple):
    """A device for a request."""

    request: DeviceRequest
    device: Device


@dataclass(frozen=True)
class Site:
    """A node as the allocator sees it: its devices by request, which of them are taken, what counters have left."""

    matching: Callable[[DeviceRequest], Sequence[Device]]
    taken: Callable[[DeviceId], bool]
    counters: Mapping[Counter, float] = field(default_factory=dict)


def allocate(site: Site, demands: Sequence[ClaimDemand]) -> list[list[Grant]] | None:
    """Devices for each claim, in order; None where the node has none. DemandError: no node can serve a claim."""
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
        return any(self._whole(at, r) if r.every else self._some(at, r, r.count, 0) for r in self.slots[at][1])

    def _some(self, at: int, request: DeviceRequest, missing: int, start: int) -> bool:
        """Find `missing` more devices for the request among its candidates from `start` on, then serve the rest."""
        if not missing:
            return self.slot(at + 1)
        candidates = self.site.matching(request)
        for position in range(start, len(candidates) - missing + 1):
            device = candidates[position]
            if self._admissible(at, request, device):
                self._take(at, request, device)
                if self._some(at, request, missing - 1, position + 1):
                    return True
                self._give_back()
        return False

    def _whole(self, at: int, request: DeviceRequest) -> bool:
        """Every device that matches, or nothing."""
        candidates = self.site.matching(request)
        if not candidates or len(candidates) > MOST_RESULTS or not all(device.complete for device in candidates):
            return False
        before = len(self.chosen)
        for device in candidates:
            if not self._admissible(at, request, device):
                break
            self._take(at, request, device)
        else:
            if self.slot(at + 1):
                return True
        while len(self.chosen) > before:
            self._give_back()
        return False

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
