"""allocateTask of §7.3: which node takes a pod (§4 fit, §6.2, §11 scores), and which of its devices (§10)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pykai.model.pods import GpuKind, PodClass
from pykai.model.resources import CPU, GPU
from pykai.model.status import Status
from tests.properties.twin.queues import over_capacity
from tests.properties.twin.rules import Gifts
from tests.properties.twin.world import Place, Whereabouts, World


def allocate_task(world: World, pod: int, pipeline_only: bool, given: Mapping[int, float]) -> bool:
    """Places the pod on one of the given nodes, by their scores and those they have here."""
    for node in _by_score(world, pod, given):
        if _over_capacity_on(world, pod, node):
            continue
        groups: tuple[str, ...] = ()
        waits = not fits(world, pod, node, _idle(world, node)) or must_wait(world, pod, node)
        if world.of_class(pod).shared:
            choice = _choose_devices(world, pod, node)
            if choice is None:
                continue
            groups, waits = choice.groups, waits or choice.releasing
        _place(world, pod, Place(node, Status.PIPELINED if pipeline_only or waits else Status.ALLOCATED, groups))
        return True
    return False


def _place(world: World, pod: int, place: Place) -> None:
    """Allocate or Pipeline, or un-evict where a pod gets back just what it had."""
    now = world.pods[pod]
    given = _gifts(world, pod, place)
    if now.before is not None and _as_before(world, pod, place, given):
        kept = _gifts(world, pod, place._replace(status=now.before)) if now.given else ()
        world.put(pod, replace(now, status=now.before, before=None, given=kept))
        return
    leaves = (*now.leaves, Place(now.node, Status.RELEASING, now.groups)) if now.before is not None else now.leaves
    groups = place.groups if world.of_class(pod).shared else now.groups
    world.put(pod, Whereabouts(place.status, place.node, groups, leaves=leaves, given=given))


def _gifts(world: World, pod: int, place: Place) -> Gifts:
    return tuple(gift for rule in world.rules for gift in rule.gifts_at(world, pod, place))


def _as_before(world: World, pod: int, place: Place, given: Gifts) -> bool:
    """Whether that is where the pod is, with all that it has."""
    now = world.pods[pod]
    if place.node != now.node or place.groups != (now.groups if place.groups else ()):
        return False
    return all(rule.same(world, pod, given) for rule in world.rules)


def must_wait(world: World, pod: int, node: int) -> bool:
    """Whether some rule bids the pod wait."""
    return any(rule.waits(world, pod, node) for rule in world.rules)


def _over_capacity_on(world: World, pod: int, node: int) -> bool:
    """§6.2.1: requests for memory with the exact figures of the node."""
    by_memory = world.of_class(pod).gpu_kind is GpuKind.MEMORY
    return by_memory and over_capacity(world, world.gang[pod], world.accepted(pod, node))


def _idle(world: World, node: int) -> list[float]:
    return world.nodes[node].idle


def _idle_and_releasing(world: World, node: int) -> list[float]:
    figures = world.nodes[node]
    return [figures.free(resource) for resource in range(len(figures.idle))]


def fits(world: World, pod: int, node: int, vector: Sequence[float]) -> bool:
    """§4 Fit tests"""
    c = world.of_class(pod)
    dims = [r for r in range(len(vector)) if c.request[r] > 0 and not (c.shared and r == GPU)]
    if any(c.request[r] > vector[r] for r in dims):
        return False
    if not c.shared:
        return True
    if c.memory_mib > world.gpu_memory[node]:
        return False
    return math.floor(vector[GPU]) + len(matching(world, c, node)) >= c.devices


def matching(world: World, c: PodClass, node: int) -> list[str]:
    capacity, memory = world.gpu_memory[node], world.memory_on(c, node)
    devices = world.nodes[node].devices.items()
    return [group for group, device in devices if device.matches(capacity, memory, c.compute_mode)]


# ------------------------------------------------------------------------------------------------------- §11 Scoring
def _by_score(world: World, pod: int, given: Mapping[int, float]) -> list[int]:
    """Nodes that take the pod, by score, then by name."""
    fitting = [
        node
        for node in given
        if world.allowed[pod][node]
        and fits(world, pod, node, _idle_and_releasing(world, node))
        and not any(rule.closed(world, pod, node) for rule in world.rules)
    ]
    return sorted(fitting, key=lambda node: (-given[node] - sum(_scores(world, pod, node, given)), node))


def _scores(world: World, pod: int, node: int, given: Collection[int]) -> Iterator[float]:
    c = world.of_class(pod)
    resource = GPU if c.wants_gpu else CPU
    offered = world.snapshot.nodes.allocatable[resource]
    free = {n: world.nodes[n].free(resource) for n in given if offered[n] > 0}
    if node in free and max(free.values()) > 0:
        least, most = min(free.values()), max(free.values())
        yield 9 * (1 - (free[node] - least) / (most - least)) if most > least else 9
    if not c.wants_gpu and world.snapshot.nodes.cpu_only[node]:
        yield 10
    if fits(world, pod, node, _idle(world, node)) and not _starts_late(world, pod, node):
        yield 1_000
    if c.shared and matching(world, c, node):
        yield 10_000
    yield from (rule.score(world, pod, node) for rule in world.rules)


def _starts_late(world: World, pod: int, node: int) -> bool:
    """Our rule: a node where a pending pod would have to wait is not one where it can start."""
    return world.status(pod) is Status.PENDING and must_wait(world, pod, node)


# ------------------------------------------------------------------------------- §10 GPU sharing at scheduler level
@dataclass(frozen=True)
class Choice:
    """Devices for a share; `releasing`: one of them must be waited for."""

    groups: tuple[str, ...]
    releasing: bool


def _choose_devices(world: World, pod: int, node: int) -> Choice | None:
    """Fullest device first (gpupack), then whole ones.

    Our rules: equal devices go by name; of whole ones, those come first that the pod itself leaves to nobody.
    """
    c, figures, capacity = world.of_class(pod), world.nodes[node], world.gpu_memory[node]
    memory = world.memory_on(c, node)
    used = [(-figures.devices[group].used / capacity, group) for group in matching(world, c, node)]
    markers = max(int(figures.idle[GPU]) + int(figures.releasing[GPU]), 0)
    own = _own_devices(world, pod, node)[:markers]
    options = [group for _, group in sorted(used)] + own + [""] * (markers - len(own))
    chosen = options[: c.devices]
    if len(chosen) < c.devices:
        return None
    busy = any(group and not figures.devices[group].enough_idle(capacity, memory) for group in chosen)
    new = sum(not group or figures.devices[group].promised for group in chosen)
    return Choice(tuple(group or world.new_device() for group in chosen), busy or new > figures.idle[GPU])


def _own_devices(world: World, pod: int, node: int) -> list[str]:
    now, devices = world.pods[pod], world.nodes[node].devices
    if now.before is None or now.node != node:
        return []
    return [group for group in now.groups if devices[group].used == devices[group].releasing]
