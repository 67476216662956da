"""The judge's arithmetic of room: nodes, devices and queues hold what a plan puts into them (`engine/verify.py`).

Two moments count. Now: what is bound starts beside everything that is still there. Then: once all who leave have left,
those who waited have come as well. A node or queue that was overfull before is only held against a plan that adds to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pykai.engine.verify_outcome import Outcome, Placement, Violation
from pykai.model.resources import GPU, PODS, Mask

_SLACK = 1e-6
Devices = dict[int, dict[str, float]]
"""Node -> shared device -> MiB in use."""


# --------------------------------------------------------------------------------------------------------------- nodes
def nodes_hold(out: Outcome) -> Iterator[Violation]:
    """No node above what it offers, in any resource, and no device above its memory."""
    bound = [p for p in out.placements if not p.waits]
    yield from _nodes_hold(out, out.present, bound, "now")
    yield from _nodes_hold(out, out.staying, out.placements, "then")


def _nodes_hold(out: Outcome, there: Mask, placements: Sequence[Placement], when: str) -> Iterator[Violation]:
    if not placements:
        return
    snapshot = out.snapshot
    devices = _devices(out, there, ())
    known = {(node, group) for node, groups in devices.items() for group in groups}
    shared = _devices(out, there, placements)
    fresh = [(node, group) for node, groups in shared.items() for group in groups if (node, group) not in known]
    added = _taken(snapshot, [p.pod for p in placements], [p.node for p in placements])
    for node, _ in fresh if when == "now" else [f for f in fresh if f not in _named(snapshot)]:
        added[PODS, node] += 1
    rows = np.flatnonzero(there)
    used = _taken(snapshot, rows.tolist(), snapshot.pods.node[rows].tolist()) + added
    for node, groups in shared.items():
        used[GPU, node] += len(groups)
        added[GPU, node] += sum((node, group) not in known for group in groups)
    offered = _offered(snapshot)
    for row, node in zip(*np.nonzero((added > 0) & (used > offered + _SLACK)), strict=True):
        name, what = snapshot.nodes.names[node], snapshot.space.names[row]
        figures = f"{used[row, node]:g} of {offered[row, node]:g} {what} {when}, {added[row, node]:g} of it new"
        yield Violation("a node holds its pods", name, figures)
    yield from _devices_hold(snapshot, shared, placements, when)
