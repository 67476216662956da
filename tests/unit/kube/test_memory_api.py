"""What the server in memory has beyond the contract: determinism, admission, faults on demand, budgets."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from pykai.kube import api_resources
from pykai.kube.api import Deletion, EventType, Object, Paging, Patch, PatchType, Resource, Selection
from pykai.kube.api_resources import (
    CONFIG_MAP,
    NAMESPACE,
    NODE,
    POD,
    POD_GROUP,
    PRIORITY_CLASS,
)
from pykai.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Gone, Invalid, NotFound, Timeout
from pykai.kube.memory import MemoryApi
from pykai.kube.memory.object_store import fields_matching, labels_matching
from pykai.kube.memory.served_kinds import with_condition
from pykai.kube.operations import bind
from pykai.objects.crds import manifests

START = 1_700_000_000.0


def pod(name: str, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


@pytest.fixture
def now() -> list[float]:
    return [START]


@pytest.fixture
def api(now: list[float]) -> MemoryApi:
    return MemoryApi(lambda: now[0], manifests())


async def _history(seed: int) -> list[Object]:
    api = MemoryApi(lambda: START, seed=seed)
    for _ in range(3):
        await api.create(POD, {**pod(""), "metadata": {"generateName": "p-"}}, "default")
    return list((await api.list(POD, Object)).items)


async def test_the_same_calls_give_the_same_objects() -> None:
    assert await _history(1) == await _history(1)
    assert await _history(1) != await _history(2)


@pytest.mark.parametrize(
    ("spec", "how", "seconds"),
    [
        ({}, Deletion(), 30),
        ({"terminationGracePeriodSeconds": 7}, Deletion(), 7),
        ({"terminationGracePeriodSeconds": -1}, Deletion(), 1),
        ({}, Deletion(grace_seconds=2), 2),
    ],
)
async def test_a_pod_on_a_node_has_time_to_stop(api: MemoryApi, spec: Object, how: Deletion, seconds: int) -> None:
    await api.create(POD, pod("p", nodeName="n", **spec), "default")
    await api.delete(POD.ref("p", "default"), how)
    assert (await api.get(POD.ref("p", "default"), Object))["metadata"]["deletionGracePeriodSeconds"] == seconds


async def test_a_loaded_pod_has_time_to_stop_by_default(api: MemoryApi) -> None:
    body = pod("p", nodeName="n") | {"status": {"phase": "Running"}}
    api.load(POD, body | {"metadata": {"name": "p", "namespace": "default", "uid": "1"}})
    await api.delete(POD.ref("p", "default"))
    assert (await api.get(POD.ref("p", "default"), Object))["metadata"]["deletionGracePeriodSeconds"] == 30


def test_which_kinds_are_in_no_namespace() -> None:
    found = {each.plural for each in (*api_resources.BUILT_IN, *api_resources.PRODUCT) if not each.namespaced}
    storage = {"persistentvolumes", "storageclasses", "csinodes", "csidrivers"}
    rights = {"clusterroles", "clusterrolebindings"}
    hooks = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    classes = {"priorityclasses", "runtimeclasses", "deviceclasses", "resourceslices", "devicetaintrules"}
    ours = {"queues", "configs", "schedulingshards", "topologies"}
    other = {"nodes", "namespaces", "customresourcedefinitions"}
    assert found == storage | rights | hooks | classes | ours | other


async def test_readers_cannot_change_the_store(api: MemoryApi) -> None:
    sent = pod("p")
    made = await api.create(POD, sent, "default")
    made["spec"]["containers"].clear()
    sent["spec"]["containers"].clear()
    assert len((await api.get(POD.ref("p", "default"), Object))["spec"]["containers"]) == 1


async def test_time_is_the_callers(api: MemoryApi, now: list[float]) -> None:
    made = await api.create(POD, pod("p"), "default")
    assert made["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    await bind(api, POD.ref("p", "default"), "n")
    now[0] += 10
    await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=30))
    after = await api.get(POD.ref("p", "default"), Object)
    assert after["metadata"]["deletionTimestamp"] == "2023-11-14T22:14:00Z"


@pytest.mark.parametrize(("again", "ends"), [(30, "22:13:50"), (60, "22:13:50"), (5, "22:13:35")])
async def test_a_second_deletion_can_only_shorten_the_time_to_stop(
    api: MemoryApi, now: list[float], again: int, ends: str
) -> None:
    await api.create(POD, pod("p", nodeName="n"), "default")
    await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=30))
    now[0] += 10
    await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=again))
    meta = (await api.get(POD.ref("p", "default"), Object))["metadata"]
    assert meta["deletionTimestamp"] == f"2023-11-14T{ends}Z"


async def test_a_bind_carries_annotations(api: MemoryApi) -> None:
    await api.create(POD, pod("p"), "default")
    await bind(api, POD.ref("p", "default"), "n", annotations={"example.com/why": "fits"})
    bound = await api.get(POD.ref("p", "default"), Object)
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"example.com/why": "fits"})


async def test_a_json_patch_is_a_list_of_operations(api: MemoryApi) -> None:
    await api.create(CONFIG_MAP, {"metadata": {"name": "m"}, "data": {"a": "1"}}, "default")
    ref = CONFIG_MAP.ref("m", "default")
    for operations in ([{"op": "replace", "path": "/data/a", "value": "2"}], ({"op": "remove", "path": "/data/a"},)):
        await api.patch(ref, Patch.json(operations))
    assert not (await api.get(ref, Object)).get("data")
    with pytest.raises(BadRequest, match="must be a list of operations"):
        await api.patch(ref, Patch(PatchType.JSON, {"op": "remove"}))


async def test_finished_pods_go_at_once(api: MemoryApi) -> None:
    await api.create(POD, pod("p"), "default")
    ref = POD.ref("p", "default")
    await bind(api, ref, "n")
    await api.patch(ref.sub("status"), Patch.merge({"status": {"phase": "Succeeded"}}))
    await api.delete(ref)
    with pytest.raises(NotFound):
        await api.get(ref, Object)


async def test_priority_comes_from_the_class(api: MemoryApi) -> None:
    await api.create(PRIORITY_CLASS, {"metadata": {"name": "train"}, "value": 50})
    made = await api.create(POD, pod("p", priorityClassName="train"), "default")
    assert made["spec"]["priority"] == 50
    assert (await api.create(POD, pod("q"), "default"))["spec"]["priority"] == 0
    with pytest.raises(Forbidden, match="no PriorityClass with name none"):
        await api.create(POD, pod("r", priorityClassName="none"), "default")


async def test_admission_sees_and_changes_writes() -> None:
    def admit(resource: Resource, new: Object, old: Object | None) -> Object:
        if resource != CONFIG_MAP:
            return new
        if old is not None and "locked" in old.get("data", {}):
            raise Forbidden("locked")
        return {**new, "data": {**new.get("data", {}), "stamped": "yes"}}

    api = MemoryApi(lambda: START, admission=[admit])
    made = await api.create(CONFIG_MAP, {"metadata": {"name": "a"}, "data": {"locked": "1"}}, "default")
    assert made["data"] == {"locked": "1", "stamped": "yes"}
    with pytest.raises(Forbidden, match="locked"):
        await api.patch(CONFIG_MAP.ref("a", "default"), Patch.merge({"data": {"x": "1"}}))
    assert (await api.get(CONFIG_MAP.ref("a", "default"), Object))["data"] == made["data"]


async def test_a_watch_is_gone_after_compaction_and_ends_on_disconnect(api: MemoryApi) -> None:
    version = (await api.list(POD, Object)).version
    await api.create(POD, pod("p"), "default")
    api.compact()
    async with aclosing(api.watch(POD, Object, version=version)) as events:
        with pytest.raises(Gone, match="too old"):
            await anext(events)
    version = (await api.list(POD, Object)).version
    async with aclosing(api.watch(POD, Object, version=version)) as events:
        assert (await anext(events)).type is EventType.BOOKMARK
        api.disconnect()
        assert [event async for event in events] == []


async def test_history_is_bounded() -> None:
    api = MemoryApi(lambda: START, history=5)
    version = (await api.list(CONFIG_MAP, Object)).version
    for index in range(6):
        await api.create(CONFIG_MAP, {"metadata": {"name": f"a{index}"}}, "default")
    async with aclosing(api.watch(CONFIG_MAP, Object, version=version)) as events:
        with pytest.raises(Gone):
            await anext(events)


async def test_the_future_cannot_be_watched(api: MemoryApi) -> None:
    async with aclosing(api.watch(POD, Object, version="999999")) as events:
        with pytest.raises(Timeout, match="Too large resource version"):
            await anext(events)


async def test_bookmarks_come_with_writes_of_other_kinds(api: MemoryApi, now: list[float]) -> None:
    version = (await api.list(POD, Object)).version
    async with aclosing(api.watch(POD, Object, version=version)) as events:
        await anext(events)
        await api.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "default")
        now[0] += 61
        made = await api.create(CONFIG_MAP, {"metadata": {"name": "b"}}, "default")
        mark = await anext(events)
    assert mark.type is EventType.BOOKMARK
    assert mark.object["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_half_read_list_expires(api: MemoryApi) -> None:
    for index in range(3):
        await api.create(CONFIG_MAP, {"metadata": {"name": f"a{index}"}}, "default")
    page = await api.list(CONFIG_MAP, Object, Selection("default"), Paging(limit=2))
    await api.create(CONFIG_MAP, {"metadata": {"name": "late"}}, "default")
    api.compact()
    with pytest.raises(Gone):
        await api.list(CONFIG_MAP, Object, Selection("default"), Paging(limit=2, token=page.token))


async def test_what_is_applied_for_an_owner_that_is_gone_goes_too(api: MemoryApi) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    ref = CONFIG_MAP.ref("m", "default")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "ownerReferences": [owner]}}
    await api.patch(ref, Patch.apply(body, "tests"))
    with pytest.raises(NotFound):
        await api.get(ref, Object)


async def test_an_owner_of_an_unknown_kind_counts_as_living(api: MemoryApi) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "u"}
    await api.create(POD_GROUP, {"metadata": {"name": "g", "ownerReferences": [owner]}, "spec": {}}, "default")
    assert await api.get(POD_GROUP.ref("g", "default"), Object)


async def test_an_owner_that_is_not_being_deleted_keeps_its_finalizers(api: MemoryApi) -> None:
    """Also when the last of what it owns goes."""
    finalizers = ["foregroundDeletion"]
    made = await api.create(CONFIG_MAP, {"metadata": {"name": "m", "finalizers": finalizers}}, "default")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": made["metadata"]["uid"]}
    owned = {**pod("p"), "metadata": {"name": "p", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}}
    await api.create(POD, owned, "default")
    await api.delete(POD.ref("p", "default"))
    assert (await api.get(CONFIG_MAP.ref("m", "default"), Object))["metadata"]["finalizers"] == finalizers


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_what_is_no_text_is_refused(api: MemoryApi, field: str) -> None:
    with pytest.raises(Invalid, match=f"metadata.{field}"):
        await api.create(CONFIG_MAP, {"metadata": {"name": "m", field: {"a": 1}}}, "default")


async def test_a_bind_request_goes_with_its_pod(api: MemoryApi) -> None:
    made = await api.create(POD, pod("p"), "default")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    request = Resource("scheduling.run.ai", "v1alpha2", "bindrequests", "BindRequest")
    await api.create(request, {"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {}}, "default")
    await api.delete(POD.ref("p", "default"))
    assert (await api.list(request, Object)).items == []


async def test_a_namespace_waits_for_pods_that_are_stopping(api: MemoryApi) -> None:
    await api.create(NAMESPACE, {"metadata": {"name": "team"}})
    await api.create(POD, pod("p"), "team")
    await bind(api, POD.ref("p", "team"), "n")
    await api.delete(NAMESPACE.ref("team"))
    assert (await api.get(NAMESPACE.ref("team"), Object))["status"]["phase"] == "Terminating"
    await api.delete(POD.ref("p", "team"), Deletion(grace_seconds=0))
    with pytest.raises(NotFound):
        await api.get(NAMESPACE.ref("team"), Object)


async def test_a_deletion_of_another_pod_of_the_name_is_refused(api: MemoryApi) -> None:
    await api.create(POD, pod("p"), "default")
    with pytest.raises(Conflict, match="Precondition failed: UID"):
        await api.delete(POD.ref("p", "default"), Deletion(uid="another"))


LABELS = {"app": "web", "tier": "2", "example.org/zone": "a"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app == web", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app in (web, db),tier", True),
        ("app notin (web)", False),
        ("missing notin (web)", True),
        ("example.org/zone in (a)", True),
        ("tier>1", True),
        ("tier<2", False),
        ("app>1", False),
        ("app=web,tier=3", False),
        ("app=", False),
    ],
)
def test_labels(selector: str, expected: bool) -> None:
    assert labels_matching(selector)(LABELS) is expected


@pytest.mark.parametrize("selector", ["app in web", "=x", "a b", "app in (a", "-x=1"])
def test_broken_label_selectors(selector: str) -> None:
    with pytest.raises(BadRequest):
        labels_matching(selector)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=n1,status.phase=Running", False),
        ("spec.hostNetwork=false", True),
        ("status.podIP=", True),
        ("metadata.name==p", True),
    ],
)
def test_fields(fields: str, expected: bool) -> None:
    test = fields_matching(fields, POD)
    assert test is not None
    assert test({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {}}) is expected


def test_fields_that_are_not_indexed() -> None:
    assert fields_matching("", POD) is None
    with pytest.raises(BadRequest, match="not supported"):
        fields_matching("spec.nodeName=n1", NODE)
    with pytest.raises(BadRequest):
        fields_matching("spec.nodeName", POD)


async def _names(api: MemoryApi, fields: str, labels: str = "") -> list[str]:
    found = await api.list(POD, Object, Selection(fields=fields, labels=labels))
    return [each["metadata"]["name"] for each in found.items]


async def test_a_selection_needs_labels_and_fields(api: MemoryApi) -> None:
    for name, node in (("here", "n1"), ("there", "n2"), ("nowhere", "")):
        await api.create(POD, pod(name, **({"nodeName": node} if node else {})), "default")
    assert await _names(api, fields="spec.nodeName=n1") == ["here"]
    assert await _names(api, fields="spec.nodeName!=n1") == ["nowhere", "there"]
    assert await _names(api, fields="spec.nodeName=n1", labels="app=a") == ["here"]
    assert await _names(api, fields="spec.nodeName=n1", labels="app=b") == []


async def test_a_pod_has_the_defaults_of_the_server(api: MemoryApi) -> None:
    await api.create(POD, pod("p"), "default")
    spec = (await api.get(POD.ref("p", "default"), Object))["spec"]
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert {name: spec[name] for name in defaults} == defaults


async def test_an_update_of_a_custom_resource_names_its_version(api: MemoryApi) -> None:
    made = await api.create(POD_GROUP, {"metadata": {"name": "g"}, "spec": {"minMember": 1}}, "default")
    del made["metadata"]["resourceVersion"]
    with pytest.raises(ApiError, match="must be specified for an update"):
        await api.update(POD_GROUP.ref("g", "default"), made)


@pytest.mark.parametrize(("status", "since"), [("True", "2026-01-01T00:00:00Z"), ("False", "1970-01-01T00:00:05Z")])
def test_the_instant_of_a_condition_is_that_of_its_status(status: str, since: str) -> None:
    before = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    after = with_condition({"status": {"conditions": [before]}}, {"type": "Ready", "status": status}, 5.0)
    assert after["status"]["conditions"] == [{"type": "Ready", "status": status, "lastTransitionTime": since}]
