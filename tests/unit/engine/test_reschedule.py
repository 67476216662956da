"""After supposed evictions evictor and victims take turns; what is only promised then starts where it can at once."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine.cycle import Cycle
from pykai.engine.order import pending_gangs
from pykai.engine.pending import PendingOrder
from pykai.engine.policy import Policy
from pykai.engine.reschedule import reschedule
from pykai.engine.scenario import Cause, unpipeline
from pykai.model.status import Status
from pykai.plugins.ports import HostPorts
from tests import builders
from tests.properties.small_world import NOW, PACKING

from .clusters import gang, node, pod, seen


def opened(*objects: Any, policy: Policy = PACKING) -> tuple[Cycle, dict[str, int]]:
    """A cycle, and the rows of its pods by name."""
    cycle = Cycle(seen(*objects), policy, NOW)
    return cycle, {name: row for row, name in enumerate(cycle.snapshot.pods.names)}


# --------------------------------------------------------------------------------------------------------- rescheduling
def queue(name: str, **gpu: float) -> Any:
    return builders.queue(name, gpu={"quota": 2, "overQuotaWeight": 1, **gpu})


Place = tuple[str, str]
RUNS, LEAVES, MOVES = ("Running", "n"), ("Releasing", "n"), ("Pipelined", "m")
PENDING, WAITS = ("Pending", ""), ("Pipelined", "n")


def rescheduled(keep_all: bool, limit: float, spare: int, wanted_by_few: str) -> tuple[bool, dict[str, Place]]:
    """Of two GPUs on `n` queue `few` has one, queue `many` the other and two more; `few` is served first if it asks for
    one. A gang of a third queue wants both; the two pods are supposed to go. `m` has `spare` GPUs."""
    queues = [queue("few", limit=limit), queue("many", quota=0), queue("mine")]
    chosen = {"nodeSelector": {"name": wanted_by_few}} if wanted_by_few else None
    held = [gang("few", queue="few"), pod("few-0", "n", chosen, gpus=1), gang("many", queue="many")]
    held += [pod("many-0", "n", gpus=1), gang("more", queue="many"), pod("more-0", "k", gpus=2)]
    new = [gang("new", queue="mine"), pod("new-0", spec={"nodeSelector": {"name": "n"}}, gpus=2)]
    nodes = [node("k", gpus=2), node("m", gpus=spare), node("n", gpus=2)]
    cycle, rows = opened(*queues, *nodes, *held, *new)
    trial, queue_of = cycle.trial, cycle.snapshot.gangs.queue
    wanted, victims = [rows["new-0"]], [rows["few-0"], rows["many-0"]]
    request = cycle.queue_request(wanted, cycle.snapshot.max_gpu_memory)
    waiting = PendingOrder(cycle, pending_gangs(cycle))
    waiting.prepare({queue_of[trial.gang[row]] for row in (*victims, *wanted)})
    for row in victims:
        trial.suppose_evicted(row)
    cause = Cause("reclaim", trial.gang[wanted[0]], wanted, request, cycle.book.copied(), waiting, keep_all)
    done = reschedule(cycle, cause, wanted, {trial.gang[row] for row in victims})
    on = [*cycle.snapshot.nodes.names, ""]
    names = ("few-0", "many-0", "new-0")
    return done, {name: (Status(trial.status[rows[name]]).title, on[trial.node[rows[name]]]) for name in names}


@pytest.mark.parametrize(
    ("keep_all", "limit", "spare", "wanted_by_few", "places"),
    [
        (False, -1, 0, "", (RUNS, LEAVES, PENDING)),  # who is served before the gang stays
        (False, -1, 2, "", (RUNS, LEAVES, PENDING)),  # wherever else there is room
        (False, 0, 0, "", (LEAVES, LEAVES, WAITS)),  # it may not stay beyond the limit of its queue
        (True, -1, 0, "", (RUNS, LEAVES, PENDING)),  # it is placed where it was
        (True, -1, 0, "elsewhere", (LEAVES, LEAVES, PENDING)),  # there is no place for it any more
        (True, 0, 2, "elsewhere", (LEAVES, MOVES, WAITS)),
        (True, -1, 2, "m", (MOVES, MOVES, WAITS)),
    ],
)
def test_victims_that_are_served_before_the_evictor(
    keep_all: bool, limit: float, spare: int, wanted_by_few: str, places: tuple[Place, ...]
) -> None:
    done, found = rescheduled(keep_all, limit, spare, wanted_by_few)
    assert done is (places[2] == WAITS)
    assert found == dict(zip(("few-0", "many-0", "new-0"), places, strict=True))


def test_a_victim_in_a_queue_with_children_leaves_no_turn_to_gangs_below_it() -> None:
    """The PodGroup was moved there while its pod ran; the search fails instead of the cycle."""
    queues = [queue("department"), builders.queue("team", parent="department", gpu={"quota": 2})]
    held = [gang("old", queue="department"), pod("old-0", "n", gpus=2)]
    cycle, rows = opened(*queues, node("n", gpus=2), *held, gang("new", queue="team"), pod("new-0", gpus=2))
    trial, queue_of = cycle.trial, cycle.snapshot.gangs.queue
    victim, wanted = rows["old-0"], [rows["new-0"]]
    waiting = PendingOrder(cycle, pending_gangs(cycle))
    waiting.prepare({queue_of[trial.gang[row]] for row in (victim, *wanted)})
    trial.suppose_evicted(victim)
    request = cycle.queue_request(wanted, cycle.snapshot.max_gpu_memory)
    cause = Cause("reclaim", trial.gang[wanted[0]], wanted, request, cycle.book.copied(), waiting)
    assert not reschedule(cycle, cause, wanted, {trial.gang[victim]})


# ------------------------------------------------------------------------------------------------------------- promises
def started(cycle: Cycle, name: str) -> dict[str, str]:
    """The status of the pods of a gang after those that wait for nothing have started."""
    (row,) = (row for row, each in enumerate(cycle.snapshot.gangs.names) if each == name)
    unpipeline(cycle, [row])
    assert (row in cycle.started) is any(
        cycle.trial.status[pod] == Status.ALLOCATED for pod in cycle.snapshot.gangs.pods(row)
    )
    return {
        cycle.snapshot.pods.names[pod]: Status(cycle.trial.status[pod]).title for pod in cycle.snapshot.gangs.pods(row)
    }


@pytest.mark.parametrize(("leaving", "status"), [("1", "Allocated"), ("5", "Pipelined")])
def test_promised_pods_start_where_all_they_take_is_idle(leaving: str, status: str) -> None:
    """All of a gang or none: the second one may lack cores."""
    held = [gang("old"), pod("old-0", "n!", cpu=leaving)]
    cycle, rows = opened(node("n"), *held, gang("new", minMember=2), pod("new-0", cpu="3"), pod("new-1", cpu="3"))
    for name in ("new-0", "new-1"):
        cycle.trial.place(rows[name], 0, wait=True)
    assert started(cycle, "new") == {"new-0": status, "new-1": status}


@pytest.mark.parametrize(("minimum", "status"), [(1, "Allocated"), (2, "Pipelined")])
def test_promised_pods_do_not_start_without_the_minimum_of_their_gang(minimum: int, status: str) -> None:
    """One of the two was evicted in this cycle and waits for another place."""
    cycle, rows = opened(node("n"), gang("new", minMember=minimum), pod("new-0", "n", cpu="1"), pod("new-1", cpu="1"))
    cycle.trial.suppose_evicted(rows["new-0"])
    cycle.trial.place(rows["new-0"], 0, wait=True)
    cycle.trial.decide({rows["new-0"]: "why"})
    cycle.trial.place(rows["new-1"], 0, wait=True)
    assert started(cycle, "new") == {"new-0": "Pipelined", "new-1": status}


@pytest.mark.parametrize(
    ("share", "devices", "pods", "status"),
    [
        ("0.5", 1, 10, "Allocated"),
        ("0.6", 1, 10, "Pipelined"),  # more of the device than is left
        ("0.5", 2, 3, "Allocated"),
        ("0.5", 2, 2, "Pipelined"),  # a new device needs a slot for its reservation pod
        ("0.5", 3, 10, "Pipelined"),  # there are two devices
    ],
)
def test_promised_shares_start_where_their_devices_have_room(share: str, devices: int, pods: int, status: str) -> None:
    held = [gang("old"), pod("old-0", "n", share="0.5", device="d")]
    cycle, rows = opened(node("n", gpus=2, pods=pods), *held, gang("new"), pod("new-0", share=share, devices=devices))
    groups = ("d", *(f"new-{number}" for number in range(1, devices)))
    cycle.trial.place(rows["new-0"], 0, groups, wait=True)
    assert started(cycle, "new") == {"new-0": status}


@pytest.mark.parametrize(("port", "status"), [(81, "Allocated"), (80, "Pipelined")])
def test_promised_pods_wait_for_what_a_rule_has_them_wait(port: int, status: str) -> None:
    def web(number: int) -> dict[str, Any]:
        ports = [{"hostPort": number, "containerPort": number}]
        return {"containers": [{"name": "m", "ports": ports, "resources": {"requests": {"cpu": "1"}}}]}

    held = [gang("old"), pod("old-0", "n!", web(80))]
    cycle, rows = opened(node("n"), *held, gang("new"), pod("new-0", spec=web(port)), policy=Policy((HostPorts(),)))
    cycle.trial.place(rows["new-0"], 0, wait=True)
    assert started(cycle, "new") == {"new-0": status}
