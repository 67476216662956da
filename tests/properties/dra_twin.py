"""A second allocator of devices, written from what Kubernetes documents: slow, obvious, and all of it in one place.

It goes through every way of giving devices to claims on one node and keeps those that break no rule:

* only slices of a pool's newest generation count;
* "all" devices are at least one, every one that matches, all of them free, all their taints tolerated; and no pool
  within reach may be half published;
* a device serves one request, admin access aside: that neither needs a free device nor takes one;
* a device that allows several allocations serves any number of requests, one also several times, as long as what they
  consume of each capacity is no more than it has; "all" devices are then those with enough left;
* devices of a constraint have the attribute, with one type and value;
* taints NoSchedule and NoExecute, of the device or of a DeviceTaintRule that selects it, must be tolerated by the
  request, admin access or not;
* devices draw on the counters of their pool, whichever node uses them;
* a claim records at most 32 devices.

Selectors are given as functions, by the text of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement
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


def consumed(device: Fields, ask: Fields) -> Fraction | None:
    """What a request takes of the one capacity of a device if it shares it; None: it cannot have the device."""
    wanted = ask.get("capacity", {}).get("requests", {})
    if not wanted.keys() <= device.get("capacity", {}).keys():
        return None
    for name, stated in device.get("capacity", {}).items():
        policy = stated.get("requestPolicy", {})
        if name not in wanted:
            return amount(policy.get("default", stated["value"]))
        asked, size = amount(wanted[name]), amount(stated["value"])
        valid = [asked]
        if "validValues" in policy:
            valid = [amount(text) for text in policy["validValues"]]
        elif "validRange" in policy:
            least, most, step = (amount(policy["validRange"][key]) for key in ("min", "max", "step"))
            valid = [least + step * at for at in range(int((most - least) / step) + 1)]
        return min((each for each in valid if asked <= each <= size), default=None)
    return Fraction()


@dataclass(frozen=True)
class Site:
    """One node and everything that is published; `held`: devices that others have, without admin access."""

    node: str
    labels: Mapping[str, str]
    slices: Sequence[Fields]
    classes: Mapping[str, Fields]
    held: frozenset[Device]
    meanings: Meanings
    rules: Sequence[Fields] = ()
    """The specs of DeviceTaintRules."""
    shares: Mapping[Device, Fraction] = field(default_factory=dict)
    """What others consume of the memory of shared devices; an entry for each that is in use."""

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
        return [
            i
            for i, device in self.near().items()
            if all(self.meanings[text](i[0], device) for text in texts) and consumed(device, ask) is not None
        ]

    def multiple(self, device: Device) -> bool:
        return bool(self.every()[device].get("allowMultipleAllocations"))

    def enough(self, device: Device, asks: Sequence[Fields]) -> bool:
        """Whether a shared device has what requests consume together."""
        fields = self.every()[device]
        if not fields.get("capacity"):
            return True
        (stated,) = fields["capacity"].values()
        used = sum((consumed(fields, ask) or Fraction() for ask in asks), self.shares.get(device, Fraction()))
        return used <= amount(stated["value"])

    def tolerated(self, ask: Fields, device: Device) -> bool:
        added = [
            rule["taint"]
            for rule in self.rules
            if all(
                device[("driver", "pool", "device").index(key)] == name for key, name in rule["deviceSelector"].items()
            )
        ]
        taints = [t for t in [*self.every()[device].get("taints", []), *added] if t["effect"] in REPELLING]
        return all(any(tolerates(toleration, taint) for toleration in ask.get("tolerations", [])) for taint in taints)

    def lots(self, ask: Fields, taken: Collection[Device]) -> Iterator[tuple[Device, ...]]:
        """All sets of devices that would do for a request by itself."""
        matching = self.matching(ask)
        usable = [
            device
            for device in matching
            if self.tolerated(ask, device)
            and (self.multiple(device) or ask.get("adminAccess") or device not in {*self.held, *taken})
        ]
        if ask.get("allocationMode") != "All":
            for lot in combinations_with_replacement(usable, ask["count"]):
                if all(self.multiple(device) or lot.count(device) == 1 for device in lot):
                    yield lot
            return
        matching, usable = (
            [device for device in some if not self.multiple(device) or self.enough(device, [ask])]
            for some in (matching, usable)
        )
        if matching and usable == matching and self.settled():
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
        """Whether the counters that new devices draw on have enough; one that others share has drawn already."""
        return all(self._left(pool, taken) for pool in {device[:2] for device in taken if device not in self.shares})

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
                fields.get("consumesCounters", [])
                if device[:2] == pool and device in {*self.held, *self.shares, *taken}
                else []
            ):
                for counter, value in use["counters"].items():
                    key = (use["counterSet"], counter)
                    drawn[key] = drawn.get(key, Fraction()) + amount(value["value"])
        return all(used <= limits[key] for key, used in drawn.items())


def allocations(
    site: Site, claims: Sequence[Fields], only: Sequence[Choice] | None = None
) -> Iterator[list[list[Choice]]]:
    """Every way of serving the claims (their `devices`), as choices by claim, preferred alternatives first; `only`:
    this one alone, if it breaks no rule."""
    slots = [(at, request) for at, claim in enumerate(claims) for request in claim["requests"]]

    def serve(done: list[tuple[int, Choice]], taken: frozenset[Device]) -> Iterator[list[list[Choice]]]:
        if len(done) == len(slots):
            found = [[choice for at, choice in done if at == claim] for claim in range(len(claims))]
            small = all(sum(len(devices) for _, _, devices in choices) <= MOST_RESULTS for choices in found)
            if small and site.counted(taken) and shared_enough(done) and all(map(site.alike, claims, found)):
                yield found
            return
        at, request = slots[len(done)]
        for name, ask in alternatives(request):
            admin = bool(ask.get("adminAccess"))
            for lot in site.lots(ask, taken):
                devices = tuple(sorted(lot))
                if only is not None and only[len(done)] != (name, admin, devices):
                    continue
                more = frozenset(device for device in devices if not admin or site.multiple(device))
                yield from serve([*done, (at, (name, admin, devices))], taken | more)

    def shared_enough(done: list[tuple[int, Choice]]) -> bool:
        asks: dict[Device, list[Fields]] = {}
        for (_, request), (_, (name, _, devices)) in zip(slots, done, strict=True):
            for device in filter(site.multiple, devices):
                asks.setdefault(device, []).append(dict(alternatives(request))[name])
        return all(site.enough(device, some) for device, some in asks.items())

    yield from serve([], frozenset())
