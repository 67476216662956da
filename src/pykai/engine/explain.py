"""Compose the reasons why no node is feasible for a pod, and the resulting reason of its gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.gang import is_gang
from pykai.engine.plugin_api import Refusal, Rejection
from pykai.engine.queues import human
from pykai.engine.reasons import POD_ERRORS, FitError, GangError, NodeReason, Token, about_pod
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import CPU, GPU, MEMORY, MIG_PREFIX, PODS, Mask, Rows, scale
from pykai.model.snapshot import Snapshot

Looked = tuple[Rows | None, Mapping[int, str], Sequence[Rejection]]
"""The candidate nodes (None: all), node -> why it was rejected after scoring, and rejections of node resources."""
_SHORT = "node(s) didn't have enough resources: "
_TOO_SMALL = _SHORT + "GPU memory"
NO_SLOT = "node(s) pod number exceeded"
_TITLES = {CPU: "CPU cores", MEMORY: "memory", GPU: "GPUs"}
_UNITS = {CPU: " cores", MEMORY: " GB"}
_GIGABYTE = 1e9


def explain_refusal(cycle: Cycle, gang: int, pod: int, refusal: Refusal) -> None:
    """Note that a gate refused the pod before any node was filtered."""
    cycle.reasons.pods[pod] = refusal.message
    message = about_pod(cycle.snapshot.pods.title(pod), refusal.message)
    cycle.reasons.gang(gang, GangError(POD_ERRORS, message, token=refusal.token))


def explain_alike(cycle: Cycle, first: int, others: Sequence[int]) -> None:
    """Copy the reasons of a gang that does not fit to equivalent gangs, with their names in the texts."""
    if not others:
        return
    orders, trial, reasons, title = cycle.orders, cycle.trial, cycle.reasons, cycle.snapshot.pods.title
    errors, gang_title = reasons.gangs.get(first, []), cycle.snapshot.gangs.title
    known = [(at, pod, reasons.pods[pod]) for at, pod in enumerate(orders.pods(trial, first)) if pod in reasons.pods]
    named = {about_pod(title(pod), text): (at, text) for at, pod, text in known}
    first_title = f"<{gang_title(first)}>"
    names_first = any(e.message in named or first_title in e.message for e in errors)
    for gang in others:
        pods = orders.pods(trial, gang)
        reasons.gangs[gang] = found = errors.copy()
        if names_first:
            for place, e in enumerate(errors):
                at, text = named.get(e.message, (None, ""))
                renamed = e.message.replace(first_title, f"<{gang_title(gang)}>")
                found[place] = replace(e, message=renamed if at is None else about_pod(title(pods[at]), text))
        for at, _, text in known:
            reasons.pods[pods[at]] = text


def explain_pod(cycle: Cycle, gang: int, failed: tuple[int, int], looked: Looked) -> None:
    """Note why no node is feasible for a pod; `failed`: the pod, and how many of its podset were placed before it."""
    pod, _ = failed
    c = cycle.trial.of_class(pod)
    text = _text(cycle, gang, c, looked)
    cycle.reasons.pods[pod] = text
    message, needed = _gang_message(cycle, gang, failed, text)
    token, gist = Token.GANG_SHORT if needed else Token.SHORT, ""
    if matches_nowhere(cycle, c, looked[0]):
        token, gist = Token.NO_MATCH, mismatch_text(cycle, c)
    elif c.shared and _exceeds_devices(cycle.snapshot, c):
        token = Token.TOO_LARGE
    fit = (failed[1], needed) if needed else (0, 0)
    cycle.reasons.gang(gang, GangError(POD_ERRORS, message, token=token, fit=fit, gist=gist))


def matches_nowhere(cycle: Cycle, c: PodClass, nodes: Rows | None = None) -> bool:
    """Whether filters reject all nodes, whatever is free on them. Placement skips filters where a resource is short on
    all nodes; they run now, once per class, as a mismatch is the more important reason."""
    return nodes is None and not cycle.node_facts.allowed(c).any()


def mismatch_text(cycle: Cycle, c: PodClass) -> str:
    """Return the node counts by the first filter that rejects each, whatever is free on them."""
    known, key = cycle.state(_mismatches), cycle.node_facts.constraints(c)
    if key not in known:
        counts: Counter[str] = Counter()
        explained = np.zeros(len(cycle.node_facts.every), dtype=bool)
        for reason, rejected in cycle.node_facts.rejections(c):
            counts[reason] += int(np.count_nonzero(rejected & ~explained))
            explained |= rejected
        known[key] = FitError({reason: count for reason, count in counts.items() if count}).text()
    return known[key]


def _mismatches(_: Cycle) -> dict[Hashable, str]:
    """Return the cache of texts, by what classes demand of nodes."""
    return {}


def _exceeds_devices(snapshot: Snapshot, c: PodClass) -> bool:
    """Whether a pod requests more memory per device than any device has, or more devices than any node has."""
    devices = snapshot.nodes.allocatable[GPU].max(initial=0.0)
    return c.memory_mib > snapshot.max_gpu_memory or c.devices > devices


def _text(cycle: Cycle, gang: int, c: PodClass, looked: Looked) -> str:
    if cycle.snapshot.params.detailed_fit_errors:
        return fit_error(cycle, c, *looked).detailed(alone=len(cycle.snapshot.gangs.pods(gang)) == 1)
    short_everywhere = looked[0] is None and not c.shared and not c.overhead and cycle.node_facts.nowhere(c)
    return _shortage_text(cycle, c) if short_everywhere else fit_error(cycle, c, *looked).text()


def _shortage_text(cycle: Cycle, c: PodClass) -> str:
    """Return the text for a pod for which every node is short of a resource: node counts by resource."""
    free, memo = cycle.node_facts.states().free, cycle.state(_texts)
    known = _while_nothing_moves(cycle).short
    for lack in c.demand:
        if lack not in known:
            known[lack] = int(np.count_nonzero(free[lack[0]] < lack[1]))
    key = tuple([(lack[0], known[lack]) for lack in c.demand if known[lack]])
    if key not in memo:
        memo[key] = FitError({_lack(cycle, row).reason: count for row, count in key}).text()
    return memo[key]


def _gang_message(cycle: Cycle, gang: int, failed: tuple[int, int], text: str) -> tuple[str, int]:
    """Return the reason of a gang and the minimum of the podset that fails; 0: the reason is about a single pod."""
    pod, found = failed
    trial, gangs = cycle.trial, cycle.snapshot.gangs
    row = trial.podset[pod]
    if not is_gang(trial, gang) or trial.active_used[row] - found >= gangs.podset_min[row]:
        return about_pod(cycle.snapshot.pods.title(pod), text), 0
    podsets = list(gangs.tree(gang).podsets())
    podset = next(podset for podset in podsets if podset.row == row)
    if podset.name == "default" and len(podsets) == 1:
        return (
            f"Resources were found for {found} pods while {podset.min_available} are required for gang scheduling. "
            f"Additional pods cannot be scheduled due to: {text}",
            podset.min_available,
        )
    return (
        f"Resources were found for {found} pods from all sub-groups while sub-group {podset.name} requires "
        f"{podset.min_available} pods for gang scheduling. "
        f"Additional pods cannot be scheduled in this sub-group due to: {text}",
        podset.min_available,
    )


def fit_error(
    cycle: Cycle, c: PodClass, nodes: Rows | None, refused: Mapping[int, str], closed: Sequence[Rejection] = ()
) -> FitError:
    """Return the fit error of a class; cached until a pod is placed or evicted, for pods with equal reasons key."""
    where = None if nodes is None else nodes.tobytes()
    key = (cycle.node_facts.reasons_key(c), where, *((reason, mask.tobytes()) for reason, mask in closed))
    memo = _while_nothing_moves(cycle).errors
    known = None if refused else memo.get(key)
    if known is None:
        known = _fit_error(cycle, c, nodes, refused, closed)
        if not refused:
            memo[key] = known
    return known


@dataclass
class _Known:
    """Results that are valid while the trial has `touched` so many nodes."""

    touched: int
    errors: dict[Hashable, FitError] = field(default_factory=dict)
    short: dict[tuple[int, float], int] = field(default_factory=dict)
    """Resource and amount -> how many nodes have less."""


def _known(_: Cycle) -> _Known:
    return _Known(-1)


def _texts(_: Cycle) -> dict[tuple[tuple[int, int], ...], str]:
    """Return the cache of texts, by (resource, number of nodes that are short of it)."""
    return {}


def _lacks(_: Cycle) -> dict[int, Lack]:
    return {}


def _while_nothing_moves(cycle: Cycle) -> _Known:
    """Return the results cached since the last placement or eviction."""
    known = cycle.state(_known)
    if known.touched != len(cycle.trial.touched):
        known.touched, known.errors, known.short = len(cycle.trial.touched), {}, {}
    return known


def _fit_error(
    cycle: Cycle, c: PodClass, nodes: Rows | None, refused: Mapping[int, str], closed: Sequence[Rejection]
) -> FitError:
    rows = cycle.node_facts.every if nodes is None else nodes
    lacks, masks = _but_for_overhead(cycle, c, nodes)
    explained: Mask = np.logical_or.reduce(masks)
    if not explained.all():
        more = list(_other_reasons(cycle, c, (rows, refused, closed), explained))
        lacks, masks = [*lacks, *(lack for lack, _ in more)], np.array([*masks, *(mask for _, mask in more)])
    if c.gpu_kind is GpuKind.MEMORY and not _by_policy(closed, rows):
        # node columns do not show that no device has enough memory left: all unexplained nodes get this reason
        lacks, masks = [*lacks, Lack(_SHORT + "GPUs", GPU)], np.vstack([masks, ~np.logical_or.reduce(masks)])
    counts: Counter[str] = Counter()
    for lack, count in zip(lacks, np.add.reduce(masks, axis=1, dtype=np.int64).tolist(), strict=True):
        counts[lack.reason + lack.suffix] += count
    detailed = cycle.snapshot.params.detailed_fit_errors
    by_node = _by_node(cycle, c, rows, list(zip(lacks, masks, strict=True))) if detailed else {}
    return FitError({r: n for r, n in counts.items() if n}, by_node)


def _by_policy(closed: Sequence[Rejection], nodes: Rows) -> bool:
    """Whether a rejection such as a queue limit applies to some node: KAI then names no shortage of GPU memory."""
    return any(mask[nodes].any() for _, mask in closed)


def _other_reasons(
    cycle: Cycle, c: PodClass, looked: tuple[Rows, Mapping[int, str], Sequence[Rejection]], explained: Mask
) -> Iterator[tuple[Lack, Mask]]:
    """Yield the reasons of nodes without shortage: the first filter that rejects a node, else its late rejection."""
    nodes, refused, closed = looked
    for reason, rejected in chain(cycle.node_facts.rejections(c), closed):
        new = rejected[nodes] & ~explained
        explained = explained | new
        yield Lack(reason), new
    for reason, rows in _by_reason(refused).items():
        yield Lack(reason), np.isin(nodes, rows) & ~explained


def _by_reason(refused: Mapping[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for node, reason in refused.items():
        found.setdefault(reason, []).append(node)
    return found


# ------------------------------------------------------------------------------------------------------------ shortages
class Lack(NamedTuple):
    """A reason why nodes are infeasible: mostly a resource that is short."""

    reason: str
    row: int | None = None
    """The resource whose figures are shown with the reason; None: no figures."""
    suffix: str = ""


Shortages = tuple[list[Lack], Mask]
"""Possible reasons, and the nodes where each applies: [lack, node]."""


def _but_for_overhead(cycle: Cycle, c: PodClass, nodes: Rows | None) -> Shortages:
    """Return shortages, with separate entries for nodes that are short only because of the pod's overhead."""
    lacks, masks = shortages(cycle, c, nodes)
    if not c.overhead:
        return lacks, masks
    anyway: Mask = np.logical_or.reduce(shortages(cycle, c, nodes, c.overhead)[1])
    by_overhead = [lack._replace(suffix=_overhead_text(cycle, c)) for lack in lacks]
    return [*lacks, *by_overhead], np.concatenate([masks & anyway, masks & ~anyway])


def _overhead_text(cycle: Cycle, c: PodClass) -> str:
    names = cycle.snapshot.space.names
    listed = [f" {names[row]}: {_amount(cycle, row, value)}{_UNITS.get(row, '')}" for row, value in c.overhead.items()]
    return f". Not enough resources due to pod overhead resources. The overhead resources are {','.join(listed)}"


def shortages(
    cycle: Cycle, c: PodClass, nodes: Rows | None, spared: Mapping[int, float] = MappingProxyType({})
) -> Shortages:
    """Return by resource which nodes have too little of it, on idle plus releasing; `spared`: amounts by resource row
    to subtract from the request."""
    facts, states = cycle.node_facts, cycle.node_facts.states()
    rows = [row for row in c.dims.tolist() if row != PODS] + ([] if c.shared else [PODS])
    need = facts.need(c, facts.every if nodes is None else nodes)[rows]
    if spared:
        need = need - np.array([spared.get(row, 0.0) for row in rows])[:, None]
    free = states.free[rows] if nodes is None else states.free[np.ix_(rows, nodes)]
    lacks, masks = [_lack(cycle, row) for row in rows], free < need
    if not c.shared:
        return lacks, masks
    of_devices = list(_shared_shortages(cycle, c, nodes))
    return [*lacks, *(lack for lack, _ in of_devices)], np.array([*masks, *(mask for _, mask in of_devices)])


def _lack(cycle: Cycle, row: int) -> Lack:
    known = cycle.state(_lacks)
    if row not in known:
        known[row] = Lack(NO_SLOT) if row == PODS else Lack(_reason(cycle, row), row)
    return known[row]


def _shared_shortages(cycle: Cycle, c: PodClass, nodes: Rows | None) -> Iterator[tuple[Lack, Mask]]:
    table = cycle.snapshot.nodes
    look, _ = cycle.rankings.ranking(c).look(nodes)
    too_small = (table.gpu_memory[look.nodes] < c.memory_mib) & (table.allocatable[GPU, look.nodes] > 0)
    yield Lack(_TOO_SMALL, GPU), too_small
    enough = np.floor(look.free[GPU]) + look.sharable >= c.devices
    if c.gpu_kind is not GpuKind.MEMORY:
        yield Lack(_SHORT + "GPUs", GPU), ~too_small & ~enough
    slots = 1 + (look.sharable < c.devices)  # a device that is not shared yet needs a slot for its reservation pod
    yield Lack(NO_SLOT), ~too_small & enough & (look.free[PODS] < slots)


def _reason(cycle: Cycle, row: int) -> str:
    name = cycle.snapshot.space.names[row]
    if name.startswith(MIG_PREFIX):
        return f"node(s) didn't have enough of mig profile: {name}"
    return _SHORT + _TITLES.get(row, name)


# --------------------------------------------------------------------------------------------------------- node by node
def _by_node(
    cycle: Cycle, c: PodClass, nodes: Rows, found: Sequence[tuple[Lack, Mask]]
) -> dict[str, tuple[NodeReason, ...]]:
    names = cycle.snapshot.nodes.names
    return {
        names[node]: reasons
        for at, node in enumerate(nodes.tolist())
        if (reasons := tuple(_of_node(cycle, c, lack, node) for lack, mask in found if mask[at]))
    }


def _of_node(cycle: Cycle, c: PodClass, lack: Lack, node: int) -> NodeReason:
    if lack.row is None:
        return NodeReason(lack.reason)
    if lack.reason == _TOO_SMALL:
        size = human(cycle.snapshot.nodes.gpu_memory[node])
        return NodeReason(
            f"Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of {size} Mib. "
            f"{c.memory_mib} Mib of gpu memory has been requested."
        )
    return NodeReason(lack.reason.replace("node(s)", "Node", 1), _figures(cycle, c, lack.row, node), lack.suffix)


def _figures(cycle: Cycle, c: PodClass, row: int, node: int) -> str:
    """Return request, use that is not being released, and capacity as text."""
    trial = cycle.trial
    request = trial.amounts.accepted_gpus(c, node) if row == GPU and c.shared else float(c.request[row])
    capacity = float(cycle.snapshot.nodes.allocatable[row, node])
    used = max(capacity - float(trial.idle[row, node]) - float(trial.releasing[row, node]), 0.0)
    shown = [_amount(cycle, row, value) for value in (request, used, capacity)]
    return "requested: {}, used: {}, capacity: {}".format(*shown)


def _amount(cycle: Cycle, row: int, value: float) -> str:
    """Return an amount as text in cores, gigabytes or devices; other resources in base units."""
    return human(value, _GIGABYTE if row == MEMORY else scale(cycle.snapshot.space.names[row]))
