"""The pod grouper on a server in memory: what it writes, how often, and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykai.controllers.podgrouper.grouper import PodGrouper, PodGrouperSettings, run
from pykai.controllers.podgrouper.rules.workload import GroupingSettings
from pykai.kube.api import Object, Patch, Resource
from pykai.kube.api_resources import CRD, EVENT, NAMESPACE, POD, POD_GROUP, REPLICA_SET, SCHEDULING_GROUP
from pykai.kube.errors import AlreadyExists, Forbidden, NotFound, Unavailable
from pykai.kube.memory import MemoryApi
from pykai.kube.operations import bind
from pykai.objects import names
from tests.permissive_crd import permissive_crd
from tests.unit.controllers.live import (
    DiaryApi,
    eventually,
    group_name,
    grouped,
    make_job,
    make_pod,
    owned_by,
    running,
)

PYTORCH = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
ODD = Resource("example.com", "v1", "thingies", "Thing")
KARTA = Resource("run.ai", "v1alpha1", "kartas", "Karta", False)


async def events(api: DiaryApi) -> list[str]:
    found = await api.list(EVENT, Object)
    return [f"{item['reason']} {item['involvedObject']['name']}: {item['message']}" for item in found.items]


async def settled(api: DiaryApi) -> None:
    """Return when nothing has been written for a moment."""
    before = -1
    while before != len(api.writes):
        before = len(api.writes)
        await asyncio.sleep(0.05)


@pytest.mark.virtual_time
async def test_a_bare_pod_costs_one_create_and_one_patch(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", labels={names.QUEUE_LABEL: "team"})
        group = await grouped(api, "p")
        assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("team", 1)
        assert group["metadata"]["ownerReferences"][0]["kind"] == "Pod"
        await settled(api)
        assert api.writes[1:] == [("create", "PodGroup", group["metadata"]["name"]), ("patch", "Pod", "p")]


@pytest.mark.virtual_time
async def test_a_burst_of_pods_of_one_group_is_one_group_written_once(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "50"})
    async with running(api, run, PodGrouperSettings()):
        api.writes.clear()
        api.reads.clear()
        for number in range(50):
            await make_pod(api, f"p{number}", ownerReferences=owned_by(job))
        for number in range(50):
            group = await grouped(api, f"p{number}")
        assert group["spec"]["minMember"] == 50
        await settled(api)
        assert api.count("create", "PodGroup") == 1
        assert (api.count("patch", "PodGroup"), api.count("patch", "Pod")) == (0, 50)
        assert api.reads.count(("Job", "j")) == 1


@pytest.mark.virtual_time
async def test_our_own_write_is_no_reason_to_look_again_and_that_of_somebody_else_is(
    api: DiaryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, find = [], PodGrouper._find_group

    async def counted(self: PodGrouper, key: tuple[str, str]) -> None:
        looks.append(key)
        await find(self, key)

    monkeypatch.setattr(PodGrouper, "_find_group", counted)
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", ownerReferences=owned_by(job))
        name = await eventually(lambda: group_name(api, "p"))
        await settled(api)
        assert len(looks) == 1
        await api.patch(
            POD.ref("p", "default"), Patch.merge({"metadata": {"annotations": {names.POD_GROUP_ANNOTATION: "other"}}})
        )
        await eventually(lambda: _is_in(api, "p", name))
        assert len(looks) == 2


async def _is_in(api: DiaryApi, pod: str, group: str) -> bool:
    return await group_name(api, pod) == group


@pytest.mark.virtual_time
async def test_pods_that_were_there_before_are_grouped_and_ready_means_they_were_looked_at(api: DiaryApi) -> None:
    await make_pod(api, "p")
    async with running(api, run, PodGrouperSettings()):
        assert await grouped(api, "p")
    api.writes.clear()
    async with running(api, run, PodGrouperSettings()):
        await settled(api)
        assert api.writes == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("together", [True, False])
async def test_a_deployments_pods_share_a_group_or_have_one_each(api: DiaryApi, together: bool) -> None:
    deployment = await api.create(
        Resource("apps", "v1", "deployments", "Deployment"),
        {"metadata": {"name": "d", "namespace": "default", "labels": {names.QUEUE_LABEL: "web"}}, "spec": _template()},
    )
    metadata = {"name": "d-1", "namespace": "default", "ownerReferences": owned_by(deployment)}
    replica_set = await api.create(REPLICA_SET, {"metadata": metadata, "spec": _template()})
    async with running(api, run, PodGrouperSettings(GroupingSettings(deployment_gang=together))):
        for name in ("a", "b"):
            await make_pod(api, name, labels={"app": "d"}, ownerReferences=owned_by(replica_set))
        one, two = await grouped(api, "a"), await grouped(api, "b")
        assert (one["metadata"]["uid"] == two["metadata"]["uid"]) == together
        assert one["metadata"]["ownerReferences"][0]["kind"] == ("Deployment" if together else "Pod")
        assert (one["spec"]["queue"], one["spec"]["priorityClassName"]) == ("web", "inference")


def _template() -> dict[str, Any]:
    labels = {"app": "d"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    return {"selector": {"matchLabels": labels}, "template": pod}


async def _pytorch_job(api: DiaryApi, replicas: int = 2) -> Object:
    specs = {"Master": {"replicas": 1}, "Worker": {"replicas": replicas}}
    body = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"pytorchReplicaSpecs": specs}}
    return await api.create(PYTORCH, body)


@pytest.mark.virtual_time
async def test_roles_of_a_custom_kind_become_sub_groups(api: DiaryApi) -> None:
    await api.create(CRD, permissive_crd(PYTORCH))
    job = await _pytorch_job(api)
    async with running(api, run, PodGrouperSettings()):
        label = "training.kubeflow.org/replica-type"
        await make_pod(api, "m", labels={label: "master"}, ownerReferences=owned_by(job))
        await make_pod(api, "w", labels={label: "worker"}, ownerReferences=owned_by(job))
        group = await grouped(api, "m")
        await grouped(api, "w")
        minimum = {each["name"]: each["minMember"] for each in group["spec"]["subGroups"]}
        assert minimum == {"master": 1, "worker": 2}
        worker = await api.get(POD.ref("w", "default"), Object)
        assert worker["metadata"]["labels"][names.SUBGROUP_LABEL] == "worker"
        assert api.count("patch", "Pod") == 2


@pytest.mark.virtual_time
async def test_a_kind_that_is_installed_later_is_found_without_a_restart(
    api: DiaryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykai.controllers.podgrouper.reader.NO_MAPPING_SECONDS", 0.1)
    monkeypatch.setattr("pykai.controllers.podgrouper.grouper.FIRST_SECONDS", 0.01)
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "t", "uid": "1"}
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "w", ownerReferences=[owner])
        await eventually(lambda: events(api))
        assert "failed to find PyTorchJob: <default/t>" in (await events(api))[0]
        assert not await group_name(api, "w")
        await api.create(CRD, permissive_crd(PYTORCH))
        job = await _pytorch_job(api)
        await api.patch(POD.ref("w", "default"), Patch.merge({"metadata": {"ownerReferences": owned_by(job)}}))
        await grouped(api, "w")


@pytest.mark.virtual_time
async def test_kinds_that_are_not_installed_cost_nothing(api: DiaryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykai.controllers.podgrouper.grouper.FIRST_SECONDS", 0.01)
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "t", "uid": "1"}
    async with running(api, run, PodGrouperSettings()):
        followed = {"Pod", "PodGroup", "CompositePodGroup", "PriorityClass", "Karta", "CustomResourceDefinition"}
        assert set(api.lists) == followed, "no workload kind is followed, installed or not"
        api.lists.clear()
        for number in range(20):
            await make_pod(api, f"w{number}", ownerReferences=[owner])
        await asyncio.sleep(0.3)
        assert api.lists == ["CustomResourceDefinition"], "that the kind is missing is looked up once"
        assert [read for read in api.reads if read[0] != "Pod"] == [
            ("CustomResourceDefinition", "pytorchjobs.kubeflow.org")
        ]
        assert len([each for each in api.writes if each[:2] == ("create", "Event")]) <= 20


@pytest.mark.virtual_time
async def test_a_plural_nobody_could_guess_is_found_in_the_definitions(api: DiaryApi) -> None:
    await api.create(CRD, permissive_crd(ODD))
    thing = await api.create(ODD, {"metadata": {"name": "t", "namespace": "default", "labels": {"project": "x"}}})
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", ownerReferences=owned_by(thing))
        assert (await grouped(api, "p"))["spec"]["queue"] == "x"


@pytest.mark.virtual_time
async def test_pods_of_others_and_pods_that_want_no_group_are_left_alone(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.SKIP_PODGROUPER: "true"})
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "other", spec={"schedulerName": "default-scheduler"})
        await make_pod(api, "skips", annotations={names.SKIP_PODGROUPER: "true"})
        await make_pod(api, "assigned", annotations={names.POD_GROUP_ANNOTATION: "mine"})
        await make_pod(api, "of-job", ownerReferences=owned_by(job))
        await make_pod(api, "ours")
        await grouped(api, "ours")
        await settled(api)
        assert api.count("create", "PodGroup") == 1
        assert [await group_name(api, name) for name in ("other", "skips", "assigned", "of-job")] == [
            None,
            None,
            "mine",
            None,
        ]


@pytest.mark.virtual_time
async def test_only_selected_pods_and_namespaces_are_grouped(api: DiaryApi) -> None:
    settings = PodGrouperSettings(pod_labels={"team": "a"}, namespace_labels={"kai": "on"})
    async with running(api, run, settings):
        await make_pod(api, "unlabelled")
        await make_pod(api, "p", labels={"team": "a"})
        await settled(api)
        assert api.count("create", "PodGroup") == 0
        await api.patch(NAMESPACE.ref("default"), Patch.merge({"metadata": {"labels": {"kai": "on"}}}))
        await grouped(api, "p")
        assert await group_name(api, "unlabelled") is None


@pytest.mark.virtual_time
async def test_a_group_that_exists_keeps_what_users_decided(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", labels={names.QUEUE_LABEL: "one"}, ownerReferences=owned_by(job))
        group = await grouped(api, "p")
        ref = POD_GROUP.ref(group["metadata"]["name"], "default")
        await api.patch(ref, Patch.merge({"spec": {"queue": "two"}, "metadata": {"finalizers": ["example.com/x"]}}))
        new_labels = {names.PREEMPTIBILITY_LABEL: "non-preemptible"}
        await api.patch(POD.ref("p", "default"), Patch.merge({"metadata": {"labels": new_labels}}))

        async def changed() -> bool:
            return bool((await api.get(ref, Object))["spec"].get("preemptibility") == "non-preemptible")

        await eventually(changed)
        after = await api.get(ref, Object)
        assert (after["spec"]["queue"], after["metadata"]["finalizers"]) == ("two", ["example.com/x"])


@pytest.mark.virtual_time
async def test_a_group_another_replica_made_first_is_taken_over(api: DiaryApi) -> None:
    api.refusals["create", "PodGroup"] = [AlreadyExists("there")]
    async with running(api, run, PodGrouperSettings()):
        pod = await make_pod(api, "p")
        name = f"pg-p-{pod['metadata']['uid']}"
        group = {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": 1, "queue": "other"}}
        await MemoryApi.create(api, POD_GROUP, group)  # as another client, not in the diary
        assert (await grouped(api, "p"))["spec"]["queue"] == "other"


@pytest.mark.parametrize("verb", [("create", "PodGroup"), ("patch", "Pod")])
@pytest.mark.virtual_time
async def test_a_write_that_fails_is_tried_again(
    api: DiaryApi, verb: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykai.controllers.podgrouper.grouper.FIRST_SECONDS", 0.01)
    api.refusals[verb] = [Unavailable("restarting"), Unavailable("restarting")]
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        await grouped(api, "p")
        assert api.count(*verb) == 3
        assert await events(api) == []


@pytest.mark.virtual_time
async def test_a_refusal_is_told_on_the_pod(api: DiaryApi) -> None:
    api.refusals["create", "PodGroup"] = [Forbidden("quota exceeded")] * 9
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        assert await eventually(lambda: events(api)) == ["PodGrouperWarning p: quota exceeded"]


@pytest.mark.virtual_time
async def test_wrong_wishes_are_told_and_the_pod_is_grouped_all_the_same(api: DiaryApi) -> None:
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", labels={names.PREEMPTIBILITY_LABEL: "perhaps"})
        await grouped(api, "p")
        assert "preemptibility=perhaps ignored" in (await eventually(lambda: events(api)))[0]


@pytest.mark.virtual_time
async def test_a_workload_with_an_error_is_tried_again_once_it_is_mended(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "many"})
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p", ownerReferences=owned_by(job))
        assert "batch-min-member annotation on Job" in (await eventually(lambda: events(api)))[0]
        ref = Resource("batch", "v1", "jobs", "Job").ref("j", "default")
        await api.patch(ref, Patch.merge({"metadata": {"annotations": {names.BATCH_MIN_MEMBER: "3"}}}))
        assert (await grouped(api, "p"))["spec"]["minMember"] == 3


@pytest.mark.virtual_time
async def test_a_pod_that_goes_while_it_is_grouped_does_no_harm(api: DiaryApi) -> None:
    api.refusals["patch", "Pod"] = [NotFound("gone")]
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "p")
        await asyncio.sleep(2.0)
        assert api.count("patch", "Pod") == 1
        assert await events(api) == []


async def test_a_karta_may_read_fields_that_watches_do_not_keep(api: DiaryApi) -> None:
    await api.create(CRD, permissive_crd(ODD))
    thing = await api.create(ODD, {"metadata": {"name": "t", "namespace": "default"}, "spec": {"size": 2}})
    async with running(api, run, PodGrouperSettings()):
        await api.create(CRD, permissive_crd(KARTA))
        await api.create(KARTA, _karta())
        await asyncio.sleep(0.05)
        await make_pod(api, "p", ownerReferences=owned_by(thing), spec={"hostname": "blue"})
        name = (await grouped(api, "p"))["metadata"]["name"]
        assert name == f"pg-{thing['metadata']['uid']}-blue"


def _karta() -> Object:
    kind = {"group": "example.com", "version": "v1", "kind": "Thing"}
    root = {"name": "thing", "kind": kind, "scaleDefinition": {"replicasPath": ".spec.size"}}
    member = {"componentName": "thing", "groupByKeyPaths": [".spec.hostname"]}
    gang = {"podGroups": [{"name": "by-host", "members": [member]}]}
    return {
        "metadata": {"name": "things", "labels": {f"run.ai/karta-{key}": value for key, value in kind.items()}},
        "spec": {
            "structureDefinition": {"rootComponent": root},
            "optimizationInstructions": {"gangScheduling": gang},
        },
    }


@pytest.mark.virtual_time
async def test_a_scheduling_group_of_kubernetes_is_followed_and_told_what_became_of_it(api: DiaryApi) -> None:
    ref, gang = SCHEDULING_GROUP.ref("workers", "default"), {"schedulingPolicy": {"gang": {"minCount": 2}}}

    async def minimum() -> int:
        found = await api.get(POD_GROUP.ref("workers", "default"), Object)
        return int(found["spec"]["minMember"])

    async def condition() -> tuple[str, str, str] | None:
        conditions = ((await api.get(ref, Object)).get("status") or {}).get("conditions") or []
        return next(((each["status"], each["reason"], each["message"]) for each in conditions), None)

    async with running(api, run, PodGrouperSettings()):
        for name in ("a", "b"):
            await make_pod(api, name, spec={"schedulingGroup": {"podGroupName": "workers"}})
        await settled(api)
        assert await group_name(api, "a") is None, "its scheduling group does not exist yet"
        await api.create(SCHEDULING_GROUP, {"metadata": {"name": "workers", "namespace": "default"}, "spec": gang})
        assert (await grouped(api, "a"))["spec"]["minMember"] == 2

        await api.patch(ref, Patch.merge({"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}))
        await eventually(lambda: _is(minimum, 1))

        waits = {"type": names.UNSCHEDULABLE_ON_POOL, "nodePool": "default", "message": "no room", "transitionID": "1"}
        body = Patch.merge({"status": {"schedulingConditions": [waits]}})
        await api.patch(POD_GROUP.ref("workers", "default").sub("status"), body)
        await eventually(lambda: _is(condition, ("False", "Unschedulable", "no room")))

        await bind(api, POD.ref("a", "default"), "node")
        await eventually(lambda: _is(condition, ("True", "Scheduled", "1 pods have a node")))


async def _is(read: Callable[[], Awaitable[object]], value: object) -> bool:
    return await read() == value
