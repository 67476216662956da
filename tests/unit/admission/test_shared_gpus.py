"""What annotations ask of a GPU, and the names made for the container that gets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from jsonpatch import apply_patch

from pykai.admission.pod_rules import PodChange, PodCreation, PodSettings, mutate_pod, validate_pod, validate_pod_update
from pykai.admission.review import MUTATE_POD, VALIDATE_POD, AdmissionRequest, AdmissionRules, UserInfo, judge
from pykai.objects.gpu_request import (
    ContainerRef,
    GpuRequestError,
    SharedGpuNames,
    check,
    check_configmap_prefix,
    fraction_container,
    new_configmap_prefix,
    portion,
    positive_count,
    shared_gpu_names,
    shares_gpu,
)
from tests.unit.admission.bad_input_pods import pod

MAIN = ContainerRef("main", 0, init=False)
NAME, TYPE = "gpu-fraction-container-name", "gpu-fraction-container-type"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), (".25", 0.25), ("5e-1", 0.5), ("+0.2", 0.2), ("1.2E-10", 1.2e-10), ("1", None), ("nan", None)],
)
def test_portion(text: str, value: float | None) -> None:
    assert portion(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("007", 7), (str(2**64 - 1), 2**64 - 1), (str(2**64), None), ("0", None), ("", None)]
)
def test_positive_count(text: str, value: int | None) -> None:
    assert positive_count(text) == value


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "mps": "true"},
        {"gpu-memory": "2000", "gpu-fraction-num-devices": "4"},
        {"mps": "false"},
        {"gpu-fraction": "0." + "3" * 10_000},
    ],
)
def test_requests_that_are_in_order(annotations: dict[str, str]) -> None:
    check(annotations, whole_gpu_limit=False)


def test_a_whole_gpu_needs_no_annotation() -> None:
    check({}, whole_gpu_limit=True)


def test_a_share_is_asked_for_even_when_its_value_is_bad() -> None:
    assert shares_gpu({"gpu-fraction": ""})
    assert shares_gpu({"gpu-memory": "x"})
    assert not shares_gpu({"gpu-fraction-num-devices": "2", "mps": "true"})


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ContainerRef("main", 0, init=False)),
        ({NAME: ""}, ContainerRef("main", 0, init=False)),
        ({NAME: "side"}, ContainerRef("side", 1, init=False)),
        ({NAME: "warm"}, ContainerRef("warm", 1, init=True)),
        ({TYPE: "InitContainer"}, ContainerRef("load", 0, init=True)),
        ({TYPE: "InitContainer", NAME: "warm"}, ContainerRef("warm", 1, init=True)),
        ({TYPE: "RegularContainer"}, ContainerRef("main", 0, init=False)),
        ({TYPE: "RegularContainer", NAME: "side"}, ContainerRef("side", 1, init=False)),
        ({TYPE: ""}, ContainerRef("main", 0, init=False)),
    ],
)
def test_the_container_that_receives_the_share(annotations: dict[str, str], expected: ContainerRef) -> None:
    assert fraction_container(annotations, ["load", "warm"], ["main", "side"]) == expected


def test_a_name_that_both_kinds_carry_is_the_init_container_unless_the_type_says_otherwise() -> None:
    assert fraction_container({NAME: "x"}, ["x"], ["x"]).init
    assert not fraction_container({NAME: "x", TYPE: "RegularContainer"}, ["x"], ["x"]).init


def test_a_pod_without_containers_has_none_to_give_to() -> None:
    with pytest.raises(GpuRequestError, match="no regular container found"):
        fraction_container({}, ["load"], [])


@pytest.mark.parametrize(
    ("base", "container", "prefix"),
    [
        ("train", MAIN, "train-abc1234-shared-gpu"),
        ("", MAIN, "abc1234-shared-gpu"),
        ("job-", MAIN, "job-abc1234-shared-gpu"),
        ("a" * 60, MAIN, "a" * 33 + "-abc1234-shared-gpu"),
        ("a" * 60, ContainerRef("c", 10, init=False), "a" * 32 + "-abc1234-shared-gpu"),
        ("a" * 31 + "..-b", MAIN, "a" * 31 + "-abc1234-shared-gpu"),
    ],
)
def test_new_prefix(base: str, container: ContainerRef, prefix: str) -> None:
    assert new_configmap_prefix(base, "abc1234", container) == prefix


@pytest.mark.parametrize("index", [0, 9, 10, 99])
@pytest.mark.parametrize("init", [False, True])
def test_every_name_made_from_a_new_prefix_is_valid(index: int, init: bool) -> None:
    place = ContainerRef("c", index, init)
    prefix = new_configmap_prefix("very.long-name" * 20, "abc1234", place)
    check_configmap_prefix(prefix, place)
    assert len(shared_gpu_names(prefix, place).volume) <= 63


def test_names_of_a_share() -> None:
    assert shared_gpu_names("My.pod-x", ContainerRef("c", 2, init=True)) == SharedGpuNames(
        capabilities="My.pod-x-i2", environment="My.pod-x-i2-evar", volume="my-pod-x-i2-vol"
    )


@pytest.mark.parametrize("prefix", ["Upper", "a/b", "-a", "a-", "a..b", "ä", "a" * 57, "a b", ""])
def test_a_prefix_by_hand_must_make_valid_names(prefix: str) -> None:
    with pytest.raises(GpuRequestError, match="runai/shared-gpu-configmap annotation value must be a lower-case DNS"):
        check_configmap_prefix(prefix, MAIN)


@pytest.mark.parametrize("text", ["9" * 250_000 + "x", "0." + "9" * 250_000 + "x", "0x" + "1" * 250_000])
def test_an_annotation_full_of_digits_is_read_in_one_pass(text: str) -> None:
    with pytest.raises(GpuRequestError, match=r"must be a positive number smaller than 1\.0"):
        check({"gpu-fraction": text}, whole_gpu_limit=False)


BINDER = "system:serviceaccount:kai-scheduler:binder"
SETTINGS = PodSettings(nvfractions=True, fraction_runtime_class="", binder_account=BINDER)
KEY = "nvidia.com/container."
REQUEST, LIMIT, MODE = (
    f"{KEY}main.{suffix}" for suffix in ("gpu-memory.request", "gpu-memory.limit", "gpu-compute.mode")
)
DEVICES = f"{KEY}main.gpus.devices"
PORTION_LIMIT = "kai.scheduler/container.main.gpu-memory.portion.limit"
CONTAINERS: list[dict[str, Any]] = [{"name": "main"}, {"name": "side"}]
WHOLE: list[dict[str, Any]] = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
HALF = {"gpu-fraction": "0.5"}


def a_pod(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    return pod(annotations, **{"containers": CONTAINERS, **spec})


def mutated(annotations: dict[str, str], **spec: Any) -> dict[str, str]:
    item = a_pod(annotations, **spec)
    verdict = mutate_pod(item, PodCreation("team", "abc1234"), SETTINGS)
    assert verdict.allowed, verdict.message
    after = apply_patch(item, list(verdict.patch))
    assert after["spec"] == item["spec"], "no ConfigMap is connected in this mode"
    again = mutate_pod(after, PodCreation("team", "abc1234"), SETTINGS)
    assert (again.allowed, again.patch) == (True, ()), "a second pass changes nothing"
    found: dict[str, str] = after["metadata"].get("annotations") or {}
    return {name: text for name, text in found.items() if annotations.get(name) != text}


def refusal(annotations: dict[str, str], **spec: Any) -> str:
    verdict = validate_pod(a_pod(annotations, **spec), SETTINGS, PodChange("jane"))
    return "" if verdict.allowed else verdict.message


@pytest.mark.parametrize(
    ("annotations", "added"),
    [
        ({}, {}),
        (HALF, {}),
        ({"gpu-memory": "2000"}, {REQUEST: "2000Mi"}),
        ({"gpu-memory": "2000", REQUEST: "2000Mi"}, {}),
        ({"gpu-memory": "2048", REQUEST: "2Gi"}, {}),
        ({"gpu-memory": "2000", MODE: "sm-sharing"}, {REQUEST: "2000Mi"}),
        ({"gpu-memory": "2000", "gpu-fraction-container-name": "side"}, {f"{KEY}side.gpu-memory.request": "2000Mi"}),
        (
            {"gpu-memory": "2000", f"{KEY}side.gpu-compute.mode": "time-slicing"},
            {f"{KEY}side.gpu-memory.request": "2000Mi"},
        ),
        ({"gpu-memory": "2000", "gpu-memory.limit": "4Gi"}, {REQUEST: "2000Mi", LIMIT: "4Gi"}),
        ({**HALF, "gpu-fraction.limit": "0.75"}, {PORTION_LIMIT: "0.75"}),
        ({REQUEST: "2Gi", LIMIT: "4Gi"}, {}),
        ({"gpu-fraction-num-devices": "2"}, {}),
        ({"gpu-memory.limit": "4Gi"}, {}),
    ],
)
def test_the_container_that_receives_the_share_is_annotated(annotations: dict[str, str], added: dict[str, str]) -> None:
    assert mutated(annotations) == added


def test_init_containers_are_searched_first() -> None:
    init = {"initContainers": [{"name": "side"}, {"name": "load"}]}
    named = {"gpu-memory": "10", "gpu-fraction-container-name": "side"}
    assert mutated(named, **init) == {f"{KEY}side.gpu-memory.request": "10Mi"}
    typed = {"gpu-memory": "10", "gpu-fraction-container-type": "InitContainer"}
    assert mutated(typed, **init) == {f"{KEY}side.gpu-memory.request": "10Mi"}


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"gpu-memory": "2000", REQUEST: "3000Mi"}, f"gpu-memory annotation conflicts with {REQUEST} annotation"),
        ({"gpu-memory": "2Gi"}, "failed to parse gpu memory annotation value: 2Gi is no number of MiB above 0"),
        (
            {"gpu-memory": "2000", "gpu-memory.limit": "4Gi", LIMIT: "5Gi"},
            f"gpu-memory.limit annotation conflicts with {LIMIT} annotation",
        ),
        (
            {**HALF, "gpu-fraction.limit": "0.75", PORTION_LIMIT: "0.8"},
            f"gpu-fraction.limit annotation conflicts with {PORTION_LIMIT} annotation",
        ),
    ],
)
def test_annotations_that_contradict_each_other_are_not_rewritten(annotations: dict[str, str], text: str) -> None:
    verdict = mutate_pod(a_pod(annotations), PodCreation("team", "abc1234"), SETTINGS)
    assert (verdict.allowed, verdict.message) == (False, text)


MANY = "cannot request multiple fractional devices without specifying fraction details (portion or memory)"
BOTH = "cannot have both GPU fraction request and whole GPU resource request/limit"
COMBINED = "cannot combine nvidia.com/container. limit annotation with gpu-fraction or gpu-memory annotation"
QUANTITY = "annotation value must be a valid Kubernetes memory quantity greater than 0"
UNIT = "gpu-memory.limit annotation value must be a positive Kubernetes memory quantity with a unit"


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({REQUEST: "2Gi"}, ""),
        ({LIMIT: "2Gi"}, ""),
        ({REQUEST: "2Gi", LIMIT: "2Gi", MODE: "sm-sharing", "gpu-fraction-num-devices": "2"}, ""),
        ({"gpu-memory": "2000", REQUEST: "2000Mi"}, ""),
        ({"gpu-memory": "2000", REQUEST: "2000Mi", "gpu-memory.limit": "4Gi", LIMIT: "4Gi"}, ""),
        ({**HALF, PORTION_LIMIT: "0.75"}, ""),
        ({**HALF, MODE: "sm-sharing"}, ""),
        ({REQUEST: "2Gi", "mps": "true"}, ""),
        # 1: the binder's
        ({DEVICES: "0"}, f".gpus.devices annotations may only be modified by {BINDER}"),
        (
            {f"{KEY}gone.gpus.devices": "0"},
            "container gone not found in pod spec, but a fractional annotation referencing it was found",
        ),
        # 2: the limit of a portion
        (
            {PORTION_LIMIT: "0.8"},
            f"{PORTION_LIMIT} annotation can only be used together with the gpu-fraction annotation",
        ),
        (
            {
                **HALF,
                "kai.scheduler/container.side.gpu-memory.portion.limit": "0.8",
                "gpu-fraction-container-name": "side",
            },
            "",
        ),
        (
            {**HALF, PORTION_LIMIT: "0.812345"},
            f"{PORTION_LIMIT} annotation value must have at most 5 digits after the decimal point",
        ),
        (
            {**HALF, PORTION_LIMIT: "1.5"},
            f"{PORTION_LIMIT} annotation value must be a positive number smaller than 1.0",
        ),
        (
            {**HALF, PORTION_LIMIT: "much"},
            f"{PORTION_LIMIT} annotation value must be a positive number smaller than 1.0",
        ),
        (
            {**HALF, PORTION_LIMIT: "0.5"},
            f"{PORTION_LIMIT} annotation value (0.5) must be greater than gpu-fraction annotation value (0.5)",
        ),
        (
            {"gpu-fraction.limit": "0.8"},
            "gpu-fraction.limit annotation can only be used together with the gpu-fraction annotation",
        ),
        (
            {"kai.scheduler/container.main.gpu": "1"},
            "invalid NvFractions annotation key: kai.scheduler/container.main.gpu",
        ),
        # the shorthand of the memory limit
        (
            {"gpu-memory.limit": "4Gi"},
            "gpu-memory.limit annotation can only be used together with the gpu-memory annotation",
        ),
        ({"gpu-memory": "2000", "gpu-memory.limit": "4000"}, UNIT),
        ({"gpu-memory": "2000", "gpu-memory.limit": "-4Gi"}, UNIT),
        (
            {"gpu-memory": "2000", "gpu-memory.limit": "1Gi"},
            "gpu-memory.limit annotation value (1Gi) must not be below gpu-memory annotation value (2000 MiB)",
        ),
        # 3: keys and values
        ({f"{KEY}main.gpu-memory": "1"}, f"invalid NvFractions annotation key: {KEY}main.gpu-memory"),
        ({f"{KEY}.gpu-memory.request": "1"}, f"invalid NvFractions annotation key: {KEY}.gpu-memory.request"),
        (
            {f"{KEY}main.gpu-compute-sharing-mode": "sm-sharing"},
            f"invalid NvFractions annotation key: {KEY}main.gpu-compute-sharing-mode",
        ),
        ({REQUEST: "0"}, f"{REQUEST} {QUANTITY}"),
        ({LIMIT: "two"}, f"{LIMIT} {QUANTITY}"),
        ({REQUEST: "1Gi", MODE: "mps"}, "invalid NvFractions compute mode: mps"),
        # 4
        ({"gpu-fraction-num-devices": "2"}, MANY),
        ({"gpu-fraction-num-devices": "2", MODE: "sm-sharing"}, MANY),
        # 5: containers
        (
            {f"{KEY}gone.gpu-memory.request": "1Gi"},
            "container gone not found in pod spec, but a fractional annotation referencing it was found",
        ),
        ({REQUEST: "2Gi", LIMIT: "1Gi"}, "invalid fraction request for container main: request is greater than limit"),
        (
            {REQUEST: "2Gi", f"{KEY}side.gpu-memory.request": "1Gi"},
            "currently, kai doesn't support multiple containers with fractional GPU requests",
        ),
        (
            {REQUEST: "2Gi", "gpu-fraction-container-name": "side"},
            "gpu-fraction-container-name annotation value side does not match container name main",
        ),
        # 7: several forms
        ({**HALF, LIMIT: "1Gi"}, COMBINED),
        ({"gpu-memory": "1024", LIMIT: "1Gi"}, COMBINED),
        ({**HALF, REQUEST: "1Gi"}, "cannot request both gpu-fraction and GPU memory request"),
        (
            {"gpu-memory": "2000", REQUEST: "1Gi"},
            "NvFractions memory request (1Gi) does not match gpu-memory annotation value (2000 MiB)",
        ),
        # what holds in every mode
        ({"mps": "true"}, "MPS is only supported with GPU fraction request"),
        (
            {REQUEST: "1Gi", "gpu-fraction-num-devices": "none"},
            "fraction count annotation value must be a positive integer greater than 0, given value: none",
        ),
        (
            {**HALF, "gpu-fraction-container-name": "gone"},
            "failed to get fraction container ref: container with name gone not found for fraction request",
        ),
    ],
)
def test_the_first_broken_rule_is_told(annotations: dict[str, str], text: str) -> None:
    assert refusal(annotations) == text


@pytest.mark.parametrize("share", [HALF, {"gpu-memory": "10"}, {REQUEST: "1Gi"}])
def test_whole_gpus_beside_a_share_are_refused(share: dict[str, str]) -> None:
    assert refusal(share, containers=WHOLE) == BOTH
    assert refusal(share, initContainers=[{**WHOLE[0], "name": "load"}]) == BOTH


def test_a_portion_limit_of_another_container_is_refused() -> None:
    other = "kai.scheduler/container.side.gpu-memory.portion.limit"
    found = refusal({**HALF, MODE: "time-slicing", other: "0.8"})
    assert found == f"{other} annotation must be of the container of the fraction, main"


@pytest.mark.parametrize(
    ("user", "before", "binder", "text"),
    [
        (BINDER, None, BINDER, ""),
        ("jane", {DEVICES: "0"}, BINDER, ""),
        ("jane", {DEVICES: "1"}, BINDER, f".gpus.devices annotations may only be modified by {BINDER}"),
        ("jane", {}, BINDER, f".gpus.devices annotations may only be modified by {BINDER}"),
        (BINDER, {}, BINDER, ""),
        (
            BINDER,
            {},
            "",
            "binder service account username is not configured, cannot validate nvfractions device annotations change",
        ),
    ],
)
def test_only_the_binder_writes_devices(user: str, before: dict[str, str] | None, binder: str, text: str) -> None:
    settings, item = replace(SETTINGS, binder_account=binder), a_pod({REQUEST: "1Gi", DEVICES: "0"})
    if before is None:
        verdict = validate_pod(item, settings, PodChange(user))
    else:
        verdict = validate_pod_update(item, a_pod({REQUEST: "1Gi", **before}), settings, user)
    assert (verdict.allowed, verdict.message) == (not text, text)


def test_the_user_of_a_request_reaches_the_rules() -> None:
    item, admission = a_pod({REQUEST: "1Gi", DEVICES: "0"}), AdmissionRules(SETTINGS)
    for user, allowed in ((BINDER, True), ("jane", False)):
        request = AdmissionRequest(uid="1", operation="CREATE", object=item, user_info=UserInfo(username=user))
        assert judge(VALIDATE_POD, request, admission).allowed is allowed


def test_what_the_binder_made_of_a_fraction_is_no_second_request() -> None:
    written = {**HALF, PORTION_LIMIT: "0.75", REQUEST: "1000Mi", LIMIT: "1500Mi", DEVICES: "0"}
    bound = a_pod(written, nodeName="node-1")
    assert validate_pod_update(bound, a_pod(written, nodeName="node-1"), SETTINGS, "jane").allowed


def test_pods_that_share_nothing_are_left_alone_and_the_runtime_class_is_set_for_the_others() -> None:
    settings = replace(SETTINGS, fraction_runtime_class="nvidia")
    for asked, wanted in (({}, None), ({REQUEST: "1Gi"}, "nvidia"), (HALF, "nvidia")):
        request = AdmissionRequest(uid="1", operation="CREATE", namespace="team", object=a_pod(asked))
        verdict = judge(MUTATE_POD, request, AdmissionRules(settings))
        after = apply_patch(a_pod(asked), list(verdict.patch))
        assert after["spec"].get("runtimeClassName") == wanted


@pytest.mark.parametrize("sharing", [True, False])
def test_in_other_modes_annotations_of_containers_are_refused_with_the_mode_to_set(sharing: bool) -> None:
    verdict = validate_pod(a_pod({REQUEST: "1Gi"}), PodSettings(gpu_sharing=sharing))
    assert not verdict.allowed
    assert ("global.gpuSharingMode=NvFractions" if sharing else "global.gpuSharing=true") in verdict.message
