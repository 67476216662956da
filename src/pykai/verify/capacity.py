"""Rules of the judge about places: capacity of nodes, devices and queues; constraints of pods and sub-groups.

Capacity is checked in two states: now, with bound pods beside everything still running; and later, when releasing pods
are gone and pipelined ones have started. A node or queue that was overcommitted before only counts if the plan adds to
it. GPUs of claims are not counted here: devices of claims can be shared, and have an allocator of their own.

Selectors, taints and topology levels are evaluated again, one pod and one node at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from pykai.model.gangs import PodSet, SubGroupSet, TopologyRequirement
from pykai.model.plan import Bind
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, PODS, QUEUE_RESOURCES, UNLIMITED, Column, Mask, Rows, whole_gpus
from pykai.model.snapshot import CORDONED, Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status
from pykai.objects.kinds import Expression, Taint
from pykai.objects.pod_template import NodeTerm, PodTemplate, Toleration
from pykai.verify.outcome import PlanOutcome, PodPlacement, Violation, with_descendants

_SLACK = 1e-6
_RELATIVE = 1e-9
"""Sums of the same amounts in another order may differ by as much."""
_UNITS = ("milli CPU", "bytes of memory", "GPUs")
_IMPLICIT_CLASS = "deviceclass.resource.kubernetes.io/"
Devices = dict[tuple[int, str], float]
"""(node, shared device) -> MiB in use."""


# --------------------------------------------------------------------------------------------------------------- nodes
def nodes_hold(out: PlanOutcome) -> Iterator[Violation]:
    """No node above its allocatable in any resource, no device above its memory."""
    if not out.placements:
        return
    existing = _devices(out, out.present, ())
    yield from _hold(out, out.present, [p for p in out.placements if not p.waits], ("now", existing))
    yield from _hold(out, out.staying, out.placements, ("then", existing))


def _hold(
    out: PlanOutcome, there: Mask, placements: Sequence[PodPlacement], moment: tuple[str, Devices]
) -> Iterator[Violation]:
    """`moment`: its name, and the devices that are shared before the plan: they have their reservation pods."""
    if not placements:
        return
    snapshot, (when, existing) = out.snapshot, moment
    before, after = _devices(out, there, ()), _devices(out, there, placements)
    rows = np.flatnonzero(there & out.on_changed_nodes & ~_idle_reservations(snapshot, after))
    used = _taken(snapshot, rows, snapshot.pods.node[rows])
    added = _taken(snapshot, [p.pod for p in placements], [p.node for p in placements])
    for node, _ in before:
        used[GPU, node] += 1
    for node, _ in after.keys() - before.keys():
        added[GPU, node] += 1
    for node, _ in after.keys() - existing.keys():
        added[PODS, node] += 1
    offered = _offered(snapshot)
    for row, node in np.argwhere((added > 0) & (used + added > offered * (1 + _RELATIVE) + _SLACK)).tolist():
        figures = f"{used[row, node]:g} + {added[row, node]:g} of {offered[row, node]:g} {snapshot.space.names[row]}"
        yield Violation("a node holds its pods", snapshot.nodes.names[node], f"{figures} {when}")
    for node, group in dict.fromkeys((p.node, group) for p in placements for group in p.groups):
        memory, size = after.get((node, group), 0.0), float(snapshot.nodes.gpu_memory[node])
        if memory > size:
            about = f"{group} on {snapshot.nodes.names[node]}"
            yield Violation("a device holds its shares", about, f"{memory:g} of {size:g} MiB {when}")


def devices_of_one_mode(out: PlanOutcome) -> Iterator[Violation]:
    """Pods of different compute modes never share a device."""
    pods, nodes = out.snapshot.pods, out.snapshot.nodes.names
    modes = [c.compute_mode for c in pods.classes]
    if not any(modes):
        return
    there = {row for row in pods.gpu_groups if row not in out.evicted and pods.node[row] >= 0}
    held: dict[tuple[int, str], int] = {}
    for row in sorted(there):
        for group in pods.gpu_groups[row]:
            place = int(pods.node[row]), group
            held.setdefault(place, pods.group_modes.get(place, modes[pods.klass[row]]))
    for p in out.placements:
        for group in p.groups:
            mode = modes[pods.klass[p.pod]]
            if held.setdefault((p.node, group), mode) != mode:
                yield Violation("a device has one compute mode", f"{group} on {nodes[p.node]}", pods.title(p.pod))


def _taken(snapshot: Snapshot, pods: Sequence[int] | np.ndarray, nodes: Sequence[int] | np.ndarray) -> Column:
    """[resource, node]: what pods take from nodes; shared devices and GPUs of claims left out."""
    pods, nodes = np.asarray(pods, dtype=np.int64), np.asarray(nodes, dtype=np.int64)
    amounts = snapshot.derived(_of_nodes)[:, snapshot.pods.klass[pods]]
    if snapshot.pods.reservation:
        amounts[GPU, np.isin(pods, list(snapshot.pods.reservation))] = 0.0
    return np.array([np.bincount(nodes, weights=row, minlength=len(snapshot.nodes)) for row in amounts])


def _of_nodes(snapshot: Snapshot) -> Column:
    """[resource, class]: what a pod of each class takes from its node; shared devices and GPUs of claims left out."""
    table = np.array([c.request for c in snapshot.pods.classes]).reshape(-1, snapshot.space.size).T.copy()
    table[GPU] = [0.0 if c.shared else c.request[GPU] - c.dra_gpus for c in snapshot.pods.classes]
    return table


def _offered(snapshot: Snapshot) -> Column:
    """[resource, node]: what nodes offer; without bound where claims can stand in for it."""
    nodes = snapshot.nodes
    offered = nodes.allocatable.copy()
    offered[GPU] -= nodes.dra_gpus
    offered[GPU, (offered[GPU] <= 0) & (nodes.dra_gpus > 0)] = np.inf
    classes = snapshot.objects.device_classes
    named = {item.spec.get("extendedResourceName") or f"{_IMPLICIT_CLASS}{name}" for name, item in classes.items()}
    for row in (snapshot.space.rows[name] for name in named if name in snapshot.space.rows):
        offered[row, offered[row] <= 0] = np.inf
    return offered


def _idle_reservations(snapshot: Snapshot, shared: Devices) -> Mask:
    """Reservation pods of devices that are no longer shared: they leave with the last sharing pod."""
    pods, mask = snapshot.pods, np.zeros(len(snapshot.pods), dtype=bool)
    mask[[row for row, group in pods.reservation.items() if (int(pods.node[row]), group) not in shared]] = True
    return mask


def _devices(out: PlanOutcome, there: Mask, placements: Iterable[PodPlacement]) -> Devices:
    """Memory in use on shared devices of nodes that are given something."""
    snapshot, pods = out.snapshot, out.snapshot.pods
    concerned = {p.node for p in out.placements}
    sharing = [row for row in np.flatnonzero(there & out.on_changed_nodes).tolist() if row in pods.gpu_groups]
    shares = [(row, int(pods.node[row]), pods.gpu_groups[row]) for row in sharing]
    found: Devices = {}
    for pod, node, groups in [*shares, *((p.pod, p.node, p.groups) for p in placements)]:
        if node in concerned and pods.of_class(pod).shared:
            for group in groups:
                found[node, group] = found.get((node, group), 0.0) + _share(snapshot, pods.of_class(pod), node)
    return found


def _share(snapshot: Snapshot, c: PodClass, node: int) -> float:
    """MiB of each of its devices that a shared request takes on a node."""
    if c.gpu_kind is GpuKind.MEMORY:
        return float(c.memory_mib)
    return float(max(1, int(c.portion * snapshot.nodes.gpu_memory[node])))


# -------------------------------------------------------------------------------------------------------------- queues
def queues_hold(out: PlanOutcome) -> Iterator[Violation]:
    """No queue above its limit, and what cannot be evicted within quota, up to the root."""
    if not out.placements:
        return
    snapshot = out.snapshot
    pods = snapshot.pods
    all_pods = np.ones(len(pods), dtype=bool)
    held = ~np.append(snapshot.gangs.columns.preemptible, True)[pods.gang]
    for gang in snapshot.gangs.semi_preemptible:
        held[list(snapshot.gangs.pods(gang))] = False
        held[_surely_core(out, gang)] = True
    yield from _within(out, all_pods, ("a queue keeps its limit", snapshot.queues.limit))
    yield from _within(out, held, ("non-preemptible work keeps the quota", snapshot.queues.deserved))


def _surely_core(out: PlanOutcome, gang: int) -> list[int]:
    """As many pods as the minimum of a semi-preemptible gang, where it is all the same which: those count as held."""
    gangs, pods = out.snapshot.gangs, out.snapshot.pods
    rows = gangs.pods(gang)
    if gang in gangs.trees or len({int(pods.klass[row]) for row in rows}) > 1:
        return []
    placed = {p.pod for p in out.placements}
    staying = [row for row in rows if out.allocated[row] and not out.leaving[row] and row not in placed]
    return [*staying, *sorted(placed.intersection(rows))][: gangs.podset_min[gangs.first_podset[gang]]]


def _within(out: PlanOutcome, members: Mask, bound: tuple[str, Column]) -> Iterator[Violation]:
    """Yield the queues above their bound where the plan adds to what the remaining `members` hold of them.

    `bound`: the rule, and the bound of each queue.
    """
    snapshot, pods, (rule, most) = out.snapshot, out.snapshot.pods, bound
    staying = np.flatnonzero(out.allocated & ~out.leaving & out.in_changed_queues & members)
    placed = [p for p in out.placements if members[p.pod]]
    used = _queue_sums(snapshot, staying, pods.node[staying])
    added = _queue_sums(snapshot, _column(p.pod for p in placed), _column(p.node for p in placed))
    over = (added > _SLACK) & (most != UNLIMITED) & (np.round(used + added, 4) > most * (1 + _RELATIVE) + _SLACK)
    for resource, queue in np.argwhere(over).tolist():
        figures = f"{used[resource, queue]:g} + {added[resource, queue]:g} of {most[resource, queue]:g}"
        yield Violation(rule, snapshot.queues.names[queue], f"{figures} {_UNITS[resource]}")


def most_used(out: PlanOutcome) -> Column:
    """[resource, queue]: what is held now, and would be if all that waits had a place: no cycle could see more."""
    pods = out.snapshot.pods
    rows = np.flatnonzero((out.allocated | (pods.status == Status.PENDING)) & out.in_changed_queues)
    smallest = int(out.snapshot.nodes.gpu_memory.argmin())
    nodes = np.where(pods.node[rows] >= 0, pods.node[rows], smallest)
    return _queue_sums(out.snapshot, rows, nodes)


def _column(numbers: Iterable[int]) -> Rows:
    return np.fromiter(numbers, dtype=np.int64)


def _queue_sums(snapshot: Snapshot, rows: Rows, nodes: Rows) -> Column:
    """[resource, queue]: what pods on these nodes count against their queues, up to the root."""
    pods, queues, gangs = snapshot.pods, snapshot.queues, snapshot.gangs
    amounts = snapshot.derived(_of_queues)[:, pods.klass[rows]]
    by_memory = np.array([c.gpu_kind is GpuKind.MEMORY for c in pods.classes], dtype=bool)[pods.klass[rows]]
    for index in np.flatnonzero(by_memory).tolist():
        c, node = pods.of_class(int(rows[index])), int(nodes[index])
        amounts[GPU, index] = whole_gpus(portion(snapshot, c, node), c.devices) if node >= 0 else 0.0
    leaf = np.append(gangs.columns.queue, -1)[pods.gang[rows]]
    sums = np.zeros((QUEUE_RESOURCES, len(queues)))
    for queue in np.flatnonzero(np.bincount(leaf[leaf >= 0], minlength=len(queues))).tolist():
        sums[:, list(queues.paths[queue])] += amounts[:, leaf == queue].sum(axis=1)[:, None]
    return sums


def _of_queues(snapshot: Snapshot) -> Column:
    """[resource, class]: what a pod of each class counts against its queue wherever it is; MIG instances by size."""
    table = np.array([c.request[:QUEUE_RESOURCES] for c in snapshot.pods.classes], dtype=float)
    for row, c in enumerate(snapshot.pods.classes):
        if c.gpu_kind is GpuKind.MIG:
            table[row, GPU] += sum(float(c.request[at]) * size for at, size in snapshot.space.mig_rows().items())
    return table.reshape(-1, QUEUE_RESOURCES).T


def portion(snapshot: Snapshot, c: PodClass, node: int) -> float:
    """The part of each of its devices a pod counts for on a node; requests for memory in hundredths, rounded up.

    The quotient of floats is rounded, as in KAI: 55 of 100 MiB are 0.56.
    """
    if c.gpu_kind is not GpuKind.MEMORY:
        return c.portion
    return ceil(c.memory_mib / float(snapshot.nodes.gpu_memory[node]) * 100) / 100


Labels = Mapping[str, str]
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


# ---------------------------------------------------------------------------------------------------- pod on a node
def places_allowed(out: PlanOutcome) -> Iterator[Violation]:
    """Every pod may be on its node: labels, taints and conditions."""
    snapshot = out.snapshot
    known: dict[tuple[int, int], str] = {}
    for placement in out.placements:
        c = snapshot.pods.of_class(placement.pod)
        pair = (c.row, placement.node)
        if pair not in known:
            reasons = [*_objections(snapshot, c.template, placement.node)]
            if c.shared and snapshot.nodes.fractions:
                reasons.append(snapshot.nodes.fractions[placement.node])
            known[pair] = "; ".join(filter(None, reasons))
        if known[pair]:
            about = f"{snapshot.pods.title(placement.pod)} on {snapshot.nodes.names[placement.node]}"
            yield Violation("a node may have the pod", about, known[pair])


def _objections(snapshot: Snapshot, template: PodTemplate, node: int) -> Iterator[str]:
    nodes = snapshot.nodes
    for condition in nodes.conditions[node]:
        if condition != CORDONED or not _tolerated(_CORDON, template.tolerations):
            yield condition
    for taint in nodes.taints[node]:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, template.tolerations):
            yield f"taint {taint.key}={taint.value}:{taint.effect}"
    labels = nodes.labels[node]
    for key, value in template.node_selector.items():
        if labels.get(key) != value:
            yield f"selector {key}={value}, label {labels.get(key)!r}"
    affinity = template.affinity.node_affinity
    if affinity is not None and affinity.required is not None:
        fields = {"metadata.name": nodes.names[node]}
        if not any(_matches_term(term, labels, fields) for term in affinity.required.node_selector_terms):
            yield "required node affinity"


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(
        t.effect in ("", taint.effect)
        and t.key in ("", taint.key)
        and (t.operator == "Exists" or (t.operator in ("", "Equal") and t.value == taint.value))
        for t in tolerations
    )


def _matches_term(term: NodeTerm, labels: Labels, fields: Labels) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_meets(labels, e) for e in term.match_expressions) and all(_meets(fields, e) for e in term.match_fields)


def _meets(labels: Labels, e: Expression) -> bool:
    value = labels.get(e.key)
    if e.operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (e.operator == "Exists")
    if e.operator in ("In", "NotIn"):
        return (value in e.values) == (e.operator == "In")
    if e.operator not in ("Gt", "Lt") or value is None or len(e.values) != 1:
        return False
    try:
        return int(value) > int(e.values[0]) if e.operator == "Gt" else int(value) < int(e.values[0])
    except ValueError:
        return False


def devices_as_requested(out: PlanOutcome) -> Iterator[Violation]:
    """A pod that shares devices gets as many as it requested, all different; a bind has the portion of each."""
    snapshot, rule = out.snapshot, "a pod gets the devices it requests"
    for placement in out.placements:
        c, bind, about = snapshot.pods.of_class(placement.pod), placement.decision, snapshot.pods.title(placement.pod)
        wanted = c.devices if c.shared else 0
        if not len(placement.groups) == len(set(placement.groups)) == wanted:
            yield Violation(rule, about, f"{wanted} shared devices requested, given {list(placement.groups)}")
        requested = (c.devices, portion(snapshot, c, placement.node))
        if isinstance(bind, Bind) and (bind.devices, bind.portion) != requested:
            figures = f"{bind.devices} times {bind.portion:g} instead of {requested[0]} times {requested[1]:g}"
            yield Violation(rule, about, figures)


# -------------------------------------------------------------------------------------------------------- togetherness
def topology_kept(out: PlanOutcome) -> Iterator[Violation]:
    """All of a sub-group with a required level are in one domain of it; one that was split before is not judged."""
    gangs = out.snapshot.gangs
    for gang in out.by_gang:
        tree = gangs.trees.get(gang)
        for group in with_descendants(tree) if tree is not None else ():
            constraint = group.topology
            if constraint is not None and constraint.required in out.snapshot.topologies.get(constraint.topology, ()):
                yield from _in_one_domain(out, gang, group, constraint)


def _in_one_domain(
    out: PlanOutcome, gang: int, group: PodSet | SubGroupSet, constraint: TopologyRequirement
) -> Iterator[Violation]:
    snapshot, pods = out.snapshot, out.snapshot.pods
    levels = snapshot.topologies[constraint.topology]
    depth = levels.index(constraint.required) + 1
    rows = {group.row} if isinstance(group, PodSet) else {podset.row for podset in group.podsets()}

    def domain(node: int) -> tuple[str | None, ...]:
        """The labels down to the required level; a node without all labels of the topology is in no domain."""
        labels = snapshot.nodes.labels[node]
        return tuple(labels.get(key) for key in levels[:depth]) if all(k in labels for k in levels) else (None,)

    active = [p for p in snapshot.gangs.pods(gang) if pods.podset[p] in rows and IS_ACTIVE_ALLOCATED[pods.status[p]]]
    before = {domain(int(pods.node[p])) for p in active}
    given = {domain(p.node) for p in out.by_gang[gang] if pods.podset[p.pod] in rows}
    kept = {domain(int(pods.node[p])) for p in active if p not in out.evicted}
    found = given | kept
    if given and len(before) <= 1 and (None,) not in before and (len(found) > 1 or (None,) in given):
        about = f"{snapshot.gangs.title(gang)} {group.name}".strip()
        shown = ", ".join(sorted(".".join(map(str, d)) for d in found))
        yield Violation("a sub-group stays together", about, f"{constraint.required} required, found in {shown}")
