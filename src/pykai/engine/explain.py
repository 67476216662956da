"""Composing the reasons why a pod found no node, and why its gang therefore waits (spec/scheduling.md §7.3, §17.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import is_gang
from pykai.engine.points import Refusal, Rejection
from pykai.engine.reasons import POD_ERRORS, FitError, GangError, about_pod
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, PODS, Mask, Rows

Looked = tuple[Rows | None, Mapping[int, str], Sequence[Rejection]]
"""The nodes, why single ones of them refused, and which ones were closed to the pod at the moment."""
_SHORT = "node(s) didn't have enough resources: "
NO_SLOT = "node(s) pod number exceeded"
_TITLES = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}


def explain_refusal(cycle: Cycle, gang: int, pod: int, refusal: Refusal) -> None:
    """A gate turned the pod away before any node was looked at."""
    cycle.reasons.pods[pod] = refusal.message
    message = about_pod(cycle.snapshot.pods.title(pod), refusal.message)
    cycle.reasons.gang(gang, GangError(POD_ERRORS, message))


def explain_alike(cycle: Cycle, first: int, others: Iterable[int]) -> None:
    """Gangs of the same shape as one that found no place wait for the same reasons; only the names differ."""
    orders, trial, reasons, title = cycle.orders, cycle.trial, cycle.reasons, cycle.snapshot.pods.title
    errors = reasons.gangs.get(first, [])
    told = [(at, pod, reasons.pods[pod]) for at, pod in enumerate(orders.pods(trial, first)) if pod in reasons.pods]
    for gang in others:
        pods = orders.pods(trial, gang)
        texts = {about_pod(title(pod), text): about_pod(title(pods[at]), text) for at, pod, text in told}
        reasons.gangs[gang] = [
            GangError(e.reason, texts[e.message], e.capacity, e.node_group) if e.message in texts else e for e in errors
        ]
        reasons.pods.update((pods[at], text) for at, _, text in told)


def explain_pod(cycle: Cycle, gang: int, failed: tuple[int, int], looked: Looked) -> None:
    """No node took the pod; `failed` is the pod, and how many of its podset have a place."""
    pod, _ = failed
    error = fit_error(cycle, cycle.trial.of_class(pod), *looked)
    text = error.detailed() if cycle.snapshot.params.detailed_fit_errors else error.text()
    cycle.reasons.pods[pod] = text
    cycle.reasons.gang(gang, GangError(POD_ERRORS, _gang_message(cycle, gang, failed, text)))


def _gang_message(cycle: Cycle, gang: int, failed: tuple[int, int], text: str) -> str:
    pod, found = failed
    trial = cycle.trial
    podsets = list(cycle.snapshot.gangs.tree(gang).podsets())
    podset = next(podset for podset in podsets if podset.row == trial.podset[pod])
    if not is_gang(trial, gang) or trial.active_used[podset.row] - found >= podset.min_available:
        return about_pod(cycle.snapshot.pods.title(pod), text)
    if podset.name == "default" and len(podsets) == 1:
        return (
            f"Resources were found for {found} pods while {podset.min_available} are required for gang scheduling. "
            f"Additional pods cannot be scheduled due to: {text}"
        )
    return (
        f"Resources were found for {found} pods from all sub-groups while sub-group {podset.name} requires "
        f"{podset.min_available} pods for gang scheduling. "
        f"Additional pods cannot be scheduled in this sub-group due to: {text}"
    )


def fit_error(
    cycle: Cycle, c: PodClass, nodes: Rows | None, refused: Mapping[int, str], closed: Sequence[Rejection] = ()
) -> FitError:
    """Counts per reason over the nodes; remembered while nothing moves, for the next pod of the class."""
    where = None if nodes is None else nodes.tobytes()
    key = (len(cycle.trial.touched), c.row, where, *((reason, int(mask.sum())) for reason, mask in closed))
    memo = cycle.memo.setdefault("fit_errors", {})
    if not refused and key in memo:
        known: FitError = memo[key]
        return known
    rows = np.arange(len(cycle.snapshot.nodes)) if nodes is None else nodes
    error = _fit_error(cycle, c, rows, refused, closed)
    if not refused:
        memo[key] = error
    return error


def _fit_error(
    cycle: Cycle, c: PodClass, nodes: Rows, refused: Mapping[int, str], closed: Sequence[Rejection]
) -> FitError:
    counts: Counter[str] = Counter()
    explained = np.zeros(len(nodes), dtype=bool)
    detail: list[tuple[str, Mask]] = []
    for reason, lacking in shortages(cycle, c, nodes):
        explained |= lacking
        counts[reason] += int(lacking.sum())
        detail.append((reason, lacking))
    for reason, rejected in chain(cycle.rankings.rejections(c), closed):
        new = rejected[nodes] & ~explained
        explained |= new
        counts[reason] += int(new.sum())
        detail.append((reason, new))
    for at, node in enumerate(nodes.tolist()):
        if node in refused and not explained[at]:
            counts[refused[node]] += 1
    counts = Counter({reason: count for reason, count in counts.items() if count})
    if not counts and c.gpu_kind is GpuKind.MEMORY:
        counts[_SHORT + "GPUs"] = len(nodes)
    return FitError(counts, _by_node(cycle, nodes, detail) if cycle.snapshot.params.detailed_fit_errors else {})


def _by_node(cycle: Cycle, nodes: Rows, detail: list[tuple[str, Mask]]) -> dict[str, tuple[str, ...]]:
    names = cycle.snapshot.nodes.names
    return {
        names[node]: reasons
        for at, node in enumerate(nodes.tolist())
        if (reasons := tuple(reason for reason, mask in detail if mask[at]))
    }


def shortages(cycle: Cycle, c: PodClass, nodes: Rows) -> Iterator[tuple[str, Mask]]:
    """Per resource, which nodes have too little of it, counting what is being released."""
    trial = cycle.trial
    free = trial.idle[:, nodes] + trial.releasing[:, nodes]
    for need, row in zip(cycle.rankings.need(c, nodes)[c.dims], c.dims.tolist(), strict=True):
        if row != PODS:
            yield _shortage_text(cycle, row), free[row] < need
    if c.shared:
        yield from _shared_shortages(cycle, c, nodes)
    else:
        yield NO_SLOT, free[PODS] < c.request[PODS]


def _shared_shortages(cycle: Cycle, c: PodClass, nodes: Rows) -> Iterator[tuple[str, Mask]]:
    table = cycle.snapshot.nodes
    look, _ = cycle.rankings.ranking(c).look(nodes)
    too_small = (table.gpu_memory[nodes] < c.memory_mib) & (table.allocatable[GPU, nodes] > 0)
    yield _SHORT + "GPU memory", too_small
    enough = np.floor(look.free[GPU]) + look.sharable >= c.devices
    if c.gpu_kind is not GpuKind.MEMORY:
        yield _SHORT + "GPUs", ~too_small & ~enough
    slots = 1 + (look.sharable < c.devices)  # a device that nobody shares yet needs one for the pod that reserves it
    yield NO_SLOT, ~too_small & enough & (look.free[PODS] < slots)


def _shortage_text(cycle: Cycle, row: int) -> str:
    name = cycle.snapshot.space.names[row]
    if name.startswith(MIG_PREFIX):
        return f"node(s) didn't have enough of mig profile: {name}"
    return _SHORT + _TITLES.get(row, name)
