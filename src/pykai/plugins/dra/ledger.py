"""Who holds which claim and which device, as this cycle would leave it. Every change goes through the trial's journal.

A device is *taken* while its claim has users, or is allocated and waits for some; it is *leaving* while all who hold
the claim are being evicted: it can be waited for. A claim whose holders leave may be allocated anew elsewhere; until
they are gone the devices of its former allocation are leaving, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pykai.engine.journal import Journal
from pykai.plugins.dra.allocator import Grant
from pykai.plugins.dra.claims import ClaimDemand, DeviceRequest, Key
from pykai.plugins.dra.devices import DeviceId, Inventory, PoolId, only_node, together

Allocation = Mapping[str, Any]
"""A resource.k8s.io/v1 AllocationResult."""
Uids = frozenset[str]


@dataclass(frozen=True)
class ClaimState:
    """`users` and `leaving` are pod uids; `fresh`: the allocation was chosen in this cycle."""

    allocation: Allocation | None = None
    users: Uids = frozenset()
    leaving: Uids = frozenset()
    fresh: bool = False
    former: Allocation | None = None
    """What leaving pods still hold of a claim that was allocated anew."""

    @property
    def kept(self) -> bool:
        """Whether the allocation stays: somebody uses the claim, or nobody who holds it is on the way out."""
        return self.allocation is not None and (bool(self.users) or not self.leaving)

    def taken(self) -> Iterator[DeviceId]:
        return held_devices(self.allocation if self.kept else None)

    def released(self) -> Iterator[DeviceId]:
        yield from held_devices(None if self.kept else self.allocation)
        yield from held_devices(self.former)


UNTOUCHED = ClaimState()


class Ledger:
    """Claims by key, how many of them take or leave each device, and a number per pool that tells its states apart."""

    def __init__(self, journal: Journal, inventory: Inventory) -> None:
        self.journal = journal
        self.inventory = inventory
        self.claims: dict[Key, ClaimState] = {}
        self.taken: dict[DeviceId, int] = {}
        self.leaving: dict[DeviceId, int] = {}
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
            (self.taken, old.taken(), new.taken()),
            (self.leaving, old.released(), new.released()),
        ):
            self._count(tally, before, -1)
            self._count(tally, after, 1)
        self.journal.put_new(self.claims, key, new)
        self.journal.note(self._changed, None)
        self.version += 1

    def _changed(self, _: None) -> None:
        self.version += 1

    def _count(self, tally: dict[DeviceId, int], devices: Iterator[DeviceId], by: int) -> None:
        for device in devices:
            self.journal.put_new(tally, device, tally.get(device, 0) + by)
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
        """A pod is evicted: it holds its claims until it is gone, and uses them no more."""
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
        """A pod is not evicted after all."""
        for key in self.held.get(uid, ()):
            state = self.state(key)
            self.put(key, replace(state, users=state.users | {uid}, leaving=state.leaving - {uid}))

    def can_stay(self, uid: str, reached: Callable[[Key], bool]) -> bool:
        """Whether nobody was given what an evicted pod held; `reached`: whether a claim can be used where it is."""
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
        return state.kept or not self._given_away(set(held_devices(state.allocation)))

    def _given_away(self, devices: set[DeviceId]) -> bool:
        """Whether others were given devices, or what they draw from counters."""
        taken = self.taken.get
        return any(map(taken, devices)) or self.inventory.overdrawn(devices, lambda device: bool(taken(device)))

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
            return state.former is not None or (state.fresh and self._leaving(state.allocation))
        return state.allocation is not None or self._leaving(chosen)

    def _leaving(self, allocation: Allocation | None) -> bool:
        """Whether an allocation needs devices, or what they draw from counters, that are still being released."""
        devices, taken, leaving = set(held_devices(allocation)), self.taken.get, self.leaving.get
        if any(map(leaving, devices)):
            return True
        return self.inventory.overdrawn(devices, lambda device: bool(taken(device) or leaving(device)))


def open_ledger(journal: Journal, inventory: Inventory, claims: Mapping[Key, Any], going: Uids) -> Ledger:
    """The ledger of what the API server says; `going`: uids of pods that are being released."""
    ledger = Ledger(journal, inventory)
    for key, claim in claims.items():
        status = claim.status or {}
        holders = frozenset(str(holder.get("uid", "")) for holder in status.get("reservedFor") or ())
        if holders or status.get("allocation"):
            ledger.put(key, ClaimState(status.get("allocation"), holders - going, holders & going))
            for uid in sorted(holders):
                ledger._note(uid, key)
    return ledger


# -------------------------------------------------------------------------------------------------- allocation results
def allocation(demand: ClaimDemand, grants: Sequence[Grant], classes: Mapping[str, Any], node: str) -> Allocation:
    """The result of granting devices on a node; `classes`: device class name -> DeviceClass."""
    devices: dict[str, Any] = {"results": [_result(grant) for grant in grants]}
    chosen = list(dict.fromkeys(grant.request for grant in grants))
    config = [*_class_config(chosen, classes), *_claim_config(chosen, demand.config)]
    if config:
        devices["config"] = config
    selector = _node_selector(grants, node)
    return {"devices": devices} if selector is None else {"devices": devices, "nodeSelector": selector}


def _result(grant: Grant) -> dict[str, Any]:
    driver, pool, device = grant.device.id
    result: dict[str, Any] = {"request": grant.request.name, "driver": driver, "pool": pool, "device": device}
    if grant.request.admin:
        result["adminAccess"] = True
    if grant.request.tolerations:
        result["tolerations"] = [dict(toleration) for toleration in grant.request.tolerations]
    return result


def _class_config(chosen: Sequence[DeviceRequest], classes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration of each class once, for all requests of the class."""
    for name in dict.fromkeys(request.device_class for request in chosen):
        requests = [request.name for request in chosen if request.device_class == name]
        for config in classes[name].spec.get("config") or ():
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


def held_devices(result: Allocation | None) -> Iterator[DeviceId]:
    """The devices an allocation keeps from others: admin access keeps none."""
    for item in ((result or {}).get("devices") or {}).get("results") or ():
        if not item.get("adminAccess"):
            yield item.get("driver", ""), item.get("pool", ""), item.get("device", "")
