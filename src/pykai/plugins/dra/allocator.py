"""The structured allocator: which devices of a node serve some claims together, or that none do.

An exhaustive search in a fixed order, so equal input gives equal output: claims and requests as written, alternatives
by preference, devices by driver, pool and slice; the devices of one request in ascending order, so that no set is
tried twice. Constraints only ever get harder to meet as devices are added, which lets the search turn back early.
A device that can be shared is there for as many requests as its capacity allows, also for one request several times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from pykai.plugins.dra.claims import MOST_RESULTS, AttributeConstraint, ClaimDemand, DemandError, DeviceRequest
from pykai.plugins.dra.devices import (
    NOTHING,
    Amounts,
    Counter,
    Device,
    DeviceId,
    consumption,
    qualified,
    within,
)
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
    shared: bool = False
    """Whether some of the devices can be given several times."""
    counted: bool = True
    """Whether some of the devices may draw on counters."""


class Site(NamedTuple):
    """A node as the allocator sees it: candidates by request, which devices are taken, what counters have left, and how
    much of shared devices is consumed."""

    matching: Callable[[DeviceRequest], Candidates]
    taken: Callable[[DeviceId], bool]
    counters: Mapping[Counter, float] = {}
    settled: bool = True
    """Whether all pools within reach are known in full: only then is it known what "all" devices are."""
    consumed: Callable[[DeviceId], Amounts] = lambda _: NOTHING


def allocate(site: Site, demands: Sequence[ClaimDemand]) -> list[list[Grant]] | None:
    """Devices for each claim, in order; None where the node has none. DemandError: no node can serve a claim.

    SelectorError: a selector failed on a candidate device.
    """
    for demand in demands:
        if demand.least > MOST_RESULTS:
            raise DemandError(f"number of requested devices {demand.least} exceeds the claim limit of {MOST_RESULTS}")
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
        self.shares: dict[DeviceId, list[Amounts]] = {}
        """What was given of shared devices."""
        self.left = dict(site.counters)
        self.steps = 0

    def slot(self, at: int) -> bool:
        """Serve the requests from number `at` on."""
        if at == len(self.slots):
            return True
        for request in self.slots[at][1]:
            if self._whole(at, request) if request.every else self._several(at, request):
                return True
        return False

    def _several(self, at: int, request: DeviceRequest) -> bool:
        """As many devices as the request wants, then the rest; too few free ones are not tried in every combination."""
        if not self._room(at, request.count):
            return False
        candidates = self.site.matching(request)
        free_for_any = not (candidates.shared or candidates.counted or request.admin or self._rules(at, request))
        if free_for_any and at + 1 == len(self.slots):
            return self._first(at, request, candidates)
        many = request.count > 1 and not candidates.shared
        if many and sum(map(self._open(request), candidates.devices)) < request.count:
            return False
        return self._some(at, request, candidates, (request.count, 0))

    def _first(self, at: int, request: DeviceRequest, candidates: Candidates) -> bool:
        """Take the first free devices for the last request: no constraint and no counter asks for others."""
        taken, held = self.site.taken, self.held
        free = [device for device in candidates.devices if device.id not in held and not taken(device.id)]
        if len(free) < request.count:
            return False
        for device in free[: request.count]:
            _judged(candidates, device)
            self.chosen.append((self.slots[at][0], Grant(request, device)))
        return True

    def _some(self, at: int, request: DeviceRequest, candidates: Candidates, rest: tuple[int, int]) -> bool:
        """Find devices for the request among its candidates, then serve the other requests. `rest`: how many more
        devices, and from which candidate on."""
        missing, start = rest
        if not missing:
            return self.slot(at + 1)
        rules = self._rules(at, request)
        end = len(candidates.devices) - (0 if candidates.shared else missing - 1)
        for position in range(start, end):
            device = candidates.devices[position]
            if self._admissible(rules, request, device):
                _judged(candidates, device)
                self._take(at, request, device)
                further = missing - 1, position if device.shared else position + 1
                if self._some(at, request, candidates, further):
                    return True
                self._give_back()
        return False

    def _whole(self, at: int, request: DeviceRequest) -> bool:
        """Every device that matches, or nothing."""
        candidates = self.site.matching(request)
        for device in candidates.devices:
            _judged(candidates, device)
        if candidates.spoilt or not self.site.settled:
            return False
        devices = candidates.devices
        if candidates.shared:  # those without enough left do not count as matching
            devices = [each for each in devices if not each.shared or self._suffices(each, request, ())]
        return bool(devices) and self._room(at, len(devices)) and self._all(at, request, devices)

    def _all(self, at: int, request: DeviceRequest, devices: Sequence[Device]) -> bool:
        before, rules = len(self.chosen), self._rules(at, request)
        for device in devices:
            if not self._admissible(rules, request, device):
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
        return lambda device: request.admin or self._free(device, request)

    def _admissible(self, rules: Sequence[_Rule], request: DeviceRequest, device: Device) -> bool:
        self.steps += 1
        if self.steps > MOST_STEPS:
            return False
        if (device.shared or not request.admin) and not self._free(device, request):
            return False
        return not rules or all(rule.admits(device) for rule in rules)

    def _free(self, device: Device, request: DeviceRequest) -> bool:
        if device.shared:
            if not self._suffices(device, request, self.shares.get(device.id, ())):
                return False
            if self._in_use(device):  # then it has what it draws from counters
                return True
        elif device.id in self.held or self.site.taken(device.id):
            return False
        left = self.left
        return not device.consumes or all(left.get(counter, 0.0) >= each for counter, each in device.consumes.items())

    def _suffices(self, device: Device, request: DeviceRequest, given: Sequence[Amounts]) -> bool:
        """Whether a shared device has enough left for a request, beside what is consumed and what was `given`."""
        more = consumption(device, dict(request.capacity))
        return more is not None and within(device.capacity, (self.site.consumed(device.id), *given, more))

    def _in_use(self, device: Device) -> bool:
        """Whether a claim has a share of a device."""
        return bool(self.shares.get(device.id)) or self.site.taken(device.id)

    def _rules(self, at: int, request: DeviceRequest) -> list[_Rule]:
        return [rule for rule in self.rules[self.slots[at][0]] if rule.constraint.covers(request)]

    def _take(self, at: int, request: DeviceRequest, device: Device) -> None:
        self.chosen.append((self.slots[at][0], Grant(request, device)))
        for rule in self._rules(at, request):
            rule.values.append(rule.value(device) or (type(None), None))
        if device.shared:
            if not self._in_use(device):
                self._count(device, -1)
            self.shares.setdefault(device.id, []).append(consumption(device, dict(request.capacity)) or NOTHING)
        elif not request.admin:
            self.held.add(device.id)
            self._count(device, -1)

    def _give_back(self) -> None:
        claim, (request, device) = self.chosen.pop()
        for rule in self.rules[claim]:
            if rule.constraint.covers(request):
                rule.values.pop()
        if device.shared:
            self.shares[device.id].pop()
            if not self._in_use(device):
                self._count(device, 1)
        elif not request.admin:
            self.held.discard(device.id)
            self._count(device, 1)

    def _count(self, device: Device, sign: int) -> None:
        for counter, amount in device.consumes.items():
            self.left[counter] = self.left.get(counter, 0.0) + sign * amount


def _judged(candidates: Candidates, device: Device) -> None:
    if device.id in candidates.failing:
        raise SelectorError(candidates.failing[device.id])
