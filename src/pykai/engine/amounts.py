"""What a pod takes: of a device, of its queue. Shared requests depend on the node they land on."""

from __future__ import annotations

from math import ceil

from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import GPU, whole_gpus
from pykai.model.snapshot import Snapshot


class PodAmounts:
    """Amounts by class and node; what does not depend on the node is worked out once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.gpu_memory: list[float] = snapshot.nodes.gpu_memory.tolist()
        """MiB per device, by node."""
        self._mig_rows = snapshot.space.mig_rows()
        self._of_queue: dict[int, tuple[float, float, float]] = {}

    def share_memory(self, c: PodClass, node: int) -> float:
        """MiB per device a shared request takes on a node."""
        if c.gpu_kind is GpuKind.MEMORY:
            return float(c.memory_mib)
        return float(int(c.portion * self.gpu_memory[node]))

    def share_portion(self, c: PodClass, node: int) -> float:
        """Portion per device a shared request takes on a node, rounded up to hundredths for memory requests."""
        if c.gpu_kind is not GpuKind.MEMORY:
            return c.portion
        return ceil(100 * c.memory_mib / self.gpu_memory[node]) / 100

    def accepted_gpus(self, c: PodClass, node: int) -> float:
        """GPUs granted to a pod on a node; without a node what it asks for."""
        if c.shared and node >= 0:
            return whole_gpus(self.share_portion(c, node), c.devices)
        return float(c.request[GPU])

    def of_queue(self, c: PodClass, node: int) -> tuple[float, float, float]:
        """What a pod counts against its queue; without a node a gpu-memory request counts no GPU."""
        if c.gpu_kind is GpuKind.MEMORY and node >= 0:
            return float(c.request[0]), float(c.request[1]), self.accepted_gpus(c, node)
        known = self._of_queue.get(c.row)
        if known is None:
            gpus = 0.0 if c.gpu_kind is GpuKind.MEMORY else float(c.request[GPU])
            if c.gpu_kind is GpuKind.MIG:
                gpus += sum(float(c.request[row]) * each for row, each in self._mig_rows.items())
            known = self._of_queue[c.row] = float(c.request[0]), float(c.request[1]), gpus
        return known
