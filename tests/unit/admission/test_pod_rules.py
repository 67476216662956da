"""What admission does to the pods of our scheduler, as the API server sees it: the pod after the patch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonpatch import apply_patch
from msgspec import json

from pykai.admission.pod_mutation import difference
from pykai.admission.pod_rules import (
    PodCreation,
    PodSettings,
    fraction_runtime_class,
    mutate_pod,
    validate_pod,
    validate_pod_update,
)
from pykai.admission.review import VALIDATE_POD, AdmissionRequest, AdmissionRules, judge
from pykai.admission.verdict import AdmissionVerdict
from tests.unit.admission.bad_input_pods import pod

ARRIVAL = PodCreation("team", "abc1234")
SHARING = PodSettings(gpu_sharing=True, fraction_runtime_class="")
ALL = PodSettings(gpu_sharing=True, hami_core=True, block_visible_devices=True)
INIT = {"initContainers": [{"name": "load"}, {"name": "warm"}]}
HALF = {"gpu-fraction": "0.5"}


def changed(item: dict[str, Any], settings: PodSettings = SHARING, arrival: PodCreation = ARRIVAL) -> dict[str, Any]:
    before = deepcopy(item)
    verdict = mutate_pod(item, arrival, settings)
    assert verdict.allowed, verdict.message
    assert item == before, "the pod that came in was changed"
    result: dict[str, Any] = apply_patch(item, list(verdict.patch))
    return result


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Variable -> its literal value, or the ConfigMap its value comes from."""
    return {
        entry["name"]: entry["valueFrom"]["configMapKeyRef"]["name"] if "valueFrom" in entry else entry["value"]
        for entry in container.get("env", [])
    }


@pytest.mark.parametrize(
    ("annotations", "field", "index", "mark"),
    [
        ({}, "containers", 0, "0"),
        ({"gpu-fraction-container-name": "side"}, "containers", 1, "1"),
        ({"gpu-fraction-container-name": "warm"}, "initContainers", 1, "i1"),
        ({"gpu-fraction-container-type": "InitContainer"}, "initContainers", 0, "i0"),
        (
            {"gpu-fraction-container-type": "InitContainer", "gpu-fraction-container-name": "warm"},
            "initContainers",
            1,
            "i1",
        ),
    ],
)
@pytest.mark.parametrize("share", [HALF, {"gpu-memory": "2000"}])
def test_one_container_and_only_that_one_is_connected(
    share: dict[str, str], annotations: dict[str, str], field: str, index: int, mark: str
) -> None:
    after = changed(pod({**share, **annotations}, containers=[{"name": "main"}, {"name": "side"}], **INIT))
    capabilities = f"train-abc1234-shared-gpu-{mark}"
    holder = after["spec"][field][index]
    assert environment(holder) == dict.fromkeys(
        ["NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"], capabilities
    )
    assert holder["envFrom"] == [{"configMapRef": {"name": f"{capabilities}-evar", "optional": False}}]
    assert after["spec"]["volumes"] == [{"name": f"{capabilities}-vol", "configMap": {"name": capabilities}}]
    others = [c for c in after["spec"]["initContainers"] + after["spec"]["containers"] if c is not holder]
    assert all(set(container) == {"name"} for container in others)


@pytest.mark.parametrize("containers", [{"containers": []}, {}])
def test_a_pod_without_containers_is_left_to_the_api_server(containers: dict[str, Any]) -> None:
    item = pod(HALF)
    item["spec"] = {"schedulerName": item["spec"]["schedulerName"], **containers}
    assert changed(item, replace(ALL, fraction_runtime_class="")) == item


def test_a_second_pass_changes_nothing() -> None:
    settings = replace(ALL, fraction_runtime_class="nvidia")
    once = changed(pod(HALF, containers=[{"name": "main"}, {"name": "side"}]), settings)
    # What the API server fills in between two passes.
    once["spec"]["volumes"][0]["configMap"]["defaultMode"] = 420
    assert mutate_pod(once, PodCreation("team", "zzz9999"), settings) == AdmissionVerdict()


def test_what_the_container_brought_is_replaced_in_place_and_the_rest_is_kept() -> None:
    env = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "HOME", "value": "/home/me"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
        {"name": "GPU_PORTION", "value": "1"},
    ]
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "train-abc1234-shared-gpu-0-vol", "emptyDir": {}}]
    sources = [{"secretRef": {"name": "s"}}]
    after = changed(pod(HALF, containers=[{"name": "main", "env": env, "envFrom": sources}], volumes=volumes))
    container = after["spec"]["containers"][0]
    assert [entry["name"] for entry in container["env"]] == [
        "NVIDIA_VISIBLE_DEVICES",
        "HOME",
        "GPU_PORTION",
        "RUNAI_NUM_OF_GPUS",
    ]
    assert environment(container)["HOME"] == "/home/me"
    assert container["envFrom"][0] == {"secretRef": {"name": "s"}}
    assert [volume["name"] for volume in after["spec"]["volumes"]] == ["data", "train-abc1234-shared-gpu-0-vol"]
    assert after["spec"]["volumes"][1]["configMap"] == {"name": "train-abc1234-shared-gpu-0"}


@pytest.mark.parametrize(
    ("metadata", "prefix"),
    [
        ({"name": "p", "ownerReferences": [{"name": "rs-1"}, {"name": "other"}]}, "rs-1-abc1234-shared-gpu"),
        ({"generateName": "worker-"}, "worker-abc1234-shared-gpu"),
        ({}, "abc1234-shared-gpu"),
        ({"name": "p", "annotations": {**HALF, "runai/shared-gpu-configmap": "mine"}}, "mine"),
        ({"name": "p", "annotations": {**HALF, "runai/shared-gpu-configmap": ""}}, "p-abc1234-shared-gpu"),
    ],
)
def test_the_prefix_of_the_names(metadata: dict[str, Any], prefix: str) -> None:
    item = {**pod(), "metadata": {"annotations": HALF, **metadata}}
    assert changed(item)["metadata"]["annotations"]["runai/shared-gpu-configmap"] == prefix


def test_a_prefix_by_hand_that_cannot_be_a_name_is_refused() -> None:
    verdict = mutate_pod(pod({**HALF, "runai/shared-gpu-configmap": "Not A Name"}), ARRIVAL, SHARING)
    assert not verdict.allowed
    assert verdict.message.endswith("of at most 56 characters, given value: Not A Name")


@pytest.mark.parametrize(
    ("own", "requested", "after"), [("team", "team", "team"), (None, "team", "team"), ("team", "", "team")]
)
def test_the_namespace_is_written_into_the_pod(own: str | None, requested: str, after: str) -> None:
    item = {**pod(), "metadata": {"name": "p", **({"namespace": own} if own else {})}}
    assert changed(item, arrival=PodCreation(requested, "abc1234"))["metadata"]["namespace"] == after


def test_a_pod_for_another_namespace_is_refused() -> None:
    verdict = mutate_pod(pod(), PodCreation("other", "abc1234"), SHARING)
    expected = "error: the namespace from the provided object team does not match the namespace other"
    assert verdict == AdmissionVerdict(False, expected)


def test_hami_core_limits_memory() -> None:
    after = changed(pod(HALF), replace(SHARING, hami_core=True))
    entry = after["spec"]["containers"][0]["env"][-1]
    reference = {"name": "train-abc1234-shared-gpu-0", "key": "CUDA_DEVICE_MEMORY_LIMIT", "optional": True}
    assert entry == {"name": "CUDA_DEVICE_MEMORY_LIMIT", "valueFrom": {"configMapKeyRef": reference}}


GPU = {"requests": {"nvidia.com/gpu": "1"}}
BLOCK = replace(SHARING, block_visible_devices=True)


@pytest.mark.parametrize(
    ("resources", "hidden"),
    [
        ({}, True),
        ({"requests": {"cpu": "1"}}, True),
        (GPU, False),
        ({"requests": {"nvidia.com/gpu": 1}}, False),
        ({"requests": {"nvidia.com/gpu": "0"}}, True),
        ({"requests": {"nvidia.com/mig-1g.5gb": "2"}}, False),
        ({"requests": {"nvidia.com/mig-1g.5gb": "0"}}, True),
        ({"requests": {"nvidia.com/gpu": "what"}}, True),
        ({"limits": {"nvidia.com/gpu": "1"}}, True),
    ],
)
def test_containers_without_device_see_none(resources: dict[str, Any], hidden: bool) -> None:
    after = changed(pod(containers=[{"name": "main", "resources": resources}]), BLOCK)
    assert environment(after["spec"]["containers"][0]) == ({"NVIDIA_VISIBLE_DEVICES": "void"} if hidden else {})


def test_devices_named_by_hand_are_hidden_however_often_they_are_named() -> None:
    reference = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [reference, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    after = changed(pod(containers=[{"name": "main", "env": env}]), BLOCK)
    assert after["spec"]["containers"][0]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def test_the_container_with_the_share_keeps_its_devices() -> None:
    after = changed(pod(HALF, containers=[{"name": "main"}, {"name": "side"}]), BLOCK)
    holder, side = after["spec"]["containers"]
    assert environment(holder)["NVIDIA_VISIBLE_DEVICES"] == "train-abc1234-shared-gpu-0"
    assert environment(side) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert validate_pod(after, BLOCK) == AdmissionVerdict()


@pytest.mark.parametrize("entry", [{"value": "void"}, {"value": "none"}, {"value": ""}, {}])
def test_harmless_values_are_admitted(entry: dict[str, str]) -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", **entry}]
    assert validate_pod(pod(containers=[{"name": "main", "resources": GPU, "env": env}]), BLOCK) == AdmissionVerdict()


@pytest.mark.parametrize(
    ("annotations", "own", "after"),
    [
        (HALF, None, "nvidia"),
        ({"gpu-memory": "5"}, "", "nvidia"),
        (HALF, "kata", "kata"),
        ({}, None, None),
    ],
)
def test_runtime_class(annotations: dict[str, str], own: str | None, after: str | None) -> None:
    item = pod(annotations, **({} if own is None else {"runtimeClassName": own}))
    assert changed(item, PodSettings(gpu_sharing=True))["spec"].get("runtimeClassName") == after


def test_a_share_that_will_be_refused_gets_no_runtime_class() -> None:
    """Kubernetes would complain first about a class that is not there, and not say that sharing is off."""
    assert "runtimeClassName" not in changed(pod({"gpu-fraction": "0.5"}), PodSettings(gpu_sharing=False))["spec"]


@pytest.mark.parametrize(
    ("given", "deprecated", "expected"),
    [(None, None, "nvidia"), (None, "old", "old"), ("", "old", ""), ("new", "old", "new"), (None, "", "")],
)
def test_which_flag_decides_the_runtime_class(given: str | None, deprecated: str | None, expected: str) -> None:
    assert fraction_runtime_class(given, deprecated) == expected


@pytest.mark.parametrize("annotations", [HALF, {"gpu-memory": "2000"}])
def test_sharing_must_be_enabled_and_the_message_names_the_switch(annotations: dict[str, str]) -> None:
    verdict = validate_pod(pod(annotations), PodSettings())
    assert verdict == AdmissionVerdict(
        False,
        "attempting to create a pod team/train with gpu sharing request, while GPU sharing is disabled"
        "; enable it with the chart value global.gpuSharing=true (flag --gpu-sharing-enabled)",
    )


@pytest.mark.parametrize(
    "item", [pod(), pod(containers=[{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "2"}}}])]
)
def test_pods_without_share_need_no_switch(item: dict[str, Any]) -> None:
    assert validate_pod(item, PodSettings()) == AdmissionVerdict()


def test_other_schedulers_pods_pass_unchanged() -> None:
    item = pod({"gpu-fraction": "7"}, schedulerName="default-scheduler")
    assert mutate_pod(item, ARRIVAL, ALL) == validate_pod(item, ALL) == AdmissionVerdict()


def test_an_update_is_refused_only_for_what_it_breaks_itself() -> None:
    old, labelled = pod(HALF), pod(HALF)
    labelled["metadata"]["labels"] = {"runai-gpu-group": "g"}
    assert validate_pod_update(labelled, old, PodSettings()) == AdmissionVerdict()
    assert not validate_pod_update(labelled, pod(), PodSettings()).allowed
    assert not validate_pod_update(pod({"gpu-fraction": "2"}), old, SHARING).allowed


@pytest.mark.parametrize(
    ("labels", "annotations", "advice"),
    [
        ({"kai.scheduler/queue": "a", "app": "x", "gpu-type": "h100"}, {"gpu-fraction": "0.5"}, []),
        (
            {"kai-scheduler/queue": "a"},
            {},
            ["label 'kai-scheduler/queue' has no effect: did you mean 'kai.scheduler/queue'?"],
        ),
        (
            {"kai.scheduler/queu": "a"},
            {},
            ["label 'kai.scheduler/queu' has no effect: did you mean 'kai.scheduler/queue'?"],
        ),
        ({}, {"gpu-fractoin": "0.5"}, ["annotation 'gpu-fractoin' has no effect: did you mean 'gpu-fraction'?"]),
        ({"gpu-fraction": "0.5"}, {}, ["label 'gpu-fraction' has no effect: it is read as an annotation"]),
        (
            {},
            {"kai.scheduler/queue": "a"},
            ["annotation 'kai.scheduler/queue' has no effect: it is read as a label"],
        ),
        ({}, {"runai/shared-gpu-configmap": "x", "kai.scheduler/something-else": "y"}, []),
    ],
)
def test_misspelt_names_give_a_warning(labels: dict[str, str], annotations: dict[str, str], advice: list[str]) -> None:
    item = pod(annotations)
    item["metadata"]["labels"] = labels
    verdict = validate_pod(item, PodSettings(gpu_sharing=True))
    assert (verdict.allowed, list(verdict.advice)) == (True, advice)
    item["metadata"]["ownerReferences"] = [{"name": "job"}]
    assert validate_pod(item, PodSettings(gpu_sharing=True)) == AdmissionVerdict()


@pytest.mark.parametrize(
    ("label", "advice"),
    [
        ("train", []),
        (None, []),
        ("trian", ["label 'priorityClassName': there is no PriorityClass 'trian': did you mean 'train'?"]),
        (
            "urgent",
            ["label 'priorityClassName': there is no PriorityClass 'urgent': the group gets the default priority"],
        ),
    ],
)
def test_a_priority_class_that_does_not_exist_gives_a_warning(label: str | None, advice: list[str]) -> None:
    item = pod()
    item["metadata"]["labels"] = {} if label is None else {"priorityClassName": label}
    request = AdmissionRequest(uid="1", operation="CREATE", object=item)
    admission = AdmissionRules(priority_classes=lambda: ["train", "build", "inference"])
    assert list(judge(VALIDATE_POD, request, admission).advice) == advice
    assert judge(VALIDATE_POD, request, AdmissionRules()) == AdmissionVerdict()


leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0]) | st.sampled_from(["", "a", "~/"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", "~1", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(values, values)
def test_the_patch_leads_from_old_to_new(old: Any, new: Any) -> None:
    patch = list(difference(old, new))
    assert json.encode(apply_patch(old, list(patch)), order="sorted") == json.encode(new, order="sorted")


@settings(max_examples=50)
@given(values)
def test_equal_values_need_no_patch(value: Any) -> None:
    assert list(difference(value, json.decode(json.encode(value)))) == []


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1, "b/c~": 2}, [{"op": "add", "path": "/b~1c~0", "value": 2}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ([1], [1, 2], [{"op": "add", "path": "/-", "value": 2}]),
        ([1, 2, 3], [1], [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]),
        (1, {"a": 1}, [{"op": "replace", "path": "", "value": {"a": 1}}]),
    ],
)
def test_the_shortest_form(old: Any, new: Any, patch: list[dict[str, Any]]) -> None:
    assert list(difference(old, new)) == patch
