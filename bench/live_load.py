"""Load for a live cluster: pods created as fast as the server takes them, and the moment each is bound.

Moments are those of this process: a pod's life begins when its creation is sent (or, for the pods of a Job, when a
watch first shows it) and it is bound when the watch shows its node. Seconds of one steady clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.live_cluster import LiveCluster
from bench.measure import BenchError
from pykai.kube.api import Api, Deletion, EventType, Object, Propagation, Selection
from pykai.kube.api_resources import JOB, NAMESPACE, POD, QUEUE
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.objects import names

SPACE = "bench"
QUEUE_NAME = "bench"
AT_ONCE = 32
_FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


class _Meta(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


@dataclass
class Lives:
    """When each pod of the benchmark came and when it was bound."""

    born: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, change: WatchChange[_Pod]) -> None:
        """A pod changed."""
        now, name = time.perf_counter(), change.object.metadata.name
        if change.object.metadata.namespace != SPACE:
            return
        if change.type is EventType.DELETED:
            self.present.discard(name)
        else:
            self.present.add(name)
            self.born.setdefault(name, now)
            if change.object.spec.node_name:
                self.bound.setdefault(name, now)
        self.changed.set()

    def forget(self) -> None:
        """Begin anew."""
        self.born.clear()
        self.bound.clear()

    async def all_bound(self, count: int, seconds: float) -> bool:
        """Whether so many pods are bound in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.bound) < count:
                    self.changed.clear()
                    await self.changed.wait()
        return len(self.bound) >= count

    async def all_gone(self) -> None:
        """Return when no pod is left."""
        while self.present:
            self.changed.clear()
            await self.changed.wait()

    def seconds(self) -> float:
        """From the first birth to the last binding."""
        return max(self.bound.values()) - min(self.born.values())

    def latency(self) -> float:
        """The median time from birth to binding."""
        return median(self.bound[name] - self.born[name] for name in self.bound)


@contextlib.asynccontextmanager
async def followed(api: Api) -> AsyncIterator[Lives]:
    """The lives of pods, kept while the block runs."""
    lives, watches = Lives(), InformerFactory(api)
    watches.of(POD, _Pod).subscribe(lives.see)
    following = asyncio.create_task(watches.run())
    try:
        await watches.synced()
        yield lives
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def template(scheduler: str) -> Object:
    """A pod with one GPU that runs until it is deleted."""
    resources = {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {names.NVIDIA_GPU: "1"}}
    return {
        "metadata": {"labels": {names.QUEUE_LABEL: QUEUE_NAME}, "annotations": {"pykai.io/run-seconds": "100000"}},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }


async def prepare(api: Api) -> None:
    """A namespace in which pods can be created."""
    await _made(api, NAMESPACE, {"metadata": {"name": SPACE}})
    await asyncio.sleep(1.0)  # its service account is made meanwhile


async def prepare_queues(api: Api) -> None:
    """A queue without bounds, in another."""
    resources = dict.fromkeys(("cpu", "memory", "gpu"), _FREE)
    for name, parent in ((f"{QUEUE_NAME}-all", ""), (QUEUE_NAME, f"{QUEUE_NAME}-all")):
        spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
        await _made(api, QUEUE, {"metadata": {"name": name}, "spec": spec})


async def _made(api: Api, resource: Any, body: Object) -> None:
    with contextlib.suppress(AlreadyExists):
        await api.create(resource, body)


async def create_pods(api: Api, lives: Lives, scheduler: str, pods: Sequence[str]) -> None:
    """Create pods of these names as fast as the server takes them."""
    gate = asyncio.Semaphore(AT_ONCE)
    made = template(scheduler)

    async def create(name: str) -> None:
        async with gate:
            lives.born[name] = time.perf_counter()
            await api.create(POD, {**made, "metadata": {**made["metadata"], "name": name, "namespace": SPACE}})

    await asyncio.gather(*(create(name) for name in pods))


async def create_job(api: Api, scheduler: str, size: int) -> None:
    """Create a Job of so many pods at once; a scheduler that knows gangs must start all of them together."""
    metadata = {"name": "gang", "namespace": SPACE, "annotations": {names.BATCH_MIN_MEMBER: str(size)}}
    metadata["labels"] = {names.QUEUE_LABEL: QUEUE_NAME}
    spec = {"parallelism": size, "completions": size, "template": template(scheduler)}
    await api.create(JOB, {"metadata": metadata, "spec": spec})


async def clear(api: Api, lives: Lives) -> None:
    """Delete everything and wait until it is gone."""
    for job in (await api.list(JOB, Object, Selection(namespace=SPACE))).items:
        await api.delete(JOB.ref(job["metadata"]["name"], SPACE), Deletion(propagation=Propagation.BACKGROUND))
    gate = asyncio.Semaphore(AT_ONCE)

    async def delete(name: str) -> None:
        async with gate:
            with contextlib.suppress(NotFound):
                await api.delete(POD.ref(name, SPACE), Deletion(grace_seconds=0))

    await asyncio.gather(*(delete(name) for name in list(lives.present)))
    await lives.all_gone()
    lives.forget()


WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
NOT_COUNTED = {"leases", "subjectaccessreviews", "tokenreviews"}
"""Heartbeats, and questions that change nothing."""
QUIET_SECONDS = 2.0
MOST_LOOKS = 30
_LINE = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Write = tuple[str, str]
"""(verb, resource or resource/subresource)."""


@dataclass(frozen=True)
class Meter:
    """The readings at one moment."""

    writes: Counter[Write]
    cpu: dict[str, float]


def read(cluster: LiveCluster) -> Meter:
    """The readings now."""
    return Meter(count_writes(_metrics(cluster.kubeconfig)), cluster.cpu())


async def read_when_quiet(cluster: LiveCluster) -> Meter:
    """The readings once nothing is written any more: status and events come seconds after what they are about."""
    meter = read(cluster)
    for _ in range(MOST_LOOKS):
        await asyncio.sleep(QUIET_SECONDS)
        before, meter = meter, read(cluster)
        if meter.writes == before.writes:
            return meter
    raise BenchError("the cluster does not come to rest: somebody else writes to it")


def count_writes(metrics: str) -> Counter[Write]:
    """Requests that write, from the API server's metrics in Prometheus' text format."""
    found: Counter[Write] = Counter()
    for labels, value in _LINE.findall(metrics):
        of = dict(_LABEL.findall(labels))
        if of["verb"] in WRITES and of["resource"] not in NOT_COUNTED:
            place = f"{of['resource']}/{of['subresource']}" if of["subresource"] else of["resource"]
            found[of["verb"], place] += int(float(value))
    return found


def _metrics(kubeconfig: Path) -> str:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = ["kubectl", "get", "--raw", "/metrics"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Cost:
    """The difference of two readings."""

    writes: Counter[Write]
    cpu: dict[str, float]

    @classmethod
    def between(cls, before: Meter, after: Meter, own: Counter[Write]) -> Cost:
        """What happened from one reading to the other, without the writes of the benchmark itself (`own`)."""
        cpu = {part: after.cpu[part] - before.cpu.get(part, 0.0) for part in after.cpu}
        return cls(after.writes - before.writes - own, cpu)

    @property
    def total_writes(self) -> int:
        """All writes."""
        return sum(self.writes.values())

    @property
    def total_cpu(self) -> float:
        """Seconds of all parts."""
        return sum(self.cpu.values())
