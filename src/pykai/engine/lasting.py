"""Whether a consolidation lasts. What is evicted in order to move comes back as a new pod, and new pods are placed by
the ordinary rules: if these lead it back to where it was, it was evicted for nothing, and would be again and again.
The question costs a simulation, so it is asked about those only who have been evicted before: nobody goes in circles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pykai.engine.allocate import place_gang
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_place
from pykai.engine.reasons import Reasons
from pykai.engine.service import order_of_service, serve
from pykai.model.status import IS_ACTIVE_ALLOCATED, IS_ACTIVE_USED
from pykai.objects import names

if TYPE_CHECKING:
    from pykai.engine.scenario import Cause


def evicted_before(cycle: Cycle, victims: Sequence[int]) -> bool:
    """Whether one of the victims' gangs has been evicted in an earlier cycle."""
    known = cycle.snapshot.gangs.last_eviction
    return bool(known) and any(cycle.trial.gang[pod] in known for pod in victims)


def lasts(cycle: Cycle, cause: Cause, pods: Sequence[int], victims: Sequence[int]) -> bool:
    """Whether the next cycle, with the victims gone and waiting, gives the gang these pods and the victims a place.

    The trial is left as it was. Promises of this cycle are moved without anybody leaving: that always lasts.
    """
    before = cycle.snapshot.pods.status
    if not any(IS_ACTIVE_USED[before[pod]] for pod in victims):
        return True
    trial, reasons, mark = cycle.trial, cycle.reasons, cycle.trial.mark()
    cycle.reasons = Reasons()
    for pod in victims:
        trial.withdraw(pod)
        cycle.tell_evicted(pod)
    for pod in list(_idle_reservations(cycle)):
        trial.withdraw(pod)
    placed = _allocated(cycle, cause, pods, victims) or _rearranged(cycle, cause, pods, victims)
    trial.undo_to(mark)
    cycle.reasons = reasons
    return placed


def _idle_reservations(cycle: Cycle) -> Iterator[int]:
    """Reservation pods of devices that nobody shares any more."""
    trial, table = cycle.trial, cycle.snapshot.pods
    for pod in table.reservation:
        group = (table.objects[pod].metadata.labels or {}).get(names.GPU_GROUP_LABEL, "")
        share = trial.shares.get(trial.node[pod], {}).get(group)
        if share is not None and share.used <= 0:
            yield pod


def _allocated(cycle: Cycle, cause: Cause, pods: Sequence[int], victims: Sequence[int]) -> bool:
    """Place everybody by the ordinary rules, in order of service; whether all have a place."""
    turns = {cause.gang, *(cycle.trial.gang[pod] for pod in victims)}
    walk = order_of_service(cycle, cause, turns)
    while (turn := walk.pop()) is not None:
        wanted = pods if turn == cause.gang else pods_to_place(cycle.trial, cycle.orders, turn)
        if place_gang(cycle, turn, wanted) and turn != cause.gang and pods_to_place(cycle.trial, cycle.orders, turn):
            walk.push(turn)
    return _all_placed(cycle, [*pods, *victims])


def _rearranged(cycle: Cycle, cause: Cause, pods: Sequence[int], victims: Sequence[int]) -> bool:
    """Whether the next consolidation helps, in which the victims have no more than a promise."""
    if not _all_placed(cycle, victims):
        return False
    for pod in victims:
        cycle.trial.suppose_evicted(pod)
        cycle.tell_evicted(pod)
    losers = {cycle.trial.gang[pod] for pod in victims}
    return serve(cycle, cause, pods, losers) and _all_placed(cycle, [*pods, *victims])


def _all_placed(cycle: Cycle, pods: Sequence[int]) -> bool:
    status = cycle.trial.status
    return all(IS_ACTIVE_ALLOCATED[status[pod]] for pod in pods)
