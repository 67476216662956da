"""The slow, obvious twins of the kernels: one queue, one node, one number at a time.

Tests hold every kernel against its twin here. Nothing in the product calls this file; read it to learn what a kernel
computes, and keep it free of every trick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
        """What it can use: its request, cut at its limit."""
        return self.request if self.limit == -1 else min(self.limit, self.request)

    @property
    def want(self) -> float:
        """What it can still use."""
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
    """Add to `fair` of sibling queues what they get of the surplus."""
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
    """What is left of the amount after one round, and whether somebody wanted less than its share."""
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
