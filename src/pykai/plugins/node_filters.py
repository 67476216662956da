"""Filters: which nodes are feasible for a class of pods, whatever runs on them.

Every filter yields reasons with masks of the nodes they apply to. Facts about nodes are computed once while the nodes
are unchanged, by distinct value: ten thousand nodes have a few taint lists and a few values of a label. Reasons name no
pod and no node, so that equal ones add up to one line for the cluster.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import json

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import ANY, NodeResourceState, QuotaPolicy, Rejection
from pykai.kernels.selectors import meeting
from pykai.kernels.taints import TaintTable, tolerates
from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import CORDONED, NodeTable, Snapshot
from pykai.model.status import IS_ACTIVE_USED
from pykai.objects.kinds import Expression, Taint
from pykai.objects.pod_template import PodTemplate, Toleration
from pykai.plugins import node_labels

LEGACY_MIG = "Legacy MIG jobs cannot be scheduled on node"
SHARED_ON_DRA = "fractional/shared GPU pods are not yet supported on DRA-only nodes"
NO_MIG = "MIG job cannot be scheduled on non-MIG node"
BESIDE_LEGACY_MIG = "MIG job cannot be scheduled on node with legacy MIG jobs: <[{}]>"
MIG_SINGLE = "only whole gpu jobs can run on a node with MigStrategy='single'"
MIG_MIXED = "non MIG jobs cant run on a node with MigStrategy='mixed'"
UNKNOWN_GPU_MEMORY = "node is not a gpu node or the gpu memory count on the node was not synced yet"
UNTOLERATED = "node(s) had untolerated taint(s)"
NO_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NO_GPU_WORKER = "gpu task can't run on non gpu nodes"
OVER_QUOTA = "node does not have enough capacity. Reason: {}, Details: {}"
NO_CPU_WORKER = "cpu task can't run on non cpu nodes"

CORDON_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def _where(reason: str, mask: Mask) -> Iterator[Rejection]:
    """The rejection, unless it holds nowhere."""
    if mask.any():
        yield reason, mask


# ------------------------------------------------------------------------------------------------------- kinds of GPU
@dataclass(frozen=True)
class GpuOffer:
    """Nodes offer whole GPUs, shares of them, or MIG instances; the strategy of a MIG node says which."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return pod_class.legacy_mig, pod_class.wants_gpu, pod_class.gpu_kind

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        if pod_class.legacy_mig:
            return [(LEGACY_MIG, np.ones(len(snapshot.nodes), dtype=bool))]
        return _offer_rejections(snapshot, pod_class) if pod_class.wants_gpu else ()


def _offer_rejections(snapshot: Snapshot, c: PodClass) -> Iterator[Rejection]:
    nodes = snapshot.nodes
    single, mixed = nodes.derived(strategies)
    if c.shared:
        yield from _where(SHARED_ON_DRA, nodes.dra_gpus > 0)
    if c.gpu_kind is GpuKind.MIG:
        yield from _where(NO_MIG, ~nodes.mig)
    yield from snapshot.derived(_beside_legacy)
    if c.gpu_kind is not GpuKind.REGULAR:
        yield from _where(MIG_SINGLE, single)
    if c.gpu_kind is not GpuKind.MIG:
        yield from _where(MIG_MIXED, mixed)


def strategies(nodes: NodeTable) -> tuple[Mask, Mask]:
    """Nodes with the MIG strategy `single`, and those with `mixed`."""
    strategy = np.array(nodes.mig_strategy, dtype=object)
    return strategy == "single", strategy == "mixed"


def _beside_legacy(snapshot: Snapshot) -> list[Rejection]:
    """Nodes on which pods of the old annotation form still run."""
    pods, nodes = snapshot.pods, snapshot.nodes
    legacy = [c.row for c in pods.classes if c.legacy_mig]
    by_node: dict[int, list[str]] = {}
    for pod in np.flatnonzero(np.isin(pods.klass, legacy)).tolist() if legacy else ():
        node = int(pods.node[pod])
        if node >= 0 and IS_ACTIVE_USED[pods.status[pod]] and nodes.mig[node]:
            by_node.setdefault(node, []).append(pods.title(pod))
    rows = np.arange(len(nodes))
    return [(BESIDE_LEGACY_MIG.format(" ".join(sorted(titles))), rows == node) for node, titles in by_node.items()]


@dataclass(frozen=True)
class GpuMemoryKnown:
    """A request for GPU memory goes only where the memory of the devices is known."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return pod_class.gpu_kind

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        if pod_class.gpu_kind is not GpuKind.MEMORY:
            return ()
        return _where(UNKNOWN_GPU_MEMORY, ~snapshot.nodes.gpu_memory_known)


@dataclass(frozen=True)
class FractionsReady:
    """In the mode NvFractions a share goes only where the node reports that its GPUs can be shared."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return pod_class.shared

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        return snapshot.nodes.derived(not_ready_for_fractions) if pod_class.shared else ()


def not_ready_for_fractions(nodes: NodeTable) -> list[Rejection]:
    """Why nodes take no shares, and which."""
    masks: dict[str, Mask] = {}
    for node, reason in enumerate(nodes.fractions):
        if reason:
            masks.setdefault(reason, np.zeros(len(nodes), dtype=bool))[node] = True
    return list(masks.items())


# -------------------------------------------------------------------------------------------------- state of the node
@dataclass(frozen=True)
class NodeConditions:
    """Nodes that are not ready or under pressure take nothing, cordoned ones only pods that tolerate the taint
    `node.kubernetes.io/unschedulable`."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return any(tolerates(each, CORDON_TAINT) for each in pod_class.template.tolerations)

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        found = snapshot.nodes.derived(not_ready)
        if not self.class_key(snapshot, pod_class):
            return found
        return [(reason, mask) for reason, mask in found if reason != CORDONED]


def not_ready(nodes: NodeTable) -> list[Rejection]:
    masks: dict[str, Mask] = {}
    for node in np.flatnonzero(~nodes.ready).tolist():
        for reason in nodes.conditions[node]:
            masks.setdefault(reason, np.zeros(len(nodes), dtype=bool))[node] = True
    return list(masks.items())


@dataclass(frozen=True)
class Taints:
    """A pod must tolerate every taint with effect NoSchedule or NoExecute."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        tolerations: Sequence[Toleration] = pod_class.template.tolerations
        return tuple([(t.key, t.operator, t.value, t.effect) for t in tolerations]) if tolerations else ANY

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        mask = untolerated_nodes(snapshot, pod_class.template.tolerations)
        return () if mask is None else _where(UNTOLERATED, mask)


def untolerated_nodes(snapshot: Snapshot, tolerations: Sequence[Toleration]) -> Mask | None:
    """Return the nodes with a NoSchedule or NoExecute taint that is not tolerated; None: no node has such a taint."""
    taints = snapshot.nodes.derived(repelling_taints)
    return None if taints.empty else taints.untolerated(tolerations) > 0


def repelling_taints(nodes: NodeTable) -> TaintTable:
    """Return the taints with effect NoSchedule or NoExecute."""
    return TaintTable(nodes.taints, ("NoSchedule", "NoExecute"))


# ------------------------------------------------------------------------------------------------- labels of the node
@dataclass(frozen=True)
class NodeAffinity:
    """The pod's node selector and required node affinity."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        template: PodTemplate = pod_class.template
        affinity = template.affinity.node_affinity
        if not template.node_selector and affinity is None:
            return ANY
        return json.encode((template.node_selector, affinity and affinity.required))

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        mask = selected_nodes(snapshot, pod_class.template)
        return () if mask is None else _where(NO_AFFINITY, ~mask)


def selected_nodes(snapshot: Snapshot, template: PodTemplate) -> Mask | None:
    """The nodes that node selector and required node affinity name; None: all."""
    affinity = template.affinity.node_affinity
    required = affinity.required if affinity else None
    if not template.node_selector and required is None:
        return None
    pairs = [Expression(key=key, operator="In", values=[value]) for key, value in template.node_selector.items()]
    mask = meeting(snapshot.nodes.derived(node_labels.labels), pairs)
    if required is not None:
        mask &= node_labels.in_terms(snapshot, required.node_selector_terms)
    return mask


@dataclass(frozen=True)
class WorkerRole:
    """Where nodes are divided into GPU and CPU workers, pods keep to their kind."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        return pod_class.wants_gpu

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        params = snapshot.params
        if not params.restrict_nodes:
            return ()
        gpu = pod_class.wants_gpu
        column = snapshot.nodes.derived(node_labels.labels)[params.gpu_worker_key if gpu else params.cpu_worker_key]
        return _where(NO_GPU_WORKER if gpu else NO_CPU_WORKER, column.codes == 0)


# --------------------------------------------------------------------------------------------------------- queue limits
@dataclass(frozen=True)
class NodeQuota:
    """On the node the pod must not exceed the limits of its queues or, if it is non-preemptible, their quotas.

    A request for GPU memory is a different fraction of a GPU on each kind of node, so the check before placement uses
    the smallest one. This filter uses that of the node.
    """

    def open(self, cycle: Cycle) -> QuotaByDevice | None:
        return None if cycle.quota is None else QuotaByDevice(cycle, cycle.quota)


class QuotaByDevice(NodeResourceState):
    """One answer for each size of device in the cluster."""

    def __init__(self, cycle: Cycle, quota: QuotaPolicy) -> None:
        self._cycle: Cycle = weakref.proxy(cycle)  # which holds this
        self._quota = quota

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.gpu_kind in (GpuKind.MEMORY, GpuKind.MIG) and pod_class.row in self._bounded

    @cached_property
    def _bounded(self) -> set[int]:
        """Classes of such pods, some of which limits or quotas may keep from a node."""
        cycle, pods = self._cycle, self._cycle.snapshot.pods
        bounded = getattr(self._quota, "bounded", lambda *_: True)
        by_size = np.array([c.gpu_kind in (GpuKind.MEMORY, GpuKind.MIG) for c in pods.classes], dtype=bool)
        rows = (
            np.flatnonzero(by_size[pods.klass] & (pods.gang >= 0)) if len(pods.klass) else np.empty(0, dtype=np.int64)
        )
        pairs = dict.fromkeys(zip(pods.klass[rows].tolist(), pods.gang[rows].tolist(), strict=True))
        return {klass for klass, gang in pairs if bounded(cycle, gang)}

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        trial, gang = self._cycle.trial, self._cycle.trial.gang[pod]
        if gang < 0:
            return
        sizes, examples, kind = trial.snapshot.derived(device_sizes)
        for size, node in zip(sizes.tolist(), examples.tolist(), strict=True):
            over = self._quota.over_capacity(self._cycle, gang, trial.quota_amounts(trial.of_class(pod), node))
            if over is not None:
                yield OVER_QUOTA.format(over.reason, over.message), kind == size


def device_sizes(snapshot: Snapshot) -> tuple[Column, Rows, Column]:
    """The distinct amounts of memory per device, a node with each, and the amount of every node."""
    memory = snapshot.nodes.gpu_memory
    sizes, examples = np.unique(memory, return_index=True)
    return sizes, examples, memory
