"""Stand-in controllers: every kind in the table makes the pods that the true controller makes, and they start."""

from __future__ import annotations

import pytest

from pykai.simulate.history import SimulationResult
from tests.unit.simulate.stories import node, play, queue

POD = (
    "{spec: {schedulerName: kai-scheduler, containers: "
    "[{name: m, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
)
JOB = f"{{spec: {{parallelism: 2, completions: 2, template: {POD}}}}}"


def workload(api_version: str, kind: str, spec: str) -> str:
    meta = "{name: w, labels: {kai.scheduler/queue: q}}"
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {meta}\nspec: {spec}\n"


CASES = {
    "ReplicaSet": (workload("apps/v1", "ReplicaSet", f"{{replicas: 2, template: {POD}}}"), ["w-0", "w-1"]),
    "Deployment": (workload("apps/v1", "Deployment", f"{{replicas: 2, template: {POD}}}"), ["w-set-0", "w-set-1"]),
    "StatefulSet": (workload("apps/v1", "StatefulSet", f"{{replicas: 2, template: {POD}}}"), ["w-0", "w-1"]),
    "JobSet": (
        workload("jobset.x-k8s.io/v1alpha2", "JobSet", f"{{replicatedJobs: [{{name: a, template: {JOB}}}]}}"),
        ["w-a-0-0", "w-a-0-1"],
    ),
    "LeaderWorkerSet": (
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            f"{{replicas: 2, leaderWorkerTemplate: {{size: 2, workerTemplate: {POD}}}}}",
        ),
        ["w-0", "w-0-1", "w-1", "w-1-1"],
    ),
    "PyTorchJob": (
        workload(
            "kubeflow.org/v1",
            "PyTorchJob",
            f"{{pytorchReplicaSpecs: {{Master: {{replicas: 1, template: {POD}}}, "
            f"Worker: {{replicas: 2, template: {POD}}}}}}}",
        ),
        ["w-master-0", "w-worker-0", "w-worker-1"],
    ),
    "RayJob": (
        workload(
            "ray.io/v1",
            "RayJob",
            f"{{rayClusterSpec: {{headGroupSpec: {{template: {POD}}}, "
            f"workerGroupSpecs: [{{groupName: g, replicas: 2, template: {POD}}}]}}}}",
        ),
        ["w-ray-g-0", "w-ray-g-1", "w-ray-headgroup-0"],
    ),
}


def started(outcome: SimulationResult) -> list[str]:
    return sorted(life.name for life in outcome.history.lives if life.started_at is not None)


@pytest.mark.parametrize("kind", CASES)
def test_a_workload_makes_its_pods_and_they_start(kind: str) -> None:
    text, names = CASES[kind]
    outcome = play(node("n", 8), queue("q"), text, until=60.0)
    assert started(outcome) == names
    assert {life.queue for life in outcome.history.lives} == {"q"}


def test_a_gang_of_a_workload_starts_whole_or_not_at_all() -> None:
    text, _ = CASES["PyTorchJob"]
    outcome = play(node("n", 2), queue("q"), text, until=60.0)
    assert started(outcome) == []
    assert "while sub-group worker requires 2 pods for gang scheduling" in outcome.history.lives[0].waited_for


def test_a_cron_job_makes_jobs_by_its_schedule() -> None:
    text = workload("batch/v1", "CronJob", f'{{schedule: "*/2 * * * *", jobTemplate: {JOB}}}')
    outcome = play(node("n", 8), queue("q"), text, until=290.0)
    assert sorted({round(life.arrived_at) for life in outcome.history.lives}) == [120, 240]
    assert len(outcome.history.lives) == 4
