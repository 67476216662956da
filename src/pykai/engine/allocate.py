"""The allocate action: place pending gangs on free capacity, in the order of service
(docs/concepts/order-of-service.md)."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.engine.cycle import Cycle
from pykai.engine.explain import explain_alike
from pykai.engine.gang import has_allocated, must_wait, pods_to_place
from pykai.engine.order import ClassWalk, pending_gangs
from pykai.engine.place import Placement, place_one, refused
from pykai.engine.reasons import GangError
from pykai.model.status import Status


def allocate(cycle: Cycle) -> None:
    """Place every gang that fits; an elastic gang that has more pending pods gets another turn."""
    walk = ClassWalk(cycle, pending_gangs(cycle), cycle.policy.queue_depth.get("allocate"))
    while (gang := walk.pop()) is not None:
        cycle.tried["allocate"] += 1
        had = has_allocated(cycle.trial, gang)
        placed = pods_to_place(cycle.trial, cycle.orders, gang)
        if place_gang(cycle, gang, placed):
            _settle(cycle, gang, placed, had)
            walk.go_on(gang)
            if pods_to_place(cycle.trial, cycle.orders, gang):
                walk.push(gang)
        elif refused(cycle, placed):
            walk.go_on(gang)
        else:
            explain_alike(cycle, gang, walk.give_up(gang))


def _settle(cycle: Cycle, gang: int, placed: Sequence[int], had: bool) -> None:
    """Pipeline all pods just placed if the gang's minimum needs pipelined pods; else note that the gang starts."""
    if not hold_back(cycle, gang, placed) and not had:
        cycle.started[gang] = cycle.now
    cycle.reasons.forget(gang)
    cycle.trial.settle()


def hold_back(cycle: Cycle, gang: int, pods: Sequence[int]) -> bool:
    """Pipeline the given pods if the gang's minimum needs pipelined pods; return whether it does."""
    if not must_wait(cycle.trial, gang):
        return False
    for pod in pods:
        if cycle.trial.status[pod] == Status.ALLOCATED:
            cycle.trial.wait_instead(pod)
            cycle.resources.reserve(pod)
    return True


def place_gang(cycle: Cycle, gang: int, pods: Sequence[int], wait_only: bool = False) -> bool:
    """Place all these pods of a gang or none, within the limits and quotas of its queues."""
    if not pods:
        return False
    if cycle.quota is not None:
        request = cycle.queue_request(pods, cycle.snapshot.max_gpu_memory)
        over = cycle.quota.over_capacity(cycle, gang, request)
        if over is not None:
            if not wait_only:
                cycle.reasons.gang(gang, GangError(over.reason, over.message, over))
            return False
    if len(pods) == 1 and not wait_only and gang not in cycle.snapshot.gangs.trees and place_one(cycle, pods[0]):
        return True
    return Placement(cycle, gang, wait_only).place(pods)
