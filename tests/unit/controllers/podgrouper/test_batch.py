from __future__ import annotations

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupingSettings

from .cluster import Object, grouped, obj, pod, pod_group, ref

MIN = "kai.scheduler/batch-min-member"


@pytest.mark.parametrize(("annotations", "minimum"), [({}, 1), ({MIN: "3"}, 3), ({MIN: "2147483647"}, 2147483647)])
def test_job_is_one_group(annotations: Object, minimum: int) -> None:
    spec = grouped(obj("batch/v1", "Job", "job", annotations=annotations), pod("job-abc"))
    assert (spec.name, spec.min_member) == ("pg-job-u-job", minimum)


@pytest.mark.parametrize("value", ["three", "", "1.5", "0", "-1", "2147483648", "１"])
def test_job_refuses_a_bad_minimum(value: str) -> None:
    with pytest.raises(GroupingError, match=r"invalid kai.scheduler/batch-min-member annotation on Job: "):
        grouped(obj("batch/v1", "Job", annotations={MIN: value}), pod())


@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_minimum_is_at_least_one(value: str) -> None:
    with pytest.raises(GroupingError, match=rf"annotation on Deployment: value {value} must be >= 1"):
        grouped(obj("apps/v1", "Deployment", annotations={MIN: value}), pod())


@pytest.mark.parametrize(("api", "kind"), [("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("x/v1", "Thing")])
def test_replicas_start_as_many_together_as_the_owner_asks(api: str, kind: str) -> None:
    assert grouped(obj(api, kind, annotations={MIN: "3"}), pod()).min_member == 3
    assert grouped(obj(api, kind), pod(annotations={MIN: "3"})).min_member == 1


@pytest.mark.parametrize(("policy", "shown"), [("OrderedReady", "OrderedReady"), (None, "OrderedReady .default.")])
def test_a_stateful_set_that_starts_pods_in_order_is_no_gang(policy: str | None, shown: str) -> None:
    def stateful_set(minimum: str, policy: str | None) -> Object:
        return obj("apps/v1", "StatefulSet", annotations={MIN: minimum}, spec={"podManagementPolicy": policy})

    assert grouped(stateful_set("3", "Parallel"), pod()).min_member == 3
    assert grouped(stateful_set("1", policy), pod()).min_member == 1
    with pytest.raises(GroupingError, match=f"StatefulSet ns/w requires .*: Parallel, found {shown}"):
        grouped(stateful_set("2", policy), pod())


@pytest.mark.parametrize(("search", "name", "minimum"), [(True, "pg-job-abc-u-job", 1), (False, "pg-job-u-job", 3)])
def test_job_keeps_the_group_an_older_release_made(search: bool, name: str, minimum: int) -> None:
    top = obj("batch/v1", "Job", "job", annotations={MIN: "3"})
    older = pod_group("pg-job-abc-u-job")
    spec = grouped(top, pod("job-abc"), older, settings=GroupingSettings(search_legacy_groups=search))
    assert (spec.name, spec.min_member) == (name, minimum)


def test_a_pod_named_like_its_job_has_no_older_group() -> None:
    top = obj("batch/v1", "Job", "job", annotations={MIN: "3"})
    assert grouped(top, pod("job"), pod_group("pg-job-u-job")).min_member == 3


def test_cron_job_groups_by_run() -> None:
    run = obj("batch/v1", "Job", "cron-1", annotations={MIN: "3"}, labels={"kai.scheduler/queue": "q"})
    top = obj("batch/v1", "CronJob", "cron")
    spec = grouped(top, pod(owners=[ref(run)]), run)
    assert (spec.name, spec.owner["kind"], spec.queue, spec.min_member) == ("pg-cron-1-u-cron-1", "Job", "q", 1)
    with pytest.raises(GroupingError, match="cron-1"):
        grouped(top, pod(owners=[ref(run)]))
    with pytest.raises(GroupingError, match="no owner reference of type 'Job'"):
        grouped(top, pod(owners=[ref(top)]), run)
    with pytest.raises(GroupingError, match='"" not found'):
        grouped(top, pod(owners=[{"kind": "Job"}]), run)


@pytest.mark.parametrize(
    ("pod_name", "parallelism", "older", "expected"),
    [
        ("job-0-0", 1, None, "pg-job-0-u-job"),
        ("solo", 1, None, "pg-solo-u-job"),
        ("job-0-0", 1, "pg-job-u-job", "pg-job-u-job"),
        ("job-1-0", 2, "pg-job-1-0-u-job", "pg-job-1-0-u-job"),
        ("job-1-0", 2, "pg-job-u-job", "pg-job-1-u-job"),
    ],
)
def test_runai_job(pod_name: str, parallelism: int, older: str | None, expected: str) -> None:
    top = obj("run.ai/v1", "RunaiJob", "job", spec={"parallelism": parallelism})
    existing = [pod_group(older)] if older else []
    assert grouped(top, pod(pod_name), *existing).name == expected
