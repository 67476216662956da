"""Background pods: they use what is idle, and leave as soon as a workload can use their place.

While a cycle plans they count as leaving, so that others are placed where they are and wait for it. When the plan is
made, each that still fits on its node stays as if nothing had happened; the rest is evicted. A background pod that has
no node itself takes idle capacity only: it must not take the place of another one.
"""

from __future__ import annotations

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import BackgroundPolicy
from pykai.engine.scenario import Why
from pykai.engine.trial import Trial
from pykai.model.status import Status

ACTION = "backgroundpods"
MESSAGE = "Evicted to make room for a workload on this node"
_SLACK = 1e-6


def settle_background(cycle: Cycle) -> None:
    """Background pods that still fit stay; the others make room."""
    trial, before = cycle.trial, cycle.background
    if not before:
        return
    _withdraw_promises(cycle)
    gone = [pod for pod, status in before.items() if not _stays(cycle, pod, status)]
    trial.evicted |= {pod: Why(ACTION, None, MESSAGE, len(gone)) for pod in gone}
    trial.settle()


def _withdraw_promises(cycle: Cycle) -> None:
    """Background pods that were to wait for a release wait for idle capacity instead."""
    trial, plugin = cycle.trial, cycle.policy.first(BackgroundPolicy)
    rows = plugin.background_pods(cycle.snapshot) if plugin is not None else ()
    promised = [pod for pod in rows if trial.placed.get(pod) and trial.status[pod] == Status.PIPELINED]
    for pod in promised:
        trial.suppose_evicted(pod)
        cycle.resources.release(pod)
    trial.decide({pod: Why(ACTION, None, MESSAGE, len(promised)) for pod in promised})


def _stays(cycle: Cycle, pod: int, status: int) -> bool:
    """Whether the pod can stay on its node with all that was placed there; if so it does."""
    trial, node = cycle.trial, cycle.trial.node[pod]
    resources, mark = cycle.rules(trial.of_class(pod)).resources, trial.mark()
    if any(mask[node] for state in resources.filtering for _, mask in state.infeasible(pod)):
        return False
    if any(state.reject(pod, node) is not None for state in resources.rejecting):
        return False
    trial.journal.put_new(trial.virtual, pod, status)
    trial.keep(pod)
    if _overcommitted(trial, node):
        trial.undo_to(mark)
        return False
    cycle.resources.reserve(pod)
    return True


def _overcommitted(trial: Trial, node: int) -> bool:
    """Whether more of the node is promised than will be free."""
    offered = trial.snapshot.nodes.allocatable[:, node] > 0
    if ((trial.idle[:, node] + trial.releasing[:, node])[offered] < -_SLACK).any():
        return True
    capacity = trial.amounts.gpu_memory[node]
    shares = trial.shares.get(node, {}).values()
    return any(share.allocated - share.releasing > capacity + _SLACK for share in shares)
