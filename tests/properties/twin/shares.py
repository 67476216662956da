"""§9: what every queue deserves of the cluster, in exact fractions, one queue and one resource at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

Amount = tuple[float, float, float]
UNLIMITED = -1.0
GPU = 2
K_VALUE = 1
"""The argument `kValue` of the proportion plugin, as the twin's policies have it."""


@dataclass(frozen=True)
class QueueBook:
    """Queues as the rules read them, in the order of the snapshot; -1 is unlimited."""

    paths: Sequence[Sequence[int]]
    priority: Sequence[int]
    creation: Sequence[float]
    deserved: Sequence[Amount]
    limit: Sequence[Amount]
    fair: Sequence[Amount]
    total: Amount


@dataclass(eq=False)
class Sharer:
    """A queue among its siblings, and one resource."""

    row: int
    deserved: Fraction
    limit: Fraction
    weight: Fraction
    request: Fraction
    usage: Fraction
    priority: int
    creation: float
    fair: Fraction = Fraction(0)

    @property
    def requestable(self) -> Fraction:
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)

    @property
    def want(self) -> Fraction:
        return self.requestable - self.fair


def set_fair_share(total: Fraction, parent: int, parents: Sequence[int], sharers: Sequence[Sharer]) -> None:
    """SetFairShare for the children of a queue (-1: the root) and for everything below."""
    level = [sharer for sharer in sharers if parents[sharer.row] == parent]
    remaining = total
    for sharer in level:
        deserved = total if sharer.deserved == UNLIMITED else sharer.deserved
        sharer.fair = min(deserved, sharer.requestable)
        remaining -= sharer.fair
    if remaining > 0:
        _divide(remaining, level)
    for sharer in level:
        set_fair_share(sharer.fair, sharer.row, parents, sharers)


def _divide(amount: Fraction, level: Sequence[Sharer]) -> None:
    """Over quota: by weight within a priority, the highest first; then the remainders, one unit each."""
    priorities = sorted({sharer.priority for sharer in level}, reverse=True)
    remainders: dict[int, dict[Sharer, Fraction]] = {}
    for priority in priorities:
        remainders[priority] = {}
        again = True
        while again and amount > 0:
            peers = [sharer for sharer in level if sharer.priority == priority]
            amount, again = _round(amount, peers, remainders[priority])
    for priority in priorities:
        left = remainders[priority]
        for sharer in sorted(left, key=lambda one: (-left[one], one.creation, one.row)):
            unit = min(Fraction(1), amount)
            sharer.fair += unit
            amount -= unit


def _round(amount: Fraction, peers: Sequence[Sharer], left: dict[Sharer, Fraction]) -> tuple[Fraction, bool]:
    """One pass over the queues that want more: what remains, and whether one was satisfied with less than its share."""
    unsatisfied = [sharer for sharer in peers if sharer.want > 0]
    weights = sum((sharer.weight for sharer in unsatisfied), Fraction(0))
    if weights == 0:
        return amount, False
    adjusted = {s: max(Fraction(0), s.weight / weights + K_VALUE * (s.weight / weights - s.usage)) for s in unsatisfied}
    whole = sum(adjusted.values(), Fraction(0))
    if whole == 0:
        return amount, False
    start, again = amount, False
    for sharer in unsatisfied:
        if sharer.weight == 0:
            continue
        share, want = start * adjusted[sharer] / whole, sharer.want
        give = want if want <= share else Fraction(floor(share))
        left.pop(sharer, None)
        if want > share > give:
            left[sharer] = share - give
        sharer.fair += give
        amount -= give
        again = again or (give > 0 and want < share)
    return amount, again
