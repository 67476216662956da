from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.allocate import allocate
from pykai.engine.cycle import Cycle
from pykai.engine.place import Placement
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.model.resources import GPU
from pykai.objects import names
from pykai.plugins.domains import DomainUsage, TopologyUsage, group_request
from pykai.plugins.topology import Topology
from tests import builders
from tests.builders import decoded
from tests.properties.small_world import NOW, PACKING

NODES = {  # name: block, rack, GPUs
    "n0": ("b1", "r1", 4),
    "n1": ("b1", "r1", 4),
    "n2": ("b1", "r2", 4),
    "n3": ("b2", "r3", 4),
    "n4": ("b2", "r3", 2),
    "n5": (None, "r9", 8),  # lacks a level: in no domain
}
LEVELS = ["block", "rack"]
GPU_1 = {names.NVIDIA_GPU: "1"}


def constraint(required: str = "", preferred: str = "", topology: str = "tree") -> dict[str, str]:
    return {"topology": topology, "requiredTopologyLevel": required, "preferredTopologyLevel": preferred}


def pod(name: str, request: dict[str, str], node: str = "", group: str = "job", **meta: Any) -> Any:
    return decoded(builders.pod(name, group, node, request, namespace="", **meta))


def cycle(spec: dict[str, Any], pods: list[Any], nodes: dict[str, Any] = NODES) -> Cycle:
    """A gang named `job`, its pods, and the nodes with 64 cpus each."""
    cache = ClusterCache(SchedulerParams())
    for name, (block, rack, gpus) in nodes.items():
        labels = {"rack": rack, **({"block": block} if block else {}), names.GPU_MEMORY_LABEL: "1000"}
        cache.load([decoded(builders.node(name, gpus, labels, {"cpu": "64", "memory": "64Gi"}))])
    levels = [{"nodeLabel": level} for level in LEVELS]
    cache.load([decoded({"kind": "Topology", "metadata": {"name": "tree"}, "spec": {"levels": levels}})])
    cache.load([decoded(builders.pod_group("job", metadata={"namespace": ""}, **spec)), *pods])
    return Cycle(cache.snapshot(now=0.0), Policy((Topology(),)), now=0.0)


def waiting(count: int, request: dict[str, str] = GPU_1) -> list[Any]:
    return [pod(f"p{at}", request) for at in range(count)]


def pending(c: Cycle) -> list[int]:
    return [row for row in range(len(c.snapshot.pods)) if c.trial.node[row] < 0 and c.trial.gang[row] >= 0]


def ask(c: Cycle, nodes: list[str] | None = None) -> tuple[list[str], list[str]]:
    """The node sets of the whole gang as texts, and the reasons."""
    table = c.snapshot.nodes
    rows = None if nodes is None else np.array([table.rows[name] for name in nodes])
    answer = Topology().subsets(c, 0, c.snapshot.gangs.tree(0), pending(c), rows)
    errors = [(f"<{e.node_group}> " if e.node_group else "") + e.message for e in answer.why]
    return [" ".join(table.names[row] for row in s) if s is not None else "all" for s in answer.sets], errors


@pytest.mark.parametrize(
    ("required", "preferred", "pods", "sets"),
    [
        ("rack", "", 4, ["n3 n4", "n2", "n0 n1"]),  # the tighter block first, and in a block the tighter rack
        ("rack", "", 5, ["n3 n4", "n0 n1"]),
        ("block", "", 5, ["n3 n4", "n0 n1 n2"]),
        ("block", "rack", 5, ["n3 n4", "n0 n1", "n3 n4", "n0 n1 n2"]),
        ("rack", "rack", 7, ["n0 n1"]),
        ("", "rack", 8, ["n0 n1", "n0 n1 n2", "n0 n1 n2 n3 n4"]),
        ("", "block", 13, ["n0 n1 n2 n3 n4"]),
        ("rack", "block", 6, ["n3 n4", "n0 n1"]),  # preferred wider than required: only the required level counts
    ],
)
def test_domains_are_tried_from_narrow_to_wide_and_the_tightest_first(
    required: str, preferred: str, pods: int, sets: list[str]
) -> None:
    assert ask(cycle({"topologyConstraint": constraint(required, preferred)}, waiting(pods))) == (sets, [])


def test_the_whole_cluster_is_no_set_of_its_own() -> None:
    inside = {name: spec for name, spec in NODES.items() if spec[0]}
    assert ask(cycle({"topologyConstraint": constraint("", "rack")}, waiting(13), inside)) == (["all"], [])


UNSATISFIED = "topology tree, requirement rack couldn't be satisfied for job </job>"


@pytest.mark.parametrize(
    ("wish", "pods", "errors"),
    [
        (constraint("rack", "", "none"), 1, ["Requested topology none does not exist"]),
        (constraint(), 1, ["no topology constraints were found for workload, with topology name tree"]),
        (
            constraint("zone"),
            1,
            [
                "topology constraint error: workload specified 'zone' as the required topology constraint level, "
                "but the topology tree 'tree' does not contain a level with this name"
            ],
        ),
        (
            constraint("rack", "row"),
            99,
            [
                "topology constraint error: workload specified 'row' as the preferred topology constraint level, "
                "but the topology tree 'tree' does not contain a level with this name"
            ],
        ),
        (constraint("rack"), 19, [f"{UNSATISFIED}: not enough resources in the cluster to allocate the job"]),
        (
            constraint("rack"),
            9,
            [
                "<b1.r1> node-group b1.r1 can allocate only 8 of 9 required pods",
                "<b1.r2> node-group b1.r2 can allocate only 4 of 9 required pods",
                "<b2.r3> node-group b2.r3 can allocate only 6 of 9 required pods",
                UNSATISFIED,
            ],
        ),
    ],
)
def test_why_there_is_no_domain(wish: dict[str, str], pods: int, errors: list[str]) -> None:
    assert ask(cycle({"topologyConstraint": wish}, waiting(pods))) == ([], errors)


def test_pods_of_different_kinds_are_judged_by_their_sum() -> None:
    mixed = [pod("a", {names.NVIDIA_GPU: "6", "cpu": "1"}), pod("b", {"cpu": "100"})]
    sets, errors = ask(cycle({"topologyConstraint": constraint("rack")}, mixed))
    assert (sets, errors) == (["n3 n4", "n0 n1"], [])
    more = [*mixed, pod("c", {"memory": "200Gi"})]
    sets, errors = ask(cycle({"topologyConstraint": constraint("rack")}, more))
    assert (sets, errors[-1]) == ([], UNSATISFIED)
    assert errors[:-1] == [
        "<b1.r1> node-group(s) didn't have enough resources: memory",
        "<b1.r2> node-group(s) didn't have enough resources: CPU cores",
        "<b1.r2> node-group(s) didn't have enough resources: memory",
        "<b1.r2> node-group(s) didn't have enough resources: GPUs",
        "<b2.r3> node-group(s) didn't have enough resources: memory",
    ]


@pytest.mark.parametrize(
    ("nodes", "pods", "sets", "errors"),
    [
        (["n0", "n2"], 4, ["n0", "n2"], []),
        (["n0", "n5"], 4, ["n0"], []),
        (["n3", "n4"], 5, ["n3 n4"], []),
        (["n0", "n2"], 9, [], [f"{UNSATISFIED}: not enough resources in b1 to allocate the job"]),
        (["n5"], 1, [], [f"{UNSATISFIED}: not enough resources in the cluster to allocate the job"]),
    ],
)
def test_only_the_given_nodes_count(nodes: list[str], pods: int, sets: list[str], errors: list[str]) -> None:
    assert ask(cycle({"topologyConstraint": constraint("rack")}, waiting(pods)), nodes) == (sets, errors)


def test_a_wide_level_is_met_where_one_narrow_domain_holds_all_nodes() -> None:
    one_rack = {name: NODES[name] for name in ("n0", "n1")}
    assert ask(cycle({"topologyConstraint": constraint("block")}, waiting(8), one_rack)) == (["all"], [])
    assert ask(cycle({"topologyConstraint": constraint("block", "rack")}, waiting(8), one_rack)) == (["all"], [])


@pytest.mark.parametrize(
    ("required", "preferred", "at", "sets"),
    [
        ("rack", "", "n1", ["n0 n1"]),
        ("block", "rack", "n2", ["n2", "n0 n1", "n0 n1 n2"]),
        ("", "rack", "n1", ["n3 n4", "n2", "n0 n1", "n3 n4", "n0 n1 n2", "n0 n1 n2 n3 n4"]),
        ("rack", "", "n5", []),
    ],
)
def test_growing_gangs_stay_in_the_required_domain(required: str, preferred: str, at: str, sets: list[str]) -> None:
    running = pod("running", GPU_1, node=at)
    c = cycle({"topologyConstraint": constraint(required, preferred)}, [running, *waiting(1)])
    assert ask(c)[0] == sets


def test_surplus_is_drawn_to_the_emptiest_preferred_domain() -> None:
    c = cycle({"topologyConstraint": constraint("", "rack")}, waiting(9))
    ask(c)
    scores = Topology().pod_score(c, pending(c)[0])
    assert scores is not None
    names_ = c.snapshot.nodes.names
    assert dict(zip(names_, scores.tolist(), strict=True)) == {
        "n3": 300_000,
        "n4": 300_000,
        "n2": 600_000,
        "n0": 1_000_000,
        "n1": 1_000_000,
        "n5": 0,
    }


def sub_group(name: str, wish: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, "minMember": 1, **({"topologyConstraint": wish} if wish else {})}


def member(name: str, group: str, gpus: int) -> Any:
    return pod(name, {names.NVIDIA_GPU: str(gpus)}, labels={names.SUBGROUP_LABEL: group})


def test_sub_groups_divide_the_domain_of_their_parent() -> None:
    spec = {
        "topologyConstraint": constraint("block"),
        "subGroups": [sub_group("x", constraint("rack")), sub_group("y", constraint("rack"))],
    }
    c = cycle(spec, [member("x0", "x", 4), member("x1", "x", 4), member("y0", "y", 4)])
    assert Placement(c, 0).place(pending(c))
    placed = {c.snapshot.pods.names[row]: c.snapshot.nodes.names[c.trial.node[row]] for row in range(3)}
    assert placed == {"x0": "n0", "x1": "n1", "y0": "n2"}


def test_a_sub_group_is_named_where_it_fails() -> None:
    c = cycle({"subGroups": [sub_group("x", constraint("rack")), sub_group("y")]}, [member("x0", "x", 8)])
    assert not Placement(c, 0).place(pending(c))
    assert [e.message for e in c.reasons.gangs[0]] == [
        "topology tree, requirement rack couldn't be satisfied for job </job>, subgroup x: "
        "not enough resources in the cluster to allocate the job"
    ]


def test_own_scores_go_before_those_of_the_parent() -> None:
    spec = {
        "topologyConstraint": constraint("", "block"),
        "subGroups": [sub_group("x", constraint("", "rack")), sub_group("y"), sub_group("z", constraint("rack"))],
    }
    c = cycle(spec, [member(name + "0", name, 1) for name in "xyz"])
    assert Placement(c, 0).place(pending(c))
    by_pod = {c.snapshot.pods.names[row]: Topology().pod_score(c, row) for row in range(3)}
    assert by_pod["y0"] is by_pod["z0"] is not None
    assert by_pod["x0"] is not None
    assert by_pod["x0"] is not by_pod["y0"]


def test_pods_outside_the_attempt_have_no_scores() -> None:
    c = cycle({"topologyConstraint": constraint("", "rack")}, waiting(1))
    assert Topology().pod_score(c, 0) is None
    ask(c)
    assert Topology().pod_score(c, 0) is not None


def test_a_simulation_leaves_the_reasons_alone() -> None:
    c = cycle({"topologyConstraint": constraint("rack")}, waiting(9))
    assert not Placement(c, 0, wait_only=True).place(pending(c))
    assert c.reasons.gangs == {}
    assert not Placement(c, 0).place(pending(c))
    assert len(c.reasons.gangs[0]) == 4


def test_without_requests_every_node_takes_all_pods() -> None:
    c = cycle({"topologyConstraint": constraint("rack")}, waiting(120, {}))
    assert ask(c) == (["n0 n1", "n2", "n3 n4"], [])


def fraction(name: str, portion: str, node: str = "", device: str = "") -> Any:
    labels = {"runai-gpu-group": device} if device else {}
    return pod(name, {}, node=node, annotations={names.GPU_FRACTION: portion}, labels=labels)


@pytest.mark.parametrize(
    ("portion", "rooms"),
    [
        ("0.5", [3, 4, 6]),  # on n0 one device has 0.5 left, one 0.3, one is untouched: 1.8 in all
        ("0.2", [9, 10, 15]),
        ("0.7", [2, 2, 4]),
    ],
)
def test_shares_count_what_is_left_on_shared_devices(portion: str, rooms: list[int]) -> None:
    nodes = {"n0": ("b1", "r1", 3), "n1": ("b1", "r2", 2), "n2": ("b1", "r3", 3)}
    running = [fraction("x", "0.5", "n0", "d1"), fraction("y", "0.7", "n0", "d2")]
    c = cycle({"topologyConstraint": constraint("rack")}, [*running, fraction("z", portion)], nodes)
    usage = c.state(TopologyUsage.open).usage("tree", None)
    assert usage.room(group_request(c.trial, pending(c)), 2).figures[0].tolist() == rooms


def test_no_room_where_no_single_device_holds_the_share() -> None:
    nodes = {"n0": ("b1", "r1", 2)}
    running = [fraction("x", "0.7", "n0", "d1"), fraction("y", "0.7", "n0", "d2")]
    c = cycle({"topologyConstraint": constraint("rack")}, [*running, fraction("z", "0.5")], nodes)
    assert c.state(TopologyUsage.open).usage("tree", None).room(group_request(c.trial, pending(c)), 2).figures[
        0
    ].tolist() == [0]


def test_figures_follow_placements_and_their_undoing() -> None:
    c = cycle({"topologyConstraint": constraint("rack")}, waiting(6))
    usage, want = c.state(TopologyUsage.open).usage("tree", None), group_request(c.trial, pending(c))
    trial = c.trial

    def same() -> bool:
        return bool(
            (usage.room(want, 2).figures == DomainUsage(trial, usage.layout, usage.whole).room(want, 2).figures).all()
        )

    assert same()
    trial.place(0, 0)
    trial.place(1, 3)
    assert same()
    assert sum(usage.room(want, 2).figures[0]) == 16
    mark = trial.mark()
    trial.place(2, 0)
    trial.place(3, 5)
    assert same()
    trial.undo_to(mark)
    assert same()
    assert sum(usage.room(want, 2).figures[1 + want.dims.tolist().index(GPU)]) == 16


def test_parts_of_a_tree_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.plugins.domains.PARTS_KEPT", 2)
    c = cycle({"topologyConstraint": constraint("rack")}, waiting(1))
    topologies = c.state(TopologyUsage.open)
    parts = [topologies.usage("tree", np.array([row])) for row in (0, 1, 0)]
    assert parts[0] is parts[2]
    topologies.usage("tree", np.array([2]))
    assert topologies.usage("tree", np.array([0])) is not parts[0]


def test_the_next_domain_is_that_of_before_the_attempt() -> None:
    c = cycle({"topologyConstraint": constraint("rack")}, waiting(4))
    expected, _ = ask(c)
    pods, found = pending(c), []
    for rows in Topology().subsets(c, 0, c.snapshot.gangs.tree(0), pods, None).sets:
        assert rows is not None
        found.append(" ".join(c.snapshot.nodes.names[row] for row in rows))
        mark = c.trial.mark()
        for at, node in enumerate((0, 0, 2, 3)):
            c.trial.place(at, node)
        Topology().subsets(c, 0, c.snapshot.gangs.tree(0), pods, None)  # so looks a sub-group at the same domains
        c.trial.undo_to(mark)
    assert found == expected == ["n3 n4", "n2", "n0 n1"]


def test_figures_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.plugins.domains.ROOMS_KEPT", 1)
    c = cycle({"topologyConstraint": constraint("rack")}, waiting(2))
    usage, want = c.state(TopologyUsage.open).usage("tree", None), group_request(c.trial, pending(c))
    first = usage.room(want, 2)
    assert usage.room(want, 2) is first
    assert usage.room(want, 1).sums == first.sums[:2]
    assert usage.room(want, 2) is not first


@pytest.mark.parametrize(
    ("parts", "turns"),
    [({}, 1), ({"subGroups": [{"name": name, "minMember": 1} for name in "ab"]}, 3)],
)
def test_gangs_alike_that_find_no_domain_take_one_turn_unless_they_have_sub_groups(
    parts: dict[str, Any], turns: int
) -> None:
    objects: list[Any] = [decoded(builders.node("n0", 4, {"block": "b", "rack": "r"}, {"cpu": "64", "memory": "64Gi"}))]
    objects += [
        decoded({"kind": "Topology", "metadata": {"name": "tree"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    ]
    objects += [decoded(builders.queue())]
    for name in ("g0", "g1", "g2"):
        objects += [
            decoded(
                builders.pod_group(
                    name, metadata={"namespace": ""}, minMember=2, topologyConstraint=constraint("rack"), **parts
                )
            )
        ]
        for part in "ab":
            labels = {names.SUBGROUP_LABEL: part} if parts else {}
            objects += [pod(f"{name}-{part}", {names.NVIDIA_GPU: "3"}, group=name, labels=labels)]
    cache = ClusterCache(SchedulerParams())
    cache.load(objects)
    c = Cycle(cache.snapshot(NOW), PACKING, NOW)
    allocate(c)
    assert c.tried["allocate"] == turns
    told = {
        c.snapshot.gangs.names[gang]: " ".join(e.message for e in errors) for gang, errors in c.reasons.gangs.items()
    }
    assert {name for name, text in told.items() if f"job </{name}>" in text} == {"g0", "g1", "g2"}
