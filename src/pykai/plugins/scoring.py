"""Scores of nodes and devices for a pod (docs/concepts/placement.md).

Scores are added up, and the weights rank the rules: a nominated node beats a device that is shared already, which
beats a node that is free now, which beats the kind of node, which beats how full it is. Scores of nodes are columns
over the nodes of one look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pykai.engine.devices import free_portions
from pykai.engine.plugin_api import ANY
from pykai.model.resources import CPU, GPU, Column

if TYPE_CHECKING:
    from pykai.engine.plugin_api import NodeLook
    from pykai.model.pods import PodClass

PACKED = 9.0
CPU_ONLY_NODE = 10.0
AVAILABLE_NOW = 1_000.0
SHARED_DEVICE = 10_000.0

STRATEGIES = ("binpack", "spread")


@dataclass(frozen=True)
class Pack:
    """Fullest nodes first: 9 for the least free amount among the nodes considered, 0 for the most.

    `gpu` and `cpu` say for which pods: those that want GPUs, judged by free GPUs, and the others, judged by free CPU.
    """

    packs: ClassVar[float] = PACKED
    gpu: bool = True
    cpu: bool = True

    def measured(self, pod_class: PodClass) -> int | None:
        return deciding_resource(pod_class) if _concerns(self, pod_class) else None

    def relative(self, measure: Column, low: float, high: float) -> Column:
        """Nodes without a measure score 0, and so do all when none has anything free."""
        if not high > 0:
            return np.zeros(len(measure))
        if high > low:
            return np.fmax(PACKED * (1 - (measure - low) / (high - low)), 0.0)
        return np.where(np.isnan(measure), 0.0, PACKED)


@dataclass(frozen=True)
class Spread:
    """Emptiest nodes first: the free part of the deciding resource, 0 to 1. Fields as in Pack.

    Of GPUs also the free parts count: those of shared devices, and MIG instances.
    """

    gpu: bool = True
    cpu: bool = True

    def class_key(self, pod_class: PodClass) -> bool:
        return pod_class.wants_gpu

    def score(self, look: NodeLook) -> Column | float:
        if not _concerns(self, look.pod_class):
            return 0.0
        row, nodes = deciding_resource(look.pod_class), look.trial.snapshot.nodes
        total = nodes.gpu_count[look.nodes] if row == GPU else nodes.allocatable[row, look.nodes]
        free = _free_gpus(look) if row == GPU else look.free[row]
        return np.where(total > 0, free / np.where(total > 0, total, 1.0), 0.0)


def _free_gpus(look: NodeLook) -> Column:
    """By node the whole devices and the parts of devices that are free or being released."""
    snapshot, shares = look.trial.snapshot, look.trial.shares
    free: Column = look.free[GPU].copy()
    for row, gpus in snapshot.space.mig_rows().items():
        free += look.free[row] * gpus
    for at, node in enumerate(look.nodes.tolist() if shares else ()):
        if node in shares:
            free[at] += free_portions(shares[node], float(snapshot.nodes.gpu_memory[node]))
    return free


def node_placement(gpu: str = "binpack", cpu: str = "binpack") -> tuple[Pack | Spread, ...]:
    """The plugins for one strategy, binpack or spread, per kind of pod."""
    for field, strategy in (("gpu", gpu), ("cpu", cpu)):
        if strategy not in STRATEGIES:
            raise ValueError(f"arguments.{field}: must be {' or '.join(STRATEGIES)}, not {strategy!r}")
    plugins = (Pack(gpu == "binpack", cpu == "binpack"), Spread(gpu == "spread", cpu == "spread"))
    return tuple(plugin for plugin in plugins if plugin.gpu or plugin.cpu)


def deciding_resource(pod_class: PodClass) -> int:
    """The resource row by which nodes are packed or spread for a pod."""
    return GPU if pod_class.wants_gpu else CPU


def _concerns(plugin: Pack | Spread, pod_class: PodClass) -> bool:
    return plugin.gpu if pod_class.wants_gpu else plugin.cpu


@dataclass(frozen=True)
class ResourceType:
    """Pods without GPUs prefer nodes without GPUs."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> bool:
        return pod_class.wants_gpu

    def score(self, look: NodeLook) -> Column | float:
        if look.pod_class.wants_gpu:
            return 0.0
        return np.where(look.trial.snapshot.nodes.cpu_only[look.nodes], CPU_ONLY_NODE, 0.0)


@dataclass(frozen=True)
class NodeAvailability:
    """Nodes where the pod can start at once before nodes where it has to wait for a release."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> str:
        return ANY

    def score(self, look: NodeLook) -> Column | float:
        return np.where(look.fits_now, AVAILABLE_NOW, 0.0)


@dataclass(frozen=True)
class GpuSharingOrder:
    """Shares go where a device is shared already and has room left."""

    steady: ClassVar[bool] = True

    def class_key(self, pod_class: PodClass) -> str:
        return ANY

    def score(self, look: NodeLook) -> Column | float:
        return np.where(look.sharable > 0, SHARED_DEVICE, 0.0)


@dataclass(frozen=True)
class GpuPack:
    """Fullest devices first."""

    def device_score(self, used_portion: float) -> float:
        return used_portion


@dataclass(frozen=True)
class GpuSpread:
    """Emptiest devices first."""

    def device_score(self, used_portion: float) -> float:
        return 1 - used_portion
