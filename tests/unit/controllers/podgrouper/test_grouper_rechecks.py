"""Workloads that change while their first pods are being grouped, and owners that the grouper may not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykai.controllers.podgrouper.grouper import PodGrouperSettings, run
from pykai.controllers.podgrouper.rules.workload import GroupingSettings
from pykai.kube.api import Object, Patch, Ref, Resource
from pykai.kube.api_resources import CRD, EVENT, JOB, POD
from pykai.kube.errors import Forbidden, Unavailable
from pykai.objects import names
from tests.permissive_crd import permissive_crd
from tests.unit.controllers.live import (
    DiaryApi,
    eventually,
    grouped,
    make_job,
    make_pod,
    make_priority_classes,
    owned_by,
    running,
)

RAY = Resource("ray.io", "v1", "rayclusters", "RayCluster")
KNATIVE = Resource("serving.knative.dev", "v1", "services", "Service")


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> DiaryApi:
    monkeypatch.setattr("pykai.controllers.podgrouper.grouper.RECHECK_SECONDS", 0.05)
    server = DiaryApi([permissive_crd(RAY), permissive_crd(KNATIVE)])
    await make_priority_classes(server)
    return server


def becomes(look: Callable[[], Awaitable[Any]], wanted: Any) -> Awaitable[Any]:
    async def check() -> bool:
        return bool(await look() == wanted)

    return eventually(check)


def worker_group(name: str) -> Object:
    return {"groupName": name, "replicas": 1, "minReplicas": 1}


async def test_a_minimum_changed_right_after_the_first_pod_came_is_noticed_with_the_next_one(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "2"})
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "a", ownerReferences=owned_by(job))
        assert (await grouped(api, "a"))["spec"]["minMember"] == 2
        more = {"metadata": {"annotations": {names.BATCH_MIN_MEMBER: "3"}}}
        await api.patch(JOB.ref("j", "default"), Patch.merge(more))
        await make_pod(api, "b", ownerReferences=owned_by(job))

        async def minimum() -> Any:
            return (await grouped(api, "b"))["spec"]["minMember"]

        await becomes(minimum, 3)


async def test_pods_of_a_ray_group_added_meanwhile_find_their_sub_group(api: DiaryApi) -> None:
    body = {"metadata": {"name": "r", "namespace": "default"}, "spec": {"workerGroupSpecs": [worker_group("one")]}}
    cluster = await api.create(RAY, body)
    async with running(api, run, PodGrouperSettings()):
        await make_pod(api, "one", ownerReferences=owned_by(cluster), labels={"ray.io/group": "one"})
        await grouped(api, "one")
        both = {"spec": {"workerGroupSpecs": [worker_group("one"), worker_group("two")]}}
        await api.patch(RAY.ref("r", "default"), Patch.merge(both))
        await make_pod(api, "two", ownerReferences=owned_by(cluster), labels={"ray.io/group": "two"})

        async def sub_group() -> Any:
            return (await api.get(POD.ref("two", "default"), Object))["metadata"]["labels"].get(names.SUBGROUP_LABEL)

        await becomes(sub_group, "two")
        assert (await grouped(api, "two"))["spec"]["minMember"] == 3


@pytest.mark.virtual_time
async def test_a_gang_costs_one_more_read_and_a_lone_pod_none(api: DiaryApi) -> None:
    gang, lone = await make_job(api, "gang"), await make_job(api, "lone")
    async with running(api, run, PodGrouperSettings()):
        for number in range(20):
            await make_pod(api, f"p{number}", ownerReferences=owned_by(gang))
            await asyncio.sleep(0.001)
        await make_pod(api, "q", ownerReferences=owned_by(lone))
        for pod in (*(f"p{number}" for number in range(20)), "q"):
            await grouped(api, pod)
        api.writes.clear()
        await asyncio.sleep(0.3)
        assert (api.reads.count(("Job", "gang")), api.reads.count(("Job", "lone"))) == (2, 1)
        assert api.writes == []


@pytest.mark.virtual_time
async def test_pods_that_were_grouped_before_are_not_looked_at_twice(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        for name in ("a", "b", "c"):
            await make_pod(api, name, ownerReferences=owned_by(job))
            await grouped(api, name)
    api.reads.clear()
    async with running(api, run, PodGrouperSettings()):
        await asyncio.sleep(0.3)
        assert api.reads.count(("Job", "j")) == 1


async def test_a_gang_whose_first_pod_is_gone_is_looked_at_through_the_others(api: DiaryApi) -> None:
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "2"})
    async with running(api, run, PodGrouperSettings()):
        for name in ("a", "b", "c"):
            await make_pod(api, name, ownerReferences=owned_by(job))
            await grouped(api, name)
        more = {"metadata": {"annotations": {names.BATCH_MIN_MEMBER: "3"}}}
        await api.patch(JOB.ref("j", "default"), Patch.merge(more))
        await api.delete(POD.ref("b", "default"))

        async def minimum() -> Any:
            return (await grouped(api, "c"))["spec"]["minMember"]

        await becomes(minimum, 3)


@pytest.mark.virtual_time
async def test_a_workload_that_goes_meanwhile_is_no_reason_for_a_warning(api: DiaryApi) -> None:
    job = await make_job(api, "j")
    async with running(api, run, PodGrouperSettings()):
        for name in ("a", "b"):
            await make_pod(api, name, ownerReferences=owned_by(job))
            await grouped(api, name)
        await api.delete(JOB.ref("j", "default"))
        await asyncio.sleep(0.3)
        assert await messages(api) == []


async def test_a_server_that_is_away_at_the_second_look_is_asked_again(
    api: DiaryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykai.controllers.podgrouper.grouper.FIRST_SECONDS", 0.01)
    job = await make_job(api, "j", annotations={names.BATCH_MIN_MEMBER: "2"})
    async with running(api, run, PodGrouperSettings()):
        for name in ("a", "b"):
            await make_pod(api, name, ownerReferences=owned_by(job))
            await grouped(api, name)
        more = {"metadata": {"annotations": {names.BATCH_MIN_MEMBER: "3"}}}
        await api.patch(JOB.ref("j", "default"), Patch.merge(more))
        read, failures = api.get, [Unavailable("restarting")] * 3

        async def unsteady(ref: Ref, into: type[Any]) -> Any:
            if ref.resource.kind == "Job" and failures:
                raise failures.pop()
            return await read(ref, into)

        monkeypatch.setattr(api, "get", unsteady)

        async def minimum() -> Any:
            return (await grouped(api, "b"))["spec"]["minMember"]

        await becomes(minimum, 3)
        assert failures == []


# ------------------------------------------------------------------------------------------------ forbidden reads
class Guarded(DiaryApi):
    """Refuses to show one kind."""

    hidden = ""

    async def get(self, ref: Ref, into: type[Any]) -> Any:
        if ref.resource.kind == self.hidden:
            raise Forbidden(f"{ref.resource.plural} is forbidden")
        return await super().get(ref, into)


async def messages(api: DiaryApi) -> list[str]:
    return [item["message"] for item in (await api.list(EVENT, Object)).items]


async def test_defaults_that_may_not_be_read_are_told_and_keep_no_pod_from_its_group() -> None:
    api = Guarded()
    api.hidden = "ConfigMap"
    await make_priority_classes(api)
    settings = PodGrouperSettings(GroupingSettings(kind_defaults=("kai", "defaults")))
    async with running(api, run, settings):
        await make_pod(api, "p")
        assert (await grouped(api, "p"))["spec"]["priorityClassName"] == "train"
        told = await eventually(lambda: messages(api))
        assert told == ["defaults per kind ignored: ConfigMap kai/defaults may not be read"]


async def test_an_object_that_a_rule_needs_and_may_not_read_is_told_on_the_pod() -> None:
    revision = Resource("serving.knative.dev", "v1", "revisions", "Revision")
    api = Guarded([permissive_crd(KNATIVE)])
    await api.create(CRD, permissive_crd(revision))
    api.hidden = "Revision"
    await make_priority_classes(api)
    service = await api.create(KNATIVE, {"metadata": {"name": "s", "namespace": "default"}})
    async with running(api, run, PodGrouperSettings()):
        labels = {"serving.knative.dev/revision": "r"}
        await make_pod(api, "p", ownerReferences=owned_by(service), labels=labels)
        assert await eventually(lambda: messages(api)) == ["Revision default/r may not be read"]
