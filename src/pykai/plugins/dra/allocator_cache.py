"""What the claims of a pod get on a node, cached for one cycle while the devices of the node do not change.

Devices that are free now are preferred to those that are being released, so that a pod waits only where it must. Nodes
known to have nothing for a demand are cached, too: ten thousand pods that ask for the same in vain are refused once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pykai.engine.plugin_api import Rejection
from pykai.engine.trial import Trial
from pykai.model.resources import Mask
from pykai.model.snapshot import Snapshot
from pykai.plugins.dra.allocator import Candidates, Site, allocate
from pykai.plugins.dra.claims import (
    ClaimDemand,
    DemandError,
    Demands,
    DeviceRequest,
    Key,
    Reference,
    cel_expressions,
)
from pykai.plugins.dra.devices import (
    NOTHING,
    Amounts,
    Counter,
    Device,
    DeviceId,
    Inventory,
    PoolId,
    consumption,
    selector_matches,
    total,
)
from pykai.plugins.dra.ledger import Allocation, Ledger, allocation, with_share_ids
from pykai.plugins.dra.selectors import SelectorError, Selectors, answer_for_driver

Offer = list[tuple[Key, Allocation | None]]
"""Claims a pod would hold on a node; None: as the claim is allocated already."""
Granted = list[Allocation] | str | None


@dataclass
class AllocatorCache:
    """Allocations by what is asked for, where, and in which state the pools of that node are."""

    snapshot: Snapshot
    ledger: Ledger
    inventory: Inventory
    demands: Demands = field(init=False)
    _granted: dict[tuple[Any, ...], Granted] = field(default_factory=dict)
    _matching: dict[tuple[Any, ...], Candidates] = field(default_factory=dict)
    _pools: dict[int, tuple[PoolId, ...]] = field(default_factory=dict)
    _selectors: Selectors = field(default_factory=Selectors)

    def __post_init__(self) -> None:
        self.demands = Demands(self.snapshot.objects.resource_claims)

    def offer(self, references: Sequence[Reference], node: int, own: tuple[Key, ClaimDemand] | None) -> Offer | str:
        """What a pod's claims, and the claim of its own for extended resources, get on a node; or why not."""
        offer: Offer = []
        missing: list[tuple[Key, ClaimDemand]] = []
        for key in dict.fromkeys([*[reference.key for reference in references], *([own[0]] if own else [])]):
            if key is None:
                return "a claim has not been created yet"
            state, reachable = self.ledger.state(key), self.reachable(key, node)
            if state.kept and not reachable:
                return f"claim {'/'.join(key)} node selector does not match node(s)"
            if state.kept or (reachable and self.ledger.can_rejoin(state)):
                offer.append((key, None))
            else:
                missing.append(own if own and own[0] == key else (key, self.demands[key]))
        return self._complete(offer, missing, node)

    def _complete(self, offer: Offer, missing: Sequence[tuple[Key, ClaimDemand]], node: int) -> Offer | str:
        if not missing:
            return offer
        granted = self._grants([demand for _, demand in missing], node)
        if granted is None:
            return "cannot allocate all DRA claims on node(s)"
        if isinstance(granted, str):
            return f"cannot allocate DRA claims on node(s): {granted}"
        new = zip(missing, granted, strict=True)
        return [*offer, *[(key, with_share_ids(each, partial(self._identity, key))) for (key, _), each in new]]

    def _identity(self, key: Key) -> str:
        """The claim, distinguished from others that have or had its name."""
        claim = self.snapshot.objects.resource_claims.get(key)
        return " ".join([*key, claim.metadata.uid if claim is not None else ""])

    def signature(self, references: Sequence[Reference]) -> tuple[bytes, ...] | None:
        """Equal for pods whose claims ask for the same; None where one of them is allocated already."""
        found = []
        for reference in references:
            if reference.key is None or self.ledger.state(reference.key).allocation is not None:
                return None
            found.append(self.demands[reference.key].signature)
        return tuple(found)

    def reachable(self, key: Key, node: int) -> bool:
        """Whether the claim's allocation, if it has one, can be used from the node."""
        selector = (self.ledger.state(key).allocation or {}).get("nodeSelector")
        nodes = self.snapshot.nodes
        return not selector or selector_matches(selector, nodes.names[node], nodes.labels[node])

    def _grants(self, demands: Sequence[ClaimDemand], node: int) -> Granted:
        """Allocations for the demands; None: the node lacks them, text: they cannot be had for another reason."""
        pools, states = self._pools_of(node), self.ledger.states
        key = (node, *[demand.signature for demand in demands], *[states.get(pool, 0) for pool in pools])
        if key not in self._granted:
            self._granted[key] = self._search(demands, node)
        return self._granted[key]

    def _search(self, demands: Sequence[ClaimDemand], node: int) -> Granted:
        try:
            granted = allocate(self._site(node, waiting=False), demands)
            if granted is None and self._awaits(node):
                granted = allocate(self._site(node, waiting=True), demands)
        except (DemandError, SelectorError) as error:
            return str(error)
        if granted is None:
            return None
        classes, name = self.snapshot.objects.device_classes, self.snapshot.nodes.names[node]
        return [allocation(demand, grants, classes, name) for demand, grants in zip(demands, granted, strict=True)]

    def awaiting(self, references: Sequence[Reference]) -> Callable[[int], bool]:
        """On which nodes claims may have to wait: anywhere, where all who hold one of them leave."""
        states = [self.ledger.state(reference.key) for reference in references if reference.key is not None]
        if any(state.former is not None or (state.leaving and not state.users) for state in states):
            return lambda node: True
        pools = self.ledger.awaited()
        return lambda node: not pools.isdisjoint(self._pools_of(node))

    def _awaits(self, node: int) -> bool:
        """Whether devices of a node are being released, or counters they draw on."""
        leaving = self.ledger.leaving
        if not leaving:
            return False
        if any(leaving.get(device.id) for device in self.inventory.devices(node)):
            return True
        pools = self._pools_of(node) if self.inventory.counters else ()
        return any(leaving.get(device) for pool in pools for device in self.inventory.consumers(pool))

    def _site(self, node: int, waiting: bool) -> Site:
        """The node with its free devices; `waiting`: those that are being released count as free."""
        taken, leaving = self.ledger.taken, self.ledger.leaving

        def in_use(device: DeviceId) -> bool:
            return bool(taken.get(device) or (not waiting and leaving.get(device)))

        left: dict[Counter, float] = {}
        for pool in self._pools_of(node) if self.inventory.counters else ():
            left |= self.inventory.counters_left(pool, in_use)

        def consumed(device: DeviceId) -> Amounts:
            used, released = self.ledger.consumed.get(device), self.ledger.consumed_by_leaving.get(device)
            return used or NOTHING if waiting or not released else total((used or NOTHING, released))

        settled = self.inventory.settled(node)
        return Site(lambda request: self._matches(request, node), in_use, left, settled, consumed)

    def _pools_of(self, node: int) -> tuple[PoolId, ...]:
        pools = self._pools.get(node)
        if pools is None:
            pools = self._pools[node] = tuple({device.pool: None for device in self.inventory.devices(node)})
        return pools

    def _matches(self, request: DeviceRequest, node: int) -> Candidates:
        """The devices of a node that a request accepts, taken or not."""
        key = (node, request.device_class, request.selectors, request.tolerations, request.capacity)
        if key not in self._matching:
            device_class = self.snapshot.objects.device_classes.get(request.device_class)
            if device_class is None:
                raise DemandError(f"device class {request.device_class} does not exist")
            expressions = (*cel_expressions(device_class.spec), *request.selectors)
            self._matching[key] = self._candidates(self.inventory.devices(node), expressions, request)
        return self._matching[key]

    def _candidates(self, devices: Sequence[Device], expressions: Sequence[str], request: DeviceRequest) -> Candidates:
        selects = self._selectors.selects
        asked = {driver: _after_driver(expressions, driver) for driver in {device.driver for device in devices}}
        found: list[Device] = []
        failing: dict[DeviceId, str] = {}
        spoilt = False
        for device in devices:
            more = asked[device.driver]
            try:
                if more is None or not all(selects(e, device.driver, device.facts) for e in more):
                    continue
            except SelectorError as error:
                failing[device.id] = str(error)
            if request.capacity and consumption(device, dict(request.capacity)) is None:
                continue
            if not device.taints or device.id in failing or _tolerated(device, request):
                found.append(device)
            else:
                spoilt = True
        shared, counted = any(device.shared for device in found), any(device.consumes for device in found)
        return Candidates(found, spoilt, failing, shared, counted)


def _after_driver(expressions: Sequence[str], driver: str) -> Sequence[str] | None:
    """The expressions from the first one on that reads more of a device than its driver; None: one before it is false
    for the driver."""
    for at, expression in enumerate(expressions):
        answer = answer_for_driver(expression, driver)
        if answer is None:
            return expressions[at:]
        if not answer:
            return None
    return ()


def _tolerated(device: Device, request: DeviceRequest) -> bool:
    """Whether the request tolerates every taint that keeps pods off the device."""
    return all(
        any(_tolerates(dict(toleration), taint) for toleration in request.tolerations)
        for taint in device.taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint.get("key")
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


# ------------------------------------------------------------------------------------------------------ refused demands
@dataclass
class _Known:
    """Masks of nodes by reason; `read`: how far the log of touched nodes has been read."""

    read: int
    wide: tuple[int, ...]
    masks: dict[str, Mask] = field(default_factory=dict)


class Refusals:
    """What is known per demand. A node is forgotten when the trial touches it, all are when a pool changes that several
    nodes reach."""

    def __init__(self, trial: Trial, ledger: Ledger, wide_pools: tuple[PoolId, ...]) -> None:
        self.trial = trial
        self.ledger = ledger
        self.wide_pools = wide_pools
        self._known: dict[Hashable, _Known] = {}

    def note(self, demand: Hashable, reason: str, node: int) -> None:
        """A node refuses the demand as things are."""
        known = self._fresh(demand) or self._known.setdefault(demand, _Known(len(self.trial.touched), self._wide()))
        if reason not in known.masks:
            known.masks[reason] = np.zeros(len(self.trial.snapshot.nodes), dtype=bool)
        known.masks[reason][node] = True

    def known(self, demand: Hashable) -> Iterator[Rejection]:
        known = self._fresh(demand)
        if known is not None:
            yield from ((reason, mask) for reason, mask in known.masks.items() if mask.any())

    def _wide(self) -> tuple[int, ...]:
        return tuple(self.ledger.states.get(pool, 0) for pool in self.wide_pools)

    def _fresh(self, demand: Hashable) -> _Known | None:
        """What is known of a demand, without what may no longer be true."""
        known = self._known.get(demand)
        if known is None:
            return None
        wide, touched = self._wide(), self.trial.touched
        if known.wide != wide:
            known.wide, known.masks = wide, {}
        elif known.read < len(touched):
            changed = list(set(touched[known.read :]))
            for mask in known.masks.values():
                mask[changed] = False
        known.read = len(touched)
        return known
