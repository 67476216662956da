"""/get-job-order: in which order gangs would be tried, as the last cycle saw them (spec/tools.md §1.4)."""

from __future__ import annotations

from typing import Any

from pykai.engine.cycle import Cycle
from pykai.engine.order import pending_gangs
from pykai.engine.policy import Policy
from pykai.engine.shapes import ShapedWalk
from pykai.model.snapshot import Snapshot


def job_order(snapshot: Snapshot, policy: Policy, now: float) -> dict[str, Any]:
    """The order of the allocate action over everybody who waits, in all and by queue."""
    cycle = Cycle(snapshot, policy, now)
    gangs = snapshot.gangs
    walk = ShapedWalk(cycle, pending_gangs(cycle), policy.queue_depth.get("allocate"))
    everybody: list[dict[str, Any]] = []
    by_queue: dict[str, list[dict[str, Any]]] = {}
    while (gang := walk.pop()) is not None:
        walk.go_on(gang)
        entry = {"id": gangs.title(gang), "priority": gangs.priority[gang]}
        everybody.append(entry)
        by_queue.setdefault(gangs.queue_name(gang), []).append(entry)
    return {"global_order": everybody, "queue_order": by_queue}
