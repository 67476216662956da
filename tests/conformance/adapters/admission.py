"""Admission cases: one function of the product per decision; error texts must begin with the recorded wording.

Which container receives the share is compared by the fact of an error only: its wording goes beyond the recorded one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from msgspec import convert

from pykai.admission.pod_mutation import container_at, fraction_container_of, mutable_copy
from pykai.admission.pod_rules import set_runtime_class
from pykai.admission.podgroup_rules import examine
from pykai.admission.review import (
    VALIDATE_POD_GROUP,
    VALIDATE_QUEUE,
    VALIDATE_TOPOLOGY,
    AdmissionRequest,
    AdmissionRules,
    judge,
)
from pykai.admission.shared_gpus import (
    check_device_access,
    check_gpu_request,
    connect_share,
    hide_devices,
    limit_memory,
)
from pykai.admission.verdict import AdmissionVerdict, DeniedError
from pykai.objects.gpu_request import INIT_CONTAINER, REGULAR_CONTAINER, ContainerRef
from pykai.objects.kinds import PodGroupSpec
from tests.conformance.cases import choose

Case = dict[str, Any]
SUFFIX = "abc1234"
RANDOM = re.compile(r"<random7>")
NEWER_WARNINGS = re.compile(
    r"total children (GPU|Memory) quota .* exceeds parent queue |.* quota \(unlimited\) exceeds "
)
"""What KAI 0.18 added: the cases describe v0.17."""
OLDER_WARNINGS = re.compile(r".* quota \(.*\) exceeds parent .*quota \(-1(\.00)?\)")
"""What KAI 0.18 dropped: an unlimited quota is exceeded by none."""


def _config(case: Case) -> Case:
    return case["input"].get("config") or {}


MUTATIONS: dict[str, Callable[[Case, Case], None]] = {
    "gpusharing": lambda mutated, config: connect_share(mutated, SUFFIX),
    "hamicore": lambda mutated, config: limit_memory(mutated),
    "deviceaccess": lambda mutated, config: hide_devices(mutated),
    "runtimeenforcement": lambda mutated, config: set_runtime_class(
        mutated, config.get("gpu_fraction_runtime_class_name", "")
    ),
}
CHECKS: dict[str, Callable[[Case, Case], None]] = {
    "gpusharing": lambda pod, config: check_gpu_request(pod, config.get("gpu_sharing_enabled", False)),
    "deviceaccess": lambda pod, config: check_device_access(pod),
    "hamicore": lambda pod, config: None,
    "runtimeenforcement": lambda pod, config: None,
}


def _wording(expected: str, actual: str) -> list[str]:
    return [] if actual.startswith(expected) else [f"error {actual!r}, expected {expected!r}"]


def _verdict(expected: Case, verdict: AdmissionVerdict) -> list[str]:
    bad = [] if verdict.allowed == expected["allowed"] else [f"allowed {verdict.allowed}: {verdict.message}"]
    bad += _wording(expected.get("error", ""), verdict.message)
    warnings = [each for each in verdict.warnings if not NEWER_WARNINGS.match(each)]
    if warnings != [each for each in expected.get("warnings") or [] if not OLDER_WARNINGS.match(each)]:
        bad.append(f"warnings {warnings}, expected {expected.get('warnings')}")
    return bad


def _judge(check: Callable[[], None]) -> AdmissionVerdict:
    try:
        check()
    except DeniedError as refusal:
        return AdmissionVerdict(False, refusal.message, refusal.warnings)
    return AdmissionVerdict()


def _mutation(case: Case, plugin: str) -> list[str]:
    expected, pod = case["expected"], case["input"]["pod"]
    mutated, mutate = mutable_copy(pod), choose(MUTATIONS, plugin)
    outcome = _judge(lambda: mutate(mutated, _config(case)))
    if "error" in expected or not outcome.allowed:
        return _wording(expected.get("error", "no error"), outcome.message)
    wanted = json.loads(RANDOM.sub(SUFFIX, json.dumps(expected["pod"])))
    bad = [] if mutated == wanted else [f"pod {mutated}, expected {wanted}"]
    if (mutated != pod) != expected["mutated"]:
        bad.append(f"mutated {mutated != pod}")
    return bad


def pods(case: Case, document: Case) -> list[str]:
    plugin, _, method = case["function"].split(".", 2)
    if method == "Mutate":
        return _mutation(case, plugin)
    check, pod = choose(CHECKS, plugin), case["input"]["pod"]
    return _verdict(case["expected"], _judge(lambda: check(pod, _config(case))))


def _container(pod: Case) -> Case | None:
    try:
        place: ContainerRef = fraction_container_of(pod)
    except DeniedError:
        return None
    kind = INIT_CONTAINER if place.init else REGULAR_CONTAINER
    return {"container": container_at(pod, place), "index": place.index, "type": kind}


def gpu_request(case: Case, document: Case) -> list[str]:
    pod, expected = case["input"]["pod"], case["expected"]
    if case["function"].endswith("ValidateGpuRequests"):
        return _verdict(expected, _judge(lambda: check_gpu_request(pod, sharing_enabled=True)))
    wanted = {"index": 0, **expected["container"]} if "container" in expected else None
    actual = _container(pod)
    return [] if actual == wanted else [f"container {actual}, expected {wanted}"]


def _admission(case: Case) -> AdmissionRules:
    held = [entry["object"] for entry in case["input"].get("cluster_objects") or []]
    flags = {**case["input"], **_config(case)}
    compare = any(value is True for key, value in flags.items() if "quotavalidation" in key.lower().replace("_", ""))
    return AdmissionRules(queues=lambda: {item["metadata"]["name"]: item for item in held}, compare_quotas=compare)


def _request(case: Case, kind: str) -> AdmissionRequest:
    given, operation = case["input"], case["function"].rsplit(".Validate", 1)[1].upper()
    item = given.get(f"new_{kind}", given.get(kind))
    if operation == "DELETE":
        return AdmissionRequest(uid="1", operation=operation, old_object=item)
    return AdmissionRequest(uid="1", operation=operation, object=item, old_object=given.get(f"old_{kind}"))


def _reviewed(path: str, kind: str) -> Callable[[Case], list[str]]:
    return lambda case: _verdict(case["expected"], judge(path, _request(case, kind), _admission(case)))


def _pod_group(case: Case) -> list[str]:
    if ".Validate" in case["function"]:
        return _reviewed(VALIDATE_POD_GROUP, "pod_group")(case)
    given = case["input"]
    return _tree(case["expected"], given.get("spec", {"subGroups": given.get("sub_groups")}))


def _tree(expected: Case, spec: Case) -> list[str]:
    try:
        findings = [finding.message for finding in examine(convert(spec, PodGroupSpec))]
        actual: Case = {"valid": not findings, **({"min_definition_errors": findings} if findings else {})}
    except DeniedError as refusal:
        actual = {"valid": False, "structural_error": refusal.message}
    return [] if actual == expected else [f"{actual}, expected {expected}"]


CRDS: dict[str, Callable[[Case], list[str]]] = {
    "queuehooks": _reviewed(VALIDATE_QUEUE, "queue"),
    "topologyhooks": _reviewed(VALIDATE_TOPOLOGY, "topology"),
    "v2alpha2": _pod_group,
}


def crds(case: Case, document: Case) -> list[str]:
    return choose(CRDS, case["function"].split(".")[0])(case)


SUITES = {"admission/pods": pods, "admission/gpu_request": gpu_request, "admission/crds": crds}
