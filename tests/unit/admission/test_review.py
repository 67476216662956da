"""The dialogue with the API server: AdmissionReview in, AdmissionReview out."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from jsonpatch import apply_patch
from msgspec import json

from pykai.admission.pod_rules import PodSettings
from pykai.admission.review import (
    HANDLERS,
    MUTATE_POD,
    VALIDATE_POD,
    VALIDATE_POD_GROUP,
    VALIDATE_QUEUE,
    VALIDATE_RESIZE,
    VALIDATE_TOPOLOGY,
    AdmissionRules,
    MalformedReviewError,
    judge,
    request_in,
    response_of,
    suffix_of,
)
from tests.unit.admission.bad_input_objects import UNLIMITED_QUEUE as UNLIMITED
from tests.unit.admission.bad_input_objects import group, leaf, level, queue, topology
from tests.unit.admission.bad_input_pods import pod

ADMISSION = AdmissionRules(pods=PodSettings(gpu_sharing=True))
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def answer(path: str, admission: AdmissionRules = ADMISSION, **request: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": UID, "operation": "CREATE", **request},
    }
    parsed = request_in(json.encode(body))
    reply = json.decode(response_of(parsed, judge(path, parsed, admission)))
    assert (reply["apiVersion"], reply["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert reply["response"].pop("uid") == UID
    return dict(reply["response"])


def test_a_changed_pod_is_answered_with_a_patch() -> None:
    item = pod({"gpu-fraction": "0.5"})
    response = answer(MUTATE_POD, object=item, namespace="team")
    assert response.pop("allowed") is True
    assert response.pop("patchType") == "JSONPatch"
    after = apply_patch(item, json.decode(base64.b64decode(response.pop("patch"))))
    prefix = f"train-{suffix_of(UID)}-shared-gpu"
    assert after["metadata"]["annotations"]["runai/shared-gpu-configmap"] == prefix
    assert after["spec"]["runtimeClassName"] == "nvidia"
    assert response == {}


@pytest.mark.parametrize(
    ("path", "item"),
    [
        (MUTATE_POD, pod()),
        (VALIDATE_POD, pod({"gpu-fraction": "0.5"})),
        (VALIDATE_QUEUE, queue(UNLIMITED)),
        (VALIDATE_POD_GROUP, group(leaf("a"))),
        (VALIDATE_TOPOLOGY, topology(level("zone", "z"))),
    ],
)
def test_what_is_in_order_is_admitted_without_a_word(path: str, item: dict[str, Any]) -> None:
    assert answer(path, object=item, namespace="team") == {"allowed": True}


@pytest.mark.parametrize(
    ("path", "item"),
    [
        (VALIDATE_POD, pod({"gpu-fraction": "2"})),
        (VALIDATE_QUEUE, queue(None)),
        (VALIDATE_POD_GROUP, group(leaf("a"), leaf("a"))),
        (VALIDATE_TOPOLOGY, topology(level("a", "a"))),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_is_not_is_forbidden(path: str, item: dict[str, Any], operation: str) -> None:
    response = answer(path, operation=operation, object=item)
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert response["status"]["message"]


def test_warnings_reach_the_user() -> None:
    assert answer(VALIDATE_QUEUE, object=queue(None))["warnings"] == ["resources must be specified"]
    response = answer(VALIDATE_POD_GROUP, object=group(minSubGroup=2))
    assert response == {
        "allowed": True,
        "warnings": ["minSubGroup (2) exceeds the number of direct child SubGroups (0)"],
    }


def test_queues_are_looked_up_at_the_time_of_the_request() -> None:
    there_are: dict[str, Any] = {}
    admission = AdmissionRules(queues=lambda: there_are)
    item = queue({}, name="a", parentQueue="b")
    assert answer(VALIDATE_QUEUE, admission, object=item)["allowed"]
    there_are["b"] = queue({}, name="b", parentQueue="a")
    assert not answer(VALIDATE_QUEUE, admission, object=item)["allowed"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_an_update_of_a_group_is_compared_with_the_group_as_it_was(operation: str) -> None:
    """A creation has nothing to be compared with, whatever a client writes into its review."""
    old = group(minMember=1, preemptibility="semi-preemptible")
    raised = group(minMember=2, preemptibility="semi-preemptible")
    response = answer(VALIDATE_POD_GROUP, operation=operation, object=raised, oldObject=old)
    assert response["allowed"] == (operation == "CREATE")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_an_update_of_a_queue_is_compared_with_the_queue_as_it_was(operation: str) -> None:
    low, high = ({name: {**UNLIMITED[name], "limit": limit} for name in UNLIMITED} for limit in (1, 3))
    now, old = ({**queue(amounts), "status": {"allocated": {"nvidia.com/gpu": "2"}}} for amounts in (low, high))
    admission = AdmissionRules(enforcement="Block")
    response = answer(VALIDATE_QUEUE, admission, operation=operation, object=now, oldObject=old)
    assert response["allowed"] == (operation == "CREATE")


@pytest.mark.parametrize("path", [MUTATE_POD, VALIDATE_POD, VALIDATE_TOPOLOGY, VALIDATE_POD_GROUP])
def test_deletion_is_never_held_back(path: str) -> None:
    assert answer(path, operation="DELETE", oldObject=pod({"gpu-fraction": "2"})) == {"allowed": True}


def test_deletion_of_a_queue_with_children_is() -> None:
    old = {**queue({}), "status": {"childQueues": ["c"]}}
    assert not answer(VALIDATE_QUEUE, operation="DELETE", oldObject=old)["allowed"]


def test_pods_are_changed_on_creation_only() -> None:
    assert answer(MUTATE_POD, operation="UPDATE", object=pod({"gpu-fraction": "0.5"})) == {"allowed": True}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"request": null}', b'{"request": {"uid": "1"}}', b"\xff", b"[" * 100_000]
    + [b'{"request": {"uid": 1, "operation": "CREATE"}}', b'{"request": {"operation": "CREATE"}}'],
)
def test_what_is_no_review_is_said_so(body: bytes) -> None:
    with pytest.raises(MalformedReviewError, match="not an AdmissionReview: "):
        request_in(body)


def test_suffixes_are_repeatable_and_differ() -> None:
    suffixes = {suffix_of(str(number)) for number in range(1000)}
    assert len(suffixes) == 1000
    assert suffix_of("7") == suffix_of("7")
    assert all(len(suffix) == 7 and suffix.isalnum() and suffix == suffix.lower() for suffix in suffixes)


def test_every_path_is_handled() -> None:
    pods = {MUTATE_POD, VALIDATE_POD, VALIDATE_RESIZE}
    assert set(HANDLERS) == pods | {VALIDATE_QUEUE, VALIDATE_POD_GROUP, VALIDATE_TOPOLOGY}
