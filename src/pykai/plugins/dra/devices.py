"""The devices that can be reached from each node, from ResourceSlices (pools, generations, node selection).

A pool is published in several slices; only those of its newest generation count. Devices of a pool with missing slices
can be allocated; a pool with duplicate device names is not used at all. On nodes that reach either, requests for "all"
devices cannot be served. A device has the taints that its driver publishes and those of DeviceTaintRules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pykai.model.snapshot import NodeTable
from pykai.objects.kinds import DeviceClass, DeviceTaintRule, ResourceSlice
from pykai.plugins.dra.cel import MULTIPLE, Fact
from pykai.plugins.dra.claims import DemandError, cel_expressions
from pykai.plugins.dra.selectors import SelectorError, Selectors
from pykai.plugins.dra.values import Semver, quantity

Terms = Mapping[str, Any]
"""A v1 NodeSelector: `nodeSelectorTerms` with `matchExpressions` and `matchFields`."""
DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
PoolId = tuple[str, str]
Counter = tuple[PoolId, str, str]
"""Pool, counter set, counter."""
Amounts = Mapping[str, Fraction]
"""Of the capacities of one device, by name."""
NOTHING: Amounts = {}
Capacities = Mapping[str, Mapping[str, Any]]
"""By name the value and the policy for requests, as a slice has them."""
NO_COUNTERS: Mapping[Counter, float] = {}


class Device(Struct, frozen=True, eq=False, dict=True):
    """`local`: it belongs to one node; else `where` says which nodes reach it (None: all). `shared`: it can be given to
    several requests (`allowMultipleAllocations`), each of which consumes a part of its capacity."""

    id: DeviceId
    body: Mapping[str, Any]
    """The device as its slice describes it."""
    taints: tuple[Mapping[str, Any], ...]
    consumes: Mapping[Counter, float]
    local: bool
    where: Terms | None
    shared: bool = False
    capacity: Capacities = {}

    @cached_property
    def facts(self) -> Mapping[Fact, Hashable]:
        """Attributes and capacities, for selectors and constraints: most claims have neither."""
        return dict(_facts(self.driver, self.body))

    @property
    def driver(self) -> str:
        return self.id[0]

    @property
    def pool(self) -> PoolId:
        return self.id[:2]


@dataclass
class Pool:
    """The slices of a pool's newest generation."""

    generation: int
    slices: list[ResourceSlice] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        wanted = (self.slices[0].spec.get("pool") or {}).get("resourceSliceCount") or 1
        return len(self.slices) == int(wanted)

    def valid(self) -> bool:
        names = [device.get("name", "") for item in self.slices for device in item.spec.get("devices") or ()]
        return len(set(names)) == len(names)


class TaintRules:
    """Which devices DeviceTaintRules give taints to. A rule whose selectors fail on a device does not select it."""

    def __init__(self, rules: Iterable[DeviceTaintRule], classes: Mapping[str, DeviceClass]) -> None:
        stated = sorted(rules, key=lambda rule: rule.metadata.name)
        self._rules = [rule.spec for rule in stated if rule.spec.get("deviceSelector") is not None]
        self._classes = classes
        self._selectors = Selectors()

    def applied(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """The devices with the taints of the rules."""
        return tuple(map(self._tainted, devices)) if self._rules else devices

    def _tainted(self, device: Device) -> Device:
        taints = [spec["taint"] for spec in self._rules if self._selected(spec["deviceSelector"], device)]
        return replace(device, taints=(*device.taints, *taints)) if taints else device

    def _selected(self, wanted: Mapping[str, Any], device: Device) -> bool:
        named = zip(("driver", "pool", "device"), device.id, strict=True)
        if any(wanted.get(field) not in (None, name) for field, name in named):
            return False
        sources = [wanted]
        if wanted.get("deviceClassName"):
            chosen = self._classes.get(wanted["deviceClassName"])
            if chosen is None:
                return False
            sources.append(chosen.spec)
        try:
            expressions = [expression for source in sources for expression in cel_expressions(source)]
            return all(self._selectors.selects(each, device.driver, device.facts) for each in expressions)
        except (DemandError, SelectorError):
            return False


class Inventory:
    """Devices by node, read on first use of a node: most nodes are never used."""

    def __init__(self, slices: Iterable[ResourceSlice], nodes: NodeTable, rules: TaintRules | None = None) -> None:
        self.nodes = nodes
        self._rules = rules or TaintRules((), {})
        self.counters: dict[PoolId, dict[Counter, float]] = {}
        """What the counter sets of pools of partitionable devices hold."""
        self._local: dict[str, list[ResourceSlice]] = {}
        self._wide: list[ResourceSlice] = []
        self._of_node: dict[int, tuple[Device, ...]] = {}
        self._unsettled: set[str] = set()
        """Nodes with slices of pools that are not known in full, or cannot be used."""
        self._unsettled_wide: list[ResourceSlice] = []
        self._partitioned: dict[PoolId, Pool] = {}
        self._consumers: dict[PoolId, dict[DeviceId, Mapping[Counter, float]]] = {}
        self._pools = _newest(slices)
        for pool_id, pool in sorted(self._pools.items()):
            valid = pool.valid()
            if not valid or not pool.complete:
                self._unsettled |= {item.spec["nodeName"] for item in pool.slices if item.spec.get("nodeName")}
                self._unsettled_wide += [item for item in pool.slices if not item.spec.get("nodeName")]
            if valid:
                for item in sorted(pool.slices, key=lambda s: s.metadata.name):
                    self._add(pool_id, pool, item)

    def _add(self, pool_id: PoolId, pool: Pool, item: ResourceSlice) -> None:
        node = item.spec.get("nodeName")
        if node:
            self._local.setdefault(node, []).append(item)
        else:
            self._wide.append(item)
        for counter_set in item.spec.get("sharedCounters") or ():
            self._partitioned[pool_id] = pool
            held = self.counters.setdefault(pool_id, {})
            for name, counter in (counter_set.get("counters") or {}).items():
                held[pool_id, counter_set.get("name", ""), name] = float(quantity(counter["value"]).value)

    def counters_left(self, pool: PoolId, in_use: Callable[[DeviceId], bool]) -> dict[Counter, float]:
        """What the counters of a pool have left beside the devices in use, from whichever node those are used."""
        left = dict(self.counters.get(pool, {}))
        for device, consumes in self.consumers(pool).items():
            for counter, amount in consumes.items() if in_use(device) else ():
                left[counter] = left.get(counter, 0.0) - amount
        return left

    def overdrawn(self, devices: Collection[DeviceId], in_use: Callable[[DeviceId], bool]) -> bool:
        """Whether devices draw more from counters of their pools than those in use leave."""
        pools = {device[:2] for device in devices} & self.counters.keys()
        used = [self.counters_left(pool, lambda device: device in devices or in_use(device)) for pool in pools]
        return any(left < 0.0 for counters in used for left in counters.values())

    def consumers(self, pool: PoolId) -> Mapping[DeviceId, Mapping[Counter, float]]:
        """What each device of a pool draws from the pool's counters, whichever nodes reach it."""
        if pool not in self._consumers:
            known = self._partitioned.get(pool)
            devices = [d for item in known.slices for d in item.spec.get("devices") or ()] if known else []
            self._consumers[pool] = {(*pool, str(raw.get("name", ""))): _consumption(pool, raw) for raw in devices}
        return self._consumers[pool]

    def exceeded(self, device: DeviceId, used: Iterable[Amounts]) -> bool:
        """Whether requests together consume more than a shared device has; one that is gone has nothing."""
        return not within(self._shared.get(device, {}), used)

    @cached_property
    def _shared(self) -> dict[DeviceId, Capacities]:
        return {
            (*pool_id, str(raw.get("name", ""))): raw.get("capacity") or {}
            for pool_id, pool in self._pools.items()
            for item in pool.slices
            for raw in item.spec.get("devices") or ()
            if raw.get("allowMultipleAllocations")
        }

    def settled(self, node: int) -> bool:
        """Whether every pool that a node reaches is known in full and can be used."""
        if self.nodes.names[node] in self._unsettled:
            return False
        return not any(_touches(item, self.nodes, node) for item in self._unsettled_wide)

    @property
    def wide_pools(self) -> tuple[PoolId, ...]:
        """Pools of which more than one node may use devices or counters."""
        specs = [item.spec for item in self._wide]
        reached = {(spec.get("driver", ""), (spec.get("pool") or {}).get("name", "")): None for spec in specs}
        for pool_id, pool in self._partitioned.items():
            if len({item.spec.get("nodeName") for item in pool.slices}) > 1:
                reached[pool_id] = None
        return tuple(reached)

    def devices(self, node: int) -> tuple[Device, ...]:
        """The devices within reach of a node row, in order of driver, pool and slice."""
        found = self._of_node.get(node)
        if found is None:
            near = [d for item in self._local.get(self.nodes.names[node], ()) for d in _devices(item)]
            far = [d for item in self._wide for d in self._reachable(item, node)]
            found = self._of_node[node] = self._rules.applied(tuple(near + far))
        return found

    def _reachable(self, item: ResourceSlice, node: int) -> Iterator[Device]:
        spec = item.spec
        if spec.get("perDeviceNodeSelection"):
            pool = _pool_of(item)
            for raw in spec.get("devices") or ():
                if _within_reach(raw, self.nodes, node):
                    yield _device(pool, raw, raw)
        elif _within_reach(spec, self.nodes, node):
            yield from _devices(item, spec)


def _newest(slices: Iterable[ResourceSlice]) -> dict[PoolId, Pool]:
    pools: dict[PoolId, Pool] = {}
    for item in slices:
        stated = item.spec.get("pool") or {}
        generation = int(stated.get("generation") or 0)
        key = _pool_of(item)
        known = pools.get(key)
        if known is None or generation > known.generation:
            known = pools[key] = Pool(generation)
        if generation == known.generation:
            known.slices.append(item)
    return pools


def _within_reach(where: Mapping[str, Any], nodes: NodeTable, node: int) -> bool:
    """Whether the node fields of a slice or device include a node."""
    if where.get("nodeName"):
        return bool(where["nodeName"] == nodes.names[node])
    if where.get("allNodes"):
        return True
    selector = where.get("nodeSelector")
    return selector is not None and selector_matches(selector, nodes.names[node], nodes.labels[node])


def _touches(item: ResourceSlice, nodes: NodeTable, node: int) -> bool:
    """Whether a node reaches a slice or, where devices say it themselves, one of its devices."""
    if item.spec.get("perDeviceNodeSelection"):
        return any(_within_reach(raw, nodes, node) for raw in item.spec.get("devices") or ())
    return _within_reach(item.spec, nodes, node)


def _pool_of(item: ResourceSlice) -> PoolId:
    spec = item.spec
    return str(spec.get("driver", "")), str((spec.get("pool") or {}).get("name", ""))


def _devices(item: ResourceSlice, where: Mapping[str, Any] | None = None) -> list[Device]:
    """All devices of a slice; `where` None: they belong to the slice's one node."""
    pool = _pool_of(item)
    return [_device(pool, raw, where) for raw in item.spec.get("devices") or ()]


def _device(pool: PoolId, raw: Mapping[str, Any], where: Mapping[str, Any] | None) -> Device:
    """A device of a pool; `where`: the part of its slice that says which nodes reach it, None: its one node does."""
    return Device(
        id=(*pool, str(raw.get("name", ""))),
        body=raw,
        taints=tuple(raw.get("taints") or ()),
        consumes=_consumption(pool, raw) if raw.get("consumesCounters") else NO_COUNTERS,
        local=where is None or bool(where.get("nodeName")),
        where=None if where is None else where.get("nodeSelector"),
        shared=bool(raw.get("allowMultipleAllocations")),
        capacity=raw.get("capacity") or {},
    )


def _facts(driver: str, body: Mapping[str, Any]) -> Iterator[tuple[Fact, Hashable]]:
    """Attributes and capacities with their full names; a name without a domain belongs to the driver."""
    for name, attribute in (body.get("attributes") or {}).items():
        value = _attribute(attribute)
        if value is not None:
            yield ("attributes", *qualified(name, driver)), value
    if body.get("allowMultipleAllocations"):
        yield MULTIPLE, True
    for name, capacity in (body.get("capacity") or {}).items():
        amount = capacity.get("value") if isinstance(capacity, Mapping) else capacity
        if amount is not None:
            yield ("capacity", *qualified(name, driver)), quantity(amount)


def _attribute(attribute: Mapping[str, Any]) -> Hashable | None:
    """The one value of an attribute; None where its type is not known here."""
    for kind in ("int", "bool", "string"):
        if attribute.get(kind) is not None:
            value: Hashable = attribute[kind]
            return value
    try:
        return Semver(str(attribute["version"])) if attribute.get("version") else None
    except ValueError:
        return None


def qualified(name: str, driver: str) -> tuple[str, str]:
    """(domain, name) of an attribute or capacity."""
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def _consumption(pool: PoolId, body: Mapping[str, Any]) -> dict[Counter, float]:
    return {
        (pool, str(used.get("counterSet", "")), name): float(quantity(counter["value"]).value)
        for used in body.get("consumesCounters") or ()
        for name, counter in (used.get("counters") or {}).items()
    }


# ----------------------------------------------------------------------------------------------------- shared capacity
def consumption(device: Device, wanted: Amounts) -> Amounts | None:
    """What a request consumes of a device's capacities if it shares the device, by the policy of each: amounts are
    rounded up to a valid one, what is not asked for has a default. None: the device cannot serve the request."""
    if wanted.keys() - device.capacity.keys():
        return None
    found: dict[str, Fraction] = {}
    for name, stated in device.capacity.items():
        amount = _consumed(stated, wanted.get(name))
        if amount is None or amount > quantity(stated["value"]).value:
            return None
        found[name] = amount
    return found


def _consumed(stated: Mapping[str, Any], wanted: Fraction | None) -> Fraction | None:
    """The amount of one capacity; None: its policy allows no such request."""
    policy = stated.get("requestPolicy") or {}
    if wanted is None:
        return quantity(policy.get("default") or stated["value"]).value
    if bounds := policy.get("validRange"):
        least, step, most = (quantity(bounds[key]).value if bounds.get(key) else None for key in ("min", "step", "max"))
        amount = wanted if least is None else max(wanted, least)
        if step:
            start = least or Fraction(0)
            amount = start + step * -((start - amount) // step)
        return None if most is not None and amount > most else amount
    if values := policy.get("validValues"):
        return next((value for text in values if (value := quantity(text).value) >= wanted), None)
    return wanted


def within(capacity: Capacities, used: Iterable[Amounts]) -> bool:
    """Whether amounts together are no more than a device has."""
    return all(
        name in capacity and amount <= quantity(capacity[name]["value"]).value for name, amount in total(used).items()
    )


def total(amounts: Iterable[Amounts]) -> dict[str, Fraction]:
    """The sum of each capacity."""
    found: dict[str, Fraction] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = found.get(name, Fraction(0)) + amount
    return found


# ------------------------------------------------------------------------------------------------------- node selectors
def _beyond(value: str | None, values: Sequence[str], sign: int) -> bool:
    """Whether a label is a number above (sign 1) or below (sign -1) the one that is given."""
    try:
        return sign * int(value or "") > sign * int("".join(values[:1]))
    except ValueError:
        return False


_OPERATORS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _beyond(value, values, 1),
    "Lt": lambda value, values: _beyond(value, values, -1),
}


def selector_matches(selector: Terms, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node has what some term of the selector asks for; an empty term matches nothing."""
    return any(_term(term, name, labels) for term in selector.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return _all(expressions, labels) and _all(fields, {"metadata.name": name})


def _all(expressions: Iterable[Mapping[str, Any]], found: Mapping[str, str]) -> bool:
    return all(
        _OPERATORS[e.get("operator", "")](found.get(e.get("key", "")), e.get("values") or ())
        if e.get("operator") in _OPERATORS
        else False
        for e in expressions
    )


def only_node(name: str) -> dict[str, Any]:
    """The selector of exactly one node."""
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}


def together(selectors: Sequence[Terms]) -> dict[str, Any] | None:
    """One term that asks for what the first term of each selector asks for; None where there is nothing to ask."""
    term: dict[str, list[Any]] = {}
    for selector in selectors:
        first = (selector.get("nodeSelectorTerms") or [{}])[0]
        for part in ("matchExpressions", "matchFields"):
            new = [e for e in first.get(part) or () if e not in term.get(part, ())]
            if new:
                term.setdefault(part, []).extend(new)
    return {"nodeSelectorTerms": [term]} if term else None
