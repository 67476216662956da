"""Gangs of other projects from their manifest to their end, on a local cluster with every component.

The operators of those projects are played (`workload_operators`); hollow kubelets end the pods. Two GPUs are free at
first, the rest of the cluster takes no pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.kube.operations import define
from pykai.local.cluster_session import connect

from .mission_cluster import Mission, Object
from .workload_operators import Operators, trimmed_definitions

ROOM = ("pods/gpu-pod.yaml", "pods/older-queue-label.yaml")


@pytest.fixture
async def operators(mission: Mission, mission_cluster: Path) -> AsyncIterator[Operators]:
    """Operators at work in the user's namespace."""
    async with connect(mission_cluster) as api:
        await define(api, trimmed_definitions())
        played = Operators(api, mission.namespace)
        work = asyncio.create_task(played.run())
        yield played
        assert not work.done(), work.exception()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def pods_of(mission: Mission, name: str) -> list[Object]:
    return [pod for pod in await mission.list("pods") if pod["metadata"]["name"].startswith(name)]


async def waiting(mission: Mission, name: str, count: int) -> bool:
    """Whether all pods of a gang are there, its group says that it waits, and no pod has a place."""
    groups = [each for each in await mission.list("podgroups") if name in each["metadata"]["name"]]
    told = [each for each in groups if "gang scheduling" in str(each.get("status"))]
    pods = await pods_of(mission, name)
    assert not [pod for pod in pods if pod["spec"].get("nodeName")], "a gang starts whole"
    return len(pods) == count and bool(told) and len(told) == len(groups)


async def waits_and_runs(mission: Mission, example: str, workload: str, pods: int, condition: str) -> None:
    """Apply an example for which there is no room, see it wait, make room, and see it reach a condition."""
    async with mission.cordoned("dgx-0"):
        await mission.apply(*ROOM)
        await mission.runs("gpu-pod", "older-queue-label")
        await mission.apply(example)
        await mission.eventually(lambda: waiting(mission, workload.partition("/")[2], pods))
    where = ("-n", mission.namespace, "--timeout=50s")
    await mission.kubectl("wait", f"--for=condition={condition}", workload, *where)
    await mission.kubectl("delete", workload, *where)


@pytest.mark.usefixtures("operators")
async def test_a_pytorch_job_waits_whole_and_runs_to_its_end(mission: Mission) -> None:
    await waits_and_runs(mission, "batch/pytorch-job.yaml", "pytorchjob/pytorch-dist-mnist-nccl", 3, "Succeeded")


@pytest.mark.usefixtures("operators")
async def test_a_job_set_waits_whole_and_runs_to_its_end(mission: Mission) -> None:
    await waits_and_runs(mission, "workloads/jobset.yaml", "jobset/jobset-training", 5, "Completed")


@pytest.mark.usefixtures("operators")
async def test_a_leader_worker_set_waits_whole_and_serves_until_it_is_deleted(mission: Mission) -> None:
    name = "leaderworkerset-multi-host"
    await waits_and_runs(mission, "workloads/leaderworkerset.yaml", f"leaderworkerset/{name}", 6, "Available")

    async def gone() -> bool:
        groups = [group["metadata"]["name"] for group in await mission.list("podgroups")]
        return not await pods_of(mission, name) and not [group for group in groups if name in group]

    # Kubernetes' garbage collector takes up to 30 seconds to learn of a new kind.
    await mission.eventually(gone)


async def test_a_ray_job_starts_with_its_least_workers_grows_and_ends(mission: Mission, operators: Operators) -> None:
    name = "rayjob-elastic"

    async def workers(count: int) -> bool:
        return len(await mission.running("ray.io/group=gpu")) == count

    async with mission.cordoned("dgx-0"):
        await mission.apply(*ROOM)
        await mission.runs("gpu-pod", "older-queue-label")
        await mission.apply("workloads/rayjob.yaml")
        await mission.eventually(lambda: workers(2))
        assert len(await mission.running("ray.io/group=headgroup")) == 1
        assert len(await pods_of(mission, name)) == 5, "two more workers wait for room"
        (group,) = [each for each in await mission.list("podgroups") if name in each["metadata"]["name"]]
        assert {part["name"]: part["minMember"] for part in group["spec"]["subGroups"]} == {"headgroup": 1, "gpu": 2}
    await mission.eventually(lambda: workers(4))
    assert (await mission.get("rayjob", name))["status"]["jobStatus"] == "RUNNING"
    operators.ended.add(name)

    async def ended() -> bool:
        job = await mission.get("rayjob", name)
        return job["status"]["jobStatus"] == "SUCCEEDED" and not await pods_of(mission, name)

    await mission.eventually(ended)
    await mission.kubectl("delete", "rayjob", name, "-n", mission.namespace)
