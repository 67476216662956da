"""Questions to a live cluster beside what really happens: the manifest that was asked about is applied afterwards.

The questions are asked by an account that may only read, and the API server keeps an audit log of all it does.
`make test-ask STATES=20` draws more states of the cluster than the sample here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from pykai.cli.local_cluster import LocalProduct
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.explain.live_cluster import live, setting_of
from pykai.explain.source import Decided, from_file
from pykai.explain.views import Overview
from pykai.explain.what_if import WhatIfResult, what_if
from pykai.explain.why import explain
from pykai.hollow.hollow_node import GpuShape, NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object, Selection
from pykai.kube.api_resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    POD,
    QUEUE,
    SERVICE_ACCOUNT,
)
from pykai.kube.client import HttpApi
from pykai.kube.errors import AlreadyExists, Forbidden, NotFound
from pykai.local.cluster_session import connect
from pykai.local.clusters import ClusterFiles
from pykai.local.control_plane import APISERVER, FLAGS, ControlPlane, start_cluster
from pykai.model.status import Status
from pykai.objects import names
from pykai.objects.units import rfc3339
from pykai.plugins import registry
from pykai.scheduler.debug_server import SnapshotContext, write_snapshot
from pykai.simulate.manifests import Manifest, Origin
from tests import builders
from tests.hollow_nodes import hollow_nodes

from .conftest import Eventually
from .whole_product import at_work

STATES = int(os.environ.get("STATES", "3"))
READER = "reader"
READING = {"get", "list", "watch"}
STEADY = (Status.PENDING, Status.RUNNING)
RESOURCES = {"Job": JOB, "Pod": POD, "Deployment": DEPLOYMENT}


# --------------------------------------------------------------------------------------------------------- the cluster
def audited(files: ClusterFiles) -> dict[str, str | int]:
    """Flags of an API server that notes every request of the reader, also those it refuses."""
    rules = [{"level": "Metadata", "users": [f"system:serviceaccount:default:{READER}"]}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    file = files.directory / "audit-policy.json"
    file.write_text(json.dumps(policy))
    flags = {"audit-policy-file": str(file), "audit-log-path": str(files.directory / "audit.log")}
    return {**FLAGS[APISERVER](files), **flags}


@pytest.fixture(scope="module")
def plane(control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, with an audit log."""
    directory = tmp_path_factory.mktemp("ask") / "tests"
    made = start_cluster(directory, control_plane_binary, flags={**FLAGS, APISERVER: audited})
    yield made
    made.stop()


@dataclass(frozen=True)
class Asked:
    """A cluster with all components, and the account that asks."""

    api: HttpApi
    reader: HttpApi
    kubeconfig: Path
    """The reader's."""
    eventually: Eventually

    async def at_rest(self) -> Decided:
        """The state in which the product leaves the cluster once there is nothing more to do, as the reader sees it."""
        found: list[Decided] = []

        async def settled() -> bool:
            found[:] = [await live(self.reader)]
            jobs = (await self.api.list(JOB, Object)).items
            made = all((each.get("status") or {}).get("active") == each["spec"]["parallelism"] for each in jobs)
            return made and _is_settled(found[0])

        await self.eventually(settled)
        return found[0]

    async def pods(self, namespace: str) -> list[Object]:
        """Pods of a namespace that are not on their way out."""
        items = (await self.api.list(POD, Object, Selection(namespace=namespace))).items
        return [each for each in items if "deletionTimestamp" not in each["metadata"]]


def _is_settled(state: Decided) -> bool:
    """Whether every pod of a user is in a group, runs or waits, and the next cycle would change nothing."""
    plan, pods = state.plan, state.snapshot.pods
    moving = plan.binds or plan.evictions or plan.nominations
    spaces = [pod.metadata.namespace for pod in pods.objects]
    users = [row for row, space in enumerate(spaces) if space != names.RESERVATION_NAMESPACE]
    return not moving and all(pods.gang[row] >= 0 and pods.status[row] in STEADY for row in users)


@pytest.fixture
async def asked(plane: ControlPlane, eventually: Eventually, tmp_path: Path) -> AsyncIterator[Asked]:
    plane.check()
    whole = LocalProduct()
    settings = KubeletSettings(stop_seconds=0.1, on_start=on_hollow_nodes(whole.connection))
    shapes = [NodeShape(f"gpu-{number}", GpuShape(4)) for number in range(3)]
    async with (
        connect(plane.files.kubeconfig) as api,
        at_work(whole, api, plane.files.kubeconfig),
        hollow_nodes(api, shapes, settings),
    ):
        kubeconfig = await kubeconfig_of_reader(api, plane.files, tmp_path)
        async with connect(kubeconfig) as reader:
            yield Asked(api, reader, kubeconfig, eventually)


async def kubeconfig_of_reader(api: HttpApi, files: ClusterFiles, folder: Path) -> Path:
    """The access of an account that may read all the scheduler reads, and write nothing."""
    meta = {"name": READER}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": sorted(READING)}]
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": READER}
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": "default"}
    with suppress(AlreadyExists):  # another test of this control plane has made them
        await api.create(SERVICE_ACCOUNT, {"metadata": meta}, "default")
        await api.create(CLUSTER_ROLE, {"metadata": meta, "rules": rules})
        await api.create(CLUSTER_ROLE_BINDING, {"metadata": meta, "roleRef": role, "subjects": [subject]})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await api.post(SERVICE_ACCOUNT.ref(READER, "default").sub("token"), request)
    document = json.loads(files.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": answer["status"]["token"]}
    file = folder / "reader.kubeconfig"
    file.write_text(json.dumps(document))
    return file


# ------------------------------------------------------------------------------------------------------ random states
class Drawn(NamedTuple):
    """A state of the cluster: queues, pods that are there before, and the manifest that is asked about."""

    queues: Sequence[Object]
    before: Sequence[Object]
    manifest: Object


def draw(seed: int, namespace: str) -> Drawn:
    """Two queues of random quota, up to twelve pods of 1 to 4 GPUs or a part of one, and a workload."""
    random = Random(seed)
    a, b = (builders.queue(f"{name}-{namespace}", gpu={"quota": random.choice([0, 4, 8])}) for name in "ab")
    queues = [each["metadata"]["name"] for each in (a, b)]
    before = [
        bare_pod(f"run-{number}", namespace, random.choice(queues), random, "train")
        for number in range(random.randint(3, 12))
    ]
    chosen, rank = random.choice(queues), random.choice(["train", "build"])
    kind = random.choice(["job", "job", "job", "pod", "deployment"])
    if kind == "pod":
        return Drawn((a, b), before, bare_pod("new", namespace, chosen, random, rank))
    pods = random.randint(1, 3) if kind == "job" else 1
    return Drawn((a, b), before, workload(kind, namespace, _template(chosen, random.choice([1, 2, 4]), rank), pods))


def bare_pod(name: str, namespace: str, queue: str, random: Random, rank: str) -> Object:
    share = random.choice(["", "", "", "0.5"])
    made = _template(queue, 0 if share else random.choice([1, 2, 4]), rank)
    made["metadata"] |= {"name": name, "namespace": namespace}
    made["metadata"]["annotations"] = {names.GPU_FRACTION: share} if share else {}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def _template(queue: str, gpus: int, rank: str) -> Object:
    labels = {names.QUEUE_LABEL: queue, "priorityClassName": rank, "app": "new"}
    limits = {"limits": {names.NVIDIA_GPU: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "x", "resources": limits}
    return {"metadata": {"labels": labels}, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}}


def workload(kind: str, namespace: str, template: Object, pods: int) -> Object:
    labels = template["metadata"]["labels"]
    meta: Object = {"name": "new", "namespace": namespace, "labels": labels}
    if kind == "deployment":
        spec = {"replicas": pods, "selector": {"matchLabels": {"app": "new"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    meta["annotations"] = {"kai.scheduler/batch-min-member": str(pods)}
    template["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


@asynccontextmanager
async def standing(asked: Asked, seed: int) -> AsyncIterator[Drawn]:
    """A drawn state in a namespace of its own; all of it is gone after the block."""
    namespace = f"state-{seed}-{uuid.uuid4().hex[:6]}"
    await asked.api.create(NAMESPACE, {"metadata": {"name": namespace}})
    await asked.eventually(lambda: _exists(asked.api, SERVICE_ACCOUNT.ref("default", namespace)))
    drawn = draw(seed, namespace)
    for queue in drawn.queues:
        await asked.api.create(QUEUE, queue)
    for pod in drawn.before:
        await asked.api.create(POD, pod, namespace)
    yield drawn
    await asked.api.delete(NAMESPACE.ref(namespace))

    async def gone() -> bool:
        return not (await asked.api.list(POD, Object)).items

    await asked.eventually(gone)
    for queue in drawn.queues:
        await asked.api.delete(QUEUE.ref(queue["metadata"]["name"]))


async def _exists(api: HttpApi, ref: Any) -> bool:
    try:
        await api.get(ref, Object)
    except NotFound:
        return False
    return True


# ------------------------------------------------------------------------------------------------- asked, then applied
class Fate(NamedTuple):
    """What becomes of the manifest: the nodes of its pods, the pods that had to go for it, why it waits."""

    nodes: Sequence[str]
    evicted: frozenset[str]
    reason: str


def foretold(outcome: WhatIfResult) -> Fate:
    evicted = {each.pod.rpartition("/")[2] for each in outcome.evictions if not each.moves_to}
    reasons = {each.reason.token for each in outcome.workloads if each.reason and not outcome.placements}
    return Fate(sorted(node for _, node in outcome.placements), frozenset(evicted), " ".join(sorted(reasons)))


async def happened(asked: Asked, drawn: Drawn) -> Fate:
    """Apply the manifest, and see what became of it and of the pods that were there."""
    meta = drawn.manifest["metadata"]
    namespace = meta["namespace"]
    before = {each["metadata"]["name"] for each in await asked.pods(namespace)}
    await asked.api.create(RESOURCES[drawn.manifest["kind"]], drawn.manifest, namespace)
    expected = int(drawn.manifest["spec"].get("parallelism", 1))

    async def there() -> bool:
        return len([each for each in await asked.pods(namespace) if is_new(each)]) == expected

    await asked.eventually(there)
    state = await asked.at_rest()
    pods = await asked.pods(namespace)
    nodes = sorted(each["spec"]["nodeName"] for each in pods if is_new(each) and each["spec"].get("nodeName"))
    tokens = {
        verdict.dominant.token
        for verdict in state.waiting.values()
        if verdict.dominant is not None and any(pod[1].startswith("new") for pod in verdict.pods)
    }
    left = before - {each["metadata"]["name"] for each in pods}
    return Fate(nodes, frozenset(left), " ".join(sorted(tokens)))


def is_new(pod: Object) -> bool:
    return str(pod["metadata"]["name"]).startswith("new")


async def test_what_if_is_what_applying_does_and_a_snapshot_answers_the_same(asked: Asked, tmp_path: Path) -> None:
    differences, answers = [], set()
    for seed in range(STATES):
        async with standing(asked, seed) as drawn:
            file = tmp_path / f"{seed}.zip"
            state, taken = await asked.eventually(lambda file=file: live_and_taken(asked, file))
            manifests = [Manifest(Origin("test", 1), drawn.manifest)]
            outcome = await asyncio.to_thread(what_if, state, manifests)
            assert answered(taken) == answered(state)
            again = await asyncio.to_thread(what_if, taken, manifests)
            assert without_notes(again) == without_notes(outcome)
            fate = await happened(asked, drawn)
            answers.add(outcome.answer)
            if foretold(outcome) != fate:
                differences.append((seed, foretold(outcome), fate))
    assert not differences
    assert len(answers) > 1, "states that lead to the same show little"


async def live_and_taken(asked: Asked, file: Path) -> tuple[Decided, Decided] | None:
    """The same state read from the cluster and from a snapshot of it; None where something was written meanwhile."""
    state = await asked.at_rest()
    taken = from_file(await snapshot_of(asked.reader, file), state.now)
    return (state, taken) if versions(await live(asked.reader)) == versions(state) else None


def versions(state: Decided) -> dict[str, str]:
    """The versions of pods and their groups."""
    found = [each["metadata"] for section in ("pods", "podGroups") for each in state.objects()[section]]
    return {meta["uid"]: meta["resourceVersion"] for meta in found}


async def snapshot_of(api: HttpApi, file: Path) -> Path:
    setting = await setting_of(api, "default")
    context = SnapshotContext(setting.config, registry.BUILT_IN, gpu_sharing_mode=setting.gpu_sharing_mode)
    with await write_snapshot(api, setting.params, context) as taken:
        file.write_bytes(taken.read())
    return file


def answered(state: Decided) -> Any:
    """All that explain and the overviews say about a state."""
    gangs = sorted((group.metadata.namespace, group.metadata.name) for group in state.snapshot.gangs.objects)
    explained = [msgspec.structs.replace(explain(state, gang), notes=()) for gang in gangs]
    seen = Overview(state)
    return explained, seen.queues, seen.waiting, seen.evictions


def without_notes(outcome: WhatIfResult) -> WhatIfResult:
    workloads = tuple(msgspec.structs.replace(each, notes=()) for each in outcome.workloads)
    return msgspec.structs.replace(outcome, workloads=workloads)


# -------------------------------------------------------------------------------------------------------- the commands
async def kai(asked: Asked, *arguments: str) -> tuple[int, str]:
    """A command as the reader runs it: its exit code and what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(asked.kubeconfig)}
    command = [sys.executable, "-m", "pykai", *arguments]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE)
    output, errors = await process.communicate()
    assert process.returncode is not None
    assert "Traceback" not in errors.decode(), errors.decode()
    return process.returncode, output.decode()


async def test_no_command_that_asks_writes(asked: Asked, plane: ControlPlane, tmp_path: Path) -> None:
    async with standing(asked, 0) as drawn:
        state = await asked.at_rest()
        manifest, file = tmp_path / "new.json", tmp_path / "snapshot.zip"
        manifest.write_text(json.dumps(drawn.manifest))
        namespace, queue = drawn.manifest["metadata"]["namespace"], drawn.queues[0]["metadata"]["name"]
        pod = drawn.before[0]["metadata"]["name"]
        at = f"--now={rfc3339(int(state.now))}"
        assert await kai(asked, "snapshot", "-o", str(file), at) == (0, "")
        for command in (
            ("explain", pod, "-n", namespace, "-o", "json"),
            ("what-if", "-f", str(manifest), "-o", "json"),
            ("queues", "-o", "json"),
            ("queue", queue, "-o", "json"),
            ("nodes", "-o", "json"),
        ):
            code, shown = await kai(asked, *command, at)
            assert code in (0, 3, 4), command
            assert _said(shown) == _said((await kai(asked, *command, at, "--snapshot", str(file)))[1]), command
        assert (await kai(asked, "evictions", "-o", "json"))[0] == 0
    with pytest.raises(Forbidden):
        await asked.reader.create(NAMESPACE, {"metadata": {"name": "canary"}})
    noted = [json.loads(line) for line in (plane.files.directory / "audit.log").read_text().splitlines()]
    writes = [(each["verb"], each["requestURI"]) for each in noted if each["verb"] not in READING]
    assert [verb for verb, _ in writes] == ["create"], "the canary shows that a write would be in the log"
    assert writes[0][1].startswith("/api/v1/namespaces")
    agents = {each["userAgent"] for each in noted}
    assert len(noted) > 6, agents


def _said(shown: str) -> Any:
    """An answer without its notes on what was assumed, which depend on what it was read from."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(each) for key, each in value.items() if key not in ("notes", "warnings")}
        return [bare(each) for each in value] if isinstance(value, list) else value

    return bare(json.loads(shown))
