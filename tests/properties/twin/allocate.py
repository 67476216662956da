"""§7.3 the allocate action, and our rule for promises that nobody has to leave for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pykai.model.gangs import PodSet
from pykai.model.resources import GPU
from pykai.model.status import Status
from tests.properties.twin.gangs import Member, in_order, next_pods, placed, podsets_of, should_pipeline
from tests.properties.twin.order import pending, pop
from tests.properties.twin.places import allocate_task, must_wait
from tests.properties.twin.queues import over_capacity
from tests.properties.twin.topology import subset_nodes
from tests.properties.twin.world import World


# -------------------------------------------------------------------------------------------------------- §7.3 Action
def allocate(world: World) -> None:
    jobs = pending(world)
    while jobs:
        gang = pop(world, jobs)
        pods = next_pods(world, gang)
        if allocate_job(world, gang, pods, pipeline_only=False):
            world.notes.pop(gang, None)
            hold_back(world, gang, pods)
            if next_pods(world, gang):
                jobs.append(gang)


def hold_back(world: World, gang: int, pods: Sequence[int]) -> None:
    """ShouldPipeline: then all Allocated among these pods become Pipelined."""
    if should_pipeline(world, gang):
        for pod in world.having(gang, {Status.ALLOCATED}):
            if pod in pods:
                world.become(pod, Status.PIPELINED)
                _give_again(world, pod)


def _give_again(world: World, pod: int) -> None:
    """A pod starts, or waits, after all: rules may give it something else now."""
    for rule in world.rules:
        now = world.pods[pod]
        world.put(pod, replace(now, given=rule.gifts_after_all(world, pod, now.given)))


def allocate_job(world: World, gang: int, pods: Sequence[int], pipeline_only: bool) -> bool:
    """All of the pods get a node or none."""
    if not pods or over_capacity(world, gang, world.request(pods, world.snapshot.max_gpu_memory)):
        return False
    saved = world.save()
    if Attempt(world, pipeline_only).allocate_set([world.tree(gang)], pods, range(len(world.nodes))):
        return True
    world.restore(saved)
    return False


class Attempt:
    """One AllocateJob; sub-groups are told by the way to them from the root of the tree."""

    def __init__(self, world: World, pipeline_only: bool) -> None:
        self.world, self.pipeline_only = world, pipeline_only
        self.scores: dict[str, dict[int, int]] = {}
        """Of topology plugin, by sub-group that prefers a level."""

    def allocate_set(self, way: Sequence[Member], pods: Sequence[int], nodes: Sequence[int]) -> bool:
        rows = {podset.row for podset in podsets_of(way[-1])}
        mine = [pod for pod in pods if self.world.podset[pod] in rows]
        return not mine or any(self._in_one(way, mine, some) for some in self._subsets(way[-1], mine, nodes))

    def _subsets(self, group: Member, pods: Sequence[int], nodes: Sequence[int]) -> Sequence[Sequence[int]]:
        answer = subset_nodes(self.world, group, pods, nodes)
        if answer.scores is not None:
            self.scores[group.name] = answer.scores
        if not self.pipeline_only:
            self.world.note(self.world.gang[pods[0]], answer.why)
        return answer.sets

    def _in_one(self, way: Sequence[Member], pods: Sequence[int], nodes: Sequence[int]) -> bool:
        """Whether all members find their places on these nodes; if not, all is as before."""
        saved, group = self.world.save(), way[-1]
        if isinstance(group, PodSet):
            done = all(allocate_task(self.world, pod, self.pipeline_only, self._scored(way, nodes)) for pod in pods)
        else:
            members = in_order(group, placed(self.world, self.world.gang[pods[0]]))
            done = all(self.allocate_set([*way, member], pods, nodes) for member in members)
        if not done:
            self.world.restore(saved)
        return done

    def _scored(self, way: Sequence[Member], nodes: Sequence[int]) -> dict[int, int]:
        """Nodes with the scores of the podset, else of the nearest ancestor that has some; who has no score is out."""
        scores = next((self.scores[group.name] for group in reversed(way) if group.name in self.scores), None)
        return dict.fromkeys(nodes, 0) if scores is None else {n: scores[n] for n in nodes if n in scores}


# ------------------------------------------------------------------------------------------------------ Our own rule
def start_at_once(world: World, gangs: Sequence[int]) -> None:
    """Our rule: promises that nobody has to leave for are no promises; all of a gang starts or none of it."""
    for gang in gangs:
        saved = world.save()
        mine = [pod for pod in world.having(gang, {Status.PIPELINED}) if pod not in world.evicted]
        for pod in mine:
            world.become(pod, Status.PENDING)
        for pod in mine:
            world.become(pod, Status.ALLOCATED)
        if should_pipeline(world, gang) or not all(_is_idle(world, pod) for pod in mine):
            world.restore(saved)
            continue
        for pod in mine:
            _give_again(world, pod)


def _is_idle(world: World, pod: int) -> bool:
    """Whether what the pod takes is there: nothing of it is below zero, and no rule bids it wait."""
    c, now = world.of_class(pod), world.pods[pod]
    if must_wait(world, pod, now.node):
        return False
    figures = world.nodes[now.node]
    dims = [r for r in range(len(figures.idle)) if c.request[r] > 0 or (c.shared and r == GPU)]
    devices = [figures.devices[group] for group in now.groups] if c.shared else []
    return all(figures.idle[r] >= -1e-9 for r in dims) and all(
        device.allocated <= world.gpu_memory[now.node] for device in devices
    )
