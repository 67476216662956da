"""Whatever an API server can hold, admission answers; what it changes, it changes by a patch that applies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    AdmissionRequest,
    AdmissionRules,
    judge,
    response_of,
)
from tests.hostile_values import anything, leaves, numbers, texts

NAMES = [
    *["metadata", "spec", "status", "annotations", "name", "namespace", "containers", "initContainers", "env"],
    *["envFrom", "configMapRef", "volumes", "configMap", "resources", "requests", "limits", "nvidia.com/gpu", "value"],
    *[
        "valueFrom",
        "schedulerName",
        "runtimeClassName",
        "ownerReferences",
        "generateName",
        "gpu-fraction",
        "gpu-memory",
    ],
    *["gpu-fraction-num-devices", "gpu-fraction-container-name", "gpu-fraction-container-type", "mps", "parentQueue"],
    *["runai/shared-gpu-configmap", "gpu", "cpu", "memory", "quota", "limit", "overQuotaWeight", "childQueues"],
    *["subGroups", "minMember", "minSubGroup", "parent", "levels", "nodeLabel", "alias", "preemptMinRuntime"],
]
whatever = anything(NAMES)


@st.composite
def mostly(draw: st.DrawFn, value: st.SearchStrategy[Any]) -> Any:
    """The value; now and then null or something of another type."""
    return draw(whatever if draw(st.integers(0, 49)) == 13 else value)


def record(required: dict[str, st.SearchStrategy[Any]] | None = None, **fields: st.SearchStrategy[Any]) -> Any:
    wanted = {key: mostly(value) for key, value in (required or {}).items()}
    return st.fixed_dictionaries(wanted, optional={key: mostly(value) for key, value in fields.items()})


names = st.sampled_from(["a", "b", "c", "kai-scheduler"])
counts = st.integers(-1, 4) | numbers
gpu_annotations = st.dictionaries(st.sampled_from([name for name in NAMES if "gpu" in name or name == "mps"]), texts)
variables = record(
    name=st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "GPU_PORTION"]),
    value=texts,
    valueFrom=st.dictionaries(names, leaves),
)
resources = record(limits=st.dictionaries(st.sampled_from(NAMES), texts), requests=st.just({"nvidia.com/gpu": "x"}))
containers = st.lists(record({"name": names}, env=st.lists(variables, max_size=3), resources=resources), max_size=3)
metadata = record(
    {"name": names}, namespace=st.just("team"), annotations=gpu_annotations, ownerReferences=st.just([{}])
)
pod_specs = record(
    {"schedulerName": st.just("kai-scheduler"), "containers": containers},
    initContainers=containers,
    volumes=st.lists(record(name=texts), max_size=2),
)
pods = record({"metadata": metadata, "spec": pod_specs})
amounts = record(quota=counts, limit=counts, overQuotaWeight=counts)
queues = record(
    {
        "metadata": metadata,
        "spec": record(
            {"resources": record(gpu=amounts, cpu=amounts, memory=amounts)}, parentQueue=names, preemptMinRuntime=texts
        ),
    },
    status=record(childQueues=st.lists(names, max_size=3)),
)
sub_groups = record({"name": names}, parent=names, minMember=counts, minSubGroup=counts)
pod_groups = record(
    {"spec": record({"subGroups": st.lists(sub_groups, max_size=4)}, minMember=counts, minSubGroup=counts)}
)
topologies = record({"spec": record({"levels": st.lists(record(nodeLabel=names, alias=names), max_size=4)})})

OBJECTS = {
    MUTATE_POD: pods,
    VALIDATE_POD: pods,
    VALIDATE_RESIZE: pods,
    VALIDATE_QUEUE: queues,
    VALIDATE_POD_GROUP: pod_groups,
    VALIDATE_TOPOLOGY: topologies,
}
SETTINGS = PodSettings(gpu_sharing=True, hami_core=True, block_visible_devices=True)


@pytest.mark.parametrize("path", HANDLERS)
@settings(max_examples=200)
@given(data=st.data())
def test_every_object_gets_an_answer(path: str, data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(["CREATE", "UPDATE", "DELETE"]))
    item, old = data.draw(mostly(OBJECTS[path])), data.draw(mostly(OBJECTS[path]))
    others = data.draw(st.dictionaries(names, queues, max_size=3))
    request = AdmissionRequest(uid="1", operation=operation, namespace="team", object=item, old_object=old)
    verdict = judge(path, request, AdmissionRules(SETTINGS, lambda: others, compare_quotas=True))
    assert verdict.allowed == (verdict.message == "")
    assert json.decode(response_of(request, verdict))["response"]["allowed"] is verdict.allowed


@settings(max_examples=150)
@given(item=pods)
def test_the_patch_of_any_pod_applies_and_is_final(item: Any) -> None:
    def once(pod: Any) -> Any:
        verdict = judge(MUTATE_POD, AdmissionRequest(uid="1", operation="CREATE", object=pod), AdmissionRules(SETTINGS))
        return apply_patch(pod, list(verdict.patch)) if verdict.allowed else None

    after = once(item)
    assert after is None or once(after) == after
