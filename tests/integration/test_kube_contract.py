"""What every `Api` must do: the same tests run on the server in memory and on a real one (the local cluster)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from pykai.kube import operations
from pykai.kube.api import (
    Api,
    Deletion,
    EventType,
    Object,
    Paging,
    Patch,
    Propagation,
    Ref,
    Resource,
    Selection,
    WatchEvent,
)
from pykai.kube.api_resources import (
    CONFIG_MAP,
    CRD,
    EVENT,
    LEASE,
    NAMESPACE,
    POD,
    POD_GROUP,
    QUEUE,
    TOPOLOGY,
)
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.clock import Clock
from pykai.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    Unsupported,
)
from pykai.kube.events import REPEAT_SECONDS, EventRecorder, Regarding
from pykai.kube.informer import InformerFactory, SharedInformer
from pykai.kube.lease import Election
from pykai.kube.memory import MemoryApi
from pykai.kube.transport import Settings
from pykai.local.control_plane import ControlPlane
from pykai.objects.crds import manifests
from tests.permissive_crd import permissive_crd
from tests.timeouts import TIMEOUT_SECONDS


class Meta(msgspec.Struct, rename="camel"):
    """The few fields a typed reader of these tests wants."""

    name: str
    namespace: str = ""
    resource_version: str = ""


class Settled(msgspec.Struct):
    """A ConfigMap as these tests read it."""

    metadata: Meta
    data: dict[str, str] = {}


@pytest.fixture
async def real_api(local_cluster: ControlPlane) -> AsyncIterator[Api]:
    """A real API server with our definitions installed."""
    access = find_access(str(local_cluster.files.kubeconfig))
    async with HttpApi(access, Settings(qps=0, bind_qps=0)) as api:
        for definition in manifests():
            name = definition["metadata"]["name"]
            await api.patch(CRD.ref(name), Patch.apply(definition, "contract"))
        for resource in (QUEUE, POD_GROUP, TOPOLOGY):
            await eventually(partial(api.list, resource, Object))
        yield api


@pytest.fixture
def memory_api() -> Api:
    """The server in memory with our definitions installed."""
    return MemoryApi(time.time, manifests())


@pytest.fixture(params=["memory", "real"])
def api(request: pytest.FixtureRequest) -> Api:
    """Each of the two servers in turn."""
    found: Api = request.getfixturevalue(f"{request.param}_api")
    return found


@pytest.fixture
async def space(api: Api) -> AsyncIterator[str]:
    """A fresh namespace in which pods can be created."""
    name = fresh("contract")
    await api.create(NAMESPACE, {"metadata": {"name": name}})
    if isinstance(api, HttpApi):
        account = Resource("", "v1", "serviceaccounts", "ServiceAccount").ref("default", name)
        await eventually(lambda: api.get(account, Object))
    yield name
    for pod in (await api.list(POD, Object, Selection(name))).items:
        await api.delete(POD.ref(pod["metadata"]["name"], name), Deletion(grace_seconds=0))
    await api.delete(NAMESPACE.ref(name))


def fresh(prefix: str) -> str:
    """A name nobody else uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


async def eventually(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The result of `attempt` once it neither raises an ApiError nor fails an assertion."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return await attempt()
        except (ApiError, AssertionError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)


async def gone(api: Api, resource: Resource, name: str, namespace: str) -> None:
    """Wait until an object is gone."""

    async def check() -> None:
        try:
            await api.get(resource.ref(name, namespace), Object)
        except NotFound:
            return
        raise AssertionError(f"{name} is still there")

    await eventually(check)


async def bind(api: Api, ref: Ref, **how: Any) -> str:
    """Bind a pod and wait until the server's watches tell of it; the node, which no other test knows.

    A real server begins to delete the pod that its cache holds. If that one has no node yet, the pod goes at once: the
    server tries again with the bound one, but remembers a grace of 0. And it collects pods on a node that is missing
    for 40 seconds, counted from the first pod it saw there.
    """
    node, before = fresh("node"), await api.get(ref, Object)
    await operations.bind(api, ref, node, **how)
    where = Selection(ref.namespace, fields=f"metadata.name={ref.name}")
    version = before["metadata"]["resourceVersion"]
    async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(api.watch(POD, Object, where, version)) as events:
        async for event in events:
            if event.type is EventType.MODIFIED and event.object["spec"].get("nodeName") == node:
                return node
    raise AssertionError("the watch ended")


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def pod(name: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "example.org/none:1"}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def pod_group(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def owned(body: Object, owner: Object, **more: Any) -> Object:
    """The body with `owner` as its owner."""
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [{**reference, **more}]}}


# ------------------------------------------------------------------------------------------------ create and read
async def test_a_dry_run_is_admitted_and_stores_nothing(api: Api, space: str) -> None:
    ref = CONFIG_MAP.ref("maybe", space)
    made = await api.patch(ref, replace(Patch.apply({"data": {"a": "1"}}, "contract"), dry_run=True))
    assert made["data"] == {"a": "1"}
    with pytest.raises(NotFound):
        await api.get(ref, Object)
    await api.create(CONFIG_MAP, {"metadata": {"name": "maybe"}, "data": {"a": "1"}}, space)
    changed = await api.patch(ref, replace(Patch.merge({"data": {"a": "2"}}), dry_run=True))
    assert (changed["data"], (await api.get(ref, Object))["data"]) == ({"a": "2"}, {"a": "1"})


async def test_create_fills_in_what_the_server_sets(api: Api, space: str) -> None:
    made = await api.create(CONFIG_MAP, config_map("a", k="v"), space)
    metadata = made["metadata"]
    assert (made["apiVersion"], made["kind"], metadata["namespace"]) == ("v1", "ConfigMap", space)
    assert metadata["uid"]
    assert metadata["resourceVersion"]
    assert metadata["creationTimestamp"].endswith("Z")
    read = await api.get(CONFIG_MAP.ref("a", space), Object)
    assert (read["data"], read["metadata"]["uid"], read["kind"]) == ({"k": "v"}, metadata["uid"], "ConfigMap")


async def test_readers_choose_the_type(api: Api, space: str) -> None:
    await api.create(CONFIG_MAP, config_map("a", k="v"), space)
    typed = await api.get(CONFIG_MAP.ref("a", space), Settled)
    assert (typed.metadata.name, typed.metadata.namespace, typed.data) == ("a", space, {"k": "v"})
    raw = await api.get(CONFIG_MAP.ref("a", space), msgspec.Raw)
    assert msgspec.json.decode(raw, type=Settled) == typed


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": "taken"}, AlreadyExists),
        ({"name": ""}, Invalid),
        ({"name": "Not_A_Name"}, Invalid),
        ({"name": "b", "labels": {"a": "not a label!"}}, Invalid),
        ({"name": "b", "resourceVersion": "7"}, ApiError),
    ],
)
async def test_create_refuses(api: Api, space: str, change: Object, error: type[ApiError]) -> None:
    await api.create(CONFIG_MAP, config_map("taken"), space)
    with pytest.raises(error):
        await api.create(CONFIG_MAP, {"metadata": change}, space)


@pytest.mark.parametrize("text", ["5 minutes", "90", ""])
async def test_a_wrong_duration_is_refused_in_plain_words(api: Api, text: str) -> None:
    spec = {"resources": {}, "preemptMinRuntime": text}
    with pytest.raises(Invalid, match="must be a duration such as 90s or 1h30m"):
        await api.create(QUEUE, {"metadata": {"name": "timeless"}, "spec": spec})


async def test_a_duration_is_admitted(api: Api) -> None:
    spec = {"resources": {}, "preemptMinRuntime": "1h30m", "reclaimMinRuntime": "-0.5s"}
    made = await api.create(QUEUE, {"metadata": {"name": "timed"}, "spec": spec})
    assert made["spec"] == {**spec, "priority": 100}, "with the default of a queue without priority"


async def test_create_needs_its_namespace_and_kind(api: Api) -> None:
    with pytest.raises(NotFound):
        await api.create(CONFIG_MAP, config_map("a"), fresh("nowhere"))
    with pytest.raises(NotFound):
        await api.create(Resource("example.org", "v1", "nothings", "Nothing", False), {"metadata": {"name": "a"}})


async def test_generated_names(api: Api, space: str) -> None:
    bodies = [await api.create(CONFIG_MAP, {"metadata": {"generateName": "job-"}}, space) for _ in range(3)]
    names = [body["metadata"]["name"] for body in bodies]
    assert len(set(names)) == 3
    assert all(len(name) == 9 and name.startswith("job-") for name in names)


# ------------------------------------------------------------------------------------------------ update and patch
async def test_a_stale_update_is_a_conflict(api: Api, space: str) -> None:
    old = await api.create(CONFIG_MAP, config_map("a", k="1"), space)
    new = await api.update(CONFIG_MAP.ref("a", space), {**old, "data": {"k": "2"}})
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    with pytest.raises(Conflict):
        await api.update(CONFIG_MAP.ref("a", space), {**old, "data": {"k": "3"}})
    blind = await api.update(CONFIG_MAP.ref("a", space), config_map("a", k="4"))
    assert blind["data"] == {"k": "4"}


async def test_an_update_for_another_object_is_refused(api: Api, space: str) -> None:
    old = await api.create(CONFIG_MAP, config_map("a"), space)
    with pytest.raises(BadRequest):
        await api.update(CONFIG_MAP.ref("a", space), config_map("b"))
    with pytest.raises(Conflict):
        await api.update(CONFIG_MAP.ref("a", space), {**old, "metadata": {"name": "a", "uid": str(uuid.uuid4())}})
    with pytest.raises(NotFound):
        await api.update(CONFIG_MAP.ref("missing", space), config_map("missing"))


async def test_a_write_that_changes_nothing_is_no_event(api: Api, space: str) -> None:
    old = await api.create(CONFIG_MAP, config_map("a", k="1"), space)
    same = await api.update(CONFIG_MAP.ref("a", space), old)
    again = await api.patch(CONFIG_MAP.ref("a", space), Patch.merge({"data": {"k": "1"}}))
    assert old["metadata"]["resourceVersion"] == same["metadata"]["resourceVersion"]
    assert old["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]


async def test_custom_resources_need_a_version_to_update(api: Api, space: str) -> None:
    old = await api.create(POD_GROUP, pod_group("g", minMember=1), space)
    with pytest.raises(Invalid):
        await api.update(POD_GROUP.ref("g", space), pod_group("g", minMember=2))
    new = await api.update(POD_GROUP.ref("g", space), {**old, "spec": {"minMember": 2}})
    assert (new["spec"]["minMember"], new["metadata"]["generation"]) == (2, 2)


async def test_merge_patch(api: Api, space: str) -> None:
    await api.create(CONFIG_MAP, config_map("a", keep="1", drop="2"), space)
    patch = Patch.merge({"data": {"drop": None, "new": "3"}, "metadata": {"labels": {"x": "y"}}})
    new = await api.patch(CONFIG_MAP.ref("a", space), patch)
    assert new["data"] == {"keep": "1", "new": "3"}
    assert new["metadata"]["labels"] == {"x": "y"}
    with pytest.raises(NotFound):
        await api.patch(CONFIG_MAP.ref("missing", space), patch)
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"k": "5"}}
    with pytest.raises(Conflict):
        await api.patch(CONFIG_MAP.ref("a", space), Patch.merge(stale))


async def test_json_patch(api: Api, space: str) -> None:
    await api.create(CONFIG_MAP, config_map("a", k="1"), space)
    ref = CONFIG_MAP.ref("a", space)
    new = await api.patch(
        ref,
        Patch.json(
            [
                {"op": "test", "path": "/data/k", "value": "1"},
                {"op": "replace", "path": "/data/k", "value": "2"},
                {"op": "add", "path": "/metadata/labels", "value": {"example.org/a": "b"}},
                {"op": "copy", "from": "/metadata/labels/example.org~1a", "path": "/data/c"},
                {"op": "move", "from": "/data/c", "path": "/data/d"},
            ]
        ),
    )
    assert new["data"] == {"k": "2", "d": "b"}
    with pytest.raises(Invalid):
        await api.patch(ref, Patch.json([{"op": "test", "path": "/data/k", "value": "1"}]))
    with pytest.raises(Invalid):
        await api.patch(ref, Patch.json([{"op": "remove", "path": "/data/missing"}]))


async def test_strategic_patch_merges_conditions_by_type(api: Api, space: str) -> None:
    await api.create(POD, pod("p"), space)
    status = POD.ref("p", space).sub("status")
    for kind, word in (("A", "True"), ("B", "True"), ("A", "False")):
        new = await api.patch(status, Patch.strategic({"status": {"conditions": [{"type": kind, "status": word}]}}))
    found = [(condition["type"], condition["status"]) for condition in new["status"]["conditions"]]
    assert found == [("B", "True"), ("A", "False")]


async def test_custom_resources_take_no_strategic_patch(api: Api, space: str) -> None:
    await api.create(POD_GROUP, pod_group("g"), space)
    with pytest.raises(Unsupported):
        await api.patch(POD_GROUP.ref("g", space), Patch.strategic({"spec": {"minMember": 1}}))


async def test_status_is_written_by_its_subresource_only(api: Api, space: str) -> None:
    made = await api.create(POD_GROUP, {**pod_group("g", minMember=1), "status": {"resourcesStatus": {}}}, space)
    assert "status" not in made
    ref = POD_GROUP.ref("g", space)
    change = {"spec": {"minMember": 5}, "metadata": {"labels": {"a": "b"}}, "status": {"conditions": [{"type": "T"}]}}
    after = await api.patch(ref.sub("status"), Patch.merge(change))
    assert (after["spec"]["minMember"], after["status"]["conditions"]) == (1, [{"type": "T"}])
    assert "labels" not in after["metadata"]
    assert after["metadata"]["generation"] == 1
    after = await api.patch(ref, Patch.merge({**change, "status": {"conditions": []}}))
    assert (after["spec"]["minMember"], after["status"]["conditions"]) == (5, [{"type": "T"}])
    assert after["metadata"]["labels"] == {"a": "b"}
    assert after["metadata"]["generation"] == 2


async def test_a_pods_status_write_takes_annotations_along(api: Api, space: str) -> None:
    await api.create(POD, pod("p"), space)
    change = {"metadata": {"annotations": {"a": "b"}}, "status": {"message": "hello"}}
    after = await api.patch(POD.ref("p", space).sub("status"), Patch.merge(change))
    assert (after["metadata"]["annotations"], after["status"]["message"]) == ({"a": "b"}, "hello")


async def test_a_pods_spec_is_nearly_fixed(api: Api, space: str) -> None:
    made = await api.create(POD, {**pod("p"), "status": {"phase": "Running"}}, space)
    assert (made["status"]["phase"], made["spec"]["schedulerName"]) == ("Pending", "default-scheduler")
    assert (made["spec"]["restartPolicy"], made["spec"]["terminationGracePeriodSeconds"]) == ("Always", 30)
    ref = POD.ref("p", space)
    for change in ({"nodeName": "n1"}, {"schedulerName": "other"}, {"nodeSelector": {"a": "b"}}):
        with pytest.raises(Invalid):
            await api.patch(ref, Patch.merge({"spec": change}))
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.org/none:2"}]
    assert (await api.patch(ref, Patch.json(image)))["spec"]["containers"][0]["image"] == "example.org/none:2"


# ----------------------------------------------------------------------------------------------- server-side apply
async def test_apply_owns_what_it_names(api: Api, space: str) -> None:
    ref = CONFIG_MAP.ref("a", space)
    await api.patch(ref, Patch.apply({"data": {"x": "1", "y": "1"}}, "left"))
    await api.patch(ref, Patch.apply({"data": {"z": "1"}}, "right"))
    after = await api.patch(ref, Patch.apply({"data": {"x": "2"}}, "left"))
    assert after["data"] == {"x": "2", "z": "1"}


async def test_apply_takes_what_it_changes_and_shares_what_it_does_not(api: Api, space: str) -> None:
    ref = CONFIG_MAP.ref("a", space)
    await api.patch(ref, Patch.apply({"data": {"x": "1"}}, "left"))
    shared = await api.patch(ref, Patch.apply({"data": {"x": "1", "y": "1"}}, "right"))
    assert shared["data"] == {"x": "1", "y": "1"}
    kept = await api.patch(ref, Patch.apply({"data": {}}, "left"))
    assert kept["data"] == {"x": "1", "y": "1"}
    await api.patch(ref, Patch.apply({"data": {"x": "3"}}, "left"))
    after = await api.patch(ref, Patch.apply({"data": {}}, "right"))
    assert after["data"] == {"x": "3"}


async def test_a_plain_write_takes_ownership_from_apply(api: Api, space: str) -> None:
    ref = CONFIG_MAP.ref("a", space)
    await api.patch(ref, Patch.apply({"data": {"x": "1", "y": "1"}}, "left"))
    await api.patch(ref, Patch.merge({"data": {"x": "2"}}))
    after = await api.patch(ref, Patch.apply({"data": {"y": "1"}}, "left"))
    assert after["data"] == {"x": "2", "y": "1"}


# ---------------------------------------------------------------------------------------------------------- delete
async def test_delete_with_preconditions(api: Api, space: str) -> None:
    made = await api.create(CONFIG_MAP, config_map("a"), space)
    ref = CONFIG_MAP.ref("a", space)
    with pytest.raises(Conflict):
        await api.delete(ref, Deletion(uid=str(uuid.uuid4())))
    with pytest.raises(Conflict):
        await api.delete(ref, Deletion(version="1"))
    await api.delete(ref, Deletion(uid=made["metadata"]["uid"], version=made["metadata"]["resourceVersion"]))
    with pytest.raises(NotFound):
        await api.delete(ref)


async def test_finalizers_hold_an_object(api: Api, space: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.org/hold"]
    await api.create(CONFIG_MAP, body, space)
    ref = CONFIG_MAP.ref("a", space)
    await api.delete(ref)
    held = await api.get(ref, Object)
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.delete(ref)
    more = {"metadata": {"finalizers": ["example.org/hold", "example.org/more"]}}
    with pytest.raises(Invalid):
        await api.patch(ref, Patch.merge(more))
    with pytest.raises(AlreadyExists):
        await api.create(CONFIG_MAP, config_map("a"), space)
    await api.patch(ref, Patch.merge({"metadata": {"finalizers": None}}))
    with pytest.raises(NotFound):
        await api.get(ref, Object)


async def test_a_pod_on_a_node_gets_its_grace(api: Api, space: str) -> None:
    await api.create(POD, pod("p", terminationGracePeriodSeconds=400), space)
    ref = POD.ref("p", space)
    await bind(api, ref)
    for ask, expected in ((None, 400), (600, 400), (50, 50), (None, 50)):
        await api.delete(ref, Deletion(grace_seconds=ask))
        metadata = (await api.get(ref, Object))["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == expected
    await api.delete(ref, Deletion(grace_seconds=0))
    with pytest.raises(NotFound):
        await api.get(ref, Object)


async def test_a_pod_on_no_node_goes_at_once(api: Api, space: str) -> None:
    await api.create(POD, pod("p"), space)
    await api.delete(POD.ref("p", space), Deletion(grace_seconds=30))
    with pytest.raises(NotFound):
        await api.get(POD.ref("p", space), Object)


async def test_owners_take_their_objects_along(api: Api, space: str) -> None:
    owner = await api.create(CONFIG_MAP, config_map("owner"), space)
    middle = await api.create(CONFIG_MAP, owned(config_map("middle"), owner), space)
    await api.create(CONFIG_MAP, owned(config_map("leaf"), middle), space)
    await api.delete(CONFIG_MAP.ref("owner", space))
    await gone(api, CONFIG_MAP, "middle", space)
    await gone(api, CONFIG_MAP, "leaf", space)


async def test_an_object_with_another_owner_stays(api: Api, space: str) -> None:
    one, two = [await api.create(CONFIG_MAP, config_map(name), space) for name in ("one", "two")]
    both = owned(config_map("shared"), one)
    both["metadata"]["ownerReferences"] += owned(config_map("x"), two)["metadata"]["ownerReferences"]
    await api.create(CONFIG_MAP, both, space)
    await api.delete(CONFIG_MAP.ref("one", space))

    async def released() -> None:
        left = (await api.get(CONFIG_MAP.ref("shared", space), Object))["metadata"]["ownerReferences"]
        assert [owner["name"] for owner in left] == ["two"]

    await eventually(released)
    await api.delete(CONFIG_MAP.ref("two", space))
    await gone(api, CONFIG_MAP, "shared", space)


async def test_an_object_whose_owner_never_was_is_collected(api: Api, space: str) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": str(uuid.uuid4())}}
    await api.create(CONFIG_MAP, owned(config_map("orphan"), ghost), space)
    await gone(api, CONFIG_MAP, "orphan", space)


async def test_orphans_stay(api: Api, space: str) -> None:
    owner = await api.create(CONFIG_MAP, config_map("owner"), space)
    await api.create(CONFIG_MAP, owned(config_map("child"), owner), space)
    await api.delete(CONFIG_MAP.ref("owner", space), Deletion(propagation=Propagation.ORPHAN))
    await gone(api, CONFIG_MAP, "owner", space)
    assert "ownerReferences" not in (await api.get(CONFIG_MAP.ref("child", space), Object))["metadata"]


async def test_foreground_deletion_waits_for_the_children(api: Api, space: str) -> None:
    owner = await api.create(CONFIG_MAP, config_map("owner"), space)
    child = owned(config_map("child"), owner, blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["example.org/hold"]
    await api.create(CONFIG_MAP, child, space)
    await api.delete(CONFIG_MAP.ref("owner", space), Deletion(propagation=Propagation.FOREGROUND))

    async def marked() -> None:
        metadata = (await api.get(CONFIG_MAP.ref("child", space), Object))["metadata"]
        assert "deletionTimestamp" in metadata

    await eventually(marked)
    waiting = (await api.get(CONFIG_MAP.ref("owner", space), Object))["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    await api.patch(CONFIG_MAP.ref("child", space), Patch.merge({"metadata": {"finalizers": None}}))
    await gone(api, CONFIG_MAP, "owner", space)


async def test_a_namespace_takes_its_content_along(api: Api) -> None:
    name = fresh("going")
    await api.create(NAMESPACE, {"metadata": {"name": name}})
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.org/hold"]
    await api.create(CONFIG_MAP, body, name)
    await api.delete(NAMESPACE.ref(name))
    assert (await api.get(NAMESPACE.ref(name), Object))["status"]["phase"] == "Terminating"
    with pytest.raises(ApiError, match="terminated"):
        await api.create(CONFIG_MAP, config_map("b"), name)

    async def let_go() -> None:
        assert "deletionTimestamp" in (await api.get(CONFIG_MAP.ref("a", name), Object))["metadata"]
        await api.patch(CONFIG_MAP.ref("a", name), Patch.merge({"metadata": {"finalizers": None}}))

    await eventually(let_go)
    await gone(api, NAMESPACE, name, "")


# --------------------------------------------------------------------------------------------------------- binding
async def test_binding(api: Api, space: str) -> None:
    made = await api.create(POD, pod("p"), space)
    ref, uid = POD.ref("p", space), made["metadata"]["uid"]
    with pytest.raises(Conflict):
        await operations.bind(api, ref, "n1", uid=str(uuid.uuid4()))
    node = await bind(api, ref, uid=uid, annotations={"a": "b"})
    after = await api.get(ref, Object)
    assert (after["spec"]["nodeName"], after["metadata"]["annotations"]["a"]) == (node, "b")
    assert [c["status"] for c in after["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]
    with pytest.raises(Conflict, match="already assigned"):
        await operations.bind(api, ref, "n2")
    await api.delete(ref)
    with pytest.raises(Conflict):
        await operations.bind(api, ref, "n2")
    with pytest.raises(NotFound):
        await operations.bind(api, POD.ref("missing", space), "n1")


async def test_a_gated_pod_cannot_be_bound(api: Api, space: str) -> None:
    await api.create(POD, pod("p", schedulingGates=[{"name": "example.org/wait"}]), space)
    ref = POD.ref("p", space)
    with pytest.raises(Conflict):
        await operations.bind(api, ref, "n1")
    await api.patch(ref, Patch.merge({"spec": {"schedulingGates": []}}))
    await bind(api, ref)


# ----------------------------------------------------------------------------------------------------------- lists
async def test_selectors(api: Api, space: str) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"y": "1"})):
        await api.create(CONFIG_MAP, {"metadata": {"name": name, "labels": labels}}, space)

    async def named(labels: str, fields: str = "") -> list[str]:
        where = Selection(space, labels, fields or "metadata.name!=kube-root-ca.crt")
        return [item["metadata"]["name"] for item in (await api.list(CONFIG_MAP, Object, where)).items]

    assert await named("") == ["a", "b", "c"]
    assert await named("x=1") == ["a"]
    assert await named("x!=1") == ["b", "c"]
    assert await named("x in (1,2)") == ["a", "b"]
    assert await named("x notin (1)") == ["b", "c"]
    assert await named("x,x!=2") == ["a"]
    assert await named("!x") == ["c"]
    assert await named("", "metadata.name=b") == ["b"]
    with pytest.raises(BadRequest):
        await named("", "data.k=v")
    with pytest.raises(BadRequest):
        await named("x ~ y")


async def test_pods_by_node(api: Api, space: str) -> None:
    for name in ("a", "b"):
        await api.create(POD, pod(name), space)
    node = await bind(api, POD.ref("a", space))
    for fields, expected in (
        (f"spec.nodeName={node}", ["a"]),
        ("spec.nodeName=", ["b"]),
        ("status.phase!=Pending", []),
    ):
        found = await api.list(POD, Object, Selection(space, fields=fields))
        assert [item["metadata"]["name"] for item in found.items] == expected


async def test_pages_show_one_moment(api: Api, space: str) -> None:
    for index in range(5):
        await api.create(POD_GROUP, pod_group(f"g{index}"), space)
    first = await api.list(POD_GROUP, Object, Selection(space), Paging(limit=2))
    await api.create(POD_GROUP, pod_group("g2b"), space)
    await api.delete(POD_GROUP.ref("g4", space))
    names, page = [item["metadata"]["name"] for item in first.items], first
    while page.token:
        page = await api.list(POD_GROUP, Object, Selection(space), Paging(limit=2, token=page.token))
        assert page.version == first.version
        names += [item["metadata"]["name"] for item in page.items]
    assert names == ["g0", "g1", "g2", "g3", "g4"]


async def test_listed_dicts_have_their_kind_and_metadata_can_come_alone(api: Api, space: str) -> None:
    await api.create(CONFIG_MAP, config_map("a", k="v"), space)
    where = Selection(space, fields="metadata.name=a")
    assert [item["kind"] for item in (await api.list(CONFIG_MAP, Object, where)).items] == ["ConfigMap"]
    bare = await api.list(CONFIG_MAP, Object, Selection(space, fields="metadata.name=a", metadata_only=True))
    assert [("data" in item, item["metadata"]["name"]) for item in bare.items] == [(False, "a")]


async def test_a_kind_that_is_not_installed_is_not_found(api: Api) -> None:
    with pytest.raises(NotFound):
        await api.list(Resource("example.org", "v1", "nothings", "Nothing", False), Object)


# --------------------------------------------------------------------------------------------------------- watches
async def take(
    api: Api, count: int, version: str, resource: Resource, where: Selection
) -> list[tuple[EventType, str, WatchEvent[Object]]]:
    """The next events of a watch, as (type, name, event); bookmarks are left out."""
    found: list[tuple[EventType, str, WatchEvent[Object]]] = []
    async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(api.watch(resource, Object, where, version)) as events:
        async for event in events:
            if event.type is not EventType.BOOKMARK:
                found.append((event.type, event.object["metadata"]["name"], event))
            if len(found) == count:
                return found
    raise AssertionError(f"the watch ended after {found}")


async def test_a_watch_goes_on_from_a_list(api: Api, space: str) -> None:
    await api.create(POD_GROUP, pod_group("before"), space)
    version = (await api.list(POD_GROUP, Object, Selection(space))).version
    await api.create(POD_GROUP, pod_group("g", minMember=1), space)
    await api.patch(POD_GROUP.ref("g", space), Patch.merge({"spec": {"minMember": 2}}))
    await api.delete(POD_GROUP.ref("g", space))
    events = await take(api, 3, version, POD_GROUP, Selection(space))
    assert [(kind.value, name) for kind, name, _ in events] == [("ADDED", "g"), ("MODIFIED", "g"), ("DELETED", "g")]
    versions = [int(event.object["metadata"]["resourceVersion"]) for _, _, event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    assert events[2][2].object["spec"] == {"minMember": 2}
    assert events[2][2].object["kind"] == "PodGroup"


async def test_a_watch_from_nowhere_begins_with_what_is(api: Api, space: str) -> None:
    for name in ("a", "b"):
        await api.create(POD_GROUP, pod_group(name), space)
    events = await take(api, 2, "", POD_GROUP, Selection(space))
    assert sorted((kind.value, name) for kind, name, _ in events) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_opens_with_a_bookmark(api: Api, space: str) -> None:
    version = (await api.list(POD_GROUP, Object, Selection(space))).version
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with aclosing(api.watch(POD_GROUP, Object, Selection(space), version)) as events:
            first = await anext(events)
    assert (first.type, first.object["metadata"]["resourceVersion"]) == (EventType.BOOKMARK, version)


async def test_objects_enter_and_leave_a_selection(api: Api, space: str) -> None:
    where = Selection(space, labels="on=yes")
    version = (await api.list(POD_GROUP, Object, where)).version
    await api.create(POD_GROUP, pod_group("g", minMember=1), space)
    ref = POD_GROUP.ref("g", space)
    for word in ("yes", "no"):
        await api.patch(ref, Patch.merge({"metadata": {"labels": {"on": word}}}))
    events = await take(api, 2, version, POD_GROUP, where)
    assert [(kind.value, name) for kind, name, _ in events] == [("ADDED", "g"), ("DELETED", "g")]


async def test_a_forgotten_version_is_gone(api: Api, space: str) -> None:
    if isinstance(api, MemoryApi):
        await api.create(CONFIG_MAP, config_map("a"), space)
        api.compact()
    try:
        await take(api, 1, "1", CONFIG_MAP, Selection())
    except Gone:
        return
    assert isinstance(api, HttpApi)
    pytest.skip("the real server is too young to have forgotten anything")


async def test_a_shared_watch_sees_every_life(api: Api, space: str) -> None:
    await api.create(CONFIG_MAP, config_map("first"), space)
    where = Selection(space, fields="metadata.name!=kube-root-ca.crt")
    watch = SharedInformer(api, CONFIG_MAP, Settled, where)
    told: list[tuple[str, str]] = []
    watch.subscribe(lambda change: told.append((change.type.value, change.object.metadata.name)))
    task = asyncio.create_task(watch.run())
    try:
        await asyncio.wait_for(watch.synced(), TIMEOUT_SECONDS)
        await api.create(CONFIG_MAP, config_map("second"), space)
        await api.patch(CONFIG_MAP.ref("second", space), Patch.merge({"data": {"k": "v"}}))
        await api.delete(CONFIG_MAP.ref("first", space))

        async def complete() -> None:
            assert told == [("ADDED", "first"), ("ADDED", "second"), ("MODIFIED", "second"), ("DELETED", "first")]

        await eventually(complete)
        second = watch.get("second", space)
        assert second is not None
        assert second.data == {"k": "v"}
        assert watch.alive
    finally:
        task.cancel()


async def test_a_kind_installed_later_is_picked_up(api: Api) -> None:
    group = f"{fresh('late')}.example.org"
    resource = Resource(group, "v1", "widgets", "Widget", False)
    watches = InformerFactory(api)
    watch = watches.of(resource, Object, optional=True)
    task = asyncio.create_task(watches.run())
    try:
        await asyncio.wait_for(watches.synced(), TIMEOUT_SECONDS)
        assert not watches.problems()
        assert len(watch) == 0
        await asyncio.sleep(0.5)
        await api.create(CRD, permissive_crd(resource))
        await eventually(lambda: api.create(resource, {"metadata": {"name": "w"}}))

        async def seen() -> None:
            assert watch.get("w") is not None

        await eventually(seen)
        await api.delete(CRD.ref(f"widgets.{group}"))

        async def forgotten() -> None:
            assert watch.get("w") is None

        await eventually(forgotten)
    finally:
        task.cancel()


# ------------------------------------------------------------------------------------------------- our definitions
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minMember": -1}, "spec.minMember"),
        ({"minMember": "three"}, "spec.minMember"),
        ({"preemptibility": "maybe"}, "spec.preemptibility"),
        ({"preemptionDelay": "soon"}, "spec.preemptionDelay"),
        ({"subGroups": [{"minMember": 1}]}, "spec.subGroups[0].name"),
        ({"subGroups": [{"name": "No"}]}, "spec.subGroups[0].name"),
    ],
)
async def test_a_wrong_pod_group_is_refused_by_field(api: Api, space: str, spec: Object, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        await api.create(POD_GROUP, pod_group("g", **spec), space)
    assert field in [cause["field"] for cause in refused.value.details["causes"]]


async def test_a_pod_group_loses_unknown_fields_and_keeps_known_ones(api: Api, space: str) -> None:
    spec = {"minMember": None, "minSubGroup": 0, "subGroups": [{"name": "a", "minMember": 2, "bogus": 1}], "bogus": 1}
    made = await api.create(POD_GROUP, pod_group("g", **spec), space)
    assert made["spec"] == {"minMember": None, "minSubGroup": 0, "subGroups": [{"name": "a", "minMember": 2}]}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["zone", "zone"], "nodeLabel must be unique"),
        (["kubernetes.io/hostname", "rack"], "can only be used at the lowest level of topology"),
        ([], "spec.levels"),
    ],
)
async def test_a_wrong_topology_is_refused(api: Api, labels: list[str], message: str) -> None:
    levels = [{"nodeLabel": label} for label in labels]
    with pytest.raises(Invalid, match=message):
        await api.create(TOPOLOGY, {"metadata": {"name": fresh("t")}, "spec": {"levels": levels}})


async def test_a_topologys_labels_are_fixed_and_its_aliases_are_not(api: Api) -> None:
    name = fresh("t")
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    await api.create(TOPOLOGY, {"metadata": {"name": name}, "spec": {"levels": levels}})
    try:
        levels[0]["alias"] = "r"
        after = await api.patch(TOPOLOGY.ref(name), Patch.merge({"spec": {"levels": levels}}))
        assert after["spec"]["levels"] == levels
        for wrong in (levels[:1], levels[::-1], [{"nodeLabel": "room"}, levels[1]]):
            with pytest.raises(Invalid, match="nodeLabel structure is immutable"):
                await api.patch(TOPOLOGY.ref(name), Patch.merge({"spec": {"levels": wrong}}))
    finally:
        await api.delete(TOPOLOGY.ref(name))


async def test_a_queue_as_users_write_it(api: Api) -> None:
    name = fresh("q")
    share = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"parentQueue": "default", "priority": 100, "resources": {"cpu": share, "gpu": share, "memory": share}}
    made = await api.create(QUEUE, {"metadata": {"name": name}, "spec": spec})
    try:
        assert made["spec"] == spec
        status = {"childQueues": ["x"], "allocated": {"nvidia.com/gpu": "2", "cpu": 1}}
        after = await api.patch(QUEUE.ref(name).sub("status"), Patch.merge({"status": status}))
        assert after["status"] == status
        bad = {"status": {"allocated": {"cpu": "many"}}}
        with pytest.raises(Invalid):
            await api.patch(QUEUE.ref(name).sub("status"), Patch.merge(bad))
    finally:
        await api.delete(QUEUE.ref(name))


# ------------------------------------------------------------------------------------------------ leases and events
async def test_one_leader_at_a_time(api: Api, space: str) -> None:
    ref, reign = LEASE.ref("leader", space), []
    one, two = [Election(api, ref, name) for name in ("one", "two")]

    async def lead_briefly() -> None:
        reign.append("one")
        await asyncio.sleep(0.5)
        assert not two.leading
        reign.append("one ends")

    async def lead() -> None:
        reign.append("two")

    first = asyncio.create_task(one.run(lead_briefly))
    while not one.leading:
        await asyncio.sleep(0.02)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await two.run(lead)
    await first
    assert reign == ["one", "one ends", "two"]
    spec = (await api.get(ref, Object))["spec"]
    assert (spec.get("holderIdentity") or "", spec["leaseTransitions"]) == ("", 1)


async def test_events_are_counted(api: Api, space: str) -> None:
    ahead = 0.0
    asyncio.get_running_loop().clock = Clock(lambda: time.time() + ahead)  # type: ignore[attr-defined]
    recorder = EventRecorder(api, "contract")
    about = Regarding("v1", "Pod", "p", space, "some-uid")
    recorder.record(about, "Unschedulable", "no room", "Warning", {"k": "v"})
    found: list[Object] = []

    async def shown() -> list[tuple[str, str, str, int]]:
        found[:] = (await api.list(EVENT, Object, Selection(space, fields="involvedObject.name=p"))).items
        return sorted((event["reason"], event["type"], event["message"], event["count"]) for event in found)

    writing = asyncio.create_task(recorder.run())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await shown() != [("Unschedulable", "Warning", "no room", 1)]:
            await asyncio.sleep(0.02)
        for _ in range(3):
            recorder.record(about, "Unschedulable", "no room", "Warning", {"k": "v"})
        ahead = REPEAT_SECONDS
        recorder.record(about, "Scheduled", "at last")
        while await shown() != [("Scheduled", "Normal", "at last", 1), ("Unschedulable", "Warning", "no room", 4)]:
            await asyncio.sleep(0.02)
    writing.cancel()
    assert [e["metadata"]["annotations"] for e in found if e["type"] == "Warning"] == [{"k": "v"}]
