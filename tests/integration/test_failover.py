"""Two schedulers and two binders with leader election: the leaders are killed under load and the others take over.

Leases have their default times. `make test-long` also kills one component at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import pytest

from pykai.cli.install import install
from pykai.hollow.hollow_node import GpuShape, NodeShape, repeat
from pykai.kube.api import Api, EventType, Object, Selection
from pykai.kube.api_resources import BIND_REQUEST, EVENT, POD
from pykai.kube.client import HttpApi
from pykai.kube.informer_store import WatchChange
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests.hollow_nodes import hollow_nodes

from .component_processes import ROUNDS, ComponentProcesses
from .conftest import Eventually
from .following import followed

REPLICAS = ("a", "b")
LONGEST_GAP_SECONDS = 20.0
BETWEEN_PODS_SECONDS = 0.2
NODES, GPUS = 24, 8
COMPONENTS = ("scheduler", "binder")
VICTIMS = [COMPONENTS, *([(component,) for component in COMPONENTS] if ROUNDS > 3 else [])]


@dataclass
class Bindings:
    """When each pod of a namespace was bound, and to which nodes it ever was."""

    namespace: str
    at: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, set[str]] = field(default_factory=dict)

    def see(self, change: WatchChange[Object]) -> None:
        """A pod changed."""
        (namespace, name), node = change.key, change.object["spec"].get("nodeName")
        if namespace == self.namespace and node and change.type is not EventType.DELETED:
            self.at.setdefault(name, time.monotonic())
            self.nodes.setdefault(name, set()).add(node)

    def longest_gap(self) -> float:
        """Seconds between two bindings that followed one another."""
        return max(later - earlier for earlier, later in pairwise(sorted(self.at.values())))


async def feed(api: Api, namespace: str, made: list[str], enough: asyncio.Event) -> None:
    """Create pods with a GPU at a steady pace until there are enough. It is not cancelled: a pod whose creation is
    under way would exist without being in `made`."""
    resources = {"limits": {names.NVIDIA_GPU: "1"}}
    for number in count():
        if enough.is_set():
            return
        name = f"pod-{number:03}"
        await api.create(
            POD,
            {
                "metadata": {"name": name, "namespace": namespace, "labels": {names.QUEUE_LABEL: "default-queue"}},
                "spec": {
                    "schedulerName": names.SCHEDULER_NAME,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "none", "resources": resources}],
                },
            },
        )
        made.append(name)
        await asyncio.sleep(BETWEEN_PODS_SECONDS)


@asynccontextmanager
async def fed(api: Api, namespace: str) -> AsyncIterator[list[str]]:
    """The names of the pods that are created while the block runs."""
    made: list[str] = []
    enough = asyncio.Event()
    feeding = asyncio.create_task(feed(api, namespace, made, enough))
    try:
        yield made
    finally:
        enough.set()
        await feeding


@pytest.fixture
async def replicas(
    real_api: HttpApi, local_cluster: ControlPlane, tmp_path: Path, eventually: Eventually
) -> AsyncIterator[ComponentProcesses]:
    """Two schedulers, two binders and a pod grouper on a cluster with GPUs for all pods; one of each kind leads.

    That may take the time of a lease, if an earlier test has killed its holder.
    """
    await install(real_api)
    parts = ComponentProcesses(Path(local_cluster.files.kubeconfig), tmp_path)
    async with hollow_nodes(real_api, repeat(NodeShape("failover", GpuShape(GPUS)), NODES)):
        await parts.start("podgrouper")
        for replica in REPLICAS:
            for component in COMPONENTS:
                await parts.start(f"{component}/{replica}", "--leader-elect")
        await eventually(lambda: all(leaders(parts, component) for component in COMPONENTS))
        yield parts
        await parts.close()


def leaders(parts: ComponentProcesses, component: str) -> list[str]:
    """The replicas of a component that have led."""
    processes = [f"{component}/{replica}" for replica in REPLICAS]
    return [process for process in processes if "leading" in parts.log(process)]


@pytest.mark.parametrize("victims", VICTIMS, ids=" and ".join)
async def test_the_other_replica_takes_over(
    victims: tuple[str, ...], replicas: ComponentProcesses, real_api: HttpApi, namespace: str, eventually: Eventually
) -> None:
    bindings = Bindings(namespace)
    async with followed(real_api, {POD: bindings.see}):
        async with fed(real_api, namespace) as made:
            await eventually(lambda: len(bindings.at) >= 10)
            for component in victims:
                (leader,) = leaders(replicas, component)
                await replicas.kill(leader)
            killed = time.monotonic()
            await eventually(lambda: max(bindings.at.values()) > killed + 2 * BETWEEN_PODS_SECONDS)
            await asyncio.sleep(1.0)
        await eventually(lambda: set(made) <= bindings.at.keys())
    assert [len(leaders(replicas, component)) for component in victims] == [len(REPLICAS)] * len(victims)
    assert bindings.longest_gap() < LONGEST_GAP_SECONDS
    await check_once_each(real_api, bindings)
    await eventually(lambda: all_run(real_api, namespace))


async def check_once_each(api: Api, bindings: Bindings) -> None:
    """No pod was bound twice, to one place or to two, and no node has more pods than GPUs."""
    assert [nodes for nodes in bindings.nodes.values() if len(nodes) > 1] == []
    here = Selection(namespace=bindings.namespace)
    chosen = {
        r["spec"]["podName"]: {r["spec"]["selectedNode"]} for r in (await api.list(BIND_REQUEST, Object, here)).items
    }
    assert chosen == bindings.nodes
    told = Counter(
        (event["involvedObject"]["name"], event["reason"]) for event in (await api.list(EVENT, Object, here)).items
    )
    assert [what for what, times in told.items() if times > 1 and what[1] == "Scheduled"] == []
    busy = Counter(node for nodes in bindings.nodes.values() for node in nodes)
    assert max(busy.values()) <= GPUS


async def all_run(api: Api, namespace: str) -> bool:
    """Whether every pod of the namespace runs."""
    pods = (await api.list(POD, Object, Selection(namespace=namespace))).items
    return {pod["status"]["phase"] for pod in pods} == {"Running"}
