from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingSettings, GroupSpec, GroupTopology, Workload
from pykai.controllers.podgrouper.rules.workload_kinds import group_workload

from .cluster import Memory, Object, grouped, obj, pod, priority_class

QUEUE, OLD_QUEUE, POOL = "kai.scheduler/queue", "runai/queue", "kai.scheduler/node-pool"


@pytest.mark.parametrize(
    ("owner", "member", "queue"),
    [
        ({QUEUE: "test"}, {}, "test"),
        ({}, {QUEUE: "test"}, "test"),
        ({QUEUE: "a"}, {QUEUE: "b"}, "a"),
        ({OLD_QUEUE: "test"}, {}, "test"),
        ({}, {OLD_QUEUE: "test"}, "test"),
        ({QUEUE: "new", OLD_QUEUE: "old"}, {}, "new"),
        ({OLD_QUEUE: "old"}, {QUEUE: "new"}, "new"),
        ({OLD_QUEUE: "test", "project": "p"}, {}, "test"),
        ({"project": "a"}, {"project": "b"}, "a"),
        ({}, {"project": "b"}, "b"),
        ({"project": "a"}, {POOL: "gpus"}, "a-gpus"),
        ({}, {POOL: "gpus"}, "default-queue"),
        ({}, {}, "default-queue"),
    ],
)
def test_queue(owner: Object, member: Object, queue: str) -> None:
    assert grouped(obj("x/v1", "Thing", labels=owner), pod(labels=member)).queue == queue


def test_queue_label_key_is_a_setting_and_the_older_key_still_counts() -> None:
    settings = GroupingSettings(queue_label="team/queue")
    labels = {QUEUE: "not-ours", OLD_QUEUE: "old", "team/queue": "ours"}
    assert grouped(obj("x/v1", "Thing"), pod(labels=labels), settings=settings).queue == "ours"
    del labels["team/queue"]
    assert grouped(obj("x/v1", "Thing"), pod(labels=labels), settings=settings).queue == "old"


def test_names_owner_and_metadata_come_from_the_top_owner() -> None:
    top = obj("x.io/v1", "Thing", labels={"a": "1"}, annotations={"b": "2"})
    spec = grouped(top, pod(labels={"user": "ann", "c": "3"}, annotations={"user": "bob", "d": "4"}))
    assert spec.name == "pg-w-u-w"
    assert spec.namespace == "ns"
    assert spec.owner == {"apiVersion": "x.io/v1", "kind": "Thing", "name": "w", "uid": "u-w"}
    assert spec.labels == {"a": "1", "user": "ann"}
    metadata = "name: w\nuid: u-w\ngroup: x.io\nversion: v1\nkind: Thing\n"
    assert spec.annotations == {"b": "2", "user": "bob", "kai.scheduler/top-owner-metadata": metadata}
    assert (spec.min_member, spec.min_sub_group, spec.sub_groups) == (1, None, ())


def test_the_owners_own_user_wins() -> None:
    top = obj("x/v1", "Thing", labels={"user": "owner"}, annotations={"user": "owner"})
    spec = grouped(top, pod(labels={"user": "pod"}, annotations={"user": "pod"}))
    assert (spec.labels["user"], spec.annotations["user"]) == ("owner", "owner")


@pytest.mark.parametrize(
    ("uid", "written"),
    [
        ("12", '"12"'),
        ("", '""'),
        ("true", '"true"'),
        ("1-2", "1-2"),
        ("1e3", '"1e3"'),
        ("08", '"08"'),
        ("0o17", '"0o17"'),
        ("n", '"n"'),
        ("1e3-2", "1e3-2"),
        ("yn", "yn"),
    ],
)
def test_top_owner_metadata_reads_back_as_text(uid: str, written: str) -> None:
    top = obj("v1", "Thing")
    top["metadata"]["uid"] = uid
    assert f"uid: {written}\n" in grouped(top, pod()).annotations["kai.scheduler/top-owner-metadata"]


def defaults(*entries: dict[str, str]) -> tuple[GroupingSettings, Object]:
    config_map = obj("v1", "ConfigMap", "defaults", data={"types": json.dumps(entries)})
    return GroupingSettings(kind_defaults=("ns", "defaults")), config_map


def chained(
    *owners: Object,
    member: Object | None = None,
    lookup: tuple[Any, ...] = (),
    settings: GroupingSettings | None = None,
) -> GroupSpec:
    work = Workload(owners[-1], member or pod(), owners, settings or GroupingSettings(), Memory(*lookup))
    return group_workload(work)


PRIORITY = "priorityClassName"


@pytest.mark.parametrize(
    ("near", "top", "member", "spec_class", "expected"),
    [
        ("high", "low", "low", "low", "high"),
        ("", "low", "high", "", "high"),
        ("", "high", "", "", "high"),
        ("", "", "high", "low", "high"),
        ("", "", "", "high", "high"),
        ("absent", "high", "low", "", "high"),
        ("absent", "absent", "high", "", "train"),
        ("", "", "", "", "train"),
    ],
)
def test_priority_is_the_first_wish_that_exists(
    near: str, top: str, member: str, spec_class: str, expected: str
) -> None:
    owners = [
        obj("x/v1", kind, kind.lower(), labels={PRIORITY: value}) for kind, value in (("Near", near), ("Top", top))
    ]
    a_pod = pod(labels={PRIORITY: member}, spec={"priorityClassName": spec_class})
    found = chained(*owners, member=a_pod, lookup=(priority_class("high"), priority_class("low")))
    assert found.priority_class == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"typeName": "Thing", "group": "x", "priorityName": "high"}], "high"),
        ([{"typeName": "Thing.x", "priorityName": "high"}], "high"),
        ([{"typeName": "Thing", "priorityName": "high"}], "high"),
        ([{"typeName": "Thing", "group": "y", "priorityName": "high"}], "train"),
        (
            [{"typeName": "Thing", "priorityName": "low"}, {"typeName": "Thing", "group": "x", "priorityName": "high"}],
            "high",
        ),
        ([{"typeName": "Thing", "priorityName": "absent"}], "train"),
        ([{"group": "x", "priorityName": "low"}, {"typeName": "Thing", "priorityName": "high"}], "high"),
        ([{"typeName": "Thing", "group": None, "priorityName": "high", "preemptibility": None}], "high"),
    ],
)
def test_priority_per_kind(entries: list[Any], expected: str) -> None:
    settings, config_map = defaults(*entries)
    lookup = (config_map, priority_class("high"), priority_class("low"))
    assert chained(obj("x/v1", "Thing"), lookup=lookup, settings=settings).priority_class == expected


def test_the_entry_of_a_group_stands_for_that_of_the_kind() -> None:
    settings, config_map = defaults(
        {"typeName": "Thing", "group": "x", "priorityName": "high"},
        {"typeName": "Thing", "priorityName": "low", "preemptibility": "preemptible"},
        {"priorityName": "low", "preemptibility": "preemptible"},
    )
    lookup = (config_map, priority_class("high"), priority_class("low"))
    found = [chained(obj(api, kind), lookup=lookup, settings=settings) for api, kind in THINGS]
    assert [(spec.priority_class, spec.preemptibility) for spec in found] == [
        ("high", ""),
        ("low", "preemptible"),
        ("train", ""),
    ]


THINGS = (("x/v1", "Thing"), ("y/v1", "Thing"), ("v1", ""))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"types": "[nonsense"},
        {"types": "3"},
        {"types": '[{"group": "x"}]'},
        {"types": "[1]"},
        {"types": '[{"typeName": "Thing", "priorityName": 7}, {"typeName": "Thing", "preemptibility": "preemptible"}]'},
    ],
)
def test_unreadable_defaults_count_as_none(data: Object) -> None:
    settings, config_map = defaults()
    spec = chained(obj("x/v1", "Thing"), lookup=({**config_map, "data": data},), settings=settings)
    assert (spec.priority_class, spec.preemptibility) == ("train", "")


PREEMPTIBILITY = "kai.scheduler/preemptibility"


@pytest.mark.parametrize(
    ("near", "top", "member", "expected"),
    [
        ({PREEMPTIBILITY: "preemptible"}, {PREEMPTIBILITY: "non-preemptible"}, {}, "preemptible"),
        ({}, {PREEMPTIBILITY: "non-preemptible"}, {PREEMPTIBILITY: "preemptible"}, "non-preemptible"),
        ({}, {}, {PREEMPTIBILITY: "preemptible"}, "preemptible"),
        ({PREEMPTIBILITY: "never"}, {}, {PREEMPTIBILITY: "preemptible"}, "preemptible"),
        ({PREEMPTIBILITY: ""}, {PREEMPTIBILITY: "preemptible"}, {}, ""),
        ({}, {}, {}, "non-preemptible"),
        ({PREEMPTIBILITY: "never"}, {}, {}, "non-preemptible"),
    ],
)
def test_preemptibility_by_label_then_by_kind(near: Object, top: Object, member: Object, expected: str) -> None:
    settings, config_map = defaults({"typeName": "Top", "preemptibility": "Non-Preemptible"})
    owners = (obj("x/v1", "Near", "near", labels=near), obj("x/v1", "Top", "top", labels=top))
    spec = chained(*owners, member=pod(labels=member), lookup=(config_map,), settings=settings)
    assert spec.preemptibility == expected


DELAY, GRACE = "kai.scheduler/preemption-delay", "kai.scheduler/staleness-grace-period"


@pytest.mark.parametrize(
    ("near", "member", "delay", "grace"),
    [("5m", "1s", 300, 300), ("", "90s", 90, 90), ("-1m", "1s", 1, -60), ("5", "2s", 2, 2), ("x", "y", None, None)],
)
def test_durations_the_nearest_readable_one(near: str, member: str, delay: int | None, grace: int | None) -> None:
    owner = obj("x/v1", "Thing", annotations={DELAY: near, GRACE: near})
    spec = grouped(owner, pod(annotations={DELAY: member, GRACE: member}))
    assert (spec.preemption_delay, spec.staleness_grace_period) == (delay, grace)


def test_topology_from_the_top_owner_only() -> None:
    wishes = {
        "kai.scheduler/topology": "net",
        "kai.scheduler/topology-required-placement": "zone",
        "kai.scheduler/topology-preferred-placement": "rack",
    }
    assert grouped(obj("x/v1", "Thing", annotations=wishes), pod()).topology == GroupTopology("net", "zone", "rack")
    assert grouped(obj("x/v1", "Thing"), pod(annotations=wishes)).topology == GroupTopology()


@pytest.mark.parametrize(
    ("api", "kind", "expected"),
    [
        ("kubeflow.org/v1beta1", "Notebook", "build"),
        ("egx.nvidia.io/v1", "SPOTRequest", "inference"),
        ("apps/v1", "Deployment", "inference"),
        ("apps/v1", "StatefulSet", "train"),
        ("kubevirt.io/v1", "VirtualMachineInstance", "train"),
    ],
)
def test_priority_default_of_the_kind(api: str, kind: str, expected: str) -> None:
    assert grouped(obj(api, kind), pod()).priority_class == expected


def test_most_kinds_read_wishes_on_the_top_owner_alone() -> None:
    near = obj("x/v1", "Near", labels={PREEMPTIBILITY: "preemptible"})
    for api, kind, expected in (("kubeflow.org/v1beta1", "Notebook", ""), ("apps/v1", "StatefulSet", "preemptible")):
        assert chained(near, obj(api, kind)).preemptibility == expected


SELECTOR = {"matchLabels": {"app": "w"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}


def deployment(selector: Object | None = None) -> Object:
    return obj(
        "apps/v1",
        "Deployment",
        labels={QUEUE: "q"},
        annotations={"kai.scheduler/topology": "net"},
        spec={"selector": SELECTOR if selector is None else selector},
    )


def replica(name: str, group: str, **labels: str) -> Object:
    return pod(name, labels={"app": "w", **labels}, annotations={"pod-group-name": group} if group else {})


def owned_group(name: str, kind: str) -> Object:
    owners = [{"apiVersion": "x", "kind": kind, "name": "o", "uid": "o"}] if kind else []
    return obj("scheduling.run.ai/v2alpha2", "PodGroup", name, owners=owners)


def test_a_deployment_is_one_group() -> None:
    spec = grouped(deployment(), pod("p-1"))
    assert (spec.name, spec.owner["kind"], spec.owner["name"]) == ("pg-w-u-w", "Deployment", "w")
    assert (spec.queue, spec.topology.name, spec.min_member) == ("q", "net", 1)


def test_deployment_pods_stand_alone_by_setting() -> None:
    spec = grouped(deployment(), pod("p-1"), settings=GroupingSettings(deployment_gang=False))
    assert (spec.name, spec.owner["kind"], spec.owner["name"]) == ("pg-p-1-u-p-1", "Pod", "p-1")
    assert (spec.queue, spec.topology.name, spec.min_member) == ("q", "net", 1)


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        ((), False),
        ((replica("a", ""), replica("b", "")), False),
        ((replica("a", "one"), replica("b", "two")), True),
        ((replica("a", "one"), replica("b", "one"), replica("c", "two")), False),
        ((replica("a", "one"), replica("b", "two", old="yes")), False),
        ((replica("a", "one"),), False),
        ((replica("a", "one"), owned_group("one", "Pod")), True),
        ((replica("a", "one"), owned_group("one", "Deployment")), False),
        ((replica("a", "one"), replica("b", "two"), owned_group("pg-w-u-w", "Deployment")), False),
    ],
)
def test_a_deployment_whose_pods_have_groups_of_their_own_keeps_them(others: tuple[Object, ...], alone: bool) -> None:
    spec = grouped(deployment(), pod("p-1"), *others)
    assert spec.name == ("pg-p-1-u-p-1" if alone else "pg-w-u-w")


def test_a_deployment_that_selects_everything_is_one_group() -> None:
    assert grouped(deployment({}), pod("p-1"), replica("a", "one"), replica("b", "two")).name == "pg-w-u-w"


@pytest.mark.parametrize(("kind", "shown"), [("Job", "Job"), ("", "nothing")])
def test_a_deployment_whose_pod_is_in_a_foreign_group_is_refused(kind: str, shown: str) -> None:
    with pytest.raises(ValueError, match=f"unable to determine gang behavior for deployment ns/w: .* owned by {shown}"):
        grouped(deployment(), pod("p-1"), replica("a", "one"), owned_group("one", kind))
    with pytest.raises(ValueError, match=r"spec.selector of Deployment ns/w: "):
        grouped(deployment({"matchLabels": ["app"]}), pod("p-1"))


@pytest.mark.parametrize(
    ("on_workload", "on_pod", "expected"),
    [
        (None, None, None),
        ("true", "false", True),
        (None, "false", False),
        ("no", "false", False),
        ("False", None, None),
    ],
)
def test_whether_pods_may_be_moved(on_workload: str | None, on_pod: str | None, expected: bool | None) -> None:
    def annotations(value: str | None) -> Object:
        return {} if value is None else {"kai.scheduler/safe-to-consolidate": value}

    top = obj("x/v1", "Thing", annotations=annotations(on_workload))
    assert grouped(top, pod(annotations=annotations(on_pod))).safe_to_consolidate is expected


def test_a_workload_runner_is_grouped_as_the_workload_inside() -> None:
    runner = obj("run.ai/v1alpha1", "WorkloadRunner", "runner", labels={QUEUE: "q"})
    inner = obj("kubeflow.org/v1", "PyTorchJob", "job", spec={"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}})
    work = Workload(runner, pod(), (inner, runner), GroupingSettings(), Memory(inner))
    spec = group_workload(work)
    assert (spec.name, spec.queue, spec.min_member) == ("pg-job-u-job", "q", 4)


def test_spark_pods_share_the_group_of_their_application() -> None:
    labels = {"spark-app-name": "sum", "spark-app-selector": "spark-1"}
    driver = pod("driver", labels=labels)
    assert grouped(driver, driver).name == "spark-1"
    assert grouped(driver, pod("exec", labels=labels)).name == "spark-1"
    assert grouped(pod("lone"), pod("lone", labels={"spark-app-name": "sum"})).name == "pg-lone-u-lone"


def test_azure_ml_counts_nodes() -> None:
    job = obj("amlarc.azureml.com/v1alpha1", "AmlJob", spec={"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 4}}}})
    assert grouped(job, pod()).min_member == 4
    with pytest.raises(ValueError, match="count not found"):
        grouped(obj("amlarc.azureml.com/v1alpha1", "AmlJob", spec={}), pod())


def test_a_rule_leaves_its_workload_alone() -> None:
    top = obj("x/v1", "Thing", labels={"a": "1"})
    before = json.dumps(top)
    work = Workload(top, pod(labels={"user": "u"}), (top,), GroupingSettings(), Memory())
    group_workload(replace(work))
    assert json.dumps(top) == before
