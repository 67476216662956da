"""Promises that nothing stands in the way of: they start at once.

A scenario promises places that are still to be given up. Where all it takes from others are promises of the same
cycle, nobody has to leave: those who wait would wait for nothing, in this cycle and in every one after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykai.engine.cycle import Cycle
from pykai.engine.gang import has_allocated, must_wait
from pykai.model.resources import GPU, PODS
from pykai.model.status import Status

_SLACK = 1e-9


def start(cycle: Cycle, gangs: Iterable[int]) -> None:
    """Let the promised pods of each gang start, all of a gang or none."""
    trial = cycle.trial
    for gang in gangs:
        pods = [pod for pod in cycle.snapshot.gangs.pods(gang) if trial.status[pod] == Status.PIPELINED]
        mine = [pod for pod in pods if pod not in trial.evicted]
        had = has_allocated(cycle.trial, gang)
        mark = trial.mark()
        trial.start_instead(mine)
        if must_wait(trial, gang) or not _have_all(cycle, mine):
            trial.undo_to(mark)
            continue
        for pod in mine:
            cycle.resources.reserve(pod)
        if mine and not had:
            cycle.started[gang] = cycle.now


def _have_all(cycle: Cycle, pods: Sequence[int]) -> bool:
    """Whether what the pods take is idle: nothing they ask for is below zero now, and no rule bids them wait."""
    trial = cycle.trial
    for pod in pods:
        c, node = trial.of_class(pod), trial.node[pod]
        if (trial.idle[c.dims, node] < -_SLACK).any() or (c.shared and not _have_devices(cycle, pod)):
            return False
        if cycle.resources.must_wait(pod, node):
            return False
    return True


def _have_devices(cycle: Cycle, pod: int) -> bool:
    trial, node = cycle.trial, cycle.trial.node[pod]
    capacity = float(cycle.snapshot.nodes.gpu_memory[node])
    shares = [trial.shares[node][group] for group in trial.gpu_groups[pod]]
    return all(share.allocated <= capacity for share in shares) and bool(trial.idle[[GPU, PODS], node].min() >= -_SLACK)
