"""numa: which nodes align a pod's resources, which zones it is predicted to get, and who waits for whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.engine.allocate import place_gang
from pykai.engine.cycle import Cycle
from pykai.model.status import Status
from pykai.objects import kinds, names
from pykai.plugins.numa import MISALIGNED, Numa, ZoneAccounts
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import Fields, cycle, node, placed, pod, reason, row

GPU = "nvidia.com/gpu"
NUMA = Numa()


def accounts(of: Cycle) -> ZoneAccounts:
    found = of.resources.get(ZoneAccounts)
    assert found is not None
    return found


def zone_rows(of: Cycle, pod: int) -> tuple[int, ...]:
    """Indices of the zones a pod sits in or is predicted to."""
    held = accounts(of).held.get(pod)
    return () if held is None else tuple(np.flatnonzero(held.amounts.any(axis=1)).tolist())


def zone_available(of: Cycle, node: int, zone: int) -> dict[str, float]:
    """What a zone will have available, by resource name in row units."""
    zones = accounts(of).zones
    at = zones.position[node]
    return {name: float(accounts(of).later[zone, i, at]) for i, name in zones.reported[at].items()}


def zones(of: Cycle, pod: int) -> object:
    """The zones that the bind of a pod carries."""
    details = of.resources.details(pod)
    return details.zones if details else ()


def topology(name: str, policy: str, *zone_amounts: Fields, scope: str = "pod", **rest: Any) -> Any:
    """Zones node-0, node-1 ... listed backwards: their numbers order them. Values are allocatable, all available."""
    listed = [
        {
            "name": f"node-{at}",
            "type": "Node",
            "resources": [
                {"name": resource, "capacity": amount, "allocatable": amount, "available": amount}
                for resource, amount in amounts.items()
            ],
        }
        for at, amounts in enumerate(zone_amounts)
    ]
    attributes = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]
    fields = {"metadata": {"name": name}, "zones": listed[::-1], "attributes": attributes, **rest}
    return as_kind(kinds.NodeResourceTopology, fields)


def box(name: str, **resources: str) -> Fields:
    amounts = {{"gpu": GPU}.get(key, key): value for key, value in resources.items()}
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}}


def guaranteed(name: str, *containers: Fields, spec: Fields | None = None, **meta: Any) -> list[Any]:
    return pod(name, {"containers": list(containers), **(spec or {})}, **meta)


def seated(name: str, zone: int, cpu: int, node: str = "n", **meta: Any) -> list[Any]:
    """A running pod that sits in a zone."""
    seat = f'[{{"zone":"node-{zone}","amount":{{"cpu":"{cpu}"}}}}]'
    annotations = {names.NUMA_OBSERVED: seat}
    container = box("c", cpu=str(cpu), memory="1M")
    return guaranteed(name, container, spec={"nodeName": node}, annotations=annotations, **meta)


def numa_cycle(*objects: Any, plugin: Numa = NUMA) -> Cycle:
    return cycle(objects, [plugin, NodeAvailability(), LateStart()])


CPU4 = {"cpu": "4"}


@pytest.mark.parametrize(
    ("policy", "cpus", "expected"),
    [
        ("single-numa-node", "3", (0,)),
        ("single-numa-node", "6", None),
        ("restricted", "3", (0,)),
        ("restricted", "6", (0, 1)),
        ("restricted", "9", None),
        ("best-effort", "6", ()),
        ("none", "6", ()),
    ],
)
def test_policies(policy: str, cpus: str, expected: tuple[int, ...] | None) -> None:
    of = numa_cycle(node("n", allocatable={"cpu": "32"}), topology("n", policy, CPU4, CPU4),
                    guaranteed("p", box("c", cpu=cpus, memory="1M")))  # fmt: skip
    assert placed(of) == {"p": "" if expected is None else "n"}
    if expected is None:
        assert MISALIGNED in reason(of, "p")
    else:
        assert zone_rows(of, row(of, "p")) == expected


def test_resources_of_different_width_cannot_be_aligned() -> None:
    zone = {"cpu": "4", GPU: "4"}
    of = numa_cycle(node("n", allocatable={GPU: "8", "cpu": "32"}), topology("n", "restricted", zone, zone),
                    guaranteed("p", box("c", cpu="6", memory="1M", gpu="1")))  # fmt: skip
    assert placed(of) == {"p": ""}


def test_pods_that_are_not_guaranteed_are_judged_by_devices_only() -> None:
    zone = {"cpu": "2", GPU: "2"}
    burstable = {"name": "c", "resources": {"requests": {"cpu": "3", GPU: "3"}, "limits": {GPU: "3"}}}
    plain = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    of = numa_cycle(node("n", allocatable={GPU: "4"}), topology("n", "single-numa-node", zone, zone),
                    pod("p", {"containers": [burstable]}), pod("q", {"containers": [plain]}))  # fmt: skip
    assert placed(of) == {"p": "", "q": "n"}
    assert zone_rows(of, row(of, "q")) == ()


def test_fractional_cpus_are_not_pinned() -> None:
    of = numa_cycle(node("n"), topology("n", "single-numa-node", {"cpu": "1"}, {"cpu": "1"}),
                    guaranteed("p", box("c", cpu="2500m", memory="1M")))  # fmt: skip
    assert placed(of) == {"p": "n"}


@pytest.mark.parametrize(("scope", "expected"), [("container", "n"), ("pod", "")])
def test_scope(scope: str, expected: str) -> None:
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4, scope=scope),
                    guaranteed("p", box("a", cpu="3", memory="1M"), box("b", cpu="3", memory="1M")))  # fmt: skip
    assert placed(of) == {"p": expected}
    if expected:
        assert zone_rows(of, row(of, "p")) == (0, 1)


def test_init_containers_are_aligned_for_themselves() -> None:
    def of(init_cpu: str) -> Cycle:
        spec = {"initContainers": [box("i", cpu=init_cpu, memory="1M")]}
        return numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4, scope="container"),
                          guaranteed("p", box("a", cpu="3", memory="1M"), spec=spec))  # fmt: skip

    assert placed(of("4")) == {"p": "n"}
    assert placed(of("5")) == {"p": ""}


def test_zones_fill_up_and_undo_empties_them() -> None:
    pods = [guaranteed(name, box("c", cpu="3", memory="1M")) for name in ("p", "q", "r")]
    of = numa_cycle(node("n", allocatable={"cpu": "32"}), topology("n", "single-numa-node", CPU4, CPU4), *pods)
    mark = of.trial.mark()
    assert [place_gang(of, gang, of.snapshot.gangs.pods(gang)) for gang in range(3)] == [True, True, False]
    assert [zone_available(of, 0, zone) for zone in (0, 1)] == [{"cpu": 1000.0}, {"cpu": 1000.0}]
    of.trial.undo_to(mark)
    assert [zone_available(of, 0, zone) for zone in (0, 1)] == [{"cpu": 4000.0}, {"cpu": 4000.0}]
    assert zone_rows(of, row(of, "p")) == ()
    assert placed(of) == {"p": "n", "q": "n", "r": ""}


def test_what_the_bind_carries() -> None:
    zone = {"cpu": "4", "memory": "4Gi", GPU: "2", "example.com/nic": "1"}
    wanted = {"cpu": "3", "memory": "2Gi", GPU: "1", "example.com/nic": "1"}
    container = {"name": "c", "resources": {"limits": wanted, "requests": wanted}}
    of = numa_cycle(node("n", allocatable={GPU: "4", "example.com/nic": "2"}),
                    topology("n", "single-numa-node", zone, zone), guaranteed("p", container))  # fmt: skip
    placed(of)
    expected = {"cpu": "3000m", "memory": "2147483648", GPU: "1", "example.com/nic": "1"}
    assert zones(of, row(of, "p")) == (("node-0", expected),)


def test_who_sits_where_decides_what_is_free() -> None:
    other = guaranteed("x", box("c", cpu="1", memory="1M"), spec={"nodeName": "n"},
                       annotations={names.NUMA_OBSERVED: '[{"zone":"elsewhere","amount":{"cpu":"9"}}]'})  # fmt: skip
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4), seated("s", 0, 3), other,
                    guaranteed("p", box("c", cpu="2", memory="1M")))  # fmt: skip
    assert zone_available(of, 0, 0) == {"cpu": 1000.0}
    placed(of)
    assert zone_rows(of, row(of, "p")) == (1,)
    assert zone_rows(of, row(of, "x")) == (), "a record of unknown zones does not count"


def test_observed_beats_the_bind_request_beats_the_prediction() -> None:
    def record(zone: int) -> str:
        return f'[{{"zone":"node-{zone}","amount":{{"cpu":"1"}}}}]'

    one = {"zone": "node-1", "amount": {"cpu": "1"}}

    def binding(name: str, annotations: Fields, *predicted: Fields) -> list[Any]:
        spec = {"nodeName": "n"}
        objects = guaranteed(name, box("c", cpu="1", memory="1M"), spec=spec, annotations=annotations)
        if predicted:
            request = {"podName": name, "selectedNode": "n", "predictedNUMAZones": list(predicted)}
            fields = {"metadata": {"name": name, "namespace": "ns"}, "spec": request}
            objects.append(as_kind(kinds.BindRequest, fields))
        return objects

    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4, CPU4),
                    binding("a", {names.NUMA_OBSERVED: record(2), names.NUMA_PREDICTED: record(0)}, one),
                    binding("b", {names.NUMA_PREDICTED: record(0)}, one),
                    binding("c", {names.NUMA_PREDICTED: record(0)}),
                    binding("d", {names.NUMA_PREDICTED: "not json"}),
                    binding("e", {}, {"zone": "node-1"}), binding("f", {names.NUMA_OBSERVED: '[{"zone":"node-1"}]'}),
                    )  # fmt: skip
    assert [zone_rows(of, row(of, name)) for name in "abcdef"] == [(2,), (1,), (0,), (), (), ()]


def test_reported_availability_can_be_trusted_instead() -> None:
    report = topology("n", "single-numa-node", CPU4, CPU4)
    report.zones[1]["resources"][0]["available"] = "1"
    of = numa_cycle(node("n"), report, seated("s", 1, 2), guaranteed("p", box("c", cpu="3", memory="1M")),
                    plugin=Numa(reconstruct=False))  # fmt: skip
    placed(of)
    assert zone_rows(of, row(of, "p")) == (1,), "node-0 reports one free CPU, whoever sits there"


def test_ignored_resources_do_not_count() -> None:
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4),
                    guaranteed("p", box("c", cpu="6", memory="1M")),
                    plugin=Numa(ignored=frozenset({"cpu"})))  # fmt: skip
    assert placed(of) == {"p": "n"}


def test_a_pod_waits_for_a_zone_that_is_being_released() -> None:
    """The node has CPUs to spare, but in no single zone until the leaving pod is gone."""
    of = numa_cycle(node("n", allocatable={"cpu": "32"}), topology("n", "single-numa-node", CPU4, CPU4),
                    seated("old", 0, 3, terminating=True), seated("s", 1, 3),
                    guaranteed("p", box("c", cpu="2", memory="1M")),
                    guaranteed("q", box("c", cpu="1", memory="1M")))  # fmt: skip
    assert placed(of) == {"p": "~n", "q": "n"}
    assert zone_rows(of, row(of, "p")) == (0,)


def test_a_node_with_a_free_zone_is_better_than_one_where_it_is_given_up() -> None:
    zoned = [(node(name, allocatable={"cpu": "32"}), topology(name, "single-numa-node", CPU4)) for name in "nz"]
    of = numa_cycle(*(item for pair in zoned for item in pair), seated("old", 0, 3, terminating=True),
                    guaranteed("p", box("c", cpu="2", memory="1M")))  # fmt: skip
    assert placed(of) == {"p": "z"}


def test_who_could_start_does_not_take_what_is_promised() -> None:
    """Zone 0 has a CPU free, but all of it is promised to p; q waits for zone 1."""
    of = numa_cycle(node("n", allocatable={"cpu": "32"}), topology("n", "single-numa-node", CPU4, CPU4),
                    seated("old", 0, 3, terminating=True), seated("older", 1, 4, terminating=True),
                    guaranteed("p", box("c", cpu="4", memory="1M")),
                    guaranteed("q", box("c", cpu="1", memory="1M")))  # fmt: skip
    assert placed(of) == {"p": "~n", "q": "~n"}
    assert [zone_rows(of, row(of, name)) for name in "pq"] == [(0,), (1,)]


def test_a_place_of_this_cycle_is_lost_with_its_zone() -> None:
    of = numa_cycle(node("n", allocatable={"cpu": "32"}), topology("n", "single-numa-node", CPU4, CPU4),
                    seated("w", 1, 3), guaranteed("p", box("c", cpu="3", memory="1M")),
                    guaranteed("x", box("c", cpu="4", memory="1M")))  # fmt: skip
    assert placed(of) == {"p": "n", "x": ""}
    p, x = row(of, "p"), row(of, "x")
    of.trial.suppose_evicted(p)
    of.resources.release(p)
    assert of.resources.unchanged(p, 0)
    of.trial.place(x, 0, wait=True)
    of.resources.reserve(x)
    assert zone_available(of, 0, 0) == {"cpu": 0.0}
    assert not of.resources.unchanged(p, 0)


def test_evicted_pods_give_their_zones_and_may_stay_in_them() -> None:
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4), seated("v", 0, 3), seated("w", 1, 3),
                    guaranteed("p", box("c", cpu="2", memory="1M")))  # fmt: skip
    v, p = row(of, "v"), row(of, "p")
    assert [mask.tolist() for _, mask in accounts(of).infeasible(p)] == [[True]]
    of.trial.suppose_evicted(v)
    of.resources.release(v)
    assert [mask.tolist() for _, mask in accounts(of).infeasible(p)] == [[False]]
    assert of.resources.unchanged(v, 0)
    of.trial.place(p, 0, wait=True)
    of.resources.reserve(p)
    assert zone_available(of, 0, 0) == {"cpu": 2000.0}
    assert zone_rows(of, v) == (0,)
    assert not of.resources.unchanged(v, 0), "its zone is promised to somebody else"
    of.trial.keep(v)
    of.resources.reserve(v)
    assert of.trial.status[v] == Status.RUNNING
    assert zone_available(of, 0, 0) == {"cpu": -1000.0}


def test_a_pod_that_need_not_be_aligned_gives_up_what_it_has_of_a_zone() -> None:
    seat = {names.NUMA_OBSERVED: '[{"zone":"node-0","amount":{"cpu":"3"}}]'}
    plain = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4),
                    pod("v", {"containers": [plain], "nodeName": "n"}, annotations=seat),
                    guaranteed("p", box("c", cpu="2", memory="1M")))  # fmt: skip
    assert [mask.tolist() for _, mask in accounts(of).infeasible(row(of, "p"))] == [[True]]
    of.trial.suppose_evicted(row(of, "v"))
    of.resources.release(row(of, "v"))
    assert [mask.tolist() for _, mask in accounts(of).infeasible(row(of, "p"))] == [[False]]


def test_a_pod_whose_zone_is_still_free_simply_stays() -> None:
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4), seated("v", 1, 3))
    v = row(of, "v")
    of.trial.suppose_evicted(v)
    of.resources.release(v)
    assert of.resources.unchanged(v, 0), "though a lower zone is free, too"


def test_the_fewer_zones_the_better() -> None:
    of = numa_cycle(
        node("a"), node("b"), node("c"), node("d"), node("e"), node("f"),
        topology("a", "restricted", CPU4, CPU4, CPU4, CPU4), topology("b", "single-numa-node", {"cpu": "8"}, {}),
        topology("c", "best-effort", CPU4, CPU4, CPU4), topology("d", "none", CPU4, CPU4),
        topology("f", "single-numa-node", CPU4), guaranteed("p", box("c", cpu="6", memory="1M")), pod("q"),
    )  # fmt: skip
    scores = NUMA.pod_score(of, row(of, "p"))
    assert scores is not None
    assert scores.tolist() == [50.0, 100.0, 50.0, 50.0, 25.0, 0.0]
    assert NUMA.pod_score(of, row(of, "q")) is None


@pytest.mark.parametrize("attributes", [[], None])
def test_the_older_form_of_the_policy_is_read(attributes: list[Any] | None) -> None:
    report = topology("n", "", CPU4, CPU4, attributes=attributes, topologyPolicies=["SingleNUMANodePodLevel"])
    of = numa_cycle(node("n"), report, guaranteed("p", box("c", cpu="6", memory="1M")))
    assert placed(of) == {"p": ""}


def test_arguments() -> None:
    assert Numa.from_arguments({"ignoreList": "cpu, memory,", "reconstructAvailable": "False"}) == Numa(
        frozenset({"cpu", "memory"}), False
    )
    with pytest.raises(ValueError, match="reconstructAvailable"):
        Numa.from_arguments({"reconstructAvailable": "maybe"})


def test_nothing_is_opened_where_no_node_reports_zones() -> None:
    of = numa_cycle(node("n"), guaranteed("p", box("c", cpu="1", memory="1M")))
    assert not of.resources.states
    assert not NUMA.concerns(of, of.trial.of_class(0))


def test_a_pod_that_moves_holds_its_zone_until_it_is_gone() -> None:
    of = numa_cycle(node("m"), node("n"), topology("m", "single-numa-node", CPU4),
                    topology("n", "single-numa-node", CPU4), seated("v", 0, 3),
                    guaranteed("p", box("c", cpu="2", memory="1M")))  # fmt: skip
    v, p = row(of, "v"), row(of, "p")
    of.trial.suppose_evicted(v)
    of.resources.release(v)
    of.trial.place(v, 0, wait=True)
    of.resources.reserve(v)
    assert [zone_available(of, at, 0)["cpu"] for at in (0, 1)] == [1000.0, 4000.0]
    assert [mask.tolist() for _, mask in accounts(of).infeasible(p)] == [[True, False]]
    assert of.resources.must_wait(p, 1)


@pytest.mark.parametrize(("sidecar", "expected"), [("1", "n"), ("2", "")])
def test_a_pod_aligned_as_one_is_as_large_as_its_largest_moment(sidecar: str, expected: str) -> None:
    init = [{**box("s", cpu=sidecar, memory="1M"), "restartPolicy": "Always"}, box("i", cpu="3", memory="1M")]
    of = numa_cycle(node("n"), topology("n", "single-numa-node", CPU4, CPU4),
                    guaranteed("p", box("c", cpu="1", memory="1M"), spec={"initContainers": init}))  # fmt: skip
    assert placed(of) == {"p": expected}
