"""§7.3 the allocate action, and our rule for promises that nobody has to leave for."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.resources import GPU
from pykai.model.status import Status
from tests.properties.twin.gangs import in_order, next_pods, placed, should_pipeline
from tests.properties.twin.order import pending, pop
from tests.properties.twin.places import allocate_task
from tests.properties.twin.queues import over_capacity
from tests.properties.twin.world import World


# -------------------------------------------------------------------------------------------------------- §7.3 Action
def allocate(world: World) -> None:
    jobs = pending(world)
    while jobs:
        gang = pop(world, jobs)
        pods = next_pods(world, gang)
        if allocate_job(world, gang, pods, pipeline_only=False):
            hold_back(world, gang, pods)
            if next_pods(world, gang):
                jobs.append(gang)


def hold_back(world: World, gang: int, pods: Sequence[int]) -> None:
    """ShouldPipeline: then all Allocated among these pods become Pipelined."""
    if should_pipeline(world, gang):
        for pod in world.having(gang, {Status.ALLOCATED}):
            if pod in pods:
                world.become(pod, Status.PIPELINED)


def allocate_job(world: World, gang: int, pods: Sequence[int], pipeline_only: bool) -> bool:
    """All of the pods get a node or none."""
    if not pods or over_capacity(world, gang, world.request(pods, world.snapshot.max_gpu_memory)):
        return False
    saved = world.save()
    if _allocate_set(world, world.tree(gang), pods, pipeline_only):
        return True
    world.restore(saved)
    return False


def _allocate_set(world: World, group: SubGroupSet | PodSet, pods: Sequence[int], pipeline_only: bool) -> bool:
    if isinstance(group, PodSet):
        mine = [pod for pod in pods if world.podset[pod] == group.row]
        return all(allocate_task(world, pod, pipeline_only) for pod in mine)
    held = placed(world, world.gang[pods[0]])
    return all(_allocate_set(world, member, pods, pipeline_only) for member in in_order(group, held))


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


def _is_idle(world: World, pod: int) -> bool:
    """Whether what the pod takes is there: nothing of it is below zero."""
    c, now = world.of_class(pod), world.pods[pod]
    figures = world.nodes[now.node]
    dims = [r for r in range(len(figures.idle)) if c.request[r] > 0 or (c.shared and r == GPU)]
    devices = [figures.devices[group] for group in now.groups] if c.shared else []
    return all(figures.idle[r] >= -1e-9 for r in dims) and all(
        device.allocated <= world.gpu_memory[now.node] for device in devices
    )
