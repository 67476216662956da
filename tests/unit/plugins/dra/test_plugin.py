"""Pods with claims in a cycle: gate, placement, sharing, release, what the bind carries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from pykai.engine.cycle import Cycle
from pykai.model.resources import GPU
from pykai.model.status import Status
from pykai.objects import kinds
from pykai.plugins.dra import DynamicResources
from pykai.plugins.predicates import LateStart
from pykai.plugins.scoring import NodeAvailability
from tests.builders import as_kind
from tests.unit.plugins.dra.dra_objects import (
    CLASS,
    allocated,
    claim,
    claiming,
    device,
    device_class,
    devices_of,
    devices_slice,
    gpus,
    request,
    session,
)
from tests.unit.plugins.small_clusters import Fields, cycle, node, placed, pod, reason, row

DRA = DynamicResources()


def dra_cycle(*objects: Any, **params: Any) -> Cycle:
    return cycle([device_class(), *objects], [DRA], **params)


def got(of: Cycle, name: str) -> list[str]:
    """The devices a pod's claims were given."""
    return [device for _, allocation in session(of).allocations(row(of, name)) for device in devices_of(allocation)]


NEVER = [{"cel": {"expression": "device.driver == 'nobody'"}}]


def running(name: str, *claims: str, on: str = "n", **meta: Any) -> list[Any]:
    return claiming(name, *claims, spec={"nodeName": on}, **meta)


def test_each_pod_gets_devices_of_its_own() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 1), gpus("n", 1), claim("a"), claim("b"), claim("c"),
                   claiming("p", "a"), claiming("q", "b"), claiming("r", "c"))  # fmt: skip
    assert placed(of) == {"p": "m", "q": "n", "r": ""}
    assert (got(of, "p"), got(of, "q"), got(of, "r")) == (["m/0"], ["n/0"], [])


def test_a_gang_that_does_not_fit_gives_all_devices_back() -> None:
    gang = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 2}}
    both = [as_kind(kinds.PodGroup, gang)] + [
        as_kind(kinds.Pod, {
            "metadata": {"name": n, "namespace": "ns", "uid": n, "annotations": {"pod-group-name": "p"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [],
                     "resourceClaims": [{"name": "c", "resourceClaimName": n}]},
        }) for n in ("p", "q")
    ]  # fmt: skip
    of = dra_cycle(node("n"), gpus("n", 1), claim("p"), claim("q"), claim("x"), *both, claiming("x", "x"))
    assert placed(of) == {"p": "", "q": "", "x": "n"}
    assert got(of, "x") == ["n/0"]


def test_pods_that_share_a_claim_stay_together_and_count_once() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 1), gpus("n", 1), claim("a"),
                   claiming("p", "a"), claiming("q", "a"), claiming("r", "a"))  # fmt: skip
    assert placed(of) == {"p": "m", "q": "m", "r": "m"}
    assert of.trial.idle[GPU].tolist() == [0.0, 1.0]
    assert session(of).claim_statuses()["ns", "a"]["reservedFor"] == [
        {"resource": "pods", "name": name, "uid": name} for name in ("p", "q", "r")
    ]


def test_running_sharers_count_once_from_the_start() -> None:
    of = dra_cycle(node("n"), gpus("n", 2), claim("a", status=allocated("n", "0", holders=("p", "q"))),
                   running("p", "a"), running("q", "a"))  # fmt: skip
    assert of.trial.idle[GPU].tolist() == [1.0]


def test_an_allocated_claim_binds_its_pods_to_where_it_is() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 4), gpus("n", 1), claim("a", status=allocated("n", "0")),
                   claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "n"}
    elsewhere = dra_cycle(node("m"), gpus("m", 4), claim("a", status=allocated("n", "0")), claiming("p", "a"))
    assert placed(elsewhere) == {"p": ""}
    assert "claim ns/a node selector does not match node(s)" in reason(elsewhere, "p")


def test_free_devices_come_before_those_being_released() -> None:
    leaving = claim("old", status=allocated("n", "0", holders=("old",)))
    going = running("old", "old", terminating=True)
    of = dra_cycle(node("n"), gpus("n", 2), leaving, going, claim("a"), claiming("p", "a"))
    assert placed(of) == {"p": "n"}
    assert got(of, "p") == ["n/1"]


def test_a_pod_waits_for_devices_being_released() -> None:
    leaving = claim("old", status=allocated("n", "0", holders=("old",)))
    of = dra_cycle(node("n"), gpus("n", 1), leaving, running("old", "old", terminating=True), claim("a"),
                   claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "~n"}
    assert session(of).claim_statuses()["ns", "a"] == {}


def test_devices_that_no_column_counts_are_waited_for_too() -> None:
    """Devices of a class without GPUs: the node looks free, the device is not."""
    nic = {"name": "nic", "exactly": {"deviceClassName": "nics"}}
    leaving = claim("old", nic, status=allocated("n", "0", holders=("old",)))
    of = dra_cycle(device_class("nics"), node("n"), gpus("n", 1), leaving, running("old", "old", terminating=True),
                   claim("a", nic), claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "~n"}


def supposed_evicted(of: Cycle, name: str) -> int:
    pod_row = row(of, name)
    of.trial.suppose_evicted(pod_row)
    of.resources.release(pod_row)
    return pod_row


def test_an_evicted_pod_makes_room_and_can_come_back() -> None:
    of = dra_cycle(node("n"), gpus("n", 1), claim("v", status=allocated("n", "0", holders=("v",))), running("v", "v"),
                   claim("a"), claiming("p", "a"))  # fmt: skip
    p, mark = row(of, "p"), of.trial.mark()
    assert session(of).reject(p, 0) == "cannot allocate all DRA claims on node(s)"
    assert not session(of).may_wait()
    v = supposed_evicted(of, "v")
    assert session(of).reject(p, 0) is None
    assert session(of).may_wait()
    assert of.resources.must_wait(p, 0)
    assert of.resources.unchanged(v, 0)
    of.trial.place(p, 0, wait=True)
    of.resources.reserve(p)
    assert not of.resources.unchanged(v, 0), "its device is promised to somebody else"
    of.trial.undo_to(mark)
    assert session(of).reject(p, 0) == "cannot allocate all DRA claims on node(s)"
    v = supposed_evicted(of, "v")
    of.trial.keep(v)
    of.resources.reserve(v)
    assert of.trial.status[v] == Status.RUNNING
    assert session(of).reject(p, 0) == "cannot allocate all DRA claims on node(s)"


def test_refusals_are_remembered_while_nothing_changes() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 1), gpus("n", 2),
                   claim("v", status=allocated("m", "0", holders=("v",))), running("v", "v", on="m"),
                   claim("a", request(count=2, selectors=NEVER)), claim("b", request(count=2, selectors=NEVER)),
                   claim("c"), claiming("p", "a"), claiming("q", "b"), claiming("r", "c"))  # fmt: skip
    p, q, r = (row(of, name) for name in "pqr")

    def closed(pod_row: int) -> list[list[bool]]:
        return [mask.tolist() for _, mask in session(of).infeasible(pod_row)]

    assert closed(q) == []
    assert all(session(of).reject(p, at) for at in (0, 1))
    assert closed(q) == [[True, True]]
    assert closed(r) == [], "it asks for something else"
    mark = of.trial.mark()
    supposed_evicted(of, "v")
    assert closed(q) == [[False, True]]
    of.trial.undo_to(mark)
    assert closed(q) == [[False, True]]
    assert closed(row(of, "v")) == []


def test_refusals_are_forgotten_where_counters_come_free_elsewhere() -> None:
    use = {"consumesCounters": [{"counterSet": "box", "counters": {"slots": {"value": "3"}}}]}
    counters = [{"name": "box", "counters": {"slots": {"value": "4"}}}]
    far = devices_slice({"nodeName": "m"}, [device("far", use)], pool="box", count=2, sharedCounters=counters)
    near = devices_slice({"nodeName": "n"}, [device("near", use)], pool="box", count=2)
    held = allocated("m", "far", holders=("v",))
    held["allocation"]["devices"]["results"][0]["pool"] = "box"
    of = dra_cycle(node("m"), node("n"), far, near, claim("v", status=held), running("v", "v", on="m"),
                   claim("a"), claiming("p", "a"))  # fmt: skip
    p = row(of, "p")
    assert session(of).reject(p, 1) is not None
    assert [mask.tolist() for _, mask in session(of).infeasible(p)] == [[False, True]]
    supposed_evicted(of, "v")
    assert list(session(of).infeasible(p)) == []
    assert session(of).reject(p, 1) is None


def parts(*slots: int) -> Any:
    """A GPU of four slots on node n: a device for each way to use some of them."""
    devices = [
        device(str(at), {"consumesCounters": [{"counterSet": "gpu", "counters": {"slots": {"value": str(size)}}}]})
        for at, size in enumerate(slots)
    ]
    counters = [{"name": "gpu", "counters": {"slots": {"value": "4"}}}]
    return devices_slice({"nodeName": "n"}, devices, sharedCounters=counters)


def test_a_part_of_what_is_being_released_is_waited_for() -> None:
    """Device 0 is free, but not the slots it is made of."""
    of = dra_cycle(node("n"), parts(2, 4), claim("old", status=allocated("n", "1", holders=("old",))),
                   running("old", "old", terminating=True), claim("a"), claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "~n"}
    assert got(of, "p") == ["n/0"]


def test_who_lost_a_part_of_its_device_cannot_stay() -> None:
    of = dra_cycle(node("n"), parts(2, 4), claim("v", status=allocated("n", "1", holders=("v",))), running("v", "v"),
                   claim("a"), claiming("p", "a"))  # fmt: skip
    v, p = supposed_evicted(of, "v"), row(of, "p")
    assert of.resources.unchanged(v, 0)
    of.trial.place(p, 0, wait=True)
    of.resources.reserve(p)
    assert got(of, "p") == ["n/0"]
    assert not of.resources.unchanged(v, 0)


def test_sharers_release_only_when_all_go() -> None:
    of = dra_cycle(node("n"), gpus("n", 1), claim("v", status=allocated("n", "0", holders=("v", "w"))),
                   running("v", "v"), running("w", "v"))  # fmt: skip
    supposed_evicted(of, "v")
    assert (of.trial.idle[GPU, 0], of.trial.releasing[GPU, 0]) == (0.0, 0.0)
    w = supposed_evicted(of, "w")
    assert (of.trial.idle[GPU, 0], of.trial.releasing[GPU, 0]) == (0.0, 1.0)
    of.trial.keep(w)
    of.resources.reserve(w)
    assert (of.trial.idle[GPU, 0], of.trial.releasing[GPU, 0]) == (0.0, 0.0)


def test_a_moving_pod_takes_its_claim_along() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 1), gpus("n", 1),
                   claim("v", status=allocated("n", "0", holders=("v",))), running("v", "v"),
                   claim("a"), claiming("p", "a"))  # fmt: skip
    v = supposed_evicted(of, "v")
    of.trial.place(v, 0, wait=True)
    of.resources.reserve(v)
    assert got(of, "v") == ["m/0"]
    assert session(of).reject(row(of, "p"), 0) is not None
    assert session(of).reject(row(of, "p"), 1) is None
    assert of.resources.must_wait(row(of, "p"), 1), "the pod that moves still holds it"


def gpus_of(of: Cycle) -> list[tuple[float, float]]:
    """Idle and releasing GPUs of each node."""
    return list(zip(of.trial.idle[GPU].tolist(), of.trial.releasing[GPU].tolist(), strict=True))


def test_sharers_that_move_leave_one_device_however_often_they_are_moved() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 1), gpus("n", 1),
                   claim("v", status=allocated("n", "0", holders=("v", "w"))),
                   running("v", "v"), running("w", "v"))  # fmt: skip
    both = [supposed_evicted(of, "v"), supposed_evicted(of, "w")]
    for pod_row in both:
        of.trial.place(pod_row, 0, wait=True)
        of.resources.reserve(pod_row)
    assert gpus_of(of) == [(1.0, -1.0), (0.0, 1.0)], "one is promised, one is given up"
    for name in ("v", "w"):
        supposed_evicted(of, name)
    assert gpus_of(of)[1] == (0.0, 1.0), "they are still there"


def test_sharers_of_another_device_of_their_node_leave_one_and_wait_for_one() -> None:
    of = dra_cycle(node("n"), gpus("n", 3), claim("v", status=allocated("n", "0", holders=("v", "w"))),
                   running("v", "v"), running("w", "v"))  # fmt: skip
    both = [supposed_evicted(of, "v"), supposed_evicted(of, "w")]
    for pod_row in both:
        of.trial.place(pod_row, 0, wait=True)
        of.resources.reserve(pod_row)
    assert gpus_of(of) == [(2.0, 0.0)]


def test_sharers_placed_in_this_cycle_can_all_stay() -> None:
    of = dra_cycle(node("m"), node("n"), gpus("m", 1), gpus("n", 1), claim("a"), claiming("p", "a"), claiming("q", "a"))
    assert placed(of) == {"p": "m", "q": "m"}
    mark = of.trial.mark()
    p, q = supposed_evicted(of, "p"), supposed_evicted(of, "q")
    of.trial.keep(p)
    of.resources.reserve(p)
    assert of.resources.unchanged(q, 0), "the one that stayed has the claim where both were"
    of.trial.undo_to(mark)
    supposed_evicted(of, "p")
    supposed_evicted(of, "q")
    of.trial.place(p, 1)
    of.resources.reserve(p)
    assert not of.resources.unchanged(q, 0), "it took the claim away"


def test_who_was_promised_a_device_still_has_to_wait_for_it() -> None:
    leaving = claim("old", status=allocated("n", "0", holders=("old",)))
    of = dra_cycle(node("n"), gpus("n", 1), leaving, running("old", "old", terminating=True), claim("a"),
                   claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "~n"}
    assert of.resources.must_wait(row(of, "p"), 0)


@pytest.mark.parametrize(
    ("spec", "on", "free"),
    [({}, "n", "n/1"), ({"nodeName": "n"}, "n", "n/1"), ({"nodeName": "n"}, "m", "n/0")],
    ids=["under way", "just bound, the claim was not read yet", "a bind of another time"],
)
def test_binds_under_way_hold_their_devices(spec: Fields, on: str, free: str) -> None:
    bind = {
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {
            "podName": "b",
            "selectedNode": on,
            "resourceClaimAllocations": [{"name": "c0", "allocation": allocated("n", "0")["allocation"]}],
        },
    }
    bound, group = claiming("b", "b", spec=spec)
    bound = structs.replace(bound, status=as_kind(kinds.PodStatus, {"phase": "Pending"}))
    of = dra_cycle(node("n"), gpus("n", 2), claim("b"), [bound, group], as_kind(kinds.BindRequest, bind),
                   claim("a"), claiming("p", "a"))  # fmt: skip
    assert of.trial.status[row(of, "b")] == (Status.BOUND if spec else Status.BINDING)
    assert placed(of)["p"] == "n"
    assert got(of, "p") == [free]


@pytest.mark.parametrize("terminating", [False, True], ids=["runs", "leaves"])
def test_a_pod_may_run_before_its_claims_are_seen(terminating: bool) -> None:
    """The watch of claims is late: what the request says holds, also while the pod leaves."""
    given = [{"name": "c0", "allocation": allocated("n", "0")["allocation"]}]
    bind = {
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"podName": "b", "selectedNode": "n", "resourceClaimAllocations": given},
    }
    of = dra_cycle(node("n"), gpus("n", 2), claim("b"), running("b", "b", terminating=terminating),
                   as_kind(kinds.BindRequest, bind), claim("a"), claiming("p", "a"))  # fmt: skip
    assert placed(of)["p"] == "n"
    assert got(of, "p") == ["n/1"]


def test_a_claim_named_twice_is_allocated_once() -> None:
    of = dra_cycle(node("n"), gpus("n", 1), claim("a"), claiming("p", "a", "a"))
    assert placed(of) == {"p": "n"}
    assert got(of, "p") == ["n/0", "n/0"], "under both names"


def test_a_claim_counts_for_the_first_pod_it_is_reserved_for() -> None:
    """Neither the pod nor the claim's owner says so: the claim was generated, the pod's status is not there yet."""
    held = allocated("n", "0", "1", holders=("p",))
    of = dra_cycle(node("n"), gpus("n", 2), claim("a", request(count=2), status=held), running("p"))
    assert of.trial.idle[GPU].tolist() == [0.0]


CREATED = {"name": "c0", "resourceClaimName": "made"}


@pytest.mark.parametrize(
    ("template", "statuses", "complaint"),
    [
        ("t", [], "failed to get resource claim ns/c0: the claim has not been created yet"),
        ("t", [CREATED], 'failed to get resource claim ns/made: could not find ResourceClaim "ns/made"'),
        ("t", [{"name": "c0"}], None),
    ],
)
def test_generated_claims(template: str, statuses: list[Fields], complaint: str | None) -> None:
    waiting, group = claiming("p")
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [],
        "resourceClaims": [{"name": "c0", "resourceClaimTemplateName": template}],
    }
    meta = {"name": "p", "namespace": "ns", "uid": "p", "annotations": {"pod-group-name": "p"}}
    waiting = as_kind(kinds.Pod, {"metadata": meta, "spec": spec, "status": {"resourceClaimStatuses": statuses}})
    of = dra_cycle(node("n"), [waiting, group])
    assert placed(of) == {"p": "n" if complaint is None else ""}
    if complaint is not None:
        assert reason(of, "p") == complaint


# ------------------------------------------------------------------------------------------------------ shared capacity
def card(on: str = "n") -> Any:
    """A network card of a node that several claims may share, and its class."""
    fields = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
    return [devices_slice({"nodeName": on}, [device("eth0", fields)], driver=NIC), device_class("nic")]


def part(bandwidth: str) -> Any:
    wanted = {"capacity": {"requests": {"bandwidth": bandwidth}}} if bandwidth else {}
    return {"name": "r", "exactly": {"deviceClassName": "nic", **wanted}}


def share(bandwidth: str, holder: str) -> Any:
    result: Fields = {"request": "r", "driver": NIC, "pool": "n", "device": "eth0", "shareID": holder}
    result |= {"consumedCapacity": {"bandwidth": bandwidth}}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    return {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        "reservedFor": [{"resource": "pods", "name": holder, "uid": holder}],
    }


NIC = "nic.example.com"


def test_claims_share_a_device_while_its_capacity_lasts() -> None:
    claims = [claim(name, part(size)) for name, size in {"a": "4G", "b": "6G", "c": "1G"}.items()]
    of = dra_cycle(node("n"), *card(), *claims, claiming("p", "a"), claiming("q", "b"), claiming("r", "c"))
    assert placed(of) == {"p": "n", "q": "n", "r": ""}
    (first,), (second,) = [session(of).allocations(row(of, name))[0][1]["devices"]["results"] for name in "pq"]
    assert first["consumedCapacity"] == {"bandwidth": "4G"}
    assert second["consumedCapacity"] == {"bandwidth": "6G"}
    assert first["shareID"] != second["shareID"]
    assert str(UUID(first["shareID"])) == first["shareID"]


def test_who_does_not_say_how_much_consumes_all() -> None:
    claims = [claim("a", part("")), claim("b", part("1G"))]
    of = dra_cycle(node("n"), *card(), *claims, claiming("p", "a"), claiming("q", "b"))
    assert placed(of) == {"p": "n", "q": ""}


def test_shares_of_running_pods_count() -> None:
    held = claim("a", part("7G"), status=share("7G", "p"))
    claims = [held, claim("b", part("3G")), claim("c", part("1G"))]
    of = dra_cycle(node("n"), *card(), *claims, running("p", "a"), claiming("q", "b"), claiming("r", "c"))
    assert placed(of) == {"q": "n", "r": ""}


def test_a_share_that_a_pod_is_leaving_can_be_waited_for() -> None:
    held = claim("a", part("7G"), status=share("7G", "p"))
    leaving = running("p", "a", terminating=True)
    enough = dra_cycle(node("n"), *card(), held, claim("b", part("3G")), leaving, claiming("q", "b"))
    assert placed(enough) == {"q": "n"}
    short = dra_cycle(node("n"), *card(), held, claim("b", part("4G")), leaving, claiming("q", "b"))
    assert placed(short) == {"q": "~n"}


@pytest.mark.parametrize(("asked", "there"), [("3G", "n"), ("4G", "o")])
def test_a_node_with_capacity_to_spare_is_better_than_one_where_a_share_is_being_released(
    asked: str, there: str
) -> None:
    held, leaving = claim("a", part("7G"), status=share("7G", "p")), running("p", "a", terminating=True)
    objects = [node("n"), node("o"), *card(), *card("o"), held, claim("b", part(asked)), leaving, claiming("q", "b")]
    assert placed(cycle(objects, [DRA, NodeAvailability(), LateStart()])) == {"q": there}


def test_an_evicted_pod_gets_its_share_back_unless_it_was_given_away() -> None:
    held = claim("a", part("7G"), status=share("7G", "p"))
    of = dra_cycle(node("n"), *card(), held, claim("b", part("3G")), claim("c", part("4G")), running("p", "a"),
                   claiming("q", "b"), claiming("r", "c"))  # fmt: skip
    victim, trial = row(of, "p"), of.trial
    trial.suppose_evicted(victim)
    of.resources.release(victim)
    mark = trial.mark()
    for name, kept in {"q": True, "r": False}.items():
        trial.place(row(of, name), 0)
        of.resources.reserve(row(of, name))
        assert of.resources.unchanged(victim, 0) is kept
        trial.undo_to(mark)


def test_a_capacity_that_no_device_has_is_not_served() -> None:
    asked = {"name": "r", "exactly": {"deviceClassName": "nic", "capacity": {"requests": {"lanes": "1"}}}}
    of = dra_cycle(node("n"), *card(), claim("a", asked), claiming("p", "a"))
    assert placed(of) == {"p": ""}
    assert reason(of, "p") == "no nodes with enough resources were found: 1 cannot allocate all DRA claims on node(s)."


def test_claims_that_cannot_be_served_are_refused_by_name() -> None:
    unknown = {"name": "r", "exactly": {"deviceClassName": "nowhere"}}
    odd = {"name": "r", "exactly": {"deviceClassName": CLASS, "allocationMode": "Some"}}
    of = dra_cycle(node("n"), gpus("n", 1), claim("a", unknown), claim("b", odd), claim("c", constraints=[{}]),
                   claiming("p", "a"), claiming("q", "b"), claiming("r", "c"))  # fmt: skip
    assert placed(of) == {"p": "", "q": "", "r": ""}
    assert reason(of, "p") == "device class nowhere does not exist for claim ns/a request r"
    assert "allocationMode 'Some' is not supported" in reason(of, "q")
    assert "constraints[0]" in reason(of, "r")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("[1, 2, 3].all(a, " * 8 + "true" + ")" * 8, "it exceeds the cost limit"),
        (f"'{'a' * 60}!'.find('(a+)+$') == 'a'", "cannot allocate all DRA claims on node(s)"),
    ],
)
def test_an_expensive_selector_is_a_reason_of_its_pod_only(expression: str, text: str) -> None:
    dear = claim("a", request(selectors=[{"cel": {"expression": expression}}]))
    of = dra_cycle(node("n"), gpus("n", 2), dear, claim("b"), claiming("p", "a"), claiming("q", "b"))
    assert placed(of) == {"p": "", "q": "n"}
    assert text in reason(of, "p")


def test_the_older_queue_label_is_read_on_claims() -> None:
    fields = {
        "metadata": {"name": "a", "namespace": "ns", "labels": {"runai/queue": "q"}},
        "spec": {"devices": {"requests": [request()]}},
    }
    of = dra_cycle(node("n"), gpus("n", 1), as_kind(kinds.ResourceClaim, fields), claiming("p", "a"))
    assert placed(of) == {"p": "n"}


def test_nothing_is_opened_where_nobody_needs_it() -> None:
    of = dra_cycle(node("n"), gpus("n", 1), pod("p"))
    assert not of.resources.states
    off = dra_cycle(node("n"), claim("a"), claiming("p", "a"), dra_enabled=False)
    assert not off.resources.states
    assert placed(off) == {"p": ""}
    assert "dynamic resource allocation is not available" in reason(off, "p")


def test_plain_gpu_pods_keep_off_nodes_whose_gpus_are_claimed() -> None:
    plain = pod("p", {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]})
    of = dra_cycle(node("m"), node("n", allocatable={"nvidia.com/gpu": "1"}), gpus("m", 1), plain)
    assert placed(of) == {"p": "n"}


def test_a_place_taken_back_in_the_same_cycle_is_free_at_once() -> None:
    of = dra_cycle(node("n"), gpus("n", 1), claim("a"), claiming("p", "a"))
    assert placed(of) == {"p": "n"}
    p = supposed_evicted(of, "p")
    assert got(of, "p") == []
    of.trial.keep(p)
    of.resources.reserve(p)
    assert of.trial.status[p] == Status.ALLOCATED
    assert got(of, "p") == ["n/0"]


def test_a_claim_can_be_taken_over_from_a_leaving_pod() -> None:
    of = dra_cycle(node("n"), gpus("n", 2), claim("a", status=allocated("n", "1", holders=("old",))),
                   running("old", "a", terminating=True), claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "n"}
    assert got(of, "p") == ["n/1"]


def test_a_device_that_a_sharer_waits_for_is_not_released_for_others() -> None:
    """It waits for the CPU of the pod that leaves, and has its claim."""
    of = dra_cycle(node("n", allocatable={"cpu": "1", "pods": "10"}), gpus("n", 1),
                   claim("a", status=allocated("n", "0", holders=("old",))), running("old", "a", terminating=True),
                   claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": "~n"}
    assert (of.trial.idle[GPU].tolist(), of.trial.releasing[GPU].tolist()) == ([0.0], [0.0])


def test_a_full_claim_still_serves_the_pods_it_is_reserved_for() -> None:
    holders = (*(f"x{at}" for at in range(255)), "p")
    of = dra_cycle(node("n"), gpus("n", 1), claim("a", status=allocated("n", "0", holders=holders)),
                   claiming("p", "a"), claiming("q", "a"))  # fmt: skip
    assert placed(of) == {"p": "n", "q": ""}
    assert reason(of, "q") == "resource claim ns/a has reached its maximum number of consumers (256)"


def test_who_leaves_is_a_consumer_until_it_is_gone() -> None:
    holders = (*(f"x{at}" for at in range(255)), "old")
    of = dra_cycle(node("n"), gpus("n", 1), claim("a", status=allocated("n", "0", holders=holders)),
                   running("old", "a", terminating=True), claiming("p", "a"))  # fmt: skip
    assert placed(of) == {"p": ""}


def test_a_pod_that_moves_is_one_consumer() -> None:
    holders = (*(f"x{at}" for at in range(254)), "old")
    of = dra_cycle(node("n"), gpus("n", 1), claim("a", status=allocated("n", "0", holders=holders)),
                   running("old", "a"), claiming("p", "a"), claiming("q", "a"))  # fmt: skip
    session(of).ledger.leave("old")
    session(of).ledger.hold("old", ("ns", "a"))
    assert placed(of) == {"p": "n", "q": ""}


def test_a_pod_that_shares_a_claim_does_not_answer_for_those_that_have_their_own() -> None:
    small = {"allocatable": {"cpu": "1", "pods": "10"}}
    of = dra_cycle(node("m", **small), node("n", **small), gpus("m", 1), gpus("n", 1), claim("a"), claim("b"),
                   claiming("p", "a"), claiming("q", "a"), claiming("r", "b"))  # fmt: skip
    assert placed(of) == {"p": "m", "q": "", "r": "n"}


def test_gangs_whose_claims_ask_for_the_same_take_one_turn() -> None:
    claims = [claim(name) for name in "abc"]
    of = dra_cycle(node("n"), gpus("n", 1), *claims, claiming("p", "a"), claiming("q", "b"), claiming("r", "c"))
    assert placed(of) == {"p": "n", "q": "", "r": ""}
    assert of.tried["allocate"] == 2
    assert reason(of, "q") == reason(of, "r")
