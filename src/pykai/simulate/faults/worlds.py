"""Small busy clusters and their workloads, one per seed, on which histories with faults run.

A world draws a few features; the rest of the product runs in every one: whole and shared GPUs, competing queues,
priorities, workloads that end and workloads that do not. All of it is small, so that a history is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from pykai.kube import api_resources as known
from pykai.kube.api import Object, Resource
from pykai.objects import names
from pykai.simulate import generate
from pykai.simulate.generate import PRIORITIES
from pykai.simulate.manifests import Arrival
from pykai.simulate.workloads import WORKLOADS

NAMESPACE = "default"
RACK_LABEL, RACKS = "example.com/rack", ("rack-0", "rack-1")
TOPOLOGY, STORAGE_CLASS, DEVICE_CLASS, CLAIM_TEMPLATE = "racks", "on-demand", "nic.example.com", "one-nic"
SHARD = "default"
LAST_ARRIVAL = 75.0
ALONE, REPLICAS, APART = "one process", "two replicas", "a process per component"
LAYOUTS = (ALONE, REPLICAS, APART)
_PYTORCH = next(row.resource for row in WORKLOADS if row.resource.kind == "PyTorchJob")


@dataclass(frozen=True)
class World:
    """A cluster and its workloads. `layout`: how the product is deployed."""

    features: tuple[str, ...]
    layout: str
    scaling: bool
    numa: bool
    operator: bool
    cluster: tuple[Arrival, ...]
    """Nodes, queues and classes, which exist from the start."""
    work: tuple[Arrival, ...]

    @property
    def title(self) -> str:
        return ", ".join((self.layout, *self.features))


def world(seed: int) -> World:
    """Return the world of a seed."""
    draw = Random(f"{seed}/world")
    features = tuple(sorted(draw.sample(sorted(FEATURES), draw.randint(1, 3))))
    layout = draw.choice(LAYOUTS)
    count, gpus = draw.randint(2, 3), draw.choice((2, 4))
    cluster = [*_cluster(draw, count, gpus, features)]
    makers = [_single, _single, _share, _share, _gang, *(FEATURES[feature] for feature in features)]
    work: list[Arrival] = []
    for number in range(draw.randint(4, 7)):
        maker = draw.choice(makers) if number >= len(features) else FEATURES[features[number]]
        at = round(draw.uniform(0.0, LAST_ARRIVAL), 1)
        work += [_arrival(resource, obj, at) for resource, obj in maker(draw, f"job-{number}", gpus)]
    chosen = ("scaling" in features, "numa" in features, "operator" in features)
    return World(features, layout, *chosen, tuple(cluster), tuple(work))


def _cluster(draw: Random, count: int, gpus: int, features: tuple[str, ...]) -> Iterator[Arrival]:
    for name, value in PRIORITIES.items():
        yield _arrival(known.PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
    for number in range(count):
        node = generate.node(f"node-{number}", gpus)
        node["metadata"]["labels"][RACK_LABEL] = RACKS[number % 2]
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        yield _arrival(known.NODE, node)
        if "devices" in features:
            yield _arrival(known.RESOURCE_SLICE, _slice(f"node-{number}", 2))
        if "numa" in features:
            yield _arrival(known.NODE_TOPOLOGY, _zones(f"node-{number}", gpus))
    total = float(count * gpus)
    yield _arrival(known.QUEUE, generate.queue("department", "", total))
    for team in generate.TEAMS:
        queue = generate.queue(team, "department", draw.choice((0.0, total // 3, total // 3)))
        if draw.random() < 0.2:
            queue["spec"]["resources"]["gpu"]["limit"] = total - 1
        yield _arrival(known.QUEUE, queue)
    levels = [{"nodeLabel": RACK_LABEL}, {"nodeLabel": names.HOSTNAME_LABEL}]
    yield _arrival(known.TOPOLOGY, {"metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}})
    storage = {"provisioner": "disks.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    yield _arrival(known.STORAGE_CLASS, {"metadata": {"name": STORAGE_CLASS}, **storage})
    if "operator" in features:
        yield _arrival(known.CONFIG, {"metadata": {"name": names.CONFIG_NAME}, "spec": {}})
        yield _arrival(known.SHARD, {"metadata": {"name": SHARD}, "spec": {}})
    if "devices" in features:
        yield _arrival(known.DEVICE_CLASS, {"metadata": {"name": DEVICE_CLASS}, "spec": {}})
        request = {"name": "nic", "exactly": {"deviceClassName": DEVICE_CLASS}}
        meta = {"name": CLAIM_TEMPLATE, "namespace": NAMESPACE}
        claim = {"spec": {"spec": {"devices": {"requests": [request]}}}}
        yield _arrival(known.RESOURCE_CLAIM_TEMPLATE, {"metadata": meta, **claim})


def _slice(node: str, devices: int) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    offered = [{"name": f"nic-{number}"} for number in range(devices)]
    return {
        "metadata": {"name": node},
        "spec": {"driver": DEVICE_CLASS, "nodeName": node, "pool": pool, "devices": offered},
    }


def _zones(node: str, gpus: int) -> Object:
    def resource(name: str, count: int) -> Object:
        return {"name": name, "capacity": str(count), "allocatable": str(count), "available": str(count)}

    zones = [
        {"name": f"node-{i}", "type": "Node", "resources": [resource("cpu", 32), resource(names.NVIDIA_GPU, gpus // 2)]}
        for i in range(2)
    ]
    policy = [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    return {"metadata": {"name": node}, "attributes": policy, "zones": zones}


# ------------------------------------------------------------------------------------------------------------ work
Objects = Iterator[tuple[Resource, Object]]


def _single(draw: Random, name: str, gpus: int) -> Objects:
    yield known.JOB, _job(draw, name, 1, {names.NVIDIA_GPU: str(draw.choice((1, 1, 2)))})


def _share(draw: Random, name: str, gpus: int) -> Objects:
    notes = draw.choice(
        (
            {names.GPU_FRACTION: "0.5"},
            {names.GPU_FRACTION: "0.25"},
            {names.GPU_FRACTION: "0.7"},
            {names.GPU_MEMORY: "20000"},
            {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_DEVICES: "2"},
        )
    )
    yield known.JOB, _job(draw, name, draw.choice((1, 1, 2)), {}, notes)


def _gang(draw: Random, name: str, gpus: int) -> Objects:
    pods = draw.randint(2, 3)
    shared = {names.GPU_FRACTION: "0.5"} if draw.random() < 0.4 else {}
    job = _job(draw, name, pods, {} if shared else {names.NVIDIA_GPU: "1"}, shared)
    job["metadata"]["annotations"][names.BATCH_MIN_MEMBER] = str(pods)
    yield known.JOB, job


def _elastic(draw: Random, name: str, gpus: int) -> Objects:
    job = _job(draw, name, 4, {names.NVIDIA_GPU: "1"})
    job["metadata"]["annotations"][names.BATCH_MIN_MEMBER] = "2"
    yield known.JOB, job


def _topology_gang(draw: Random, name: str, gpus: int) -> Objects:
    job = _job(draw, name, 2, {names.NVIDIA_GPU: "1"})
    level = draw.choice((RACK_LABEL, names.HOSTNAME_LABEL))
    key = draw.choice((names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED))
    job["metadata"]["annotations"] |= {names.BATCH_MIN_MEMBER: "2", names.TOPOLOGY: TOPOLOGY, key: level}
    yield known.JOB, job


def _devices(draw: Random, name: str, gpus: int) -> Objects:
    job = _job(draw, name, draw.choice((1, 2)), {})
    template = job["spec"]["template"]["spec"]
    template["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    template["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": CLAIM_TEMPLATE}]
    yield known.JOB, job


def _volumes(draw: Random, name: str, gpus: int) -> Objects:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": STORAGE_CLASS,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    yield known.PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": claim}
    job = _job(draw, name, 1, {names.NVIDIA_GPU: "1"})
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    yield known.JOB, job


def _zoned(draw: Random, name: str, gpus: int) -> Objects:
    yield known.JOB, _job(draw, name, draw.choice((1, 2)), {names.NVIDIA_GPU: str(max(gpus // 2, 1))})


def _sub_groups(draw: Random, name: str, gpus: int) -> Objects:
    """Yield a user-created PodGroup with two sub-groups and its pods, or a PyTorchJob."""
    if draw.random() < 0.5:
        template = _job(draw, name, 1, {names.NVIDIA_GPU: "1"})
        pods = template["spec"]["template"]
        roles = {"Master": {"replicas": 1, "template": pods}, "Worker": {"replicas": 2, "template": pods}}
        yield _PYTORCH, {"metadata": template["metadata"], "spec": {"pytorchReplicaSpecs": roles}}
        return
    job = _job(draw, name, 1, {names.NVIDIA_GPU: "1"})
    labels, notes = job["metadata"]["labels"], job["metadata"]["annotations"]
    parts = [{"name": "prefill", "minMember": 1}, {"name": "decode", "minMember": 2}]
    group = {"queue": labels[names.QUEUE_LABEL], "priorityClassName": labels[names.PRIORITY_CLASS_LABEL]}
    yield (
        known.POD_GROUP,
        {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {**group, "minMember": 3, "subGroups": parts}},
    )
    for part in parts:
        for number in range(int(str(part["minMember"]))):
            meta = {"name": f"{name}-{part['name']}-{number}", "namespace": NAMESPACE}
            own = {names.POD_GROUP_ANNOTATION: name, names.RUN_SECONDS: notes[names.RUN_SECONDS]}
            member = {**labels, names.SUBGROUP_LABEL: str(part["name"])}
            template = job["spec"]["template"]["spec"]
            yield known.POD, {"metadata": {**meta, "labels": member, "annotations": own}, "spec": template}


FEATURES: dict[str, Callable[[Random, str, int], Objects]] = {
    "devices": _devices,
    "elastic": _elastic,
    "gangs": _gang,
    "numa": _zoned,
    "operator": _single,
    "scaling": _share,
    "sub-groups": _sub_groups,
    "topology": _topology_gang,
    "volumes": _volumes,
}


def _job(draw: Random, name: str, pods: int, requests: Object, notes: dict[str, str] | None = None) -> Object:
    runs = str(draw.randint(10, 60)) if draw.random() < 0.6 else "forever"
    priority = draw.choice(("train", "train", "build"))
    labels = {names.QUEUE_LABEL: draw.choice(generate.TEAMS), names.PRIORITY_CLASS_LABEL: priority}
    whole = {"cpu": "1", "memory": "1Gi", **requests}
    template: Object = {
        "metadata": {"labels": labels, "annotations": dict(notes or {})},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train", "resources": {"requests": whole, "limits": whole}}],
        },
    }
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": {names.RUN_SECONDS: runs}}
    return {"metadata": meta, "spec": {"parallelism": pods, "completions": pods, "template": template}}


def _arrival(resource: Resource, obj: Object, at: float = 0.0) -> Arrival:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    return Arrival(at, resource, whole, f"{resource.kind} {obj['metadata']['name']}")
