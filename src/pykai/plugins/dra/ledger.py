"""Which pods hold which claims and devices after the decisions so far. Every change goes through the trial's journal.

A device is *taken* while its claim has users, or is allocated and waits for some; it is *leaving* while all who hold
the claim are being evicted: it can be waited for. A claim whose holders leave may be allocated anew elsewhere; until
they are gone the devices of its former allocation are leaving, too. Of a device that claims share, each has a part of
the capacity: those parts are what is taken, leaving, or not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pykai.engine.journal import Journal
from pykai.objects.units import canonical
from pykai.plugins.dra.allocator import Grant
from pykai.plugins.dra.claims import ClaimDemand, DeviceRequest, Key
from pykai.plugins.dra.devices import (
    NOTHING,
    Amounts,
    DeviceId,
    Inventory,
    PoolId,
    consumption,
    only_node,
    together,
    total,
)
from pykai.plugins.dra.values import quantity

SHARE = "shareID"
Allocation = Mapping[str, Any]
"""A resource.k8s.io/v1 AllocationResult."""
Uids = frozenset[str]
Holding = tuple[str, str, str, tuple[tuple[str, Fraction], ...] | None]
"""Driver, pool, device, and of a shared device what is consumed."""


class ClaimState(Struct, frozen=True, dict=True):
    """`users` and `leaving` are pod uids; `fresh`: the allocation was chosen in this cycle."""

    allocation: Allocation | None = None
    users: Uids = frozenset()
    leaving: Uids = frozenset()
    fresh: bool = False
    former: Allocation | None = None
    """What leaving pods still hold of a claim that was allocated anew."""

    @property
    def kept(self) -> bool:
        """Whether the allocation stays: a pod uses the claim, or none that holds it is leaving."""
        return self.allocation is not None and (bool(self.users) or not self.leaving)

    @cached_property
    def held(self) -> tuple[Holding, ...]:
        """What the allocation keeps from others."""
        return tuple(holdings(self.allocation))

    @property
    def taken(self) -> tuple[Holding, ...]:
        return self.held if self.kept else ()

    @property
    def released(self) -> tuple[Holding, ...]:
        leaving = () if self.kept else self.held
        return leaving if self.former is None else (*leaving, *holdings(self.former))


UNTOUCHED = ClaimState()


class Ledger:
    """Claims by key, how many of them take or leave each device, and a number per pool for each of its states."""

    def __init__(self, journal: Journal, inventory: Inventory) -> None:
        self.journal = journal
        self.inventory = inventory
        self.claims: dict[Key, ClaimState] = {}
        self.taken: dict[DeviceId, int] = {}
        self.leaving: dict[DeviceId, int] = {}
        self.consumed: dict[DeviceId, Amounts] = {}
        """Of shared devices what those who take them consume, and what those who leave them do."""
        self.consumed_by_leaving: dict[DeviceId, Amounts] = {}
        self.held: dict[str, tuple[Key, ...]] = {}
        """Pod uid -> claims it holds or held when it was evicted."""
        self.states: dict[PoolId, int] = {}
        self.version = 0
        """Another one after every change, also one that is undone."""
        self._last_state = 0

    def state(self, key: Key) -> ClaimState:
        return self.claims.get(key, UNTOUCHED)

    def put(self, key: Key, new: ClaimState) -> None:
        old = self.state(key)
        for tally, before, after in (
            ((self.taken, self.consumed), old.taken, new.taken),
            ((self.leaving, self.consumed_by_leaving), old.released, new.released),
        ):
            if before != after:  # another pod on a claim that is taken changes no device
                self._count(tally, before, -1)
                self._count(tally, after, 1)
        self.journal.put_new(self.claims, key, new)
        self.journal.note(self._changed, None)
        self.version += 1

    def _changed(self, _: None) -> None:
        self.version += 1

    def open(self, key: Key, state: ClaimState) -> None:
        """Set the state of a claim when the cycle begins, which nothing undoes."""
        self.claims[key] = state
        for holders, consumed, held in (
            (self.taken, self.consumed, state.taken),
            (self.leaving, self.consumed_by_leaving, state.released),
        ):
            for driver, pool, name, amounts in held:
                device = (driver, pool, name)
                holders[device] = holders.get(device, 0) + 1
                if amounts is not None:
                    consumed[device] = total((consumed.get(device, NOTHING), dict(amounts)))
        for uid in sorted(state.users | state.leaving):
            self.held[uid] = (*self.held.get(uid, ()), key)

    def _count(
        self, tally: tuple[dict[DeviceId, int], dict[DeviceId, Amounts]], held: Sequence[Holding], by: int
    ) -> None:
        holders, consumed = tally
        for driver, pool, name, amounts in held:
            device = (driver, pool, name)
            self.journal.put_new(holders, device, holders.get(device, 0) + by)
            if amounts is not None:
                change = {what: by * amount for what, amount in amounts}
                self.journal.put_new(consumed, device, total((consumed.get(device, NOTHING), change)))
            self._last_state += 1
            self.journal.put_new(self.states, device[:2], self._last_state)

    def hold(self, uid: str, key: Key, chosen: Allocation | None = None) -> None:
        """A pod gets a claim, as it is allocated or with a new allocation."""
        state = self.state(key)
        if chosen is None:
            state = replace(state, users=state.users | {uid})
        else:
            state = ClaimState(chosen, state.users | {uid}, state.leaving, True, state.former or state.allocation)
        self.put(key, state)
        self._note(uid, key)

    def assume(self, uid: str, key: Key, allocation: Allocation) -> None:
        """A bind under way gives a pod a claim: as the claim is allocated, or with this allocation."""
        state = self.state(key)
        self.put(key, replace(state, allocation=state.allocation or allocation, users=state.users | {uid}))
        self._note(uid, key)

    def _note(self, uid: str, key: Key) -> None:
        known = self.held.get(uid, ())
        if key not in known:
            self.journal.put_new(self.held, uid, (*known, key))

    def leave(self, uid: str) -> None:
        """Note that a pod is evicted: it holds its claims until it is gone, but no longer uses them."""
        for key in self.held.get(uid, ()):
            state = self.state(key)
            if uid not in state.users:
                continue
            users = state.users - {uid}
            if not state.fresh:
                self.put(key, replace(state, users=users, leaving=state.leaving | {uid}))
            elif users:
                self.put(key, replace(state, users=users))
            else:
                self.put(key, ClaimState(state.former, leaving=state.leaving))

    def stay(self, uid: str) -> None:
        """Take back the eviction of a pod."""
        for key in self.held.get(uid, ()):
            state = self.state(key)
            self.put(key, replace(state, users=state.users | {uid}, leaving=state.leaving - {uid}))

    def can_stay(self, uid: str, reached: Callable[[Key], bool]) -> bool:
        """Whether no claim was given what an evicted pod held; `reached`: whether a claim can be used where it is."""
        return all(self._can_stay(uid, key, reached) for key in self.held.get(uid, ()))

    def _can_stay(self, uid: str, key: Key, reached: Callable[[Key], bool]) -> bool:
        state = self.state(key)
        if state.fresh and uid not in state.leaving:  # it got the claim in this cycle itself, and sharers have it again
            return reached(key)
        return state.allocation is None or self.can_rejoin(state)

    def can_rejoin(self, state: ClaimState) -> bool:
        """Whether a claim can be used as it was allocated before this cycle."""
        if state.allocation is None or state.fresh:
            return False
        return state.kept or not self._given_away(state.allocation)

    def _given_away(self, allocation: Allocation) -> bool:
        """Whether others were given devices, parts of them, or what they draw from counters."""
        taken = self.taken.get
        whole, shares = _by_device(allocation)
        if any(map(taken, whole)) or any(self._short(share, self.consumed) for share in shares.items()):
            return True
        return self.inventory.overdrawn(whole | shares.keys(), lambda device: bool(taken(device)))

    def _short(self, share: tuple[DeviceId, Amounts], *consumed: Mapping[DeviceId, Amounts]) -> bool:
        """Whether a device does not have a share beside what is consumed of it."""
        device, amounts = share
        return self.inventory.exceeded(device, (amounts, *(each.get(device, NOTHING) for each in consumed)))

    def awaited(self) -> set[PoolId]:
        """Pools of devices that are being released."""
        return {device[:2] for device, count in self.leaving.items() if count}

    def waits(self, uid: str) -> bool:
        """Whether a pod's claims need something that is still being released."""
        return any(self.must_wait(key, None) for key in self.held.get(uid, ()))

    def must_wait(self, key: Key, chosen: Allocation | None) -> bool:
        """Whether a claim has to wait, as it is allocated or with a new allocation: until its old one, or that of
        another claim, is gone."""
        state = self.state(key)
        if chosen is None:
            return state.former is not None or (state.fresh and self._leaving(state.allocation, counted=True))
        return state.allocation is not None or self._leaving(chosen)

    def _leaving(self, allocation: Allocation | None, counted: bool = False) -> bool:
        """Whether an allocation needs devices, parts of them, or what they draw from counters, that are still being
        released; `counted`: what it consumes is consumed already."""
        if not self.leaving and not self.inventory.counters:
            return False
        whole, shares = _by_device(allocation)
        taken, leaving = self.taken.get, self.leaving.get
        if any(map(leaving, whole)):
            return True
        for device, amounts in shares.items():
            share = (device, NOTHING if counted else amounts)
            if leaving(device) and self._short(share, self.consumed, self.consumed_by_leaving):
                return True
        devices = whole | shares.keys()
        return self.inventory.overdrawn(devices, lambda device: bool(taken(device) or leaving(device)))


def open_ledger(journal: Journal, inventory: Inventory, claims: Mapping[Key, Any], going: Uids) -> Ledger:
    """The ledger of what the API server says; `going`: uids of pods that are being released."""
    ledger = Ledger(journal, inventory)
    for key, claim in claims.items():
        status = claim.status or {}
        holders = frozenset([str(holder.get("uid", "")) for holder in status.get("reservedFor") or ()])
        if holders or status.get("allocation"):
            ledger.open(key, ClaimState(status.get("allocation"), holders - going, holders & going))
    return ledger


# -------------------------------------------------------------------------------------------------- allocation results
def allocation(demand: ClaimDemand, grants: Sequence[Grant], classes: Mapping[str, Any], node: str) -> Allocation:
    """The result of granting devices on a node; `classes`: device class name -> DeviceClass."""
    devices: dict[str, Any] = {"results": [_result(grant) for grant in grants]}
    chosen = list(dict.fromkeys(grant.request for grant in grants))
    config = [*_class_config(chosen, classes), *(_claim_config(chosen, demand.config) if demand.config else ())]
    if config:
        devices["config"] = config
    selector = _node_selector(grants, node)
    return {"devices": devices} if selector is None else {"devices": devices, "nodeSelector": selector}


def _result(grant: Grant) -> dict[str, Any]:
    driver, pool, device = grant.device.id
    result: dict[str, Any] = {"request": grant.request.name, "driver": driver, "pool": pool, "device": device}
    if grant.device.shared:
        consumed = consumption(grant.device, dict(grant.request.capacity)) or NOTHING
        result["consumedCapacity"] = {name: canonical(amount) for name, amount in sorted(consumed.items())}
    if grant.request.admin:
        result["adminAccess"] = True
    if grant.request.tolerations:
        result["tolerations"] = [dict(toleration) for toleration in grant.request.tolerations]
    return result


def _class_config(chosen: Sequence[DeviceRequest], classes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration of each class once, for all requests of the class."""
    for name in dict.fromkeys([request.device_class for request in chosen]):
        configs = classes[name].spec.get("config")
        requests = [request.name for request in chosen if configs and request.device_class == name]
        for config in configs or ():
            yield {"source": "FromClass", "requests": requests, **config}


def _claim_config(chosen: Sequence[DeviceRequest], configs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    names = {name for request in chosen for name in (request.name, request.parent)}
    for config in configs:
        if not config.get("requests") or names & set(config["requests"]):
            yield {"source": "FromClaim", **config}


def _node_selector(grants: Sequence[Grant], node: str) -> dict[str, Any] | None:
    """Which nodes reach all the devices; None: every node."""
    if any(grant.device.local for grant in grants):
        return only_node(node)
    return together([grant.device.where for grant in grants if grant.device.where is not None])


def holdings(result: Allocation | None) -> Iterator[Holding]:
    """What an allocation keeps from others: admin access keeps nothing."""
    for item in ((result or {}).get("devices") or {}).get("results") or ():
        if not item.get("adminAccess"):
            consumed = item.get("consumedCapacity") or {} if SHARE in item else None
            amounts = (
                None if consumed is None else tuple((name, quantity(text).value) for name, text in consumed.items())
            )
            yield item.get("driver", ""), item.get("pool", ""), item.get("device", ""), amounts


def _by_device(result: Allocation | None) -> tuple[set[DeviceId], dict[DeviceId, Amounts]]:
    """The devices that an allocation keeps for itself, and what it consumes of those that it shares."""
    whole: set[DeviceId] = set()
    shares: dict[DeviceId, Amounts] = {}
    for driver, pool, device, amounts in holdings(result):
        if amounts is None:
            whole.add((driver, pool, device))
        else:
            known = shares.get((driver, pool, device), NOTHING)
            shares[driver, pool, device] = total((known, dict(amounts)))
    return whole, shares


def with_share_ids(result: Allocation, owner: Callable[[], str]) -> Allocation:
    """An allocation with an identifier for each share of a device; `owner`: returns the claim, for all time."""
    results = result["devices"]["results"]
    if not [item for item in results if "consumedCapacity" in item]:
        return result
    named = [
        {**item, SHARE: _share_id(f"{owner()} {at}")} if "consumedCapacity" in item else item
        for at, item in enumerate(results)
    ]
    return {**result, "devices": {**result["devices"], "results": named}}


def _share_id(text: str) -> str:
    """A UUID that follows from a text."""
    digits = sha256(text.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"
