"""The devices that can be reached from each node, from ResourceSlices (pools, generations, node selection).

A pool is published in several slices; only those of its newest generation count. A pool of which slices are missing
may still give single devices, but never "all" of them. A pool with two devices of one name is not used at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.model.nodes import NodeTable
from pykai.objects.kinds import ResourceSlice
from pykai.plugins.dra.nodeselector import Terms, selector_matches
from pykai.plugins.dra.selectors import Fact
from pykai.plugins.dra.values import Quantity, Semver

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
PoolId = tuple[str, str]
Counter = tuple[PoolId, str, str]
"""Pool, counter set, counter."""


@dataclass(frozen=True, eq=False)
class Device:
    """`local`: it belongs to one node; else `where` says which nodes reach it (None: all)."""

    id: DeviceId
    facts: Mapping[Fact, Hashable]
    taints: tuple[Mapping[str, Any], ...]
    consumes: Mapping[Counter, float]
    local: bool
    where: Terms | None
    complete: bool
    """Whether all slices of its pool are known."""

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


class Inventory:
    """Devices by node, made when a node is first looked at: most nodes never are."""

    def __init__(self, slices: Iterable[ResourceSlice], nodes: NodeTable) -> None:
        self.nodes = nodes
        self.counters: dict[Counter, float] = {}
        """What the counter sets of pools of partitionable devices hold."""
        self._local: dict[str, list[tuple[Pool, ResourceSlice]]] = {}
        self._wide: list[tuple[Pool, ResourceSlice]] = []
        self._of_node: dict[int, tuple[Device, ...]] = {}
        for pool_id, pool in sorted(_newest(slices).items()):
            if pool.valid():
                for item in sorted(pool.slices, key=lambda s: s.metadata.name):
                    self._add(pool_id, pool, item)

    def _add(self, pool_id: PoolId, pool: Pool, item: ResourceSlice) -> None:
        node = item.spec.get("nodeName")
        if node:
            self._local.setdefault(node, []).append((pool, item))
        else:
            self._wide.append((pool, item))
        for counter_set in item.spec.get("sharedCounters") or ():
            for name, counter in (counter_set.get("counters") or {}).items():
                self.counters[pool_id, counter_set.get("name", ""), name] = float(Quantity(counter["value"]).value)

    @property
    def wide_pools(self) -> tuple[PoolId, ...]:
        """Pools that more than one node may reach."""
        specs = [item.spec for _, item in self._wide]
        return tuple({(spec.get("driver", ""), (spec.get("pool") or {}).get("name", "")): None for spec in specs})

    def devices(self, node: int) -> tuple[Device, ...]:
        """The devices within reach of a node row, in order of driver, pool and slice."""
        found = self._of_node.get(node)
        if found is None:
            near = [d for pool, item in self._local.get(self.nodes.names[node], ()) for d in _devices(pool, item, {})]
            far = [d for pool, item in self._wide for d in self._reachable(pool, item, node)]
            found = self._of_node[node] = tuple(near + far)
        return found

    def _reachable(self, pool: Pool, item: ResourceSlice, node: int) -> Iterator[Device]:
        spec = item.spec
        if spec.get("perDeviceNodeSelection"):
            for raw in spec.get("devices") or ():
                if _within_reach(raw, self.nodes, node):
                    yield _device(pool, item, raw, raw)
        elif _within_reach(spec, self.nodes, node):
            yield from _devices(pool, item, spec)


def _newest(slices: Iterable[ResourceSlice]) -> dict[PoolId, Pool]:
    pools: dict[PoolId, Pool] = {}
    for item in slices:
        stated = item.spec.get("pool") or {}
        generation = int(stated.get("generation") or 0)
        key = (str(item.spec.get("driver", "")), str(stated.get("name", "")))
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


def _devices(pool: Pool, item: ResourceSlice, where: Mapping[str, Any]) -> Iterator[Device]:
    """All devices of a slice; `where` empty: they belong to the slice's one node."""
    for raw in item.spec.get("devices") or ():
        yield _device(pool, item, raw, where)


def _device(pool: Pool, item: ResourceSlice, raw: Mapping[str, Any], where: Mapping[str, Any]) -> Device:
    spec = item.spec
    driver, pool_name = str(spec.get("driver", "")), str((spec.get("pool") or {}).get("name", ""))
    return Device(
        id=(driver, pool_name, str(raw.get("name", ""))),
        facts=dict(_facts(driver, raw)),
        taints=tuple(raw.get("taints") or ()),
        consumes=_consumption((driver, pool_name), raw),
        local=not where or bool(where.get("nodeName")),
        where=where.get("nodeSelector"),
        complete=pool.complete,
    )


def _facts(driver: str, body: Mapping[str, Any]) -> Iterator[tuple[Fact, Hashable]]:
    """Attributes and capacities with their full names; a name without a domain belongs to the driver."""
    for name, attribute in (body.get("attributes") or {}).items():
        value = _attribute(attribute)
        if value is not None:
            yield ("attributes", *qualified(name, driver)), value
    for name, capacity in (body.get("capacity") or {}).items():
        amount = capacity.get("value") if isinstance(capacity, Mapping) else capacity
        if amount is not None:
            yield ("capacity", *qualified(name, driver)), Quantity(amount)


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
        (pool, str(used.get("counterSet", "")), name): float(Quantity(counter["value"]).value)
        for used in body.get("consumesCounters") or ()
        for name, counter in (used.get("counters") or {}).items()
    }
