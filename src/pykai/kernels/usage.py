"""Use of the cluster over time: which part of its capacity each queue held while a window of the past lasted.

The past is a list of records in order of time; what a record says holds until the next one, so it does not matter how
often it was written down. A stretch of time counts by its length, and where use decays, less for every moment that it
lies back: the weight of [a, b) at `now` is the integral of 0.5^((now - t) / half life) over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Amounts = tuple[float, float, float]
"""(cpu, memory, gpu), in any unit that held and capacity share."""
NOTHING: Amounts = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class UsageRecord:
    """What queues held of which capacity from an instant on (seconds since 1970)."""

    at: float
    capacity: Amounts
    allocated: Mapping[str, Amounts] = field(default_factory=dict)


def stretch_weights(begins: Floats, since: float, now: float, half_life: float | None) -> Floats:
    """How much each record counts in the window from `since` to `now`; `half_life` in seconds, None: no decay.

    `begins` rise; a record ends where the next begins, the last at `now`. Units do not matter: only ratios do.
    """
    edges = np.clip(np.append(begins, now), since, now)
    if half_life is None:
        return np.diff(edges)
    return np.diff(0.5 ** ((now - edges) / half_life))


def normalised_use(
    records: Sequence[UsageRecord], since: float, now: float, half_life: float | None
) -> dict[str, Amounts]:
    """Each queue's part (0..1) of the capacity in the window; queues that held nothing are left out."""
    weights = stretch_weights(np.array([record.at for record in records]), since, now, half_life)
    counted = np.flatnonzero(weights)
    if not counted.size:
        return {}
    kept, weights = [records[row] for row in counted.tolist()], weights[counted]
    capacity = weights @ np.array([record.capacity for record in kept])
    queues = sorted({queue for record in kept for queue in record.allocated})
    held = {queue: weights @ np.array([record.allocated.get(queue, NOTHING) for record in kept]) for queue in queues}
    return {queue: _parts(amounts, capacity) for queue, amounts in held.items() if amounts.any()}


def _parts(held: Floats, capacity: Floats) -> Amounts:
    """What was held as parts of the capacity; 0 of a resource the cluster does not have."""
    cpu, memory, gpu = np.divide(held, capacity, out=np.zeros(len(held)), where=capacity > 0).tolist()
    return cpu, memory, gpu
