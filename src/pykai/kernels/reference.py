"""The slow, obvious twins of the kernels: one queue, one node, one number at a time.

Tests compare every kernel with its twin here. No product code calls this module; read it to learn what a kernel
computes, and keep it free of optimizations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

# Fair-share division (twin of fairshare.py)


@dataclass
class Claimant:
    """One queue's claim on one resource; -1 is unlimited in `deserved` and `limit`."""

    deserved: float
    limit: float
    weight: float
    request: float
    usage: float
    priority: int
    creation: float
    rank: int
    fair: float = 0.0
    fraction: float = 0.0

    @property
    def requestable(self) -> float:
        """The request, capped by the limit."""
        return self.request if self.limit == -1 else min(self.limit, self.request)

    @property
    def want(self) -> float:
        """The request that is not satisfied yet."""
        return self.requestable - self.fair


def fair_shares(parent: Sequence[int], total: float, queues: Sequence[Claimant], k: float) -> None:
    """Set `fair` of every queue of the tree for one resource."""

    def divide_children(of: int, amount: float) -> None:
        rows = [row for row in range(len(queues)) if parent[row] == of]
        divide([queues[row] for row in rows], amount, k)
        for row in rows:
            divide_children(row, queues[row].fair)

    divide_children(-1, total)


def divide(siblings: Sequence[Claimant], total: float, k: float) -> None:
    """Set `fair` of sibling queues that divide `total`: quota first, then over quota."""
    remaining = total
    for queue in sorted(siblings, key=lambda queue: queue.rank):
        quota = total if queue.deserved == -1 else queue.deserved
        queue.fair = min(quota, queue.requestable)
        remaining -= queue.fair
    divide_over_quota(siblings, remaining, k)


def divide_over_quota(siblings: Sequence[Claimant], surplus: float, k: float) -> None:
    """Add to `fair` of sibling queues their part of the surplus."""
    amount = max(0.0, surplus)
    for priority in sorted({queue.priority for queue in siblings}, reverse=True):
        peers = [queue for queue in siblings if queue.priority == priority]
        again = True
        while again and amount > 0:
            amount, again = _divide_once(peers, amount, k)
    for queue in sorted(siblings, key=_fraction_order):
        if queue.fraction > 0 and amount > 0:
            unit = min(1.0, amount)
            queue.fair += unit
            amount -= unit


def _fraction_order(queue: Claimant) -> tuple[int, float, float, int]:
    return (-queue.priority, -round(queue.fraction, 9), queue.creation, queue.rank)


def _divide_once(peers: Sequence[Claimant], amount: float, k: float) -> tuple[float, bool]:
    """The rest of the amount after one round, and whether some queue requested less than its share."""
    left, again = amount, False
    for queue, share in _proportional(peers, amount, k):
        want = queue.want
        if want <= share:
            left -= want
            queue.fair, queue.fraction = queue.requestable, 0.0
        else:
            units, fraction = _whole_and_fraction(share)
            left -= units
            queue.fair, queue.fraction = queue.fair + units, fraction or queue.fraction
        again = again or want < share
    return max(0.0, left), again


def _proportional(peers: Sequence[Claimant], amount: float, k: float) -> list[tuple[Claimant, float]]:
    """The queues that want more, each with its part of the amount; empty where none weighs anything."""
    hungry = [queue for queue in peers if queue.want > 0 and queue.weight != 0]
    weights = math.fsum(queue.weight for queue in hungry)
    if weights == 0:
        return []
    parts = [queue.weight / weights for queue in hungry]
    strengths = [max(0.0, part + k * (part - queue.usage)) for queue, part in zip(hungry, parts, strict=True)]
    if math.fsum(strengths) == 0:
        return []
    return [(queue, amount * each / math.fsum(strengths)) for queue, each in zip(hungry, strengths, strict=True)]


def _whole_and_fraction(share: float) -> tuple[float, float]:
    """Whole units and the rest of a share; a rest that is rounding error is none."""
    nearest = float(round(share))
    if abs(share - nearest) <= 1e-12 * share:
        return nearest, 0.0
    return float(math.floor(share)), share - math.floor(share)


# Domains of a topology (twin of domains.py)

Path = tuple[str, ...]
"""A domain: the values of its levels from the widest on; () is the root."""


def domain_nodes(values: Sequence[Sequence[str | None]], nodes: Sequence[int]) -> dict[Path, list[int]]:
    """The nodes of every domain that has one, and of the root; `values[level][node]` None: not in the topology."""
    found: dict[Path, list[int]] = {(): []}
    for node in nodes:
        path = tuple(value for column in values if (value := column[node]) is not None)
        if len(path) == len(values):
            for depth in range(len(path) + 1):
                found.setdefault(path[:depth], []).append(node)
    return found


def pods_on_node(free: Sequence[float], need: Sequence[float]) -> int:
    """How many pods go into what a node has free."""
    return max(0, min(int(have / each) for have, each in zip(free, need, strict=True)))


def domain_tightness(total: Sequence[float], free: Sequence[float]) -> float:
    """The largest part of what is free that a request would take."""
    return max((1000.0 if have <= 0 else want / have for want, have in zip(total, free, strict=True)), default=0.0)


def domains_in_order(tight: dict[Path, float], depth: int, below: Path = ()) -> list[Path]:
    """The domains of a depth from left to right: everywhere the tightest child first, then by id."""
    if len(below) == depth:
        return [below]
    children = [path for path in tight if len(path) == len(below) + 1 and path[:-1] == below]
    children.sort(key=lambda path: (-tight[path], ".".join(path)))
    return [path for child in children for path in domains_in_order(tight, depth, child)]


def domain_scores(ordered: Sequence[Path]) -> dict[Path, float]:
    """Later is better, in ten steps of 100,000."""
    return {path: math.floor(10 * (at + 1) / len(ordered)) * 100_000.0 for at, path in enumerate(ordered)}


# NUMA zones (twin of numa.py): one node, amounts by zone and resource
Zones = Sequence[Sequence[float]]


def _holds(zones: Zones, chosen: Sequence[int], request: Sequence[float]) -> bool:
    return all(sum(zones[zone][r] for zone in chosen) >= need for r, need in enumerate(request))


def one_zone(available: Zones, request: Sequence[float]) -> list[int]:
    """The lowest zone that holds the request, if any."""
    return next(([zone] for zone in range(len(available)) if _holds(available, [zone], request)), [])


def fewest_zones(available: Zones, allocatable: Zones, request: Sequence[float]) -> list[int]:
    """The first set of zones, of the size that every resource needs on an empty node, that holds the request."""
    widths = {_zones_needed([zone[r] for zone in allocatable], need) for r, need in enumerate(request) if need > 0}
    if len(widths) > 1:
        return []
    size = widths.pop() if widths else 1
    sets = combinations(range(len(available)), size)
    return next((list(zones) for zones in sets if _holds(available, zones, request)), [])


def _zones_needed(amounts: Sequence[float], need: float) -> int:
    """How many of the amounts, largest first, add up to the need; more than there are where they do not."""
    for count in range(1, len(amounts) + 1):
        if sum(sorted(amounts, reverse=True)[:count]) >= need:
            return count
    return len(amounts) + 1


def covering_zones(available: Zones, request: Sequence[float]) -> list[int]:
    """Zones in order of how much of the missing they cover, until nothing is missing; none where it stays missing."""
    missing, chosen = list(request), [] if any(request) else [0]
    while any(need > 0 for need in missing) and len(chosen) < len(available):
        rest = [zone for zone in range(len(available)) if zone not in chosen]
        best = max(rest, key=lambda zone: (_covered(available[zone], missing, request), -zone))
        chosen.append(best)
        missing = [need - min(have, need) for have, need in zip(available[best], missing, strict=True)]
    return [] if any(need > 0 for need in missing) else sorted(chosen)


def _covered(zone: Sequence[float], missing: Sequence[float], request: Sequence[float]) -> float:
    return sum(min(have, need) / all_ for have, need, all_ in zip(zone, missing, request, strict=True) if all_ > 0)


def zone_shares(available: Zones, request: Sequence[float], zones: Sequence[int]) -> list[list[float]]:
    """What a request takes from each zone, the lowest of its zones first."""
    left, taken = list(request), [[0.0] * len(request) for _ in available]
    for zone in sorted(zones):
        for r, need in enumerate(left):
            taken[zone][r] = min(available[zone][r], need)
            left[r] = need - taken[zone][r]
    return taken
