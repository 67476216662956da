"""Nodes known to have nothing for a demand: ten thousand pods that ask for the same in vain are refused once.

A node is forgotten when the trial touches it, all are when a pool changes that several nodes reach.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from pykai.engine.points import Rejection
from pykai.engine.trial import Trial
from pykai.model.resources import Mask
from pykai.plugins.dra.devices import PoolId
from pykai.plugins.dra.ledger import Ledger


@dataclass
class _Known:
    """Masks of nodes by reason; `read`: how far the log of touched nodes has been read."""

    read: int
    wide: tuple[int, ...]
    masks: dict[str, Mask] = field(default_factory=dict)


class Refusals:
    """What is known per demand."""

    def __init__(self, trial: Trial, ledger: Ledger, wide_pools: tuple[PoolId, ...]) -> None:
        self.trial = trial
        self.ledger = ledger
        self.wide_pools = wide_pools
        self._known: dict[Hashable, _Known] = {}

    def note(self, demand: Hashable, reason: str, node: int) -> None:
        """A node refuses the demand as things are."""
        known = self._fresh(demand) or self._known.setdefault(demand, _Known(len(self.trial.touched), self._wide()))
        if reason not in known.masks:
            known.masks[reason] = np.zeros(len(self.trial.snapshot.nodes), dtype=bool)
        known.masks[reason][node] = True

    def known(self, demand: Hashable) -> Iterator[Rejection]:
        known = self._fresh(demand)
        if known is not None:
            yield from ((reason, mask) for reason, mask in known.masks.items() if mask.any())

    def _wide(self) -> tuple[int, ...]:
        return tuple(self.ledger.states.get(pool, 0) for pool in self.wide_pools)

    def _fresh(self, demand: Hashable) -> _Known | None:
        """What is known of a demand, without what may no longer be true."""
        known = self._known.get(demand)
        if known is None:
            return None
        wide, touched = self._wide(), self.trial.touched
        if known.wide != wide:
            known.wide, known.masks = wide, {}
        elif known.read < len(touched):
            changed = list(set(touched[known.read :]))
            for mask in known.masks.values():
                mask[changed] = False
        known.read = len(touched)
        return known
