"""§16.3 the solver, §16.4 the two ways of choosing among the victims that were popped so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from pykai.model.resources import GPU
from tests.properties.twin.gangs import intact, whole
from tests.properties.twin.order import Batch, victims
from tests.properties.twin.scenario import Outcome, Preemptor, commit, simulate
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

Recorded = tuple[int, ...]
Generator = Callable[[World, Sequence[int], Recorded, Sequence[Batch]], Iterator[list[Batch]]]


# -------------------------------------------------------------------------------------------------------- §16.3 Solver
def solve(world: World, preemptor: Preemptor, candidates: Collection[int]) -> Outcome | None:
    """What it takes to give the preemptor all its pods; it is carried out in the world.

    Our rule: for a single pod victims are searched on one node only.
    """
    generators: Sequence[Generator] = (node_local_greedy, multi_node_gang)
    for generator in generators[: len(preemptor.pods)]:
        saved = world.save()
        probes = Probes(world, preemptor, candidates, generator)
        solved, recorded = probes.longest_prefix()
        outcome = probes.at(len(preemptor.pods), recorded) if solved else None
        if outcome is not None and whole(world, preemptor.gang):
            commit(world, preemptor, outcome)
            return outcome
        world.restore(saved)
    return None


class Probes:
    """Tries for prefixes of the preemptor's pods, by one generator."""

    def __init__(self, world: World, preemptor: Preemptor, candidates: Collection[int], generator: Generator) -> None:
        self.world, self.preemptor, self.generator = world, preemptor, generator
        self.candidates = candidates
        self.failed: set[frozenset[int]] = set()

    def longest_prefix(self) -> tuple[int, Recorded]:
        """Doubling, then bisection; each probe is discarded, the victims of the last success are recorded."""
        size, solved, possible = 1, 0, len(self.preemptor.pods)
        recorded: Recorded = ()
        while solved < possible:
            saved = self.world.save()
            outcome = self.at(size, recorded)
            self.world.restore(saved)
            if outcome is None:
                possible = size - 1
            else:
                solved, recorded = size, outcome.victims
            doubling = possible == len(self.preemptor.pods)
            size = min(size * 2, possible) if doubling else (solved + possible + 1) // 2
        return solved, recorded

    def at(self, size: int, recorded: Recorded) -> Outcome | None:
        """The first scenario that works for so many pods."""
        prefix = self.preemptor.pods[:size]
        self.failed.clear()
        outcome = self._try(prefix, _by_gang(self.world, recorded))
        popped: list[Batch] = []
        line = victims(self.world, self.candidates)
        while outcome is None and (batch := next(line, None)) is not None:
            popped.append(batch)
            outcome = self._first_success(prefix, recorded, popped)
        return outcome

    def _first_success(self, prefix: Sequence[int], recorded: Recorded, popped: list[Batch]) -> Outcome | None:
        fresh = [Batch(batch.gang, tuple(pod for pod in batch.pods if pod not in recorded)) for batch in popped]
        if not fresh[-1].pods:
            return None
        known = _by_gang(self.world, recorded)
        for chosen in self.generator(self.world, prefix, recorded, fresh):
            for batches in (chosen, with_whole_gangs(self.world, recorded, fresh, chosen)):
                outcome = self._try(prefix, [*known, *batches])
                if outcome is not None:
                    return outcome
        return None

    def _try(self, prefix: Sequence[int], batches: Sequence[Batch]) -> Outcome | None:
        """Identical failing scenarios are skipped."""
        gone = frozenset(pod for batch in batches for pod in batch.pods)
        if gone in self.failed:
            return None
        self.failed.add(gone)
        return simulate(self.world, self.preemptor, prefix, batches)


def _by_gang(world: World, pods: Sequence[int]) -> list[Batch]:
    gangs = dict.fromkeys(world.gang[pod] for pod in pods)
    return [Batch(gang, tuple(pod for pod in pods if world.gang[pod] == gang)) for gang in gangs]


def with_whole_gangs(world: World, recorded: Recorded, popped: Sequence[Batch], chosen: Sequence[Batch]) -> list[Batch]:
    """Our rule: of a gang that would be left with less than its minimum, what was popped before goes as well."""
    more: list[Batch] = []
    for gang in sorted({batch.gang for batch in chosen}):
        gone = {pod for batch in chosen if batch.gang == gang for pod in batch.pods} | set(recorded)
        present = world.having(gang, ACTIVE_ALLOCATED)
        left = [pod for pod in present if pod not in gone]
        if intact(world, gang, present) and not intact(world, gang, left):
            last = max(at for at, batch in enumerate(popped) if batch.gang == gang and batch in chosen)
            more += [b for b in popped[:last] if b.gang == gang and b not in chosen and b.pods]
    return [*chosen, *more]


# ----------------------------------------------------------------------------------------------------- §16.4 Generators
def node_local_greedy(
    world: World, prefix: Sequence[int], recorded: Recorded, popped: Sequence[Batch]
) -> Iterator[list[Batch]]:
    """For each node of the latest victim: everybody with a pod there."""
    for node in sorted({world.pods[pod].node for pod in popped[-1].pods}):
        yield _batches_on(world, [node], popped)


def multi_node_gang(
    world: World, prefix: Sequence[int], recorded: Recorded, popped: Sequence[Batch]
) -> Iterator[list[Batch]]:
    """The tightest nodes that cover the need, then more and more of them."""
    needs = [float(world.of_class(pod).request[GPU]) for pod in prefix]
    base = [figures.free_gpus(world.gpu_memory[node]) for node, figures in enumerate(world.nodes)]
    for pod in recorded:
        base[world.pods[pod].node] += _freed(world, pod)
    capacity: dict[int, float] = {}
    for pod in (pod for batch in popped for pod in batch.pods):
        node = world.pods[pod].node
        capacity[node] = capacity.get(node, base[node]) + _freed(world, pod)
    nodes = [node for node in capacity if capacity[node] >= min(needs)]
    nodes.sort(key=lambda node: capacity[node])
    baseline = sum(max(free, 0.0) for node, free in enumerate(base) if node not in nodes)
    for size in _sizes(sum(needs) - baseline, [capacity[node] for node in nodes]):
        yield _batches_on(world, nodes[:size], popped)


def _sizes(need: float, capacities: Sequence[float]) -> Iterator[int]:
    """The smallest prefix that covers the need, then longer by 1, 2, 4 ... up to all."""
    size = next((n for n in range(1, len(capacities)) if sum(capacities[:n]) >= need - 1e-9), len(capacities))
    step = 1
    while size < len(capacities):
        yield size
        size, step = size + step, step * 2
    if capacities:
        yield len(capacities)


def _batches_on(world: World, nodes: Sequence[int], popped: Sequence[Batch]) -> list[Batch]:
    """Node by node, each batch once."""
    found = [b for node in nodes for b in popped if any(world.pods[pod].node == node for pod in b.pods)]
    return list(dict.fromkeys(found))


def _freed(world: World, pod: int) -> float:
    """Devices: an instance of one counts against a queue, but nobody else can have the device for it."""
    return world.accepted(pod, world.pods[pod].node)[GPU] - world.mig_gpus(world.of_class(pod))
