from __future__ import annotations

import pytest

from pykai.controllers.podgrouper.rules.workload import GroupingError, GroupingSettings, GroupTopology

from .cluster import Object, grouped, obj, pod, priority_class

REVISION = {"serving.knative.dev/revision": "rev"}
SCALE = "autoscaling.knative.dev/min-scale"
SERVICE = obj("serving.knative.dev/v1", "Service", "svc", labels={"kai.scheduler/queue": "not-read"})


def revision(**parts: Object) -> Object:
    return obj("serving.knative.dev/v1", "Revision", "rev", **parts)


@pytest.mark.parametrize(("scale", "minimum"), [("3", 3), ("0", 0), ("-2", 1), ("many", 1), (None, 1)])
def test_a_revision_is_a_gang_of_its_minimum_scale(scale: str | None, minimum: int) -> None:
    annotations = {} if scale is None else {SCALE: scale}
    spec = grouped(SERVICE, pod(labels=REVISION), revision(annotations=annotations))
    assert (spec.name, spec.owner["kind"], spec.min_member) == ("pg-rev-u-rev", "Revision", minimum)
    assert (spec.priority_class, spec.queue) == ("inference", "default-queue")


def test_pods_alone_by_setting_and_always_with_inference_priority() -> None:
    member = pod(labels={**REVISION, "priorityClassName": "high"})
    others = (revision(annotations={SCALE: "3"}), priority_class("high"))
    alone = grouped(SERVICE, member, *others, settings=GroupingSettings(knative_gang=False))
    assert (alone.name, alone.owner["kind"], alone.min_member, alone.priority_class) == (
        "pg-p-u-p",
        "Pod",
        1,
        "inference",
    )
    assert grouped(SERVICE, member, *others).priority_class == "high"


def sibling(name: str, group: str | None) -> Object:
    return pod(name, labels=REVISION, annotations={"pod-group-name": group} if group else {})


def group_of_kind(name: str, kind: str) -> Object:
    return obj("scheduling.run.ai/v2alpha2", "PodGroup", name, owners=[{"kind": kind, "name": "x"}])


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        ((sibling("a", None),), False),
        ((sibling("a", "one"),), False),
        ((sibling("a", "one"), group_of_kind("one", "Revision")), False),
        ((sibling("a", "one"), group_of_kind("one", "Pod")), True),
        ((sibling("a", "one"), sibling("b", "one"), group_of_kind("one", "Pod")), False),
        ((sibling("a", "one"), sibling("b", "two")), True),
        ((sibling("a", "one"), sibling("b", "two"), group_of_kind("pg-rev-u-rev", "Revision")), False),
    ],
)
def test_a_revision_keeps_the_form_its_pods_have(others: tuple[Object, ...], alone: bool) -> None:
    spec = grouped(SERVICE, pod(labels=REVISION), revision(), *others)
    assert spec.name == ("pg-p-u-p" if alone else "pg-rev-u-rev")


@pytest.mark.parametrize(("kind", "shown"), [("Job", "Job"), ("", "nothing")])
def test_a_revision_whose_pod_is_in_a_foreign_group_is_refused(kind: str, shown: str) -> None:
    with pytest.raises(GroupingError, match=f"gang behavior for revision ns/rev: PodGroup one is owned by {shown}"):
        grouped(SERVICE, pod(labels=REVISION), revision(), sibling("a", "one"), group_of_kind("one", kind))


def test_wishes_beyond_priority_are_not_read() -> None:
    wishes = {"kai.scheduler/topology": "net", "kai.scheduler/preemption-delay": "5m"}
    rev = revision(annotations=wishes, labels={"kai.scheduler/preemptibility": "preemptible"})
    spec = grouped(SERVICE, pod(labels=REVISION), rev)
    assert (spec.topology, spec.preemption_delay, spec.preemptibility) == (GroupTopology(), None, "")


def test_refused() -> None:
    with pytest.raises(GroupingError, match="missing required label"):
        grouped(SERVICE, pod(), revision())
    with pytest.raises(GroupingError, match="revision rev of pod ns/p does not exist"):
        grouped(SERVICE, pod(labels=REVISION))
