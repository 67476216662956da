"""Who gets what is left, in order of service: the part of a scenario that follows the evictions (spec §16.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykai.engine.allocate import place_gang
from pykai.engine.cycle import Cycle
from pykai.engine.gang import pods_to_return
from pykai.engine.order import GangWalk

if TYPE_CHECKING:
    from pykai.engine.scenario import Cause


def serve(cycle: Cycle, cause: Cause, pods: Sequence[int], losers: set[int]) -> bool:
    """Give the gang its pods and the losers what is left, in order of service; False where the gang gets nothing."""
    turns = {cause.gang, *losers}
    walk = _order_of_service(cycle, cause, turns)
    while turns and (turn := walk.pop()) is not None:
        turns.discard(turn)
        if turn == cause.gang:
            if not place_gang(cycle, cause.gang, pods, wait_only=True):
                return False
            walk.confine(turns)
        else:
            again = pods_to_return(cycle.trial, cycle.orders, turn)
            if place_gang(cycle, turn, again, wait_only=True) and pods_to_return(cycle.trial, cycle.orders, turn):
                walk.push(turn)
                turns.add(turn)
    return cause.gang not in turns


def _order_of_service(cycle: Cycle, cause: Cause, turns: set[int]) -> GangWalk:
    """The order of service among these gangs; who else waits in their branches of the tree has a say in it."""
    queue_of, paths = cycle.snapshot.gangs.queue, cycle.snapshot.queues.paths
    leaves = {queue_of[gang] for gang in turns}
    branches = {paths[leaf][-1] for leaf in leaves}
    others = cause.waiting.bystanders(branches, {cause.gang, *turns}) if len(leaves) > 1 else ()
    return GangWalk(cycle, sorted(turns), bystanders=others)
