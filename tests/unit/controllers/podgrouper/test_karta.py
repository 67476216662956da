from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers.podgrouper.grouping import ignored_settings
from pykai.controllers.podgrouper.rules.jq_sandbox import SANDBOX
from pykai.controllers.podgrouper.rules.karta import scale, structure
from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupingSettings, GroupTopology, Workload

from .cluster import Memory, Object, grouped, home, obj, pod, tree

ROLE = '.metadata.labels["role"]'
APP = '.metadata.labels["app"]'


def component(
    name: str, owner: str = "flow", scale_path: str | None = None, role: str | None = None, **more: Any
) -> Object:
    parts = {"name": name, "ownerRef": owner, **more}
    if scale_path:
        parts["scaleDefinition"] = {"replicasPath": scale_path}
    if role:
        parts["podSelector"] = {"componentTypeSelector": {"keyPath": ROLE, "value": role}}
    return parts


CHILDREN = (
    component("master", scale_path=".spec.masters", role="master"),
    component("worker", scale_path=".spec.workers", role="worker"),
)


def karta(
    gang: Object | None, *children: Object, name: str = "flow", root: Object | None = None, **metadata: str
) -> Object:
    labels = {"run.ai/karta-group": "jobs.io", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Flow"}
    kind = {"group": "jobs.io", "version": "v1", "kind": "Flow"}
    spec = {
        "structureDefinition": {
            "rootComponent": {"name": "flow", "kind": kind, **(root or {})},
            "childComponents": list(children or CHILDREN),
        },
        "optimizationInstructions": {"gangScheduling": gang} if gang else {},
    }
    return obj("run.ai/v1alpha1", "Karta", name, spec=spec, labels=labels, **metadata)


TOP = obj("jobs.io/v1", "Flow", "f", spec={"masters": 1, "workers": 2})


def member(role: str = "worker", **labels: str) -> Object:
    return pod(labels={"role": role, **labels})


ONE_GROUP = {"podGroup": {"name": "job", "subGroups": [{"componentName": "master"}, {"componentName": "worker"}]}}


def by_key(*members: Object) -> Object:
    return {"podGroups": [{"name": "job", "members": list(members)}]}


def test_components_as_sub_groups() -> None:
    spec = grouped(TOP, member("worker"), karta(ONE_GROUP))
    assert (spec.name, spec.min_sub_group) == ("pg-u-f-job", 2)
    assert tree(spec) == [("master", "", 1), ("worker", "", 2)]
    assert home(spec) == ["worker"]
    assert home(grouped(TOP, member("stray"), karta(ONE_GROUP))) == []


def test_one_group_without_sub_groups_counts_everything() -> None:
    spec = grouped(TOP, member(), karta({"podGroup": {"name": "job"}}))
    assert (spec.min_member, spec.min_sub_group, spec.sub_groups) == (3, None, ())


def test_topology_of_group_and_sub_group() -> None:
    wish = {"topologyName": "net", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
    gang = {"podGroup": {"name": "job", "topology": wish, "subGroups": [{"componentName": "worker", "topology": wish}]}}
    spec = grouped(TOP, member(), karta(gang))
    assert spec.topology == spec.sub_groups[0].topology == GroupTopology("net", "zone", "rack")


def test_members_are_grouped_by_what_their_pods_say() -> None:
    both = by_key(*({"componentName": name, "groupByKeyPaths": [APP]} for name in ("master", "worker")))
    spec = grouped(TOP, member("worker", app="a"), karta(both))
    assert (spec.name, spec.min_member) == ("pg-u-f-a", 3)
    apart = by_key({"componentName": "master"}, {"componentName": "worker", "groupByKeyPaths": [APP, ROLE]})
    spec = grouped(TOP, member("worker", app="a"), karta(apart))
    assert (spec.name, spec.min_member) == ("pg-u-f-a-worker", 2)
    assert grouped(TOP, member("master"), karta(apart)).name == "pg-u-f"


def test_filters_all_hold() -> None:
    gang = by_key({"componentName": "flow", "filters": [f'{ROLE} == "worker"', f"{APP} != null"]})
    assert grouped(TOP, member("worker", app="a"), karta(gang)).name == "pg-u-f"
    for stray in (member("worker"), member("master", app="a")):
        with pytest.raises(GroupingError, match="does not match any Karta pod group member"):
            grouped(TOP, stray, karta(gang))


def test_instances_grouped_apart_count_only_themselves() -> None:
    selector = {"componentInstanceSelector": {"idPath": APP}}
    jobs = component(
        "job", scale_path=".spec.jobs[].replicas", instanceIdPath=".spec.jobs[].name", podSelector=selector
    )
    top = obj("jobs.io/v1", "Flow", "f", spec={"jobs": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 4}]})
    apart = karta(by_key({"componentName": "job", "groupByKeyPaths": [APP]}), jobs)
    assert [grouped(top, pod(labels={"app": name}), apart).min_member for name in "ab"] == [1, 4]
    together = karta(by_key({"componentName": "job"}), jobs)
    assert grouped(top, pod(labels={"app": "a"}), together).min_member == 5


@pytest.mark.parametrize(
    ("definition", "spec", "expected"),
    [
        ({"replicasPath": ".spec.n"}, {"n": 3}, 3),
        ({"replicasPath": ".spec.n", "minReplicasPath": ".spec.m"}, {"n": 3, "m": 2}, 2),
        ({"replicasPath": ".spec.n", "minReplicasPath": ".spec.m"}, {"n": 3, "m": 0}, 3),
        ({"minReplicasPath": ".spec.m"}, {"m": 2}, 2),
        ({"replicasPath": ".spec.n // 1"}, {}, 1),
        ({"replicasPath": ".spec.n"}, {}, 0),
        ({"maxReplicasPath": ".spec.n"}, {"n": 3}, 0),
    ],
)
def test_scale(definition: Object, spec: Object, expected: int) -> None:
    found = structure(karta(None, {"name": "c", "ownerRef": "flow", "scaleDefinition": definition}), SANDBOX)
    assert scale(found, "flow", {"spec": spec}) == expected


@pytest.mark.parametrize(("size", "many", "pods"), [(2, 5, 10), (2, 0, 2), (0, 5, 5), (0, 0, 0)])
def test_a_component_has_its_own_scale_times_that_of_its_children(size: int, many: int, pods: int) -> None:
    inner = component("group", scale_path=".spec.size")
    found = structure(karta(None, inner, component("leaf", owner="group", scale_path=".spec.many")), SANDBOX)
    assert scale(found, "flow", {"spec": {"size": size, "many": many}}) == pods


def test_where_nothing_states_a_scale_every_component_with_pods_counts_as_one() -> None:
    template = {"podTemplateSpecPath": ".spec.template"}
    parts = (component("master", role="master", specDefinition=template), component("worker", specDefinition=template))
    assert grouped(TOP, member("worker"), karta({"podGroup": {"name": "job"}}, *parts)).min_member == 2
    found = structure(karta(None, *parts, component("service")), SANDBOX)
    assert [scale(found, name, TOP) for name in ("flow", "worker", "service")] == [2, 1, 0]


@pytest.mark.parametrize(
    ("gang", "message"),
    [
        ({"podGroup": {"name": "job", "subGroups": [{"componentName": "nobody"}]}}, "nobody is not part"),
        ({"podGroup": {"name": "job", "topology": {"topologyName": "net"}}}, "required or preferred level"),
        ({"podGroup": {"name": "job", "topology": {"requiredTopologyLevel": "rack"}}}, "must have a topologyName"),
        (by_key({"componentName": "worker", "groupByKeyPaths": [APP]}), "expected one value"),
        (by_key({"componentName": "worker", "groupByKeyPaths": ['"A_B"']}), "not a valid name"),
        (by_key({"componentName": "worker", "filters": ["1 + {}"]}), "jq program '1 \\+ {}'"),
    ],
)
def test_refused_instructions(gang: Object, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(TOP, member(), karta(gang))


def test_a_sub_group_needs_a_scale() -> None:
    with pytest.raises(GroupingError, match="component master must expose a replica scale definition"):
        grouped(obj("jobs.io/v1", "Flow", spec={}), member(), karta(ONE_GROUP))


@pytest.mark.parametrize(
    "kartas",
    [
        [],
        [karta(ONE_GROUP), karta(ONE_GROUP, name="second")],
        [karta(None)],
        [karta(ONE_GROUP, deleted="2026-01-01T00:00:00Z")],
        [karta(ONE_GROUP, root={"kind": {"group": "jobs.io", "version": "v2", "kind": "Flow"}})],
        [karta(ONE_GROUP, component("a", owner="b"), component("b", owner="a"))],
        [karta(ONE_GROUP, component("a", owner="nobody"))],
        [karta(ONE_GROUP, component("a"), component("a"))],
        [karta(ONE_GROUP, component("master", scale_path=".spec["))],
    ],
)
def test_without_exactly_one_usable_karta_the_default_applies(kartas: list[Any]) -> None:
    spec = grouped(TOP, member(), *kartas)
    assert (spec.name, spec.min_member, spec.sub_groups) == ("pg-f-u-f", 1, ())


def test_several_kartas_are_told() -> None:
    for kartas, lines in (([karta(ONE_GROUP)], 0), ([karta(ONE_GROUP), karta(ONE_GROUP, name="second")], 1)):
        found = ignored_settings(Workload(TOP, member(), (TOP,), GroupingSettings(), Memory(*kartas)))
        assert len(found) == lines
        assert all("flow, second all describe jobs.io/v1/Flow" in line for line in found)


def test_an_unusable_karta_does_not_hide_a_good_one() -> None:
    assert grouped(TOP, member(), karta(None, name="empty"), karta(ONE_GROUP)).name == "pg-u-f-job"


def test_a_kind_of_the_core_group() -> None:
    described = karta(ONE_GROUP, root={"kind": {"version": "v1", "kind": "ReplicationController"}})
    labels = {"run.ai/karta-group": "", "run.ai/karta-version": "v1", "run.ai/karta-kind": "ReplicationController"}
    described["metadata"]["labels"] = labels
    top = obj("v1", "ReplicationController", "f", spec=TOP["spec"])
    assert grouped(top, member(), described).name == "pg-u-f-job"


def test_off_by_setting() -> None:
    assert grouped(TOP, member(), karta(ONE_GROUP), settings=GroupingSettings(karta_fallback=False)).name == "pg-f-u-f"
