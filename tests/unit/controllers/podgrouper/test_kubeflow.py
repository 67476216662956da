from __future__ import annotations

from typing import Any

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingError

from .cluster import Object, grouped, home, obj, pod, tree

FIELDS = {"TFJob": "tf", "XGBoostJob": "xgb", "JAXJob": "jax", "MPIJob": "mpi", "PyTorchJob": "pytorch"}


def job(kind: str, roles: Object, **spec: Any) -> Object:
    replicas = {role: ({} if count is None else {"replicas": count}) for role, count in roles.items()}
    return obj("kubeflow.org/v1", kind, "job", spec={FIELDS[kind] + "ReplicaSpecs": replicas, **spec})


def policy(minimum: int) -> Object:
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": minimum}}}


@pytest.mark.parametrize(
    ("kind", "roles", "spec", "expected"),
    [
        ("TFJob", {"PS": 2, "Worker": 4}, {}, 6),
        ("TFJob", {"PS": 2}, policy(1), 1),
        ("XGBoostJob", {"Master": 1, "Worker": 3}, {}, 4),
        ("XGBoostJob", {}, policy(5), 5),
        ("JAXJob", {"Worker": 2}, {}, 2),
        ("MPIJob", {"Launcher": 1, "Worker": 2}, {}, 3),
    ],
)
def test_gang_of_replicas(kind: str, roles: Object, spec: Object, expected: int) -> None:
    assert grouped(job(kind, roles, **spec), pod()).min_member == expected


@pytest.mark.parametrize(
    ("kind", "roles", "message"),
    [
        ("TFJob", {"Worker": 0}, "doesn't allow for 0 Worker pods"),
        ("TFJob", {"Worker": None}, "doesn't allow for 0 Worker pods"),
        ("XGBoostJob", {"Worker": 1}, "doesn't have a Master replica spec"),
        ("XGBoostJob", {"Master": 1}, "doesn't have a Worker replica spec"),
        ("JAXJob", {"Master": 1}, "doesn't have a Worker replica spec"),
        ("MPIJob", {"Launcher": 0}, "doesn't have a Worker replica spec"),
        ("TFJob", {"Worker": "2"}, "replicas of TFJob job must be a whole number"),
    ],
)
def test_refused_replicas(kind: str, roles: Object, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(job(kind, roles), pod())


def test_no_replicas_at_all_are_refused() -> None:
    with pytest.raises(GroupingError, match="doesn't have a tfReplicaSpecs field"):
        grouped(obj("kubeflow.org/v1", "TFJob", spec={}), pod())


LAUNCHER = {"training.kubeflow.org/job-name": "job", "training.kubeflow.org/job-role": "launcher"}


@pytest.mark.parametrize(
    ("others", "creation", "expected"),
    [
        ([], "AtStartup", 3),
        ([], "WaitForWorkersReady", 2),
        ([pod("l", labels=LAUNCHER)], "WaitForWorkersReady", 3),
        ([pod("l", labels=LAUNCHER, deleted="2026-01-01T00:00:00Z")], "WaitForWorkersReady", 2),
        ([pod("l", labels={**LAUNCHER, "training.kubeflow.org/job-name": "other"})], "WaitForWorkersReady", 2),
    ],
)
def test_mpi_does_not_wait_for_a_launcher_that_waits_for_it(others: list[Any], creation: str, expected: int) -> None:
    top = job("MPIJob", {"Launcher": 1, "Worker": 2}, launcherCreationPolicy=creation)
    assert grouped(top, pod(), *others).min_member == expected


def test_mpi_minimum_without_the_launcher_is_never_negative() -> None:
    top = job("MPIJob", {"Launcher": 5, "Worker": 2}, launcherCreationPolicy="WaitForWorkersReady", **policy(2))
    assert grouped(top, pod()).min_member == 0


@pytest.mark.parametrize("launchers", [None, 0])
def test_mpi_launchers_that_come_later_must_be_stated(launchers: int | None) -> None:
    roles = {"Launcher": launchers, "Worker": 2}
    top = job("MPIJob", roles, launcherCreationPolicy="WaitForWorkersReady", **policy(2))
    with pytest.raises(GroupingError, match="doesn't allow for 0 Launcher pods"):
        grouped(top, pod())


def role(name: str, index: int | None = None) -> Object:
    labels = {"training.kubeflow.org/replica-type": name}
    return labels if index is None else {**labels, "training.kubeflow.org/replica-index": str(index)}


def test_pytorch_one_master_two_workers_start_together() -> None:
    top = job("PyTorchJob", {"Master": 1, "Worker": 2})
    spec = grouped(top, pod("job-worker-0", labels=role("worker", 0)))
    assert spec.min_member == 3
    assert tree(spec) == [("master", "", 1), ("worker", "", 2)]
    assert home(spec) == ["worker"]
    assert home(grouped(top, pod("job-master-0", labels=role("master", 0)))) == ["master"]
    assert home(grouped(top, pod("stray"))) == []


@pytest.mark.parametrize(
    ("roles", "spec", "total", "expected"),
    [
        ({"Master": 1, "Worker": 4}, {"elasticPolicy": {"minReplicas": 2}}, 2, [("master", "", 1), ("worker", "", 1)]),
        (
            {"Master": 1, "Worker": 4},
            {"elasticPolicy": {"minReplicas": 2}, **policy(3)},
            3,
            [("master", "", 1), ("worker", "", 2)],
        ),
        ({"Master": 2, "Worker": 4}, policy(1), 1, [("master", "", 2), ("worker", "", 0)]),
        ({"Worker": 4}, {}, 4, [("worker", "", 4)]),
        ({"Master": 2}, {}, 2, [("master", "", 2)]),
        ({"Master": 0, "Worker": 2}, policy(2), 2, [("worker", "", 2)]),
    ],
)
def test_pytorch_minimums(roles: Object, spec: Object, total: int, expected: list[Any]) -> None:
    found = grouped(job("PyTorchJob", roles, **spec), pod())
    assert (found.min_member, tree(found)) == (total, expected)


def test_pytorch_elastic_still_needs_readable_replicas() -> None:
    with pytest.raises(GroupingError, match="doesn't allow for 0 Worker pods"):
        grouped(job("PyTorchJob", {"Worker": 0}, elasticPolicy={"minReplicas": 1}), pod())
