"""§16.1 the frame of the actions that evict, §16.6-§16.8 what differs between them."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.model.resources import GPU
from tests.properties.twin.allocate import allocate_job
from tests.properties.twin.gangs import next_pods, ready
from tests.properties.twin.order import pending, pop
from tests.properties.twin.queues import Claim, over_quota
from tests.properties.twin.scenario import Preemptor
from tests.properties.twin.search import solve
from tests.properties.twin.world import ACTIVE_ALLOCATED, World


class Evictions:
    """One run of consolidation, reclaim or preempt."""

    def __init__(self, world: World, action: str) -> None:
        self.world, self.action, self.gangs = world, action, world.gangs
        self.waiting = pending(world)
        """Our rule: who waits when the action begins speaks for its queue until it is served."""
        self.holders = {
            gang
            for gang in world.members
            if self.gangs.queue[gang] >= 0 and self.gangs.preemptible[gang] and world.having(gang, ACTIVE_ALLOCATED)
        }
        """Our rule: who held nothing when the action began is no victim of it."""

    def run(self) -> None:
        jobs = [gang for gang in self.waiting if self.action != "consolidation" or self.gangs.preemptible[gang]]
        while jobs:
            gang = pop(self.world, jobs)
            pods = next_pods(self.world, gang)
            if self._may_evict(gang, pods) and self._has_candidates(gang, pods) and self._make_room(gang, pods):
                self.waiting.remove(gang)

    def _may_evict(self, gang: int, pods: Sequence[int]) -> bool:
        """Our rule: also not where the gang lost so many pods in this action that it is not ready any more (§7.2)."""
        return self._entitled(gang, pods) and ready(self.world, gang)

    def _make_room(self, gang: int, pods: Sequence[int]) -> bool:
        """Our rule: what earlier evictions of the cycle left over is used before anybody else is evicted."""
        if self.world.evicted and allocate_job(self.world, gang, pods, pipeline_only=True):
            return True
        preemptor = Preemptor(self.action, gang, tuple(pods), Claim(self.world, gang), tuple(self.waiting))
        return solve(self.world, preemptor, self._candidates(gang, pods)) is not None

    def _entitled(self, gang: int, pods: Sequence[int]) -> bool:
        world, queue = self.world, self.gangs.queue[gang]
        if self.action == "reclaim":
            return Claim(world, gang).can_reclaim(world.request(pods, world.snapshot.min_gpu_memory))
        if self.action == "preempt" and not self.gangs.preemptible[gang]:
            return not over_quota(world, queue, world.request(pods, world.snapshot.max_gpu_memory))
        return True

    def _has_candidates(self, gang: int, pods: Sequence[int]) -> bool:
        """Whether somebody could be asked at all, as things were when the action began."""
        if self.action == "consolidation":
            return self._enough_free(pods)
        return any(self._is_victim(gang, pods, other) for other in self.holders)

    def _candidates(self, gang: int, pods: Sequence[int]) -> list[int]:
        """Those who hold something now."""
        world = self.world
        return [
            other
            for other in self.holders
            if other != gang and world.having(other, ACTIVE_ALLOCATED) and self._is_victim(gang, pods, other)
        ]

    def _is_victim(self, gang: int, pods: Sequence[int], other: int) -> bool:
        world, queue, theirs = self.world, self.gangs.queue[gang], self.gangs.queue[other]
        if self.action == "preempt":
            return queue == theirs and self.gangs.priority[other] < self.gangs.priority[gang]
        if self.action == "reclaim":
            request = world.request(pods, world.snapshot.max_gpu_memory)
            return queue != theirs and Claim(world, gang).may_look_at(theirs, request)
        return not self._moved_already(other)

    def _moved_already(self, gang: int) -> bool:
        """Our rule: consolidation moves nobody twice in a cycle."""
        return any(self.world.gang[pod] == gang for pod in self.world.evicted)

    def _enough_free(self, pods: Sequence[int]) -> bool:
        """§16.6: Σ idle+releasing GPUs (and GPU memory) of ready nodes ≥ the job's need."""
        world, ready = self.world, self.world.snapshot.nodes.ready
        free = sum(f.free_gpus(world.gpu_memory[node]) for node, f in enumerate(world.nodes) if ready[node])
        return round(free, 4) >= round(sum(float(world.of_class(pod).request[GPU]) for pod in pods), 4)
