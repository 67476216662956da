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


@pytest.mark.parametrize(
    ("group", "name"), [("pg-old-1", "pg-p-u-p"), ("pg-rev-u-rev", "pg-rev-u-rev"), (None, "pg-rev-u-rev")]
)
def test_a_revision_keeps_the_form_its_pods_have(group: str | None, name: str) -> None:
    sibling = pod("old", labels=REVISION, annotations={"pod-group-name": group} if group else {})
    assert grouped(SERVICE, pod(labels=REVISION), revision(), sibling).name == name


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
