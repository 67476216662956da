"""§14: claims on devices in the cycle; which devices serve a claim on a node says `dra_twin`.

Read from the objects as they were written. Pods share only claims whose devices count nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import kinds
from tests.properties.dra_twin import Device, Meanings, Site, allocations, reaches
from tests.properties.small_world import Cluster, Fields, snapshot_of
from tests.properties.twin.rules import Rule
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

STAYING = ACTIVE_ALLOCATED | {Status.STUCK_IN_RELEASING}
Lot = tuple[Device, ...]
Held = dict[str, Lot]
"""Claims with the devices they have."""


@dataclass(repr=False)
class Devices:
    """A cluster with its devices, by name."""

    cluster: Cluster
    slices: dict[str, Fields] = field(default_factory=dict)
    classes: dict[str, Fields] = field(default_factory=dict)
    claims: dict[str, Fields] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        """Every gang has its search: what failed for others says nothing."""
        items: list[tuple[Any, dict[str, Fields]]] = [
            (kinds.ResourceSlice, self.slices),
            (kinds.DeviceClass, self.classes),
            (kinds.ResourceClaim, self.claims),
        ]
        more = [kinds.decode(msgspec.json.encode(item), kind) for kind, some in items for item in some.values()]
        found = snapshot_of([*self.cluster.objects(), *more])
        return replace(found, params=replace(found.params, use_signatures=False))

    def __repr__(self) -> str:
        shown = {**self.slices, **self.claims}
        return f"{self.cluster!r}\n" + "\n".join(f"{name}: {item}" for name, item in shown.items())

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))


class Claims(Rule):
    """Our rules: free devices come before those that are being released; a pod waits while a device of its claims, or
    the claim itself, is held by somebody who leaves; a claim that all who hold it are leaving can be had as it is, as
    long as its devices are not given to others."""

    def __init__(self, devices: Devices, meanings: Meanings) -> None:
        self.claims, self.meanings = devices.claims, meanings
        self.pods = {pod["metadata"]["name"]: pod for pod in devices.cluster.pods}
        self.labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in devices.cluster.nodes}
        self.slices = [item["spec"] for item in devices.slices.values()]
        self.classes = {name: item["spec"] for name, item in devices.classes.items()}

    # --------------------------------------------------------------------------------------------------------- reading
    def _named_by(self, pod: str) -> list[str]:
        made = {s["name"]: s["resourceClaimName"] for s in self.pods[pod]["status"].get("resourceClaimStatuses", [])}
        named = self.pods[pod]["spec"].get("resourceClaims", [])
        return [claim.get("resourceClaimName") or made[claim["name"]] for claim in named]

    def _had(self, pod: str) -> Held:
        """What a pod has when the cycle begins."""
        found = {}
        for claim in self._named_by(pod):
            status = self.claims[claim]["status"]
            if pod in [user["uid"] for user in status.get("reservedFor", [])]:
                results = status["allocation"]["devices"]["results"]
                found[claim] = tuple((r["driver"], r["pool"], r["device"]) for r in results)
        return found

    @cached_property
    def _where(self) -> Mapping[Device, Fields]:
        return {(s["driver"], s["pool"]["name"], d["name"]): s for s in self.slices for d in s["devices"]}

    def _within_reach(self, devices: Lot, at: str) -> bool:
        return all(reaches(self._where[device], at, self.labels[at]) for device in devices)

    def _holders(self, world: World) -> tuple[Held, Held]:
        """What those have who stay, and those who are still there and leave."""
        stay, leave = dict[str, Lot](), dict[str, Lot]()
        for row, (name, now) in enumerate(zip(world.snapshot.pods.names, world.pods, strict=True)):
            if now.status in STAYING:
                stay |= dict(now.given) or self._had(name)
            if world.had_place(row) and Status.RELEASING in [place.status for place in now.places()]:
                leave |= self._had(name)
        return stay, leave

    # ----------------------------------------------------------------------------------------------------------- rules
    def closed(self, world: World, pod: int, node: int) -> bool:
        return self.gifts(world, pod, node) is None

    def waits(self, world: World, pod: int, node: int) -> bool:
        stay, leave = self._holders(world)
        for claim, devices in self.gifts(world, pod, node) or ():
            if claim in leave:
                if leave[claim] != devices:
                    return True
                continue
            going = {device for other, some in leave.items() if stay.get(other) != some for device in some}
            if going & set(devices):
                return True
        return False

    def same(self, world: World, pod: int, given: Sequence[Any]) -> bool:
        """Who was only promised its devices may get any."""
        return not world.had_place(pod) or dict(given) == self._had(world.snapshot.pods.names[pod])

    def gifts(self, world: World, pod: int, node: int) -> tuple[tuple[str, Lot], ...] | None:
        at, (stay, leave) = world.snapshot.nodes.names[node], self._holders(world)
        taken = {device for some in stay.values() for device in some}
        kept, missing = dict[str, Lot](), list[str]()
        for claim in self._named_by(world.snapshot.pods.names[pod]):
            if claim in stay and not self._within_reach(stay[claim], at):
                return None
            can_be_had = claim in leave and self._within_reach(leave[claim], at) and not taken & set(leave[claim])
            if claim in stay or can_be_had:
                kept[claim] = stay.get(claim) or leave[claim]
            else:
                missing.append(claim)
        going = {device for some in leave.values() for device in some}
        new = self._allocated(missing, at, taken | going) or self._allocated(missing, at, taken)
        return None if new is None else (*kept.items(), *new.items())

    def _allocated(self, claims: Sequence[str], at: str, held: set[Device]) -> Held | None:
        """Devices for claims that have none."""
        site = Site(at, self.labels[at], self.slices, self.classes, frozenset(held), self.meanings)
        found = next(allocations(site, [self.claims[claim]["spec"]["devices"] for claim in claims]), None)
        if found is None:
            return None
        lots = [tuple(device for _, _, some in choices for device in some) for choices in found]
        return dict(zip(claims, lots, strict=True))
