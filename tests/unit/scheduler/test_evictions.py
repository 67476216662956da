"""Evictions: who goes, what is told, and that a place that is being freed is not given out before it is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import JOB, POD, POD_GROUP, PRIORITY_CLASS
from pykai.kube.errors import ApiError, Conflict, Forbidden, Timeout
from pykai.model.plan import Plan
from pykai.scheduler.bind_requests import BACKOFF

from .rig import FAST, RecordingApi, Rig, furnish, params, pod, rig, submit

pytestmark = pytest.mark.virtual_time

TRAIN, BUILD = "train", "build"


async def full_house(it: Rig, gpus: int = 1) -> None:
    """One node whose GPUs run pods of low priority, each a group of its own."""
    await furnish(it.api, nodes=1, gpus=gpus)
    await it.api.create(PRIORITY_CLASS, {"metadata": {"name": TRAIN}, "value": 50})
    await it.api.create(PRIORITY_CLASS, {"metadata": {"name": BUILD}, "value": 100})
    for number in range(gpus):
        await submit(it.api, pod(f"train-{number}"), priorityClassName=TRAIN)
        await it.bound(f"train-{number}")
        await running(it, f"train-{number}")


async def running(it: Rig, name: str) -> None:
    await it.api.patch(POD.ref(name, "team").sub("status"), Patch.merge({"status": {"phase": "Running"}}))


async def leaving(it: Rig, name: str) -> bool:
    found = await it.seen(POD, name)
    return found is None or "deletionTimestamp" in found["metadata"]


async def test_the_event_of_an_eviction_says_since_when_the_pod_ran() -> None:
    """Its own start, which kubelets write, not that of its gang, which is known only where minimum runtimes need it."""
    async with rig() as it:
        await full_house(it)
        status = {"startTime": "2026-01-01T00:00:00Z"}
        await it.api.patch(POD.ref("train-0", "team").sub("status"), Patch.merge({"status": status}))
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        events = await it.until(lambda: it.at_least(2, "Evict"))
        started = {event["metadata"]["annotations"]["pykai.io/evicted-started"] for event in events}
        assert started == {"2026-01-01T00:00:00Z"}


async def annotations_of(it: Rig, name: str) -> dict[str, str]:
    found: Object = await it.api.get(POD_GROUP.ref(name, "team"), Object)
    return found["metadata"].get("annotations") or {}


async def test_higher_priority_takes_the_place_when_it_is_free() -> None:
    async with rig() as it:
        await full_house(it)
        started = {"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"}
        await it.api.patch(POD_GROUP.ref("train-0", "team"), Patch.merge({"metadata": {"annotations": started}}))
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: leaving(it, "train-0"))
        events = await it.until(lambda: it.at_least(2, "Evict"))
        assert {(event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in events} == {
            ("PodGroup", "train-0"),
            ("Pod", "train-0"),
        }
        lost = {"pykai.io/evicted-queue": "test", "pykai.io/evicted-node": "node-0", "pykai.io/evicted-gpus": "1"}
        lost["pykai.io/evicted-started"] = "2026-01-01T00:00:00Z"
        for event in events:
            assert event["message"] == "Pod team/train-0 was preempted by higher priority workload team/build"
            assert event["type"] == "Warning"
            assert event["metadata"]["annotations"] == {
                "num-evicted-pods": "1",
                "evictor-action-type": "preempt",
                "evictor-pod-group-namespace": "team",
                "evictor-pod-group-name": "build",
                **lost,
            }
        await it.until(lambda: it.events("Pipelined"))
        assert await it.until(lambda: _noted(it, "train-0", "kai.scheduler/last-eviction-timestamp"))
        await it.quiet()
        assert len(await it.requests()) == 1
        await it.api.delete(POD.ref("train-0", "team"), Deletion(grace_seconds=0))
        assert (await it.request("build"))["spec"]["selectedNode"] == "node-0"
        assert it.api.count("delete", "Pod") == 2
        shown = it.scheduler.metrics.text().decode()
        assert 'kai_pod_group_evicted_pods_total{action="preempt"' in shown
        assert 'kai_scenarios_simulation_by_action{action="preempt"} 1.0' in shown
        assert "kai_total_preemption_attempts 1.0" in shown
        solved = '{action="preempt",reduced_budget="false",result="solved"} 1.0'
        assert f"kai_scenario_search_jobs_total{solved}" in shown


@pytest.mark.parametrize("error", [Conflict("busy"), ApiError("etcdserver: request timed out"), Timeout("no answer")])
async def test_a_note_that_was_not_written_is_written_later(error: ApiError) -> None:
    async with rig() as it:
        await full_house(it)
        it.api.failures["patch", "PodGroup"] = [error]
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        assert await it.until(lambda: _noted(it, "train-0", "kai.scheduler/last-eviction-timestamp"))
        assert not it.api.failures["patch", "PodGroup"]


async def _noted(it: Rig, name: str, key: str) -> bool:
    return key in await annotations_of(it, name)


@pytest.mark.parametrize("marks", [True, False])
async def test_the_pod_is_marked_as_disrupted_unless_the_flag_says_otherwise(marks: bool) -> None:
    options = FAST if marks else replace(FAST, params=params(update_eviction_condition=False))
    async with rig(options=options) as it:
        await full_house(it)
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: leaving(it, "train-0"))
        conditions = (await it.api.get(POD.ref("train-0", "team"), dict))["status"].get("conditions") or []
        found = [c for c in conditions if c["type"] == "DisruptionTarget"]
        assert [(c["status"], c["reason"]) for c in found] == ([("True", "PreemptionByScheduler")] if marks else [])
        if marks:
            assert found[0]["message"] == "Pod team/train-0 was preempted by higher priority workload team/build"


@pytest.mark.parametrize("kind", ["Job", "Absent", ""])
async def test_a_workload_that_can_be_suspended_is_not_deleted(kind: str) -> None:
    async with rig() as it:
        await full_house(it)
        job = await it.api.create(JOB, {"metadata": {"name": "train", "namespace": "team"}, "spec": {}})
        owner = {"apiVersion": "batch/v1", "kind": kind, "name": "train", "uid": job["metadata"]["uid"]}
        metadata: Object = {"annotations": {"kai.scheduler/eviction-strategy": "suspend"}}
        metadata |= {"ownerReferences": [owner]} if kind else {}
        await it.api.patch(POD_GROUP.ref("train-0", "team"), Patch.merge({"metadata": metadata}))
        await it.quiet()
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: it.at_least(2, "Evict"))
        await it.quiet()
        found = await it.api.get(JOB.ref("train", "team"), Object)
        assert found["spec"].get("suspend", False) is (kind == "Job")
        assert await leaving(it, "train-0") is (kind != "Job"), "a Job deletes its pods itself"
        await it.api.delete(POD.ref("train-0", "team"), Deletion(grace_seconds=0))
        await it.request("build")


async def test_a_pod_that_is_seen_to_leave_is_not_deleted_again() -> None:
    class Lossy(RecordingApi):
        async def delete(self, ref, how=None):  # type: ignore[no-untyped-def]
            await super().delete(ref, how)
            if ref.resource == POD:
                raise Timeout("no answer")

    async with rig(Lossy()) as it:
        await full_house(it)
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: leaving(it, "train-0"))
        await it.quiet(BACKOFF.initial * 2)
        assert it.api.count("delete", "Pod") == 1


async def test_a_note_counts_for_as_long_as_it_takes_to_write_it() -> None:
    class Deaf(RecordingApi):
        async def patch(self, ref, patch):  # type: ignore[no-untyped-def]
            if ref.resource == POD_GROUP and not ref.subresource:
                self._note("try", "PodGroup", ref.name)
                raise Timeout("no answer")
            return await super().patch(ref, patch)

    async with rig(Deaf()) as it:
        await full_house(it)
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: it.api.count("try", "PodGroup") > 1)
        lost = it.scheduler._assumptions.expire(1e12)
        assert "annotations of team/train-0" not in lost


@pytest.mark.parametrize(("error", "decided"), [(Forbidden("not now"), 2), (ApiError("etcd is asleep"), 1)])
async def test_an_eviction_that_fails_is_decided_anew_and_one_without_an_answer_is_repeated(
    error: ApiError, decided: int
) -> None:
    plans: list[Plan] = []

    def judge(_: object, plan: Plan) -> list[str]:
        plans.extend([plan] if plan.evictions else [])
        return []

    async with rig(judge=judge) as it:
        await full_house(it)
        it.api.failures["delete", "Pod"] = [error]
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: leaving(it, "train-0"))
        assert it.api.count("delete", "Pod") == 2
        assert len(plans) == decided


async def test_nobody_is_evicted_twice_before_the_watch_shows_it() -> None:
    """Deletions do not show: further cycles must not look for more victims."""

    class Blind(RecordingApi):
        async def watch(self, resource, into, where=None, version=""):  # type: ignore[no-untyped-def]
            async for event in super().watch(resource, into, where, version):
                if b"deletionTimestamp" not in bytes(event.object):
                    yield event

    async with rig(Blind()) as it:
        await full_house(it, gpus=2)
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: it.events("Evict"))
        await submit(it.api, pod("small", gpus=0), priorityClassName=BUILD)
        await it.request("small")
        await it.quiet()
        assert it.api.count("delete", "Pod") == 1


async def test_half_a_gang_goes_after_its_grace() -> None:
    options = replace(FAST, params=params(staleness_grace=1.0))
    async with rig(options=options) as it:
        await furnish(it.api)
        await submit(it.api, pod("w-0", gang="gang"), pod("w-1", gang="gang"), least=2)
        for name in ("w-0", "w-1"):
            await it.bound(name)
            await running(it, name)
        await it.api.delete(POD.ref("w-1", "team"), Deletion(grace_seconds=0))
        await it.until(lambda: _noted(it, "gang", "kai.scheduler/stale-podgroup-timestamp"))
        (event,) = await it.until(lambda: it.events("StaleJob"))
        assert event["message"].startswith(
            "Job is stale. 1 pods are active, minMember is 2. The others are evicted at 20"
        )
        assert not await leaving(it, "w-0")
        await it.until(lambda: leaving(it, "w-0"))
        evicted, _ = await it.until(lambda: it.at_least(2, "Evict"))
        assert evicted["message"].endswith("minimum required number of pods (2), evicting remaining pod: team/w-0")
        assert evicted["metadata"]["annotations"]["evictor-action-type"] == "stalegangeviction"


async def test_a_gang_that_is_whole_again_is_stale_no_more() -> None:
    async with rig() as it:
        await furnish(it.api)
        await submit(it.api, pod("w-0", gang="gang"), pod("w-1", gang="gang"), least=2)
        for name in ("w-0", "w-1"):
            await it.bound(name)
            await running(it, name)
        await it.api.delete(POD.ref("w-1", "team"), Deletion(grace_seconds=0))
        await it.until(lambda: _noted(it, "gang", "kai.scheduler/stale-podgroup-timestamp"))
        await it.api.create(POD, pod("w-2", gang="gang"))
        await it.request("w-2")

        async def healed() -> bool:
            return not await _noted(it, "gang", "kai.scheduler/stale-podgroup-timestamp")

        await it.until(healed)


async def test_metrics_of_workloads_name_owner_and_sub_group_and_first_starts_count_once() -> None:
    options = replace(FAST, params=params(workload_eviction_metrics=True))
    async with rig(options=options) as it:
        await full_house(it)
        await submit(it.api, pod("build"), priorityClassName=BUILD)
        await it.until(lambda: leaving(it, "train-0"))
        await it.api.delete(POD.ref("train-0", "team"), Deletion(grace_seconds=0))
        await it.request("build")
        await it.api.create(POD, pod("train-0"))
        await it.quiet()

        def shown(name: str) -> list[str]:
            return [
                line for line in it.scheduler.metrics.text().decode().splitlines() if line.startswith(f"kai_{name}")
            ]

        (pods,) = await it.until(lambda: shown('pod_group_evicted_pods_total{action="preempt"'))
        assert pods.endswith('owner_uid="",podgroup="train-0",subgroup=""} 1.0')
        events = [line for line in shown("pod_group_eviction_events_total") if 'action="preempt"' in line]
        assert sorted(line.rpartition("podgroup=")[2] for line in events) == ['"build"} 0.0', '"train-0"} 1.0']
        (count,) = await it.until(lambda: shown("pod_group_first_start_wait_seconds_count"))
        assert count.endswith('queue_metadata_name="test",queue_name="test"} 2.0'), "train-0 and build, once each"
