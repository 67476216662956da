"""Whether items could go into bins, and pods that must come back beside wanted ones on nodes, found out by counting."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pykai.engine import packing
from pykai.engine.cycle import Cycle
from pykai.engine.feasibility import FeasibilityBound
from pykai.engine.packing import MOST_KINDS, MOST_SUMS, _usable, could_pack, most_filled, places_beside
from pykai.engine.victims import VictimPool
from pykai.objects import names
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING

from .clusters import gang, node, pod, seen


@pytest.mark.parametrize(
    ("sizes", "bins", "fits"),
    [
        ([4.0, 4.0], [8.0], True),
        ([4.0, 4.0], [6.0, 2.0], False),
        ([6.0, 2.0], [6.0, 2.0], True),
        ([0.3, 0.08], [0.35, 0.07], False),
        ([0.3, 0.08], [0.35, 0.08], True),
        ([3.0, 3.0, 2.0], [4.0, 4.0], False),
        ([3.0, 3.0, 2.0], [5.0, 4.0], True),
        ([1.0], [], False),
        ([0.5, 0.5, 0.4, 0.4], [0.9, 0.9], True),
        ([0.5, 0.5, 0.4, 0.4], [0.85, 0.85], False),  # each is filled to 0.8 at most
    ],
)
def test_items_of_given_sizes(sizes: list[float], bins: list[float], fits: bool) -> None:
    assert could_pack(sizes, bins) is fits


def test_what_takes_too_long_is_left_to_a_simulation() -> None:
    bins = [3.0 + step / 100 for step in range(40)]
    assert could_pack([2.0] * 39 + [1.5] * 2, bins)


@pytest.mark.parametrize(
    ("kinds", "free", "most"),
    [((0.4,), 1.0, 0.8), ((0.3, 0.4), 1.0, 1.0), ((0.3, 0.7), 0.65, 0.6), ((0.5,), 0.4, 0.0), ((2.0, 5.0), 8.0, 8.0)],
)
def test_of_a_bin_items_fill_what_their_sizes_add_up_to(kinds: tuple[float, ...], free: float, most: float) -> None:
    assert most_filled(kinds, free) == pytest.approx(most)


def test_how_far_a_bin_can_be_filled_is_not_found_out_of_too_many_sums() -> None:
    kinds = tuple(1 + 0.001 * step**1.5 for step in range(12))
    assert most_filled(kinds, 0.9) == 0.0
    assert most_filled(kinds, 9.9995) == 9.9995
    assert len(kinds) ** 4 > MOST_SUMS


@pytest.mark.parametrize(
    ("kinds", "free", "most"),
    [
        ((), 0.5, 0.0),
        ((0.4,), 0.3, 0.0),
        ((0.4,), 0.9, 0.8),
        ((0.45,), 0.8999, 0.8999),  # each may take a MiB less
        (tuple(0.3 + 0.01 * step for step in range(MOST_KINDS + 1)), 0.5, 0.5),
        ((3e-4, 0.4), 0.5, 0.5),  # as small as rounding
    ],
)
def test_of_a_device_shares_fill_as_much_or_more(kinds: tuple[float, ...], free: float, most: float) -> None:
    assert _usable(kinds, free) == pytest.approx(most)


# (room, how many bins, group), items wanted of the first group and their size, size of what comes back
BESIDE = [
    ([(1.0, 3, 0)], (3, 0.3), 0.7, 3),  # the rest of each is enough for one
    ([(1.0, 3, 0)], (4, 0.3), 0.7, 2),
    ([(1.0, 3, 0)], (9, 0.3), 0.7, 0),
    ([(1.0, 3, 0)], (10, 0.3), 0.7, -1),
    ([(1.0, 3, 0), (0.8, 2, 1)], (9, 0.3), 0.7, 2),  # other groups keep what they have
    ([(1.0, 3, 0), (0.8, 2, -1)], (9, 0.3), 0.7, 2),
    ([(1.0, 3, 0)], (5, 0.3), 0.3, 4),
    ([(0.5, 1, 0), (1.0, 1, 1)], (1, 0.3), 0.7, 1),  # too little for what comes back
    ([(0.2, 1, 0), (1.0, 1, 1)], (1, 0.3), 0.7, -inf),
]


@pytest.mark.parametrize(("bins", "wanted", "size", "left"), BESIDE)
def test_places_that_are_left_beside_wanted_items(
    bins: list[tuple[float, int, int]], wanted: tuple[int, float], size: float, left: float
) -> None:
    room, times, group = zip(*bins, strict=True)
    columns = np.array(room), np.array(times, dtype=float), np.array(group)
    assert places_beside(columns, wanted, size)[0] == left


@pytest.mark.parametrize(("one_rack", "fits"), [(True, False), (False, True)])
def test_wanted_shares_of_one_domain_leave_places_for_what_comes_back(one_rack: bool, fits: bool) -> None:
    """Two devices have a share of 0.7 each, on nodes of two racks. Two shares of 0.3 fit beside them, but not in one
    rack: there one of those that have 0.7 would have to leave, and finds no place."""
    nodes = [node(name, 1) for name in "ab"]

    def share(name: str, on: str, portion: str) -> Any:
        labels = {names.GPU_GROUP_LABEL: f"d-{on}"} if on else {}
        group = name.split("-")[0]
        return decoded(builders.pod(name, group, on, annotations={names.GPU_FRACTION: portion}, labels=labels))

    held = [gang("x", "low"), gang("y", "low"), share("x-0", "a", "0.7"), share("y-0", "b", "0.7")]
    cycle = Cycle(seen(*nodes, gang("new"), *held, share("new-0", "", "0.3"), share("new-1", "", "0.3")), PACKING, NOW)
    rows = {name: row for row, name in enumerate(cycle.snapshot.pods.names)}
    domains = np.arange(2) if one_rack else None
    bound = FeasibilityBound(VictimPool(cycle), [rows["new-0"], rows["new-1"]], (), domains)
    assert bound.packs([rows["x-0"]], [rows["x-0"]]) is fits


# ---------------------------------------------------------------------------------------------------- pods come back
def packs(*objects: Any, back: str = "x-0") -> bool:
    """Whether the pods `new-...` and those that come `back`, which are supposed to go, could have places together."""
    cycle = Cycle(seen(gang("new"), *objects), PACKING, NOW)
    rows = {name: row for row, name in enumerate(cycle.snapshot.pods.names)}
    wanted = [row for name, row in rows.items() if name.startswith("new-")]
    gone = [rows[name] for name in back.split()]
    bound = FeasibilityBound(VictimPool(cycle), wanted)
    assert bound.packs(gone, []) is bound.packs(gone, ())
    return bound.packs(gone, gone)


@pytest.mark.parametrize(
    ("spare", "wanted", "fits"),
    [
        ("4", ("8",), True),  # x goes to b
        ("3", ("8",), False),  # a is all it could have
        ("3", ("9",), False),  # no node is large enough
        ("3", ("4", "3"), True),
        ("3", ("4", "4"), False),
        ("5", ("5", "3"), True),
        ("5", ("4.5", "4.5"), False),  # nodes of 8 and 5: 13 cores for 13, but what is left of both is no 4
    ],
)
def test_places_by_cores(spare: str, wanted: tuple[str, ...], fits: bool) -> None:
    held = [gang("x", "low"), pod("x-0", "a", cpu="4")]
    pending = [pod(f"new-{number}", cpu=cores) for number, cores in enumerate(wanted)]
    assert packs(node("a"), node("b", cpu=spare), *held, *pending) is fits


NIC = "example.com/nic"


def cards(count: int) -> dict[str, Any]:
    amounts = {NIC: str(count)}
    return {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}


@pytest.mark.parametrize(("most", "fits"), [(MOST_KINDS, False), (1, True)])
def test_of_many_different_requests_only_the_least_counts(
    most: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five cards of one node are wanted. The pod that has one of them finds another, that with four does not."""
    monkeypatch.setattr(packing, "MOST_KINDS", most)
    offers: list[dict[str, Any]] = [{NIC: "5"}, {NIC: "3"}, {NIC: "3"}]
    nodes = [node(name, **offer) for name, offer in zip("abc", offers, strict=True)]
    held = [gang("x", "low"), pod("x-0", "a", cards(4)), pod("x-1", "a", cards(1))]
    assert packs(*nodes, *held, pod("new-0", spec=cards(5)), back="x-0 x-1") is fits


@pytest.mark.parametrize(("there", "fits"), [("ab", False), ("abc", True), ("abd", True)])
def test_wanted_pods_count_among_those_that_compete_for_places(there: str, fits: bool) -> None:
    """Of nodes with eight cards each has a place for five, twice: not for two wanted pods and one that comes back.
    The fourth node is for the wanted pods alone."""
    offer: dict[str, Any] = {NIC: "8"}
    nodes = [node(name, labels={"owner": "x" if name in "abc" else "new"}, **offer) for name in there]
    own = {**cards(5), "nodeSelector": {"owner": "x"}}
    held = [gang("x", "low"), pod("x-0", "a", own if "d" in there else cards(5))]
    assert packs(*nodes, *held, pod("new-0", spec=cards(5)), pod("new-1", spec=cards(5))) is fits


@pytest.mark.parametrize(("spare", "fits"), [("2", False), ("4", True)])
def test_where_a_share_counts_differently_on_other_nodes_devices_tell_nothing(spare: str, fits: bool) -> None:
    """Cores do. The two devices are of different size, and hold more than one of the shares each."""
    nodes = [
        node(name, 1, labels={names.GPU_MEMORY_LABEL: size}, cpu=cores)
        for name, size, cores in (("a", "16000", "8"), ("b", "32000", spare))
    ]

    def share(name: str, on: str, cores: str) -> Any:
        labels = {names.GPU_GROUP_LABEL: "d"} if on else {}
        annotations = {names.GPU_MEMORY: "9000"}
        group = name.split("-")[0]
        return decoded(builders.pod(name, group, on, {"cpu": cores}, annotations=annotations, labels=labels))

    assert packs(*nodes, gang("x", "low"), share("x-0", "a", "4"), share("new-0", "", "8")) is fits


@pytest.mark.parametrize(
    ("asks", "others", "spare", "fits"),
    [
        ("new", "a", "b", True),
        ("new", "b", "b", True),
        ("new", "b", "c", False),  # the wanted pod must be in the rack of b
        ("x", "a", "b", False),  # the pod that comes back must stay there
        ("x", "a", "c", True),
        ("x", "", "b", True),  # it is the only one: it may be anywhere
        ("x x", "a", "b", True),  # another one moves, too: then nothing is known
    ],
)
def test_pods_stay_near_to_those_that_do_not_move(asks: str, others: str, spare: str, fits: bool) -> None:
    """Both devices of a node are held by pods that may go; two others are free, and a pod wants two of one node."""
    racks = {"a": "r1", "b": "r2", "c": "r1"}
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "db"}}}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    def db(name: str, on: str, spec: dict[str, Any] | None = None, **amounts: Any) -> Any:
        found = pod(name, on, spec, **amounts)
        return replace(found, metadata=replace(found.metadata, labels={"app": "db"}))

    nodes = [node(name, 2 if name in ("a", spare) else 0, labels={"rack": rack}) for name, rack in racks.items()]
    held: list[Any] = [gang("x", "low"), gang("y", "low")]
    if asks == "new":
        held += [pod("x-0", "a", gpus=1), pod("y-0", "a", gpus=1), pod("new-0", spec=near, gpus=2)]
    else:
        held += [
            db("x-0", "a", near, gpus=1),
            pod("y-0", "a", gpus=1),
            pod("new-0", spec={"nodeSelector": {"name": "a"}}, gpus=2),
        ]
    held += [gang("db"), db("db-0", others)] if others else []
    back = "x-0 y-0" if asks != "x x" else "x-0 y-0 db-0"
    assert packs(*nodes, *held, back=back) is fits
