"""A second allocator of devices, written from what Kubernetes documents: slow, obvious, and all of it in one place.

It goes through every way of giving devices to claims on one node and keeps those that break no rule:

* only slices of a pool's newest generation count;
* "all" devices are at least one, every one that matches, all of them free, all their taints tolerated; and no pool
  within reach may be half published;
* a device serves one request, admin access aside: that neither needs a free device nor takes one;
* devices of a constraint have the attribute, with one type and value;
* taints NoSchedule and NoExecute must be tolerated by the request, admin access or not;
* devices draw on the counters of their pool, whichever node uses them;
* a claim records at most 32 devices.

Selectors are given as functions, by the text of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

Fields = dict[str, Any]
Device = tuple[str, str, str]
"""Driver, pool, name."""
Meanings = Mapping[str, Callable[[str, Fields], bool]]
Choice = tuple[str, bool, tuple[Device, ...]]
"""Request, whether it has admin access, its devices."""

MOST_RESULTS = 32
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
REPELLING = ("NoSchedule", "NoExecute")


def attribute(driver: str, device: Fields, name: str) -> tuple[str, Any] | None:
    """(type, value) of an attribute by its full name."""
    for key, value in (device.get("attributes") or {}).items():
        if (key if "/" in key else f"{driver}/{key}") == name:
            kind, said = next(iter(value.items()))
            return str(kind), said
    return None


def capacity(driver: str, device: Fields, name: str) -> Fraction | None:
    for key, value in (device.get("capacity") or {}).items():
        if (key if "/" in key else f"{driver}/{key}") == name:
            return amount(value["value"])
    return None


def amount(text: str) -> Fraction:
    return Fraction(text[:-2]) * BINARY[text[-2:]] if text[-2:] in BINARY else Fraction(text)


def reaches(where: Fields, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a slice or device is there for a node; selectors have one term with one `In` or `NotIn`."""
    if where.get("nodeName"):
        return bool(where["nodeName"] == node)
    if where.get("nodeSelector"):
        wanted = where["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0]
        return bool((labels.get(wanted["key"]) in wanted["values"]) == (wanted["operator"] == "In"))
    return bool(where.get("allNodes"))


def tolerates(toleration: Fields, taint: Fields) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def alternatives(request: Fields) -> list[tuple[str, Fields]]:
    if "exactly" in request:
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{offered['name']}", offered) for offered in request["firstAvailable"]]


@dataclass(frozen=True)
class Site:
    """One node and everything that is published; `held`: devices that others have, without admin access."""

    node: str
    labels: Mapping[str, str]
    slices: Sequence[Fields]
    classes: Mapping[str, Fields]
    held: frozenset[Device]
    meanings: Meanings

    def pools(self) -> dict[tuple[str, str], list[Fields]]:
        """The slices of each pool's newest generation."""
        found: dict[tuple[str, str], list[Fields]] = {}
        for spec in self.slices:
            found.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
        newest = {key: max(s["pool"]["generation"] for s in some) for key, some in found.items()}
        return {key: [s for s in some if s["pool"]["generation"] == newest[key]] for key, some in found.items()}

    def every(self) -> dict[Device, Fields]:
        return {(*pool, d["name"]): d for pool, some in self.pools().items() for s in some for d in s["devices"]}

    def near(self) -> dict[Device, Fields]:
        return {
            (*pool, d["name"]): d
            for pool, some in self.pools().items()
            for s in some
            for d in s["devices"]
            if reaches(d if s.get("perDeviceNodeSelection") else s, self.node, self.labels)
        }

    def settled(self) -> bool:
        """Whether every pool with devices within reach is published in full."""
        near = {device[:2] for device in self.near()}
        return all(
            len(some) == some[0]["pool"]["resourceSliceCount"] for key, some in self.pools().items() if key in near
        )

    # ------------------------------------------------------------------------------------------------------- rules
    def matching(self, ask: Fields) -> list[Device]:
        texts = [
            s["cel"]["expression"] for f in (self.classes[ask["deviceClassName"]], ask) for s in f.get("selectors", [])
        ]
        return [i for i, device in self.near().items() if all(self.meanings[text](i[0], device) for text in texts)]

    def tolerated(self, ask: Fields, device: Device) -> bool:
        taints = [t for t in self.every()[device].get("taints", []) if t["effect"] in REPELLING]
        return all(any(tolerates(toleration, taint) for toleration in ask.get("tolerations", [])) for taint in taints)

    def lots(self, ask: Fields, taken: Collection[Device]) -> Iterator[tuple[Device, ...]]:
        """All sets of devices that would do for a request by itself."""
        matching = self.matching(ask)
        usable = [
            device
            for device in matching
            if self.tolerated(ask, device) and (ask.get("adminAccess") or device not in {*self.held, *taken})
        ]
        if ask.get("allocationMode") != "All":
            yield from combinations(usable, ask["count"])
        elif matching and usable == matching and self.settled():
            yield tuple(matching)

    def alike(self, claim: Fields, choices: Sequence[Choice]) -> bool:
        """Whether all constraints of a claim hold."""
        for constraint in claim.get("constraints", []):
            wanted, values = constraint.get("requests", []), []
            for request, _, devices in choices:
                if not wanted or request in wanted or request.split("/")[0] in wanted:
                    values += [attribute(d[0], self.every()[d], constraint["matchAttribute"]) for d in devices]
            if None in values or any(value != values[0] for value in values):
                return False
        return True

    def counted(self, taken: Collection[Device]) -> bool:
        """Whether the counters that new devices draw on have enough."""
        return all(self._left(pool, taken) for pool in {device[:2] for device in taken})

    def _left(self, pool: tuple[str, str], taken: Collection[Device]) -> bool:
        limits = {
            (each["name"], counter): amount(value["value"])
            for spec in self.pools()[pool]
            for each in spec.get("sharedCounters", [])
            for counter, value in each["counters"].items()
        }
        drawn: dict[tuple[str, str], Fraction] = {}
        for device, fields in self.every().items():
            for use in (
                fields.get("consumesCounters", []) if device[:2] == pool and device in {*self.held, *taken} else []
            ):
                for counter, value in use["counters"].items():
                    key = (use["counterSet"], counter)
                    drawn[key] = drawn.get(key, Fraction()) + amount(value["value"])
        return all(used <= limits[key] for key, used in drawn.items())


def allocations(site: Site, claims: Sequence[Fields]) -> Iterator[list[list[Choice]]]:
    """Every way of serving the claims (their `devices`), as choices by claim, preferred alternatives first."""
    slots = [(at, request) for at, claim in enumerate(claims) for request in claim["requests"]]

    def serve(done: list[tuple[int, Choice]], taken: frozenset[Device]) -> Iterator[list[list[Choice]]]:
        if len(done) == len(slots):
            found = [[choice for at, choice in done if at == claim] for claim in range(len(claims))]
            small = all(sum(len(devices) for _, _, devices in choices) <= MOST_RESULTS for choices in found)
            if small and site.counted(taken) and all(map(site.alike, claims, found)):
                yield found
            return
        at, request = slots[len(done)]
        for name, ask in alternatives(request):
            admin = bool(ask.get("adminAccess"))
            for devices in site.lots(ask, taken):
                more = frozenset() if admin else frozenset(devices)
                yield from serve([*done, (at, (name, admin, devices))], taken | more)

    yield from serve([], frozenset())
