from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupTopology

from .cluster import Object, grouped, home, obj, pod, tree

MEMBER = {"grove.io/podgang": "gang"}


def part(name: str, replicas: int, *pods: str, **more: Object) -> Object:
    references = [{"namespace": "ns", "name": pod_name} for pod_name in pods]
    return {"name": name, "minReplicas": replicas, "podReferences": references, **more}


def pack(**levels: str) -> Object:
    return {"topologyConstraint": {"packConstraint": levels}}


def gang(*parts: Object, labels: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return obj("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec={"podgroups": list(parts), **spec}, **metadata)


def top(**parts: Object) -> Object:
    return obj("grove.io/v1alpha1", "PodCliqueSet", "set", **parts)


def test_pod_groups_of_the_gang_are_sub_groups() -> None:
    spec = grouped(top(), pod("p1", labels=MEMBER), gang(part("a", 2, "p1", "p2"), part("b", 3, "p3")))
    assert (spec.name, spec.owner["kind"], spec.min_member) == ("pg-gang-u-gang", "PodGang", 5)
    assert tree(spec) == [("a", "", 2), ("b", "", 3)]
    assert spec.sub_groups[0].pods == ("p1", "p2")
    assert home(spec) == ["a", "b"]


def test_topology_at_three_levels() -> None:
    the_gang = gang(
        part("a", 1, **pack(required="rack")),
        part("b", 1),
        annotations={"grove.io/topology-name": "net", "kai.scheduler/topology": "other"},
        topologyConstraintGroupConfigs=[
            {"name": "near", "podGroupNames": ["a", "missing"], **pack(preferred="zone")},
            {"name": "empty", "podGroupNames": []},
        ],
        **pack(required="region"),
    )
    spec = grouped(top(), pod(labels=MEMBER), the_gang)
    assert spec.topology == GroupTopology("net", "region", "")
    assert tree(spec) == [("near", "", (2,)), ("a", "near", 1), ("b", "", 1)]
    assert [g.topology for g in spec.sub_groups] == [
        GroupTopology("net", "", "zone"),
        GroupTopology("net", "rack", ""),
        None,
    ]


def test_what_the_set_says_counts_where_the_gang_is_silent() -> None:
    the_gang = gang(part("a", 1), labels={"x": "gang"}, priorityClassName="from-spec")
    owner = top(
        labels={"x": "set", "y": "set", "kai.scheduler/preemptibility": "preemptible"},
        annotations={
            "kai.scheduler/preemption-delay": "5m",
            "kai.scheduler/staleness-grace-period": "-1s",
            "kai.scheduler/topology": "net",
            "kai.scheduler/topology-preferred-placement": "rack",
        },
    )
    spec = grouped(owner, pod(labels=MEMBER), the_gang)
    assert (spec.labels["x"], spec.labels["y"]) == ("gang", "set")
    assert (spec.priority_class, spec.preemptibility) == ("from-spec", "preemptible")
    assert (spec.preemption_delay, spec.staleness_grace_period) == (300, -1)
    assert spec.topology == GroupTopology("net", "", "rack")


@pytest.mark.parametrize(
    ("set_label", "spec", "expected"),
    [("high", {}, "high"), (None, {"priorityClassName": "low"}, "low"), ("high", {"priorityClassName": "low"}, "high")],
)
def test_priority(set_label: str | None, spec: Object, expected: str) -> None:
    labels = {"priorityClassName": set_label} if set_label else {}
    assert grouped(top(labels=labels), pod(labels=MEMBER), gang(part("a", 1), **spec)).priority_class == expected


def test_bad_wishes_on_the_set_change_nothing() -> None:
    owner = top(labels={"kai.scheduler/preemptibility": "never"}, annotations={"kai.scheduler/preemption-delay": "-5m"})
    spec = grouped(owner, pod(labels=MEMBER), gang(part("a", 1)))
    assert (spec.preemptibility, spec.preemption_delay) == ("", None)


@pytest.mark.parametrize(
    ("the_gang", "message"),
    [
        (gang(part("", 1)), r"podgroups\[0\]: missing required 'name' field"),
        (gang(part("a", 0)), r"podgroups\[0\].minReplicas must be greater than 0"),
        (gang({"name": "a", "minReplicas": 1}), "missing required 'podReferences' field"),
        (gang({"name": "a", "minReplicas": 1, "podReferences": ["x"]}), r"podReferences\[0\] must be a map"),
        (gang({"name": "a", "minReplicas": 1, "podReferences": [{"namespace": "ns"}]}), r"podReferences\[0\]: missing"),
        (gang({"name": "a", "minReplicas": 1, "podReferences": [{"namespace": "x", "name": "y"}]}), "x/y is not in"),
        (gang(part("a", 1, **pack(required="rack"))), "topology name cannot be empty"),
        (gang(part("a", 1), topologyConstraintGroupConfigs=[{"podGroupNames": ["a"]}]), "missing required 'name'"),
        (
            gang(part("a", 1), topologyConstraintGroupConfigs=[{"name": "n", "podGroupNames": "a"}]),
            "not a list of names",
        ),
        (
            obj("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec={"podgroups": {}}),
            "spec.podgroups of PodGang gang must be",
        ),
    ],
)
def test_refused_gangs(the_gang: Object, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(top(), pod(labels=MEMBER), the_gang)


def test_a_gang_without_members_needs_none() -> None:
    spec = grouped(top(), pod(labels=MEMBER), obj("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec={}))
    assert (spec.min_member, spec.sub_groups) == (0, ())


def test_no_gang() -> None:
    with pytest.raises(GroupingError, match="missing required label"):
        grouped(top(), pod())
    with pytest.raises(GroupingError, match="PodGang ns/gang of pod ns/p does not exist"):
        grouped(top(), pod(labels=MEMBER))
