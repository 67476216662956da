"""Whatever a cluster holds, every component goes on: a plain pod among hostile objects is grouped, bound and counted.

The whole product runs on the API server in memory, which refuses what our definitions refuse. Objects of Kubernetes'
own kinds are such as its API server would keep: well formed, with any text in annotations, any valid label value and
any quantity. The plain pod has a node and a queue that nobody else may use.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any

import structlog.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykai.admission.pod_rules import PodSettings
from pykai.cli import all as everything
from pykai.cli.component import Process, run_composition
from pykai.cli.install import install
from pykai.controllers.node_scale import NodeScalerSettings, ScalingPodTemplate
from pykai.controllers.node_scale import ScalingSettings as ScalingSettings
from pykai.kube.api import Object, Patch, Resource
from pykai.kube.api_resources import (
    BIND_REQUEST,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_GROUP,
    PRIORITY_CLASS,
    QUEUE,
    RESOURCE_CLAIM,
    TOPOLOGY,
)
from pykai.kube.errors import ApiError
from pykai.kube.memory import MemoryApi
from pykai.objects import names
from pykai.objects.crds import manifests
from tests.hostile_values import texts

SPACE = "default"
LABELS = [
    *(names.QUEUE_LABEL, names.LEGACY_QUEUE_LABEL, names.NODE_POOL_LABEL, names.SUBGROUP_LABEL, names.PROJECT_LABEL),
    *(names.PREEMPTIBILITY_LABEL, names.PRIORITY_CLASS_LABEL, names.TASK_PRIORITY_LABEL, names.APP_LABEL, "a"),
    *(names.GPU_GROUP_LABEL, f"{names.GPU_GROUP_LABEL_PREFIX}a", names.SELECTED_NODE_LABEL, names.HOSTNAME_LABEL),
    *(names.GPU_MEMORY_LABEL, names.GPU_COUNT_LABEL, names.MIG_STRATEGY_LABEL, names.SHARD_LABEL),
]
ANNOTATIONS = [
    *(names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES, names.GPU_FRACTION_CONTAINER, names.MPS),
    *(names.GPU_FRACTION_CONTAINER_TYPE, names.SHARED_GPU_CONFIGMAP, names.RECEIVED_RESOURCE_TYPE),
    *(names.RESERVED_GPU_INDEX, names.STALE_TIMESTAMP, names.LAST_START_TIMESTAMP, names.LAST_EVICTION_TIMESTAMP),
    *(names.NUMA_PREDICTED, names.NUMA_OBSERVED, names.PREEMPTION_DELAY, names.STALENESS_GRACE_PERIOD),
    *(names.BATCH_MIN_MEMBER, names.TOPOLOGY, names.TOPOLOGY_REQUIRED, names.TOP_OWNER_METADATA),
]
name = st.sampled_from(["a", "b", "c", "d", "e"])
label_values = st.sampled_from(["", "a", "b", "0", "1", "0.5", "1e9", "NaN", "true", "9" * 63, "A.b_c-d"])
labels = st.dictionaries(st.sampled_from(LABELS), label_values, max_size=5)
notes = st.dictionaries(st.sampled_from(ANNOTATIONS), texts, max_size=6)
durations = st.sampled_from(["0s", "-1s", "1ns", ".5s", "+1.5h", "9" * 30 + "h", "1h1h1h"])
quantities = st.sampled_from(["0", "1", "3", "100m", "1n", "0.5", "1Ki", "9E", "1e18", "9223372036854775807"])
whole = st.sampled_from(["0", "1", "2", "8", "1000", "9223372036854775807"])
amounts = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("cpu", "memory", "ephemeral-storage"), quantities),
        **dict.fromkeys(
            (names.NVIDIA_GPU, "nvidia.com/mig-1g.5gb", "nvidia.com/mig-x", "example.com/x", "pods"), whole
        ),
    },
)
numbers = st.sampled_from([0, 1, -1, -2, 3, 2**31 - 1, 1e-9, 1e308, -1e308, 0.5])
counts = st.sampled_from([0, 1, 2, 3, 2**31 - 1])
terms = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([names.HOSTNAME_LABEL, "a", names.GPU_MEMORY_LABEL]),
            "operator": st.sampled_from(["In", "NotIn", "Gt", "Lt"]),
            "values": st.lists(label_values, min_size=1, max_size=1),
        }
    ),
    max_size=2,
)


def some(**fields: Any) -> st.SearchStrategy[Object]:
    """An object with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


used: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {}, optional={names.QUEUE_LABEL: name, names.SUBGROUP_LABEL: name, "a": name}
)
joined = st.fixed_dictionaries({names.POD_GROUP_ANNOTATION: name}, optional={names.GPU_FRACTION: texts})


def named(spec: st.SearchStrategy[Object], **more: Any) -> st.SearchStrategy[Object]:
    """An object with hostile metadata."""
    metadata = st.fixed_dictionaries({"name": name}, optional={"labels": labels | used, "annotations": notes | joined})
    return st.fixed_dictionaries({"metadata": metadata, "spec": spec, **more})


affinity = some(
    nodeAffinity=st.fixed_dictionaries(
        {
            "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                {"nodeSelectorTerms": st.lists(some(matchExpressions=terms), min_size=1, max_size=2)}
            )
        }
    ),
    podAntiAffinity=st.just(
        {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "nowhere", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
            ]
        }
    ),
)
volumes = st.just([{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}])
pod_specs = st.fixed_dictionaries(
    {
        "schedulerName": st.just(names.SCHEDULER_NAME),
        "containers": st.lists(
            st.builds(
                lambda given: {"name": "main", "image": "x", "resources": {"requests": given, "limits": given}}, amounts
            ),
            min_size=1,
            max_size=1,
        ),
    },
    optional={
        "nodeName": st.sampled_from(["a", "ghost"]),
        "nodeSelector": labels,
        "affinity": affinity,
        "priorityClassName": name,
        "volumes": volumes,
        "resourceClaims": st.just([{"name": "c", "resourceClaimName": "a"}]),
        "schedulingGates": st.just([{"name": "gate"}]),
        "overhead": st.just({"cpu": "9E"}),
    },
)
share = some(quota=numbers, limit=numbers, overQuotaWeight=numbers)
constraint = some(topology=name, requiredTopologyLevel=name, preferredTopologyLevel=name)
sub_groups = st.lists(
    st.fixed_dictionaries(
        {"name": name},
        optional={"parent": name, "minMember": counts, "minSubGroup": counts, "topologyConstraint": constraint},
    ),
    max_size=4,
    unique_by=lambda each: each["name"],
)
levels = st.lists(st.fixed_dictionaries({"nodeLabel": name}), min_size=1, max_size=3, unique_by=str)
phases = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])
HOLDABLE: dict[Resource, st.SearchStrategy[Object]] = {
    POD: named(pod_specs, status=some(phase=phases)),
    NODE: named(some(unschedulable=st.booleans()), status=some(allocatable=amounts, capacity=amounts)),
    QUEUE: named(
        some(
            parentQueue=name,
            priority=counts,
            resources=some(cpu=share, gpu=share, memory=share),
            preemptMinRuntime=durations,
            reclaimMinRuntime=durations,
        )
    ),
    POD_GROUP: named(
        some(
            queue=name,
            minMember=counts,
            minSubGroup=counts,
            subGroups=sub_groups,
            topologyConstraint=constraint,
            priorityClassName=name,
            preemptibility=st.sampled_from(["preemptible", "non-preemptible"]),
            stalenessGracePeriod=durations,
            preemptionDelay=durations,
        )
    ),
    BIND_REQUEST: named(
        some(
            podName=name,
            selectedNode=name,
            receivedResourceType=st.sampled_from(["Regular", "Fraction", "x"]),
            receivedGPU=some(count=counts, portion=texts),
            selectedGPUGroups=st.lists(texts, max_size=2),
            backoffLimit=counts,
        )
    ),
    TOPOLOGY: named(st.fixed_dictionaries({"levels": levels})),
    JOB: named(
        st.just({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}}})
    ),
    PERSISTENT_VOLUME_CLAIM: named(
        some(storageClassName=name, volumeName=name, resources=st.just({"requests": {"storage": "9E"}}))
    ),
    RESOURCE_CLAIM: named(st.just({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}})),
}
objects = st.lists(
    st.sampled_from([*HOLDABLE, POD, POD, POD_GROUP, QUEUE]).flatmap(
        lambda kind: st.tuples(st.just(kind), HOLDABLE[kind])
    ),
    max_size=12,
)
_FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_KEPT = {"key": "plain", "effect": "NoSchedule"}


def product() -> everything.AllSettings:
    """Every component, quick to write status, without servers at fixed ports."""
    usual = everything.settings_for(names.SCHEDULER_NAME, PodSettings(gpu_sharing=True), None)
    return replace(
        usual,
        scheduler=replace(usual.scheduler, plugin_port=0),
        groups=replace(usual.groups, gather_seconds=0.01),
        queues=replace(usual.queues, status=replace(usual.queues.status, gather_seconds=0.01)),
        scaling=NodeScalerSettings(ScalingSettings(ScalingPodTemplate("none"), names.SCHEDULER_NAME)),
    )


async def put(api: MemoryApi, found: list[tuple[Resource, Object]]) -> None:
    """Create what the server takes."""
    for kind, item in found:
        try:
            await api.create(kind, item, SPACE if kind.namespaced else "")
            if "status" in item:
                ref = kind.ref(item["metadata"]["name"], SPACE if kind.namespaced else "")
                await api.patch(ref.sub("status"), Patch.merge({"status": item["status"]}))
        except ApiError:
            continue


async def furnish(api: MemoryApi) -> None:
    """A node and a queue for the plain pod, and priority classes of all sizes."""
    for each, value in (("a", -(2**31) + 1), ("b", 10**9), ("c", 0)):
        await api.create(PRIORITY_CLASS, {"metadata": {"name": each}, "value": value})
    resources = dict.fromkeys(("cpu", "memory", "gpu"), _FREE)
    for each, parent in (("plain-all", ""), ("plain", "plain-all")):
        await api.create(QUEUE, {"metadata": {"name": each}, "spec": {"parentQueue": parent, "resources": resources}})
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    status = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": "plain", "labels": {"plain": "yes"}}
    await api.create(NODE, {"metadata": metadata, "spec": {"taints": [_KEPT]}, "status": status})


async def plain_pod_is_served(api: MemoryApi) -> bool:
    """Whether the pod nothing is wrong with gets its node, and its queue counts it."""
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], "nodeSelector": {"plain": "yes"}}
    spec["tolerations"] = [{**_KEPT, "operator": "Exists"}]
    await api.create(POD, {"metadata": {"name": "plain", "labels": {names.QUEUE_LABEL: "plain"}}, "spec": spec}, SPACE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        await asyncio.sleep(0.02)
        node = (await api.get(POD.ref("plain", SPACE), Object))["spec"].get("nodeName")
        counted = ((await api.get(QUEUE.ref("plain"), Object)).get("status") or {}).get("allocated")
        if node and counted:
            return True
    return False


async def judged(before: list[tuple[Resource, Object]], meanwhile: list[tuple[Resource, Object]]) -> None:
    api, ready = MemoryApi(time.time, manifests()), asyncio.Event()
    await install(api)
    await furnish(api)
    await put(api, before)
    process = Process("all", metrics_address="127.0.0.1:0", health_address="0")
    work = asyncio.create_task(run_composition(api, process, partial(everything.compose, product()), all_ready=ready))
    try:
        await asyncio.wait([work, asyncio.create_task(ready.wait())], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        await put(api, meanwhile)
        served = await plain_pod_is_served(api)
        assert not work.done(), work.exception()
        assert served
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


NAMED = {"metadata": {"name": "a"}}


@settings(max_examples=40)
@example(before=[(BIND_REQUEST, {**NAMED, "spec": {}})], meanwhile=[])
@example(before=[(POD_GROUP, {**NAMED, "spec": {"minMember": 1, "subGroups": []}})], meanwhile=[])
@given(before=objects, meanwhile=objects)
def test_hostile_objects_stop_nobody(
    before: list[tuple[Resource, Object]], meanwhile: list[tuple[Resource, Object]]
) -> None:
    with structlog.testing.capture_logs() as lines:
        asyncio.run(judged(before, meanwhile))
    assert not [line for line in lines if "exc_info" in line], "no component met an error it does not know"
