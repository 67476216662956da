"""Every row of the bad-input tables is refused, at the door of the API server, with exactly its message."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.admission.pod_rules import PodSettings
from pykai.admission.review import (
    MUTATE_POD,
    VALIDATE_POD,
    VALIDATE_POD_GROUP,
    VALIDATE_QUEUE,
    VALIDATE_TOPOLOGY,
    AdmissionRequest,
    AdmissionRules,
    judge,
)
from pykai.admission.verdict import AdmissionVerdict
from tests.unit.admission import bad_input_objects, bad_input_pods

ADMISSION = AdmissionRules(
    pods=PodSettings(gpu_sharing=True, block_visible_devices=True),
    queues=lambda: bad_input_objects.QUEUES_THERE_ARE,
)
ROWS = [
    *[(VALIDATE_POD, *row) for row in bad_input_pods.REFUSED],
    *[(VALIDATE_QUEUE, *row) for row in bad_input_objects.QUEUES],
    *[(VALIDATE_POD_GROUP, *row) for row in bad_input_objects.POD_GROUPS],
    *[(VALIDATE_TOPOLOGY, *row) for row in bad_input_objects.TOPOLOGIES],
]


def created(path: str, item: dict[str, Any], admission: AdmissionRules = ADMISSION) -> AdmissionVerdict:
    return judge(path, AdmissionRequest(uid="1", operation="CREATE", object=item), admission)


@pytest.mark.parametrize(("path", "item", "message"), [pytest.param(p, o, m, id=f"{p}-{n}") for p, n, o, m in ROWS])
def test_refused(path: str, item: dict[str, Any], message: str) -> None:
    assert created(path, item) == AdmissionVerdict(False, message, (message,) if "must be specified" in message else ())


@pytest.mark.parametrize(
    ("item", "message"), [pytest.param(o, m, id=n) for n, o, m in bad_input_pods.CONTAINERS + bad_input_pods.MISFITS]
)
def test_refused_before_it_is_changed(item: dict[str, Any], message: str) -> None:
    assert created(MUTATE_POD, item) == AdmissionVerdict(False, message)


def test_the_tables_have_no_row_twice() -> None:
    names = [(path, name) for path, name, _, _ in ROWS]
    assert len(names) == len(set(names)) >= 200


@pytest.mark.parametrize(("name", "item", "message"), bad_input_pods.REFUSED)
def test_pods_of_other_schedulers_are_none_of_our_business(name: str, item: dict[str, Any], message: str) -> None:
    foreign = {**item, "spec": {**item["spec"], "schedulerName": "default-scheduler"}}
    assert created(VALIDATE_POD, foreign) == created(MUTATE_POD, foreign) == AdmissionVerdict()


@pytest.mark.parametrize("path", [VALIDATE_QUEUE, VALIDATE_POD_GROUP, VALIDATE_TOPOLOGY, VALIDATE_POD])
def test_what_is_being_deleted_may_be_updated(path: str) -> None:
    rows = [row for row in ROWS if row[0] == path and isinstance(row[2].get("metadata"), dict)]
    assert rows
    for _, name, item, _ in rows:
        leaving = {**item, "metadata": {**item["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        request = AdmissionRequest(uid="1", operation="UPDATE", object=leaving, old_object=leaving)
        assert judge(path, request, ADMISSION) == AdmissionVerdict(), name
