from __future__ import annotations

import pytest

from pykai.controllers.podgrouper.grouping import group_of, ignored_settings, workload_of
from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupingSettings, GroupSpec, Workload
from pykai.controllers.podgrouper.rules.workload_kinds import TABLE, choose, known

from .cluster import Memory, Object, obj, pod, priority_class, ref

SKIP = {"kai.scheduler/skip-podgrouper": "true"}
QUEUE = "kai.scheduler/queue"


def group_of_pod(pod: Object, lookup: Memory, settings: GroupingSettings) -> GroupSpec:
    return group_of(found_workload(pod, lookup, settings))


def found_workload(pod: Object, lookup: Memory, settings: GroupingSettings) -> Workload:
    work = workload_of(pod, lookup, settings)
    assert work is not None, "the pod has a workload"
    return work


def test_a_plain_pod_with_either_queue_label() -> None:
    for key in (QUEUE, "runai/queue"):
        spec = group_of_pod(pod("cpu-only-pod", labels={key: "test"}), Memory(), GroupingSettings())
        assert (spec.name, spec.queue, spec.priority_class) == ("pg-cpu-only-pod-u-cpu-only-pod", "test", "train")
        assert spec.labels[key] == "test"


def test_kind_of_a_pod_from_a_list_is_filled_in() -> None:
    bare = {key: value for key, value in pod().items() if key not in ("apiVersion", "kind")}
    assert group_of_pod(bare, Memory(), GroupingSettings()).owner["kind"] == "Pod"
    assert "kind" not in bare


def test_pods_left_alone() -> None:
    owner = obj("batch/v1", "Job", "j", annotations=SKIP)
    for alone in (
        pod(spec={"schedulerName": "default-scheduler"}),
        pod(annotations=SKIP),
        pod(annotations={"pod-group-name": "mine"}),
        pod(owners=[ref(owner)]),
        pod(owners=[ref(obj("batch/v1", "Job", "gone"))], deleted="2026-01-01T00:00:00Z"),
    ):
        assert workload_of(alone, Memory(owner), GroupingSettings()) is None


def test_a_broken_chain_of_a_living_pod_is_an_error() -> None:
    with pytest.raises(GroupingError, match="failed to find Job"):
        workload_of(pod(owners=[ref(obj("batch/v1", "Job", "gone"))]), Memory(), GroupingSettings())


def test_a_grouped_pod_of_a_workload_is_grouped_again() -> None:
    job = obj("batch/v1", "Job", "j")
    assert workload_of(pod(owners=[ref(job)], annotations={"pod-group-name": "pg"}), Memory(job), GroupingSettings())


def test_node_pool_from_the_pod_unless_the_workload_has_one() -> None:
    pool = "kai.scheduler/node-pool"
    for labels, expected in (({}, "from-pod"), ({pool: "from-job"}, "from-job")):
        job = obj("batch/v1", "Job", "j", labels=labels)
        spec = group_of_pod(pod(owners=[ref(job)], labels={pool: "from-pod"}), Memory(job), GroupingSettings())
        assert spec.labels[pool] == expected


def test_what_the_lookup_raises_passes_through() -> None:
    class NotLoadedError(Exception):
        pass

    class Empty(Memory):
        def get(self, *_: str) -> Object | None:
            raise NotLoadedError

    with pytest.raises(NotLoadedError):
        group_of_pod(pod(labels={"priorityClassName": "high"}), Empty(), GroupingSettings())


# ----------------------------------------------------------------------------------------------------- skipped owners
def test_a_wrapped_pod_inherits_from_the_wrapper() -> None:
    flow = obj("argoproj.io/v1alpha1", "Workflow", "flow", labels={QUEUE: "test", "a": "1"}, annotations={"b": "2"})
    spec = group_of_pod(pod(owners=[ref(flow)], labels={"a": "pod"}), Memory(flow), GroupingSettings())
    assert (spec.name, spec.queue, spec.labels["a"], spec.annotations["b"]) == ("pg-p-u-p", "test", "pod", "2")


def test_a_wrapped_workload_is_grouped_by_its_own_rule() -> None:
    train = obj("trainer.kubeflow.org/v1alpha1", "TrainJob", "train", labels={QUEUE: "test"})
    jobs = [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 4}}}]
    jobset = obj("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec={"replicatedJobs": jobs}, owners=[ref(train)])
    job = obj("batch/v1", "Job", "js-node-0", owners=[ref(jobset)])
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
    spec = group_of_pod(pod(owners=[ref(job)], labels=labels), Memory(train, jobset, job), GroupingSettings())
    assert (spec.name, spec.queue, spec.sub_groups[1].min_member) == ("pg-js-u-js", "test", 4)


def test_an_inner_workload_that_is_gone_is_an_error() -> None:
    wrapper = obj("argoproj.io/v1alpha1", "Workflow", "flow")
    inner = obj("apps/v1", "StatefulSet", "s", owners=[ref(wrapper)])
    work = Workload(wrapper, pod(), (inner, wrapper), GroupingSettings(), Memory(wrapper))
    with pytest.raises(GroupingError, match="StatefulSet ns/s does not exist"):
        group_of(work)


def test_any_version_of_a_run_ai_workload_wraps() -> None:
    wrapper = obj("run.ai/v99", "InferenceWorkload", "inf", labels={QUEUE: "test"})
    deployment = obj("apps/v1", "Deployment", "d", owners=[ref(wrapper)])
    spec = group_of_pod(pod(owners=[ref(deployment)]), Memory(wrapper, deployment), GroupingSettings())
    assert (spec.name, spec.queue, spec.priority_class) == ("pg-d-u-d", "test", "inference")


def test_wishes_between_pod_and_inner_workload_count_for_kinds_that_read_all_owners() -> None:
    wrapper = obj(
        "argoproj.io/v1alpha1", "Workflow", "flow", labels={"kai.scheduler/preemptibility": "non-preemptible"}
    )
    inner = obj("apps/v1", "StatefulSet", "s", owners=[ref(wrapper)])
    near = obj("x/v1", "Near", "n", owners=[ref(inner)], labels={"kai.scheduler/preemptibility": "preemptible"})
    lookup = Memory(wrapper, inner, near)
    assert group_of_pod(pod(owners=[ref(near)]), lookup, GroupingSettings()).preemptibility == "preemptible"
    assert group_of_pod(pod(owners=[ref(inner)]), lookup, GroupingSettings()).preemptibility == "non-preemptible"


def test_defaults_of_the_wrappers_kind() -> None:
    entry = '[{"typeName": "Workflow", "priorityName": "high", "preemptibility": "preemptible"}]'
    config_map = obj("v1", "ConfigMap", "defaults", data={"types": entry})
    flow = obj("argoproj.io/v1alpha1", "Workflow", "flow")
    lookup = Memory(flow, config_map, priority_class("high"))
    spec = group_of_pod(pod(owners=[ref(flow)]), lookup, GroupingSettings(kind_defaults=("ns", "defaults")))
    assert (spec.priority_class, spec.preemptibility) == ("high", "preemptible")


def test_a_default_class_that_does_not_exist_leaves_the_wrappers_own() -> None:
    entry = '[{"typeName": "Workflow", "priorityName": "missing"}]'
    config_map = obj("v1", "ConfigMap", "defaults", data={"types": entry})
    settings = GroupingSettings(kind_defaults=("ns", "defaults"))
    flow = obj("argoproj.io/v1alpha1", "Workflow", "flow", labels={"priorityClassName": "high"})
    lookup = Memory(flow, config_map, priority_class("high"))
    assert group_of_pod(pod(owners=[ref(flow)]), lookup, settings).priority_class == "high"


# ------------------------------------------------------------------------------------------------------------- kinds
def test_exact_version_any_version_then_karta_or_default() -> None:
    assert known("batch", "v1", "Job") is TABLE["batch", "v1", "Job"]
    assert known("run.ai", "v7", "TrainingWorkload") is TABLE["run.ai", "*", "TrainingWorkload"]
    assert known("batch", "v2", "Job") is None
    assert choose("x", "v1", "Y", karta_fallback=True) is not choose("x", "v1", "Y", karta_fallback=False)


# ---------------------------------------------------------------------------------------------------- ignored wishes
def test_unreadable_wishes_are_told() -> None:
    owner = obj("x/v1", "Thing", "t", labels={"kai.scheduler/preemptibility": "never"})
    member = pod(
        owners=[ref(owner)],
        annotations={"kai.scheduler/preemption-delay": "-1s", "kai.scheduler/staleness-grace-period": "soon"},
    )
    work = found_workload(member, Memory(owner), GroupingSettings(kind_defaults=("ns", "gone")))
    lines = ignored_settings(work)
    assert [line.partition(":")[0] for line in lines[:3]] == ["Thing ns/t", "Pod ns/p", "Pod ns/p"]
    assert "expected preemptible, semi-preemptible or non-preemptible" in lines[0]
    assert "ConfigMap ns/gone does not exist" in lines[3]


def test_an_entry_of_the_defaults_without_a_kind_is_told() -> None:
    config_map = obj("v1", "ConfigMap", "defaults", data={"types": '[{"priorityName": "high"}]'})
    work = found_workload(pod(), Memory(config_map), GroupingSettings(kind_defaults=("ns", "defaults")))
    assert ignored_settings(work) == ["an entry of the defaults per kind ignored: it has no typeName"]


def test_nothing_to_tell_about_good_wishes() -> None:
    annotations = {"kai.scheduler/preemption-delay": "0s", "kai.scheduler/staleness-grace-period": "-1s"}
    member = pod(labels={"kai.scheduler/preemptibility": "preemptible"}, annotations=annotations)
    assert ignored_settings(found_workload(member, Memory(), GroupingSettings())) == []
