"""What a gang can gain from victims of other queues, asked of a few one by one, of many in columns, and of one."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.engine import reclaim_bound
from pykai.engine.cycle import Cycle
from pykai.engine.order import pending_gangs
from pykai.engine.pending import PendingOrder
from pykai.engine.reclaim_bound import ReclaimBound
from pykai.engine.solver import over_limits, victims_of
from pykai.engine.victims import Batch, VictimPool
from pykai.model.resources import GPU
from pykai.objects import names
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING

from .clusters import gang, node, pod, seen

USE = {"few": (4, 1), "even": (1, 1), "many": (0, 3)}
"""Quota of GPUs, and how many are in use."""
FOUND = [  # victims; which of them are served after the gang, and which are of use
    ("few-0", "", ""),  # with what it loses its queue comes first, and has it back
    ("even-0", "even-0", ""),  # it has no more than its quota
    ("many-0", "many-0", "many-0"),
    ("few-0 even-0 many-0", "even-0 many-0", "many-0"),
    ("many-0 many-1 many-2", "many-0 many-1 many-2", "many-0 many-1 many-2"),
]


def opened() -> tuple[Cycle, ReclaimBound, dict[str, int]]:
    """Three queues beside one that wants two GPUs of its quota of four."""
    queues = [builders.queue(name, gpu={"quota": quota}) for name, (quota, _) in USE.items()]
    held = [
        item
        for name, (_, used) in USE.items()
        for item in (
            gang(name, "low", queue=name, minMember=0),
            *(pod(f"{name}-{n}", "n", gpus=1) for n in range(used)),
        )
    ]
    new = [builders.queue("mine", gpu={"quota": 4}), gang("new", queue="mine"), pod("new-0", gpus=2)]
    cycle = Cycle(seen(node("n", gpus=5), *queues, *held, *new), PACKING, NOW)
    rows = {name: row for row, name in enumerate(cycle.snapshot.pods.names)}
    waiting = PendingOrder(cycle, pending_gangs(cycle))
    bound = ReclaimBound(VictimPool(cycle), waiting, cycle.trial.gang[rows["new-0"]], (GPU,))
    return cycle, bound, rows


@pytest.mark.parametrize("few", [reclaim_bound.FEW, 0])
@pytest.mark.parametrize(("victims", "after", "useful"), FOUND)
def test_of_victims_that_go_together(
    victims: str, after: str, useful: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim_bound, "FEW", few)
    cycle, bound, rows = opened()
    gone = [rows[name] for name in victims.split()]
    losses = victims_of(cycle, [Batch(cycle.trial.gang[row], (row,)) for row in gone])
    found = bound.judge((0.0, 0.0, 2.0), victims_of(cycle, []), losses, None)
    for mask, expected in zip(found, (after, useful), strict=True):
        assert {name for name, hit in zip(victims.split(), mask.tolist(), strict=True) if hit} == set(expected.split())


@pytest.mark.parametrize(("victims", "useful"), [(victims, useful) for victims, _, useful in FOUND if victims])
def test_of_one_of_a_few(victims: str, useful: str) -> None:
    _, bound, rows = opened()
    for _ in range(2):  # the second time from what is known of the queue
        assert bound.any_useful((0.0, 0.0, 2.0), [rows[name] for name in victims.split()]) is bool(useful)


@pytest.mark.parametrize(
    ("taken", "victims", "back"),
    [
        ("", "many-0 many-1 many-2", []),
        ("", "few-0 even-0 many-0", [0, 1]),  # these may lose nothing
        ("even-0", "many-0 few-0", [-1, 1]),
    ],
)
def test_what_a_branch_may_not_lose_must_get_places_again(taken: str, victims: str, back: list[int]) -> None:
    cycle, bound, rows = opened()
    gone, more = (
        victims_of(cycle, [Batch(cycle.trial.gang[rows[name]], (rows[name],)) for name in some.split()])
        for some in (taken, victims)
    )
    assert sorted(bound.returning((0.0, 0.0, 2.0), gone, more)) == back


# --------------------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    ("sizes", "limit", "over"),
    [(("16000", "16000"), 1, True), (("16000", "16000"), 2, False), (("16000", "32000"), 1, False)],
)
def test_limits_are_not_asked_where_moves_change_what_queues_use(
    sizes: tuple[str, str], limit: int, over: bool
) -> None:
    """A share counts as a part of its device: where devices differ in size a move changes that."""
    nodes = [node(f"n{at}", 1, labels={names.GPU_MEMORY_LABEL: size}) for at, size in enumerate(sizes)]
    shares: list[Any] = [decoded(builders.pod("s-0", "s", annotations={names.GPU_MEMORY: "8000"}))]
    objects = [builders.queue("bounded", gpu={"limit": limit}), gang("new", queue="bounded"), pod("new-0", gpus=2)]
    cycle = Cycle(seen(*nodes, gang("s"), *shares, *objects), PACKING, NOW)
    row = cycle.snapshot.pods.names.index("new-0")
    assert (over_limits(cycle, cycle.trial.gang[row], [row]) is not None) is over
