"""The engine's shortcuts agree with the long way: the line of victims, the bounds, the rankings, the undo log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, inf
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from pykai.engine.allocate import place_gang
from pykai.engine.cycle import Cycle
from pykai.engine.device_room import Leaving
from pykai.engine.feasibility import FeasibilityBound
from pykai.engine.gang import pods_to_place
from pykai.engine.node_facts import NodeFacts
from pykai.engine.order import pending_gangs
from pykai.engine.place import choose_devices
from pykai.engine.ranking import Rankings
from pykai.engine.trial import Trial
from pykai.engine.victim_order import Branches, VictimOrder, VictimWalk
from pykai.engine.victims import Batch, Passes, VictimPool
from pykai.model.resources import GPU, PODS, Mask, Rows
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status
from tests.properties.clusters import clusters
from tests.properties.small_world import NOW, PACKING, POLICIES, Cluster

crowds = clusters(most=14)
policies = st.sampled_from(sorted(POLICIES))


# -------------------------------------------------------------------------------------------------------------- victims
def walked(cycle: Cycle, pool: VictimPool, passes: Passes) -> list[Batch]:
    walk = VictimWalk(cycle, {queue: pool.leaf(queue) for queue in pool.queues}, passes)
    found = []
    while (batch := walk.pop()) is not None:
        found.append(batch)
    return found


def everybody(gangs: Rows) -> Mask:
    return np.ones(len(gangs), dtype=bool)


@given(crowds, st.data(), st.integers(1, 4))
def test_the_line_of_victims_is_the_walk(cluster: Cluster, data: st.DataObject, chunk: int) -> None:
    """Whatever part of the line is fetched at a time, and whoever may not go."""
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    pool = VictimPool(cycle)
    assume(pool.queues)
    pool.chunks[None] = chunk
    spared = data.draw(st.sets(st.integers(0, len(cycle.snapshot.gangs) - 1), max_size=4))

    def passes(gangs: Rows) -> Mask:
        return ~np.isin(gangs, list(spared))

    line = VictimOrder(pool, {queue: pool.leaf(queue) for queue in pool.queues}, passes)
    while line.extend():
        pass
    batches = [line.batch(number) for number in range(len(line))]
    assert batches == walked(cycle, pool, passes)
    assert line.pods.tolist() == [pod for batch in batches for pod in batch.pods]
    assert line.nodes.tolist() == [cycle.trial.node[pod] for pod in line.pods.tolist()]


@given(crowds, st.data(), st.integers(1, 4))
def test_the_line_of_some_branches_is_the_walk_of_their_leaves(
    cluster: Cluster, data: st.DataObject, chunk: int
) -> None:
    """What is kept of whole branches for all searches gives the same order as their leaf queues do."""
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    pool, leaves = VictimPool(cycle), [q for q, below in enumerate(cycle.snapshot.queues.children) if not below]
    assume(pool.queues)
    pool.chunks[None] = chunk
    leaf = data.draw(st.sampled_from(leaves))
    competing = [branch for siblings in pool.competing(leaf).values() for branch in siblings]
    assume(competing)
    chosen = data.draw(st.sets(st.sampled_from(competing), min_size=1))
    line = VictimOrder(pool, Branches.of(pool, leaf, chosen))
    while line.extend():
        pass
    batches = [line.batch(number) for number in range(len(line))]
    walk = VictimWalk(cycle, line.leaves, everybody)
    assert batches == list(iter(walk.pop, None))
    assert {queue for branch in chosen for queue in pool.below(leaf)[branch]} == set(line.leaves)
    if not line.in_parts:
        alone = [batch for batch in batches if len({cycle.trial.node[pod] for pod in batch.pods}) == 1]
        seen = [(number, pods) for number, pods, _ in line.one_by_one()]
        assert seen == [(number, list(batch.pods)) for number, batch in enumerate(alone[: len(seen)])]
        assert len(seen) == len(batches) or len({cycle.trial.node[pod] for pod in batches[len(seen)].pods}) > 1


# ----------------------------------------------------------------------------------------------------------------- room
def fitting(cycle: Cycle, pods: Sequence[int], free: np.ndarray, node: int) -> float:
    """How many of the pods fit into what is free on a node, if each asked for the least any of them asks for."""
    classes = [cycle.trial.of_class(pod) for pod in pods]
    if not any(cycle.node_facts.allowed(c)[node] for c in classes):
        return 0.0
    largest = float(cycle.snapshot.nodes.gpu_memory.max())
    needs = [c.request.copy() for c in classes]
    for need, c in zip(needs, classes, strict=True):
        if c.memory_mib:
            need[GPU] = c.devices * c.memory_mib / largest
    least = np.min(needs, axis=0)
    return max(min(float(np.floor((free[r] + 1e-9) / least[r])) for r in range(len(least)) if least[r] > 0), 0.0)


def free_on(cycle: Cycle, node: int, gone: Sequence[int]) -> np.ndarray:
    """What is free on a node, or spare on its shared devices, and what these pods hold there."""
    trial = cycle.trial
    free = (trial.idle[:, node] + trial.releasing[:, node]).copy()
    capacity = float(cycle.snapshot.nodes.gpu_memory[node])
    for share in trial.shares.get(node, {}).values():
        if share.used > 0:
            free[GPU] += (capacity - share.allocated + share.releasing) / capacity
    for pod in gone:
        if trial.node[pod] == node:
            free += trial.of_class(pod).request
            free[PODS] += trial.of_class(pod).devices * trial.of_class(pod).shared
            free[GPU] += trial.accepted_gpus(pod) if trial.of_class(pod).memory_mib else 0.0
    return free


def on_devices(cycle: Cycle, pods: Sequence[int], node: int, gone: Sequence[int]) -> float:
    """How many of the pods the devices of a node hold once some pods are gone, if each took the least that one takes of
    the fewest devices; infinite where the pods differ, or amounts say it all."""
    trial, classes = cycle.trial, [cycle.trial.of_class(pod) for pod in pods]
    shared, capacity = [c.shared for c in classes], float(cycle.snapshot.nodes.gpu_memory[node])
    if (
        len(set(shared)) > 1
        or not (any(shared) or trial.shares)
        or min(c.request[GPU] for c in classes) == 0 == shared[0]
    ):
        return inf
    left = {group: share.allocated - share.releasing for group, share in trial.shares.get(node, {}).items()}
    left = {group: held for group, held in left.items() if held > 0}
    whole = floor(trial.idle[GPU, node] + trial.releasing[GPU, node] + 1e-9)
    for pod in gone:
        if trial.node[pod] == node and trial.of_class(pod).shared:
            for group in trial.gpu_groups.get(pod, ()):
                left[group] -= trial.share_memory(trial.of_class(pod), node)
        elif trial.node[pod] == node:
            whole += ceil(trial.of_class(pod).request[GPU])
    free = [capacity] * int(whole) + [capacity - held for held in left.values()]
    memory = min(trial.share_memory(c, node) for c in classes) if shared[0] else capacity
    devices = min(c.devices if c.shared else int(c.request[GPU]) for c in classes)
    slots = [floor(each / memory + 1e-9) for each in free]
    return max(m for m in range(sum(slots) + 1) if sum(min(each, m) for each in slots) >= devices * m)


@given(crowds)
def test_gains_are_what_counting_anew_gives(cluster: Cluster) -> None:
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    waiting, pool = pending_gangs(cycle), VictimPool(cycle)
    pods = pods_to_place(cycle.trial, cycle.orders, waiting[0]) if waiting else []
    assume(pods and pool.queues)
    gone = [pod for batch in walked(cycle, pool, everybody) for pod in batch.pods]
    nodes = range(len(cycle.snapshot.nodes))
    room = FeasibilityBound(pool, pods)
    line = VictimOrder(pool, {queue: pool.leaf(queue) for queue in pool.queues}, everybody)
    while line.extend():
        pass
    freed = line.freed()
    total, own = room.gains(Leaving(line.pods, line.nodes, np.ones(len(line.pods), dtype=bool), freed[GPU]), freed)

    def counted(gone: Sequence[int]) -> dict[int, float]:
        amounts = {node: fitting(cycle, pods, free_on(cycle, node, gone), node) for node in nodes}
        return {node: min(fits, on_devices(cycle, pods, node, gone)) for node, fits in amounts.items()}

    before = counted(())
    assert (room.missing == len(pods) - sum(before.values())).all()
    exact = all(not c.shared or c.devices == 1 for c in (cycle.trial.of_class(pod) for pod in pods))
    for at, pod in enumerate(gone):
        after, here = counted(gone[: at + 1]), cycle.trial.node[pod]
        changes = total[at] - (sum(after.values()) - sum(before.values())), own[at] - (after[here] - before[here])
        assert changes == (0, 0) if exact else min(changes) >= 0


@given(crowds, st.data())
def test_room_never_denies_what_can_be_done(cluster: Cluster, data: st.DataObject) -> None:
    """Where the pods do find their place once some batches are gone, the bound must have said so."""
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    waiting, pool = pending_gangs(cycle), VictimPool(cycle)
    wanted = {gang: pods for gang in waiting if (pods := pods_to_place(cycle.trial, cycle.orders, gang))}
    assume(wanted and pool.queues)
    gang, pods = data.draw(st.sampled_from(sorted(wanted.items())))
    batches = walked(cycle, pool, lambda gangs: gangs != gang)
    kept = data.draw(st.sets(st.integers(0, max(len(batches) - 1, 0)), max_size=2))
    chosen = [batch for at, batch in enumerate(batches) if at not in kept]
    half = len(chosen) // 2
    room = FeasibilityBound(pool, pods, [pod for batch in chosen[:half] for pod in batch.pods])
    gone = [pod for batch in chosen for pod in batch.pods]
    possible = room.enough(chosen[half:]) and room.enough_devices(gone)
    for batch in chosen:
        for pod in batch.pods:
            cycle.trial.suppose_evicted(pod)
    assert possible or not place_gang(cycle, gang, pods, wait_only=True)


# -------------------------------------------------------------------------------------------- the trial and its mirrors
Step = Callable[[Cycle, int], None]


def give_a_place(cycle: Cycle, chance: int) -> None:
    """Put a waiting pod on some node that takes it, at once or to wait."""
    trial = cycle.trial
    waiting = [pod for pod, status in enumerate(trial.status) if status == Status.PENDING and trial.gang[pod] >= 0]
    if not waiting:
        return
    pod = waiting[chance % len(waiting)]
    c = trial.of_class(pod)
    ranking = cycle.rankings.of(c)
    nodes = list(ranking.best())
    if nodes:
        node, now = nodes[chance % len(nodes)]
        wait = bool(chance % 3 == 0) or not now
        devices = choose_devices(cycle, c, node, wait) if c.shared else ((), wait)
        if devices is not None:
            trial.place(pod, node, *devices)


def take_it_away(cycle: Cycle, chance: int) -> None:
    trial = cycle.trial
    holders = [pod for pod, s in enumerate(trial.status) if IS_ACTIVE_ALLOCATED[s] and trial.gang[pod] >= 0]
    if holders:
        trial.suppose_evicted(holders[chance % len(holders)])


def give_it_back(cycle: Cycle, chance: int) -> None:
    if cycle.trial.virtual:
        cycle.trial.keep(sorted(cycle.trial.virtual)[chance % len(cycle.trial.virtual)])


def make_it_wait(cycle: Cycle, chance: int) -> None:
    given_now = [pod for pod, status in enumerate(cycle.trial.status) if status == Status.ALLOCATED]
    if given_now:
        cycle.trial.wait_instead(given_now[chance % len(given_now)])


def place_a_gang(cycle: Cycle, chance: int) -> None:
    waiting = pending_gangs(cycle)
    if waiting:
        gang = waiting[chance % len(waiting)]
        place_gang(cycle, gang, pods_to_place(cycle.trial, cycle.orders, gang), wait_only=chance % 2 == 0)


STEPS: tuple[Step, ...] = (give_a_place, take_it_away, give_it_back, make_it_wait, place_a_gang)
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=12)


def plain(value: Any) -> Any:
    """A copy in which arrays are lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def state(trial: Trial) -> dict[str, Any]:
    """Everything a trial knows but the logs that only grow; of its devices the shares, which are its own."""
    logs = {"snapshot", "journal", "touched", "moved", "amounts", "devices"}
    return {name: plain(value) for name, value in vars(trial).items() if name not in logs}


@given(clusters(), policies, steps, steps)
def test_undo_brings_everything_back(
    cluster: Cluster, policy: str, first: list[tuple[Step, int]], then: list[tuple[Step, int]]
) -> None:
    cycle = Cycle(cluster.snapshot(), POLICIES[policy], NOW)
    for step, chance in first:
        step(cycle, chance)
    mark, before = cycle.trial.mark(), state(cycle.trial)
    for step, chance in then:
        step(cycle, chance)
    cycle.trial.undo_to(mark)
    assert state(cycle.trial) == before


@given(clusters(), policies, steps, st.lists(st.integers(0, 11), max_size=3))
def test_rankings_are_those_of_a_fresh_look(
    cluster: Cluster, policy: str, todo: list[tuple[Step, int]], undone: list[int]
) -> None:
    """After any placements, evictions and undoing, each ranking is what would be worked out from nothing."""
    cycle = Cycle(cluster.snapshot(), POLICIES[policy], NOW)
    classes = cycle.snapshot.pods.classes
    assume(classes)
    for c in classes:
        cycle.rankings.of(c)
    for number, (step, chance) in enumerate(todo):
        cycle.rankings.first(classes[chance % len(classes)])
        mark = cycle.trial.mark()
        step(cycle, chance)
        if number in undone:
            cycle.trial.undo_to(mark)
        else:
            cycle.rankings.of(classes[chance % len(classes)], None if chance % 2 else cycle.node_facts.every[chance::3])
    facts = NodeFacts(cycle.trial, cycle.policy)
    facts.reliefs = cycle.node_facts.reliefs
    fresh = Rankings(facts)
    for c in classes:
        for nodes in (cycle.node_facts.every[::2], None):
            kept, new = cycle.rankings.of(c, nodes), fresh.of(c, nodes)
            assert list(kept.best()) == list(new.best())
            assert kept.total.tolist() == new.total.tolist()
            assert kept.fits_now.tolist() == new.fits_now.tolist()
        nodes_in_order = list(fresh.of(c).best())
        assert list(cycle.rankings.best(c, None, None)) == nodes_in_order
        assert cycle.rankings.feasible(c).tolist() == sorted(node for node, _ in nodes_in_order)
        assert cycle.rankings.first(c) == next(iter(nodes_in_order), None)


@given(clusters(), policies, steps)
def test_what_gangs_place_next_is_remembered_only_while_it_is_true(
    cluster: Cluster, policy: str, todo: list[tuple[Step, int]]
) -> None:
    cycle = Cycle(cluster.snapshot(), POLICIES[policy], NOW)
    gangs = range(len(cycle.snapshot.gangs))
    for step, chance in todo:
        step(cycle, chance)
        fresh = Cycle(cycle.snapshot, cycle.policy, NOW).orders
        known = [pods_to_place(cycle.trial, cycle.orders, gang) for gang in gangs]
        assert known == [pods_to_place(cycle.trial, fresh, gang) for gang in gangs]
