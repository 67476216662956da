"""Background pods use idle capacity and are evicted as soon as a workload can use their resources.

During a cycle they count as releasing, so that other pods are pipelined onto their nodes. At the end of the cycle each
that still fits on its node stays unchanged; the others are evicted. A pending background pod gets idle capacity only:
it must not replace another background pod.
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
    """Keep background pods that still fit on their nodes, and evict the others."""
    trial, before = cycle.trial, cycle.background
    if not before:
        return
    _withdraw_promises(cycle)
    gone = [pod for pod, status in before.items() if not _stays(cycle, pod, status)]
    trial.evicted |= {pod: Why(ACTION, None, MESSAGE, len(gone)) for pod in gone}
    trial.settle()


def _withdraw_promises(cycle: Cycle) -> None:
    """Make pipelined background pods pending again: they wait for idle capacity."""
    trial, plugin = cycle.trial, cycle.policy.first(BackgroundPolicy)
    rows = plugin.background_pods(cycle.snapshot) if plugin is not None else ()
    promised = [pod for pod in rows if trial.placed.get(pod) and trial.status[pod] == Status.PIPELINED]
    for pod in promised:
        trial.suppose_evicted(pod)
        cycle.resources.release(pod)
    trial.decide({pod: Why(ACTION, None, MESSAGE, len(promised)) for pod in promised})


def _stays(cycle: Cycle, pod: int, status: int) -> bool:
    """Keep the pod on its node if it fits beside all pods placed there; return whether it stays."""
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
    """Whether pods on the node take more than its idle and releasing capacity."""
    offered = trial.snapshot.nodes.allocatable[:, node] > 0
    if ((trial.idle[:, node] + trial.releasing[:, node])[offered] < -_SLACK).any():
        return True
    capacity = trial.amounts.gpu_memory[node]
    shares = trial.shares.get(node, {}).values()
    return any(share.allocated - share.releasing > capacity + _SLACK for share in shares)
