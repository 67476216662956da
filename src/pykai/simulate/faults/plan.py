"""Which faults a seed brings: a fault is a function of the seed and of the point where it may happen, of nothing else.

A point is named by what is done there and how often it was done before ("create pods default/job-1 #2"). So a fault
that is left out moves no other one, and a failing history can be shrunk by leaving out faults one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

Rates = Sequence[tuple[str, float]]
"""Kinds of faults that may happen at a point, each with its chance; at most one does."""
_SCALE = float(1 << 64)


@dataclass(frozen=True)
class Fault:
    """One fault that happened: `at` seconds after the start; `point` is where, and unique in a history."""

    at: float
    kind: str
    point: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.point}"


class FaultPlan:
    """Draws faults while `active`; `happened` are those that did, `left_out` points at which none may."""

    def __init__(self, seed: int, time: Callable[[], float], left_out: Collection[str] = ()) -> None:
        self.active = True
        self.happened: list[Fault] = []
        self.out_until = 0.0
        """Until when the API server answers no component."""
        self._seed = seed
        self._time = time
        self._left_out = frozenset(left_out)
        self._counts: Counter[str] = Counter()

    @property
    def is_out(self) -> bool:
        return self._time() < self.out_until

    def draw(self, where: str, rates: Rates) -> tuple[str, Random] | None:
        """The kind of fault that happens here now, with chance for its details; None: none does."""
        if not self.active:
            return None
        self._counts[where] += 1
        point = f"{where} #{self._counts[where]}"
        left = self._drawn(point)
        for kind, rate in rates:
            left -= rate
            if left < 0.0:
                return (kind, self._happen(kind, point)) if point not in self._left_out else None
        return None

    def event(self, kind: str, point: str) -> Random | None:
        """A planned event, such as a deed of a user: its chance, or None where it is left out."""
        return None if not self.active or point in self._left_out else Random(f"{self._seed}/{point}")

    def note(self, kind: str, point: str) -> None:
        """A planned event took place."""
        self.happened.append(Fault(self._time(), kind, point))

    def counts(self) -> Counter[str]:
        """How many faults of each kind happened."""
        return Counter(fault.kind for fault in self.happened)

    def _happen(self, kind: str, point: str) -> Random:
        self.note(kind, point)
        return Random(f"{self._seed}/{point}")

    def _drawn(self, point: str) -> float:
        digest = blake2b(f"{self._seed}/{point}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / _SCALE
