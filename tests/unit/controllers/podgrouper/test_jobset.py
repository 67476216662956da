from __future__ import annotations

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupTopology

from .cluster import Object, grouped, home, obj, pod, pod_group, tree

MIN = "kai.scheduler/batch-min-member"


def replicated(name: str, replicas: int | None = None, parallelism: int | None = None, **annotations: str) -> Object:
    job: Object = {"name": name, "template": {"metadata": {"annotations": annotations}, "spec": {}}}
    if parallelism is not None:
        job["template"]["spec"]["parallelism"] = parallelism
    return job if replicas is None else {**job, "replicas": replicas}


def jobset(*jobs: Object, order: str | None = None, **annotations: str) -> Object:
    spec = {"replicatedJobs": list(jobs)} | ({"startupPolicy": {"startupPolicyOrder": order}} if order else {})
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec, annotations=annotations)


def member(job: str, index: int) -> Object:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": job, "jobset.sigs.k8s.io/job-index": str(index)}
    return pod(labels=labels)


def test_tree_of_jobs_replicas_and_pods() -> None:
    spec = grouped(jobset(replicated("leader"), replicated("worker", 2, 4)), member("worker", 1))
    assert (spec.name, spec.min_sub_group) == ("pg-js-u-js", 2)
    assert tree(spec) == [
        ("leader", "", (1,)),
        ("leader-replica-0", "leader", 1),
        ("worker", "", (2,)),
        ("worker-replica-0", "worker", 4),
        ("worker-replica-1", "worker", 4),
    ]
    assert home(spec) == ["worker-replica-1"]


@pytest.mark.parametrize(
    ("order", "annotations", "expected"),
    [(None, {}, 3), ("AnyOrder", {}, 3), ("InOrder", {}, 1), ("InOrder", {MIN: "2"}, 2), (None, {MIN: "9"}, 3)],
)
def test_jobs_that_must_start_together(order: str | None, annotations: Object, expected: int) -> None:
    jobs = [replicated(name) for name in ("a", "b", "c")]
    assert grouped(jobset(*jobs, order=order, **annotations), member("a", 0)).min_sub_group == expected


def test_a_job_without_replicas_is_no_part_of_the_gang() -> None:
    spec = grouped(jobset(replicated("off", 0), replicated("on", 1)), member("on", 0))
    assert (spec.min_sub_group, [name for name, _, _ in tree(spec)]) == (1, ["on", "on-replica-0"])


def test_template_says_how_many_pods_of_a_replica() -> None:
    job = replicated(
        "w", 1, 4, **{MIN: "2", "kai.scheduler/topology": "net", "kai.scheduler/topology-required-placement": "rack"}
    )
    leaf = grouped(jobset(job), member("w", 0)).sub_groups[1]
    assert (leaf.min_member, leaf.topology) == (2, GroupTopology("net", "rack", ""))


def test_an_empty_minimum_of_a_template_is_none() -> None:
    assert grouped(jobset(replicated("w", 1, 4, **{MIN: ""})), member("w", 0)).sub_groups[1].min_member == 4


@pytest.mark.parametrize(
    "wish", [{"kai.scheduler/topology": "net"}, {"kai.scheduler/topology-required-placement": "rack"}]
)
def test_half_a_topology_is_none(wish: Object) -> None:
    assert grouped(jobset(replicated("w", **wish)), member("w", 0)).sub_groups[1].topology is None


@pytest.mark.parametrize(
    ("top", "a_pod", "message"),
    [
        (jobset(), member("w", 0), "jobset ns/js has no replicatedJobs"),
        (jobset(replicated("")), member("w", 0), "has no name"),
        (jobset(replicated("w"), **{MIN: "0"}), member("w", 0), "on JobSet: value 0 must be >= 1"),
        (jobset(replicated("w", None, None, **{MIN: "x"})), member("w", 0), "replicatedJob template: 'x' is not"),
        (jobset(replicated("w")), pod(labels={"jobset.sigs.k8s.io/job-index": "0"}), "replicatedjob-name"),
        (jobset(replicated("w")), pod(labels={"jobset.sigs.k8s.io/replicatedjob-name": "w"}), "job-index"),
        (jobset(replicated("w")), member("w", 1), "has no w-replica-1"),
        (jobset(replicated("w", 2**31 - 1)), member("w", 0), "2147483647 replicas are more than 10000"),
    ],
)
def test_refused_jobsets(top: Object, a_pod: Object, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        grouped(top, a_pod)


@pytest.mark.parametrize(
    ("order", "existing", "annotations", "name", "minimum"),
    [
        (None, "pg-js-u-js", {}, "pg-js-u-js", 1),
        (None, "pg-js-u-js", {MIN: "3"}, "pg-js-u-js", 3),
        ("InOrder", "pg-js-u-js-a", {}, "pg-js-u-js-b", 1),
    ],
)
def test_flat_groups_stay_flat(order: str | None, existing: str, annotations: Object, name: str, minimum: int) -> None:
    top = jobset(replicated("a"), replicated("b"), order=order, **annotations)
    spec = grouped(top, member("b", 0), pod_group(existing, minMember=1))
    assert (spec.name, spec.min_member, spec.min_sub_group, spec.sub_groups) == (name, minimum, None, ())
