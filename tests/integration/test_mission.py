"""The mission, row by row, as a user checks it: `kubectl` with the manifests of `examples/` on a local cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pykai.objects import names

from .mission_cluster import EXAMPLES, QUEUES, Mission, Object, is_ending, sharers

CRDS = Path(__file__).parent / "crds"
JOB = "pytorch-dist-mnist-nccl"
OF_JOB = f"training.kubeflow.org/job-name={JOB}"


def containers(pod: Object) -> list[Object]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


async def environment(mission: Mission, pod: Object, container: str) -> dict[str, str]:
    """What config maps put into the environment of a container, by variable."""
    (chosen,) = [each for each in containers(pod) if each["name"] == container]
    found = {}
    for variable in chosen.get("env") or ():
        source = variable["valueFrom"]["configMapKeyRef"]
        data = (await mission.get("configmap", source["name"], pod["metadata"]["namespace"]))["data"]
        found[variable["name"]] = data[source["key"]]
    return found


async def allocated(mission: Mission, queue: str) -> str | None:
    """GPUs that a queue has, by its status."""
    status = (await mission.get("queue", queue)).get("status") or {}
    gpus: str | None = (status.get("allocated") or {}).get(names.NVIDIA_GPU)
    return gpus


async def test_m1_queues_are_a_hierarchy_and_share_by_quota_and_weight(mission: Mission) -> None:
    async def shown() -> bool:
        children = await mission.kubectl("get", "queue", "default", "-o", "jsonpath={.status.childQueues}")
        return children == '["test"]'

    await mission.eventually(shown)
    await mission.apply("queues/two-teams.yaml", "queues/team-a-pods.yaml")

    async def teams() -> tuple[int, int]:
        return len(await mission.running("app=team-a")), len(await mission.running("app=team-b"))

    async def divided(a: int, b: int) -> bool:
        return await teams() == (a, b)

    await mission.eventually(lambda: divided(12, 0))
    await mission.apply("queues/team-b-pods.yaml")
    await mission.eventually(lambda: divided(8, 4))

    async def rolled_up() -> bool:
        return [await allocated(mission, queue) for queue in ("department", "team-a", "team-b")] == ["12", "8", "4"]

    await mission.eventually(rolled_up)
    assert await teams() == (8, 4), "shares that are fair stay as they are"


async def test_m2_pods_are_scheduled_and_kubectl_tells_about_it(mission: Mission) -> None:
    await mission.apply("pods/cpu-only-pod.yaml", "pods/gpu-pod.yaml")
    await mission.runs("cpu-only-pod", "gpu-pod")
    assert (await mission.get("pod", "cpu-only-pod"))["spec"]["nodeName"] == "cpu-0", "nodes with GPUs are for GPUs"
    await mission.described("pod", "gpu-pod", "Bound")
    described = await mission.described("pod", "gpu-pod", f"assigned pod {mission.namespace}/gpu-pod to node")
    assert "PodScheduled                True" in described
    assert "Restart Count:  0" in described
    (group,) = [group for group in await mission.list("podgroups") if "gpu-pod" in group["metadata"]["name"]]
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("test", 1)

    async def counted() -> bool:
        return await allocated(mission, "test") == "1" == await allocated(mission, "default")

    await mission.eventually(counted)


async def test_m3_the_older_queue_label_works_the_same(mission: Mission) -> None:
    await mission.apply("pods/older-queue-label.yaml")
    await mission.runs("older-queue-label")
    listed = await mission.kubectl("get", "pods", "-l", "runai/queue=test", "-n", mission.namespace)
    assert "older-queue-label   1/1     Running" in listed
    (group,) = await mission.list("podgroups")
    assert group["spec"]["queue"] == "test"


def with_share(name: str, fraction: str) -> Object:
    """The pod of the GPU sharing example under another name and with another share."""
    pod: Object = yaml.safe_load((EXAMPLES / "gpu-sharing/gpu-sharing.yaml").read_text())
    pod["metadata"] |= {"name": name, "annotations": {names.GPU_FRACTION: fraction}}
    return pod


async def test_m4_fractions_share_a_gpu_up_to_its_whole_across_namespaces(mission: Mission) -> None:
    async with mission.another_namespace() as other:
        await mission.apply("gpu-sharing/gpu-sharing.yaml")
        await mission.apply("gpu-sharing/gpu-sharing.yaml", namespace=other)
        await mission.runs("gpu-sharing")
        await mission.runs("gpu-sharing", namespace=other)
        pods = [await mission.get("pod", "gpu-sharing", space) for space in (mission.namespace, other)]
        assert list(sharers(pods).values()) == [2], "one device for both"
        devices = [(await environment(mission, pod, "gpu-workload"))["NVIDIA_VISIBLE_DEVICES"] for pod in pods]
        (reservation,) = await mission.reservations()
        assert devices == [reservation["metadata"]["annotations"][names.RESERVED_GPU_INDEX]] * 2
        await mission.create(with_share("quarter", "0.25"), with_share("fifth", "0.2"), namespace=other)
        await mission.runs("quarter", "fifth", namespace=other)
        smaller = [await mission.get("pod", name, other) for name in ("quarter", "fifth")]
        assert list(sharers(smaller).values()) == [2]
        assert not sharers(smaller).keys() & sharers(pods).keys(), "the first device was full"
        assert (await environment(mission, smaller[0], "gpu-workload"))["GPU_PORTION"] == "0.25"


async def test_m5_gpu_memory_leaves_the_rest_to_others(mission: Mission) -> None:
    async with mission.cordoned("l4-0"), mission.another_namespace() as other:
        await mission.apply("gpu-sharing/gpu-memory.yaml")
        await mission.apply("gpu-sharing/gpu-sharing.yaml", namespace=other)
        await mission.runs("gpu-sharing")
        await mission.runs("gpu-sharing", namespace=other)
        pods = [await mission.get("pod", "gpu-sharing", space) for space in (mission.namespace, other)]
        assert list(sharers(pods).values()) == [2]
        portion = (await environment(mission, pods[0], "gpu-workload"))["GPU_PORTION"]
        assert portion == "0.03", "2000 of 81559 MiB, rounded up to a hundredth"
        where = ("-n", mission.namespace, "-o", "jsonpath={.metadata.annotations.gpu-memory}")
        assert await mission.kubectl("get", "pod", "gpu-sharing", *where) == "2000"


async def test_m6_fraction_and_memory_at_once_are_refused(mission: Mission) -> None:
    with pytest.raises(AssertionError, match="gpu-fraction and gpu-memory are mutually exclusive"):
        await mission.apply("gpu-sharing/fraction-and-memory.yaml")
    assert await mission.list("pods") == []


async def test_m9_a_shared_gpu_is_reserved_by_a_pod(mission: Mission) -> None:
    await mission.apply("gpu-sharing/gpu-sharing.yaml")
    await mission.runs("gpu-sharing")
    listed = await mission.kubectl("get", "pods", "-n", "kai-resource-reservation")
    (line,) = listed.splitlines()[1:]
    assert line.startswith("gpu-reservation-")
    assert "Running" in line
    (reservation,) = await mission.reservations()
    pod = await mission.get("pod", "gpu-sharing")
    assert reservation["spec"]["nodeName"] == pod["spec"]["nodeName"]
    device = (await environment(mission, pod, "gpu-workload"))["NVIDIA_VISIBLE_DEVICES"]
    logged = await mission.kubectl("logs", "-n", "kai-resource-reservation", reservation["metadata"]["name"])
    assert device in logged
    await mission.kubectl("delete", "pod", "gpu-sharing", "-n", mission.namespace)

    async def gone() -> bool:
        return not await mission.reservations()

    await mission.eventually(gone)


@pytest.mark.parametrize(
    ("example", "pod", "container"),
    [
        ("gpu-sharing-non-default-container", "gpu-sharing-non-default", "gpu-workload"),
        ("gpu-sharing-init-container", "gpu-sharing-init", "gpu-init"),
        ("gpu-sharing-first-init-container", "gpu-sharing-first-init", "gpu-init"),
    ],
)
async def test_m11_the_chosen_container_and_no_other_gets_the_device(
    mission: Mission, example: str, pod: str, container: str
) -> None:
    await mission.apply(f"gpu-sharing/{example}.yaml")
    await mission.runs(pod)
    found = await mission.get("pod", pod)
    (reservation,) = await mission.reservations()
    device = reservation["metadata"]["annotations"][names.RESERVED_GPU_INDEX]
    for each in containers(found):
        visible = (await environment(mission, found, each["name"])).get("NVIDIA_VISIBLE_DEVICES")
        assert visible == (device if each["name"] == container else None), each["name"]


def pods_of_pytorch_job(job: Object) -> list[Object]:
    """What the training operator makes of a PyTorchJob."""
    name, owner = job["metadata"]["name"], {"controller": True, "blockOwnerDeletion": True}
    owner |= {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": job["metadata"]["uid"]}
    pods = []
    for role, replicas in job["spec"]["pytorchReplicaSpecs"].items():
        for number in range(replicas["replicas"]):
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": role.lower(),
                "training.kubeflow.org/replica-index": str(number),
            }
            metadata = {"name": f"{name}-{role.lower()}-{number}", "labels": labels, "ownerReferences": [owner]}
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": replicas["template"]["spec"]})
    return pods


async def test_m13_a_pytorch_job_starts_whole_or_not_at_all(mission: Mission) -> None:
    """Two slices of l4-0 are free at first; the test plays the training operator."""
    await mission.kubectl("apply", "-f", str(CRDS / "pytorchjobs.yaml"))
    await mission.kubectl("wait", "--for=condition=Established", "crd/pytorchjobs.kubeflow.org", "--timeout=50s")
    async with mission.cordoned("dgx-0"):
        await mission.apply("pods/gpu-pod.yaml", "pods/older-queue-label.yaml")
        await mission.runs("gpu-pod", "older-queue-label")
        await mission.apply("batch/pytorch-job.yaml")
        job = await mission.get("pytorchjob", JOB)
        pods = pods_of_pytorch_job(job)
        await mission.create(*pods)

        async def group_of_job() -> str:
            groups = [group["metadata"]["name"] for group in await mission.list("podgroups")]
            return next((name for name in groups if JOB in name), "")

        group = await mission.eventually(group_of_job)
        await mission.described("podgroup", group, "sub-group worker requires 2 pods for gang scheduling")
        placed = [pod["spec"].get("nodeName") for pod in await mission.list("pods", labels=OF_JOB)]
        assert placed == [None] * 3
    await mission.runs(*(pod["metadata"]["name"] for pod in pods))
    await mission.kubectl("delete", "pytorchjob", JOB, "-n", mission.namespace)


async def test_jobs_start_by_their_minimum(mission: Mission) -> None:
    """One slice of l4-0 is free: room for a pod of a Job that takes what it gets, none for a Job that needs two."""

    async def run_of(job: str, count: int) -> bool:
        return len(await mission.running(f"batch.kubernetes.io/job-name={job}")) == count

    async with mission.cordoned("dgx-0"):
        await mission.apply("pods/gpu-pod.yaml", "pods/older-queue-label.yaml", "priority/train-priority-pod.yaml")
        await mission.runs("gpu-pod", "older-queue-label", "train-pod")
        await mission.apply("batch/batch-job.yaml")
        await mission.eventually(lambda: run_of("batch-job", 1))
        await mission.kubectl("delete", "job", "batch-job", "-n", mission.namespace, "--cascade=foreground")
        await mission.apply("batch/batch-job-min-member.yaml")

        async def group_of_job() -> str:
            groups = [group["metadata"]["name"] for group in await mission.list("podgroups")]
            return next((name for name in groups if "batch-job-min-member" in name), "")

        group = await mission.eventually(group_of_job)
        await mission.described("podgroup", group, "found for 1 pods while 2 are required for gang scheduling")
        assert await run_of("batch-job-min-member", 0)
        await mission.kubectl("delete", "pod", "gpu-pod", "-n", mission.namespace)
        await mission.eventually(lambda: run_of("batch-job-min-member", 2))


async def test_a_gang_that_needs_one_node_has_one_node(mission: Mission) -> None:
    """l4-0 would take four of its five pods."""
    job = "batch.kubernetes.io/job-name=one-node-job"
    async with mission.cordoned("dgx-0"):
        await mission.apply("topology/topology.yaml", "topology/one-node-job.yaml")

        async def told() -> bool:
            return "5 are required for gang scheduling" in str(await mission.list("podgroups"))

        await mission.eventually(told)
        assert await mission.running(job) == []

    async def five_on_one_node() -> bool:
        return [pod["spec"]["nodeName"] for pod in await mission.running(job)] == ["dgx-0"] * 5

    await mission.eventually(five_on_one_node)
    await mission.kubectl("delete", "topology", "cluster")


async def test_m14_and_m15_priority_in_a_limited_queue_and_the_limit_lifted(mission: Mission) -> None:
    await mission.apply("priority/limited-queue.yaml")
    await mission.apply("priority/train-priority-pod.yaml")
    await mission.runs("train-pod")
    await mission.apply("priority/build-priority-pod.yaml")
    await mission.runs("build-pod")
    listed = await mission.kubectl("get", "pods", "-l", "kai.scheduler/queue=test", "-n", mission.namespace)
    assert "build-pod   1/1     Running" in listed
    assert "train-pod   1/1     Terminating" in listed

    async def told() -> bool:
        events = await mission.kubectl("get", "events", "-n", mission.namespace)
        return f"Pod {mission.namespace}/train-pod was preempted by higher priority workload" in events

    await mission.eventually(told)
    await mission.kubectl("delete", "pod", "train-pod", "-n", mission.namespace, "--force")
    await mission.apply("priority/train-priority-pod.yaml")
    await mission.described("pod", "train-pod", "OverLimit")
    await mission.apply(QUEUES)
    await mission.runs("train-pod", "build-pod")


async def test_m16_time_sliced_devices_count_as_often_as_they_are_offered(mission: Mission) -> None:
    async def node() -> Object:
        chosen = ("--selector=nvidia.com/gpu.product=NVIDIA-L4-SHARED", "-o", "json")
        found: list[Object] = json.loads(await mission.kubectl("get", "node", *chosen))["items"]
        (only,) = found
        return only

    async with mission.cordoned("dgx-0"):
        await mission.apply("gpu-sharing/gpu-sharing.yaml")
        await mission.runs("gpu-sharing")
        assert (await node())["status"]["allocatable"]["nvidia.com/gpu"] == "4", "a fraction does not change it"
        await mission.kubectl("delete", "pod", "gpu-sharing", "-n", mission.namespace)
        await mission.apply("time-slicing/time-sliced-pods.yaml")

        async def four_run() -> bool:
            return len(await mission.running("app=slices")) == 4

        await mission.eventually(four_run)
        pods = await mission.list("pods", labels="app=slices")
        (waiting,) = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
        await mission.described("pod", waiting["metadata"]["name"], "Unschedulable")
        assert {pod["spec"].get("nodeName") for pod in pods} == {"l4-0", None}


async def test_m17_selectors_tolerations_and_affinities_are_respected(mission: Mission) -> None:
    nodes = {
        "node-selector-pod": "l4-0",
        "toleration-pod": "vision-0",
        "node-affinity-pod": "dgx-0",
        "pod-anti-affinity-pod": "cpu-0",
    }
    await mission.apply(*(f"placement/{pod}.yaml" for pod in nodes if pod != "pod-anti-affinity-pod"))
    await mission.apply("placement/without-toleration-pod.yaml")
    await mission.runs(*(pod for pod in nodes if pod != "pod-anti-affinity-pod"))
    await mission.apply("placement/pod-anti-affinity-pod.yaml")
    await mission.runs("pod-anti-affinity-pod")
    assert {pod: (await mission.get("pod", pod))["spec"]["nodeName"] for pod in nodes} == nodes
    described = await mission.described("pod", "without-toleration-pod", "Warning  Unschedulable")
    assert "taint" in described.partition("Events:")[2]
    assert "nodeName" not in (await mission.get("pod", "without-toleration-pod"))["spec"]


async def test_m18_annotations_stay_and_a_waiting_pod_says_why(mission: Mission) -> None:
    await mission.apply("gpu-sharing/gpu-sharing.yaml", "pods/too-large-pod.yaml")
    await mission.runs("gpu-sharing")
    path = "Queue: {.metadata.labels.kai\\.scheduler/queue}, GPU Fraction: {.metadata.annotations.gpu-fraction}"
    shown = await mission.kubectl("get", "pod", "gpu-sharing", "-n", mission.namespace, "-o", f"jsonpath={path}")
    assert shown == "Queue: test, GPU Fraction: 0.5"
    await mission.described(
        "pod", "too-large-pod", "Max GPU resources available in a single node in the default node-pool is topped at 8"
    )
    condition = "jsonpath={.status.conditions[?(@.type=='PodScheduled')]['status','reason']}"
    shown = await mission.kubectl("get", "pod", "too-large-pod", "-n", mission.namespace, "-o", condition)
    assert shown == "False Unschedulable"
    assert not is_ending(await mission.get("pod", "too-large-pod"))
