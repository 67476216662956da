"""Place the pods that a gang needs next: all of them, or none (docs/concepts/placement.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pykai.engine.cycle import ClassRules, Cycle, Group
from pykai.engine.devices import only_promised, with_room
from pykai.engine.explain import explain_pod, explain_refusal
from pykai.engine.plugin_api import NodeResourceState, NodeSubsets, Refusal, Rejection
from pykai.engine.ranked import UNFIT
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, PODS, Column, Rows

NodeSet = Rows | None
"""Rows of the candidate nodes; None: all nodes."""


class Placement:
    """One attempt to place pods of a gang. `wait_only`: all pods are pipelined, none starts at once."""

    def __init__(self, cycle: Cycle, gang: int, wait_only: bool = False) -> None:
        self.cycle = cycle
        self.trial = cycle.trial
        self.gang = gang
        self.wait_only = wait_only
        self.explain = not wait_only

    def place(self, pods: Sequence[int]) -> bool:
        """Place all the pods or none; on failure the trial is unchanged."""
        self.cycle.attempt += 1
        mark = self.trial.mark()
        tree = self.trial.snapshot.gangs.trees.get(self.gang)
        if self._podset(pods, None) if tree is None else self._group(tree, pods, None):
            return True
        self.trial.undo_to(mark)
        return False

    def _group(self, group: Group, pods: Sequence[int], nodes: NodeSet) -> bool:
        """Try one node set after the other until all members of the sub-group fit in it; what is placed when none does,
        the caller undoes."""
        if group.topology is None:
            return self._members(group, pods, nodes)
        mark = self.trial.mark()
        subsets: Iterator[NodeSet] = iter((nodes,))
        for plugin in self.cycle.policy.of(NodeSubsets):
            subsets = self._divided(plugin, group, pods, subsets)
        for subset in subsets:
            if self._members(group, pods, subset):
                return True
            self.trial.undo_to(mark)
        return False

    def _divided(
        self, plugin: NodeSubsets, group: Group, pods: Sequence[int], subsets: Iterator[NodeSet]
    ) -> Iterator[NodeSet]:
        for nodes in subsets:
            answer = plugin.subsets(self.cycle, self.gang, group, pods, nodes)
            if self.explain:
                self.cycle.reasons.gang(self.gang, *answer.why)
            yield from answer.sets

    def _members(self, group: Group, pods: Sequence[int], nodes: NodeSet) -> bool:
        if isinstance(group, PodSet):
            return self._podset(pods, nodes)
        if len(group.children) == 1:
            return self._group(group.children[0], pods, nodes)
        members = self.cycle.orders.members(self.trial, group)
        return all(self._group(m, mine, nodes) for m, mine in self._split(members, pods) if mine)

    def _podset(self, pods: Sequence[int], nodes: NodeSet) -> bool:
        if len(pods) == 1:
            return self._pod(0, pods[0], nodes)
        done = self._alike(pods, nodes)
        return all(self._pod(done + at, pod, nodes) for at, pod in enumerate(pods[done:]))

    def _alike(self, pods: Sequence[int], nodes: NodeSet) -> int:
        """Place interchangeable pods together as far as possible; return how many were placed."""
        trial, cycle = self.trial, self.cycle
        klass, virtual = trial.klass, trial.virtual
        row, c = klass[pods[0]], trial.of_class(pods[0])
        if cycle.node_facts.nowhere(c):
            return 0
        rules = cycle.rules(c)
        if trial.amounts.shared[row] or not rules.none or len({klass[pod] for pod in pods}) > 1:
            return 0
        if (rules.gates and refused(cycle, pods)) or (virtual and virtual.keys() & pods):
            return 0
        if not self._scored_alike(pods, rules):
            return 0
        done, extra, ranking = 0, self._extra(pods[0], rules, ()), cycle.rankings.ranking(c)
        while done < len(pods):
            rows, copies, wait = ranking.best_alike(len(pods) - done, nodes, extra)
            if not len(rows):
                break
            number = len(rows) if copies is None else int(copies.sum())
            trial.place_alike(pods[done : done + number], (rows, copies), wait or self.wait_only)
            done += number
        return done

    def _scored_alike(self, pods: Sequence[int], rules: ClassRules) -> bool:
        """Whether each plugin returns the identical scores for all these pods of a class."""
        for plugin in rules.pod_scores:
            if getattr(plugin, "by_podset", False):
                continue
            first, *others = [plugin.pod_score(self.cycle, pod) for pod in pods]
            if [score for score in others if score is not first]:
                return False
        return True

    def _split(self, members: Sequence[Group], pods: Sequence[int]) -> Iterator[tuple[Group, list[int]]]:
        podset = self.trial.podset
        for member in members:
            rows = {member.row} if isinstance(member, PodSet) else {p.row for p in _podsets(member)}
            yield member, [pod for pod in pods if podset[pod] in rows]

    def _pod(self, at: int, pod: int, nodes: NodeSet) -> bool:
        """Place one pod on its best feasible node; `at` is its position among the pods of its podset."""
        cycle = self.cycle
        c = self.trial.of_class(pod)
        rules = cycle.rules(c)
        refusal = _refusal(cycle, rules, pod)
        if refusal is not None:
            if self.explain:
                explain_refusal(cycle, self.gang, pod, refusal)
            return False
        if cycle.node_facts.nowhere(c):
            if self.explain:
                explain_pod(cycle, self.gang, (pod, at), (nodes, {}, ()))
            return False
        rejecting, filtering = rules.resources.rejecting, rules.resources.filtering
        closed = [rejection for state in filtering for rejection in state.infeasible(pod)] if filtering else []
        extra = self._extra(pod, rules, closed)
        refused: dict[int, str] = {}
        for node, now in cycle.rankings.best(c, nodes, extra):
            why = _rejection(rejecting, pod, node) if rejecting else None
            if why is None and self._take(pod, node, c, now):
                return True
            refused[node] = why or "node(s) didn't have enough resources: GPUs"
        cycle.node_facts.states().tighten()
        if self.explain:
            explain_pod(cycle, self.gang, (pod, at), (nodes, refused, closed))
        return False

    def _extra(self, pod: int, rules: ClassRules, closed: Sequence[Rejection]) -> Column | None:
        """Return the scores of this pod only, -inf on nodes that are now infeasible for it; None: no such scores."""
        extra: Column | None = None
        for plugin in rules.pod_scores:
            score = plugin.pod_score(self.cycle, pod)
            if score is not None:
                extra = score if extra is None else extra + score
        if closed:
            shut = closed[0][1] if len(closed) == 1 else np.logical_or.reduce([mask for _, mask in closed])
            extra = np.where(shut, UNFIT, 0.0 if extra is None else extra)
        return extra

    def _take(self, pod: int, node: int, c: PodClass, now: bool) -> bool:
        """Place the pod on the node, pipelined where it must wait; False where too few devices have room for it."""
        trial = self.trial
        wait = self.wait_only or not now or self.cycle.resources.must_wait(pod, node)
        groups: tuple[str, ...] = ()
        if trial.amounts.shared[c.row]:
            own = self._own_devices(pod, node) if pod in trial.virtual else ()
            chosen = choose_devices(self.cycle, c, node, wait, own)
            if chosen is None:
                return False
            groups, wait = chosen
        if (
            pod in trial.virtual
            and trial.node[pod] == node
            and groups == (trial.gpu_groups.get(pod, ()) if groups else ())
            and self.cycle.resources.unchanged(pod, node)
        ):
            trial.keep(pod)
        else:
            trial.place(pod, node, groups, wait)
        self.cycle.resources.reserve(pod)
        return True

    def _own_devices(self, pod: int, node: int) -> Sequence[str]:
        """Return the node's devices that only this tentatively evicted pod uses: it can have them back."""
        trial, shares = self.trial, self.trial.shares.get(node, {})
        groups = trial.gpu_groups.get(pod, ()) if trial.node[pod] == node else ()
        return [group for group in groups if shares[group].used == shares[group].releasing]


def _rejection(resources: Sequence[NodeResourceState], pod: int, node: int) -> str | None:
    """Return the first reason why a pod cannot get a node resource on a node."""
    for state in resources:
        reason = state.reject(pod, node)
        if reason is not None:
            return reason
    return None


def _refusal(cycle: Cycle, rules: ClassRules, pod: int) -> Refusal | None:
    """Return the first refusal of a pod by a gate."""
    if cycle.admitted.get(cycle.trial.klass[pod]):
        return None
    for gate in rules.gates:
        refusal = gate.refuse(cycle, pod)
        if refusal is not None:
            return refusal
    return None


def refused(cycle: Cycle, pods: Sequence[int]) -> bool:
    """Whether a gate refuses one of the pods; a gate that answers by class is called once per class."""
    klass, classes = cycle.trial.klass, cycle.snapshot.pods.classes
    for row, first in {klass[pod]: pod for pod in reversed(pods)}.items():
        if cycle.admitted.get(row):
            continue
        for gate in cycle.rules(classes[row]).gates:
            alike = [first] if getattr(gate, "by_class", False) else [pod for pod in pods if klass[pod] == row]
            if any(gate.refuse(cycle, pod) is not None for pod in alike):
                return True
    return False


def place_one(cycle: Cycle, pod: int) -> bool:
    """Place a pending pod whose class has no rules for single pods on the best node of the class. False: its class has
    such rules, or no node is feasible; `Placement` decides, and explains, those."""
    trial = cycle.trial
    row = trial.klass[pod]
    admitted = cycle.admitted.get(row)
    if admitted is None:
        rules = cycle.rules(trial.of_class(pod))
        admitted = cycle.admitted[row] = rules.alike and _refusal(cycle, rules, pod) is None
    if not admitted or pod in trial.virtual:
        return False
    c = trial.of_class(pod)
    if cycle.node_facts.nowhere(c):
        return False
    found = cycle.rankings.first(c)
    if found is None:
        return False
    node, now = found
    if not trial.amounts.shared[row]:
        trial.place(pod, node, (), not now)
        return True
    chosen = choose_devices(cycle, c, node, not now)
    if chosen is not None:
        trial.place(pod, node, *chosen)
    return chosen is not None


def _podsets(group: SubGroupSet) -> Iterator[PodSet]:
    return group.podsets()


def choose_devices(
    cycle: Cycle, c: PodClass, node: int, wait: bool, own: Sequence[str] = ()
) -> tuple[tuple[str, ...], bool] | None:
    """Return the devices that a shared request gets on a node, and whether it must wait for one of them; None: too few
    have room.

    Shared devices compete with whole ones by the device scores; ties go by name. `own`: devices that only this pod
    uses and is about to leave.
    """
    trial = cycle.trial
    capacity, memory = trial.amounts.gpu_memory[node], trial.amounts.share_memory(c, node)
    idle, free, _ = cycle.node_facts.states().of(node)
    shares = trial.shares.get(node, {})
    rated, sharable = cycle.device_scores, with_room(shares, memory, capacity, c.compute_mode)
    options = [(-rated[share[0] / capacity], 0, group) for group, share in sharable]
    if free[GPU] >= 1:
        whole = int(free[GPU])
        score, mine = -rated[0.0], own[:whole]
        options += [(score, 1, group) for group in mine]
        options += [(score, 2, "")] * min(whole - len(mine), c.devices)
    if len(options) < c.devices:
        return None
    chosen = [min(options)[2]] if c.devices == 1 else [option[2] for option in sorted(options)[: c.devices]]
    fresh = chosen.count("")
    slots = 1 + fresh  # pod slots for the pod and for the reservation pods of new devices
    if own:
        slots += trial.devices.unreserved(node, own, chosen)
    if free[PODS] < slots:
        return None
    new_now = fresh
    for group in chosen:
        if group:
            share = shares[group]
            new_now += only_promised(share)
            wait = wait or not share.holds_now(memory, capacity)
    wait = wait or new_now > idle[GPU] or idle[PODS] < slots + new_now - fresh
    return tuple([group or trial.fresh_group() for group in chosen]), wait
