"""The webhook configurations, field by field, and what survives a rewrite of a live one."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from pykai.admission.certificates import issue
from pykai.admission.registration import (
    PodSelection,
    merged,
    mutating_pods,
    service_client,
    url_client,
    validating_pod_groups,
    validating_pods,
    validating_queues,
)
from pykai.admission.review import HANDLERS

SERVICE = service_client("kai-scheduler", "admission", b"CA")
FIXED = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail"}
SYSTEM = {
    "key": "kubernetes.io/metadata.name",
    "operator": "NotIn",
    "values": ["kube-system", "kai-scheduler"],
}


def client_of(path: str) -> dict[str, Any]:
    service = {"namespace": "kai-scheduler", "name": "admission", "path": path}
    return {"service": service, "caBundle": "Q0E="}


def rule(group: str, version: str, plural: str, scope: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [plural],
        "scope": scope,
        "operations": list(operations),
    }


POD_WEBHOOK = {
    **FIXED,
    "name": "admission.kai-scheduler.svc",
    "namespaceSelector": {"matchExpressions": [SYSTEM]},
}


def unconditional(configuration: dict[str, Any]) -> dict[str, Any]:
    """A configuration without its match conditions."""
    webhooks = [{key: hook[key] for key in hook if key != "matchConditions"} for hook in configuration["webhooks"]]
    return {**configuration, "webhooks": webhooks}


def test_pods_are_changed_on_creation() -> None:
    assert unconditional(mutating_pods(SERVICE, PodSelection())) == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mutating-kai-admission", "labels": {"app": "admission"}},
        "webhooks": [
            {
                **POD_WEBHOOK,
                "clientConfig": client_of("/mutate--v1-pod"),
                "rules": [rule("", "v1", "pods", "Namespaced", "CREATE")],
                "reinvocationPolicy": "IfNeeded",
            }
        ],
    }


def test_pods_and_topologies_are_validated() -> None:
    assert unconditional(validating_pods(SERVICE, PodSelection(), "mine")) == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "mine", "labels": {"app": "admission"}},
        "webhooks": [
            {
                **POD_WEBHOOK,
                "clientConfig": client_of("/validate--v1-pod"),
                "rules": [rule("", "v1", "pods", "Namespaced", "CREATE", "UPDATE")],
            },
            {
                **FIXED,
                "name": "topology.admission.kai-scheduler.svc",
                "clientConfig": client_of("/validate-kai-scheduler-v1alpha1-topology"),
                "rules": [rule("kai.scheduler", "v1alpha1", "topologies", "Cluster", "CREATE", "UPDATE")],
            },
        ],
    }


def test_resizes_of_our_pods_are_validated_unless_nobody_answers() -> None:
    webhook = validating_pods(SERVICE, PodSelection(checks_resizes=True))["webhooks"][-1]
    assert webhook == {
        **FIXED,
        "name": "resize.admission.kai-scheduler.svc",
        "clientConfig": client_of("/validate--v1-pod-resize"),
        "rules": [rule("", "v1", "pods/resize", "Namespaced", "UPDATE")],
        "namespaceSelector": POD_WEBHOOK["namespaceSelector"],
        "failurePolicy": "Ignore",
        "matchConditions": [
            {"name": "scheduler-name-match", "expression": "object.spec.schedulerName == 'kai-scheduler'"}
        ],
    }


def test_queues_and_pod_groups_are_validated() -> None:
    client = service_client("kai", "queue-controller", b"CA", 443)
    queues, groups = validating_queues(client), validating_pod_groups(client, "p-")
    assert queues["metadata"]["name"] == "kai-queue-validation-v2"
    assert groups["metadata"]["name"] == "p-v2alpha2"
    (queue, deletion), (group,) = queues["webhooks"], groups["webhooks"]
    assert queue == {
        **FIXED,
        "name": "queue-validation.kai.scheduler",
        "clientConfig": {
            "service": {
                "namespace": "kai",
                "name": "queue-controller",
                "port": 443,
                "path": "/validate-scheduling-run-ai-v2-queue",
            },
            "caBundle": "Q0E=",
        },
        "rules": [rule("scheduling.run.ai", "v2", "queues", "Cluster", "CREATE", "UPDATE")],
    }
    assert deletion == {
        **queue,
        "name": "queue-deletion.kai.scheduler",
        "rules": [rule("scheduling.run.ai", "v2", "queues", "Cluster", "DELETE")],
        "failurePolicy": "Ignore",
    }
    assert group["name"] == "podgroup-validation.kai.scheduler"
    assert group["rules"] == [rule("scheduling.run.ai", "v2alpha2", "podgroups", "Namespaced", "CREATE", "UPDATE")]


def test_every_selector_narrows_the_pods() -> None:
    selection = PodSelection("it's", "sys", "kai.scheduler/queue", {"team": "a"}, {"managed": "yes"})
    (webhook,) = mutating_pods(SERVICE, selection)["webhooks"]
    assert webhook["name"] == "admission.sys.svc"
    assert webhook["namespaceSelector"] == {
        "matchExpressions": [
            {**SYSTEM, "values": ["kube-system", "sys"]},
            {"key": "kai.scheduler/queue", "operator": "Exists"},
        ],
        "matchLabels": {"team": "a"},
    }
    assert webhook["objectSelector"] == {"matchLabels": {"managed": "yes"}}
    assert webhook["matchConditions"][0]["expression"] == r"object.spec.schedulerName == 'it\'s'"


def sees(webhook: dict[str, Any], old: dict[str, Any] | None, new: dict[str, Any]) -> bool:
    """Whether the API server calls the webhook, by its match conditions; `old` None: a creation."""
    request = {"operation": "UPDATE" if old is not None else "CREATE"}
    facts = {"request": json_to_cel(request), "object": json_to_cel(new), "oldObject": json_to_cel(old)}
    cel = celpy.Environment()
    expressions = [condition["expression"] for condition in webhook["matchConditions"]]
    return all(bool(cel.program(cel.compile(text)).evaluate(facts)) for text in expressions)


def a_pod(scheduler: str = "kai-scheduler", image: str = "a", **annotations: str) -> dict[str, Any]:
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    metadata = {"name": "p", **({"annotations": notes} if notes else {})}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": [{"image": image}]}}


HALF = {"gpu_fraction": "0.5"}
PODS = [  # before, after, seen, seen where devices are guarded
    (None, a_pod(), False, True),
    (None, a_pod(other="x"), False, True),
    (None, a_pod("other", **HALF), False, False),
    (None, a_pod(**HALF), True, True),
    (None, a_pod(gpu_memory="1"), True, True),
    (None, a_pod(gpu_fraction_num_devices="2"), True, True),
    (None, a_pod(mps="true"), True, True),
    (a_pod(), a_pod(pod_group_name="g"), False, False),
    (a_pod(), a_pod(image="b"), False, True),
    (a_pod(), a_pod(**HALF), True, True),
    (a_pod(**HALF), a_pod(**HALF, pod_group_name="g"), False, False),
    (a_pod(**HALF), a_pod(gpu_fraction="0.6"), True, True),
    (a_pod(**HALF), a_pod(**HALF, gpu_fraction_container_name="c"), True, True),
    (a_pod(**HALF), a_pod(image="b", **HALF), True, True),
    (a_pod(**HALF), a_pod(), False, True),
]


@pytest.mark.parametrize(("old", "new", "seen", "guarded"), PODS)
def test_pods_that_no_rule_can_object_to_are_left_out(
    old: dict[str, Any] | None, new: dict[str, Any], seen: bool, guarded: bool
) -> None:
    for guards, expected in ((False, seen), (True, guarded)):
        validating = validating_pods(SERVICE, PodSelection(guards_devices=guards))["webhooks"][0]
        assert sees(validating, old, new) == expected
        if old is None:
            assert (
                sees(mutating_pods(SERVICE, PodSelection(guards_devices=guards))["webhooks"][0], old, new) == expected
            )


def a_group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": spec}


NESTED: dict[str, Any] = {"subGroups": [{"name": "a", "minMember": 1}]}
GROUPS = [  # before, after, seen
    (None, a_group(minMember=1, queue="q"), False),
    (None, {"metadata": {"name": "g"}}, False),
    (None, a_group(**NESTED), True),
    (None, a_group(minMember=1, minSubGroup=1), True),
    (None, a_group(minMember=1, preemptionDelay="2m"), True),
    (None, a_group(minMember=1, stalenessGracePeriod="2m"), True),
    (a_group(minMember=1), a_group(minMember=2), False),
    (a_group(**NESTED), {**a_group(**NESTED), "status": {}}, False),
    (a_group(**NESTED), a_group(minMember=2, **NESTED), True),
    ({"metadata": {"name": "g"}}, a_group(**NESTED), True),
]


@pytest.mark.parametrize(("old", "new", "seen"), GROUPS)
def test_pod_groups_that_no_rule_can_object_to_are_left_out(
    old: dict[str, Any] | None, new: dict[str, Any], seen: bool
) -> None:
    (webhook,) = validating_pod_groups(SERVICE)["webhooks"]
    assert sees(webhook, old, new) == seen


def test_outside_a_cluster_webhooks_have_a_url_and_every_path_is_served() -> None:
    client = url_client("https://127.0.0.1:9443/", b"CA")
    configurations = [
        mutating_pods(client, PodSelection()),
        validating_pods(client, PodSelection(checks_resizes=True)),
        validating_queues(client),
        validating_pod_groups(client),
    ]
    webhooks = [webhook for configuration in configurations for webhook in configuration["webhooks"]]
    assert {webhook["clientConfig"]["url"] for webhook in webhooks} == {
        f"https://127.0.0.1:9443{path}" for path in HANDLERS
    }
    assert all(webhook["clientConfig"]["caBundle"] == "Q0E=" for webhook in webhooks)


def labelled(owned: bool = False, **labels: str) -> dict[str, Any]:
    item = a_pod()
    item["metadata"]["labels"] = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    if owned:
        item["metadata"]["ownerReferences"] = [{"name": "job"}]
    return item


@pytest.mark.parametrize(
    ("new", "seen"),
    [
        (labelled(kai_scheduler__queue="team"), False),
        (labelled(kai_scheduler__queu="team"), True),
        (labelled(owned=True, kai_scheduler__queu="team"), False),
        (labelled(app="kaiser"), False),
        (labelled(priorityClassName="train"), False),
        (labelled(priorityClassName="trian"), True),
        (a_pod(gpu_fractoin="0.5"), True),
    ],
)
def test_pods_with_odd_names_are_validated_but_not_changed(new: dict[str, Any], seen: bool) -> None:
    pods, _ = validating_pods(SERVICE, PodSelection())["webhooks"]
    (mutating,) = mutating_pods(SERVICE, PodSelection())["webhooks"]
    assert (sees(pods, None, new), sees(mutating, None, new)) == (seen, False)


CLOUD = {"key": "control-plane", "operator": "DoesNotExist"}


def live(**changes: Any) -> dict[str, Any]:
    configuration = mutating_pods(service_client("kai-scheduler", "old", b"OLD"), PodSelection())
    configuration["metadata"]["annotations"] = {"cloud": "yes"}
    configuration["metadata"]["resourceVersion"] = "5"
    selector = {"matchExpressions": [{**SYSTEM, "values": ["old"]}, CLOUD]}
    configuration["webhooks"][0] |= {
        "namespaceSelector": selector,
        "timeoutSeconds": 7,
        "matchPolicy": "Exact",
        **changes,
    }
    return configuration


def test_what_others_added_survives_and_what_is_ours_is_renewed() -> None:
    after = merged(mutating_pods(SERVICE, PodSelection()), live(failurePolicy="Ignore"))
    (webhook,) = after["webhooks"]
    assert after["metadata"]["annotations"] == {"cloud": "yes"}
    assert webhook["namespaceSelector"] == {"matchExpressions": [SYSTEM, CLOUD]}
    assert (webhook["timeoutSeconds"], webhook["matchPolicy"]) == (7, "Exact")
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["clientConfig"] == client_of("/mutate--v1-pod")
    assert merged(mutating_pods(SERVICE, PodSelection()), live(clientConfig=None))["webhooks"] == [webhook]


def test_annotations_of_ours_are_renewed_beside_those_of_others() -> None:
    desired, present = mutating_pods(SERVICE, PodSelection()), live()
    desired["metadata"]["annotations"] = {"stamp": "new"}
    present["metadata"]["annotations"]["stamp"] = "old"
    assert merged(desired, present)["metadata"]["annotations"] == {"cloud": "yes", "stamp": "new"}


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {"team": "a"}}])
def test_a_live_selector_without_expressions_adds_none(selector: dict[str, Any] | None) -> None:
    (webhook,) = merged(mutating_pods(SERVICE, PodSelection()), live(namespaceSelector=selector))["webhooks"]
    assert webhook["namespaceSelector"] == {"matchExpressions": [SYSTEM]}


def test_nothing_is_inherited_when_the_number_of_webhooks_changed() -> None:
    desired = validating_pods(SERVICE, PodSelection())
    after = merged(desired, live())
    assert after["webhooks"] == desired["webhooks"]
    assert after["metadata"]["annotations"] == {"cloud": "yes"}


@pytest.mark.parametrize("present", [{"metadata": {}}, {"metadata": {}, "webhooks": None}])
def test_an_empty_live_object_is_overwritten(present: dict[str, Any]) -> None:
    desired = mutating_pods(SERVICE, PodSelection())
    assert merged(desired, present) == desired


def test_authorities_that_were_trusted_until_now_stay_trusted() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    old, new = (issue(["a"], moment + timedelta(days=days)).authority for days in (0, 1))
    present, desired = (mutating_pods(url_client("https://a:1", each), PodSelection()) for each in (old, new))
    after = merged(desired, present)
    client = after["webhooks"][0]["clientConfig"]
    assert (base64.b64decode(client["caBundle"]), client["url"]) == (new + old, "https://a:1/mutate--v1-pod")
    assert merged(desired, after) == after
