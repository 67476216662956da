"""A local cluster as users start it, and a user at work on it: `kubectl` and the manifests of `examples/`.

The cluster is `kai local up` with the nodes of `examples/nodes.yaml`: a process of its own with the hollow kubelets and
every component, beside the control plane. Tests share it, so each has a namespace of its own and must leave no pod and
no reservation behind, which is checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykai.objects import names
from tests.timeouts import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
QUEUES = "queues/queues.yaml"
NAME = "mission"
_WORKLOADS = "deployments,jobs,pods"
_AT_ONCE = f"{names.STOP_SECONDS}=0"

Object = dict[str, Any]
Kubectl = Callable[..., Awaitable[str]]
Eventually = Callable[..., Awaitable[Any]]


@contextmanager
def local_up(state: Path, *options: str) -> Iterator[Path]:
    """`kai local up` until the end of the block; gives the kubeconfig. `state` is where the cluster keeps its files."""
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    command = [sys.executable, "-m", "pykai", "local"]
    subprocess.run([*command, "up", f"--name={NAME}", *options], env=environment, check=True)
    directory = state / "pykai" / "clusters" / NAME
    try:
        yield directory / "kubeconfig"
        status = subprocess.run([*command, "status"], env=environment, capture_output=True, text=True)
        assert status.returncode == 0, f"a part of the cluster has ended:\n{status.stdout}"
    finally:
        log = directory / "owner.log"
        (state / "owner.log").write_bytes(log.read_bytes() if log.exists() else b"")
        subprocess.run([*command, "down", f"--name={NAME}"], env=environment, check=True)


@dataclass(frozen=True)
class Mission:
    """A user with `kubectl` in a namespace."""

    kubectl: Kubectl
    eventually: Eventually
    namespace: str

    async def apply(self, *examples: str, namespace: str = "") -> None:
        """Apply files of `examples/`."""
        files = [argument for example in examples for argument in ("-f", str(EXAMPLES / example))]
        await self.kubectl("apply", "-n", namespace or self.namespace, *files)

    async def create(self, *objects: Object, namespace: str = "") -> None:
        """Create objects that no example has, or that a controller would make that is not here."""
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        await self.kubectl("create", "-n", namespace or self.namespace, "-f", "-", stdin=body)

    async def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """One object."""
        shown = await self.kubectl("get", kind, name, "-n", namespace or self.namespace, "-o", "json")
        found: Object = json.loads(shown)
        return found

    async def list(self, kind: str, namespace: str = "", labels: str = "") -> list[Object]:
        """Objects of a kind in a namespace."""
        chosen = ("-l", labels) if labels else ()
        shown = await self.kubectl("get", kind, "-n", namespace or self.namespace, "-o", "json", *chosen)
        return list(json.loads(shown)["items"])

    async def reservations(self) -> Sequence[Object]:
        """The reservation pods of the cluster."""
        return await self.list("pods", names.RESERVATION_NAMESPACE)

    async def runs(self, *pods: str, namespace: str = "") -> None:
        """Wait until pods are ready."""
        targets = [f"pod/{pod}" for pod in pods]
        where = ("-n", namespace or self.namespace, f"--timeout={TIMEOUT_SECONDS}s")
        await self.kubectl("wait", "--for=condition=Ready", *targets, *where)

    async def described(self, kind: str, name: str, text: str) -> str:
        """What `kubectl describe` shows as soon as it has `text` in it."""

        shown = ""

        async def found() -> bool:
            nonlocal shown
            shown = await self.kubectl("describe", kind, name, "-n", self.namespace)
            return text in shown

        try:
            await self.eventually(found)
        except AssertionError as error:
            raise AssertionError(f"no {text!r} in:\n{shown}") from error
        return shown

    async def running(self, labels: str) -> Sequence[Object]:
        """Pods with labels that run and are not on their way out."""
        pods = await self.list("pods", labels=labels)
        return [pod for pod in pods if pod["status"]["phase"] == "Running" and not is_ending(pod)]

    async def clear(self, *namespaces: str) -> None:
        """Delete all workloads and wait until they, and the reservations they had, are gone."""
        chosen = namespaces or (self.namespace,)
        for namespace in chosen:
            await self._stop_at_once(namespace)
            await self.kubectl("delete", _WORKLOADS, "--all", "-n", namespace, "--wait=false")

        async def gone() -> bool:
            left = [pod for namespace in chosen for pod in await self.list("pods", namespace)]
            return not left and not await self.reservations()

        await self.eventually(gone)

    async def _stop_at_once(self, namespace: str) -> None:
        """Let pods end without delay once they are deleted; one that is gone by now needs nothing."""
        try:
            await self.kubectl("annotate", "pods", "--all", "--overwrite", "-n", namespace, _AT_ONCE)
        except AssertionError as error:
            if "(NotFound)" not in str(error):
                raise

    @asynccontextmanager
    async def another_namespace(self) -> AsyncIterator[str]:
        """A namespace for the block; at its end both namespaces are cleared."""
        name = await new_namespace(self.kubectl, self.eventually)
        try:
            yield name
        finally:
            await self.clear(self.namespace, name)
            await self.kubectl("delete", "namespace", name, "--wait=false")

    @asynccontextmanager
    async def cordoned(self, *nodes: str) -> AsyncIterator[None]:
        """Nodes take no new pods while the block runs."""
        await self.kubectl("cordon", *nodes)
        try:
            yield
        finally:
            await self.kubectl("uncordon", *nodes)


@asynccontextmanager
async def at_work(kubectl: Kubectl, eventually: Eventually) -> AsyncIterator[Mission]:
    """A user with a namespace and the usual queues; nothing may be left afterwards."""
    mission = Mission(kubectl, eventually, await new_namespace(kubectl, eventually))
    await mission.apply(QUEUES)
    try:
        yield mission
    finally:
        await mission.clear()
        await kubectl("delete", "namespace", mission.namespace, "--wait=false")


async def new_namespace(kubectl: Kubectl, eventually: Eventually) -> str:
    """A namespace in which pods can be created."""
    name = f"mission-{uuid.uuid4().hex[:6]}"
    await kubectl("create", "namespace", name)
    await eventually(lambda: kubectl("get", "serviceaccount", "-n", name, "-o", "name"))
    return name


def is_ending(pod: Object) -> bool:
    """Whether the pod has been told to end."""
    return "deletionTimestamp" in pod["metadata"]


def gpu_groups(pod: Object) -> Sequence[str]:
    """The shared devices a pod has part of."""
    labels = pod["metadata"].get("labels") or {}
    own = [labels[names.GPU_GROUP_LABEL]] if names.GPU_GROUP_LABEL in labels else []
    return [*own, *(value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX))]


def sharers(pods: Sequence[Object]) -> Counter[tuple[str, str]]:
    """How many of the pods share each (node, device)."""
    return Counter((pod["spec"].get("nodeName", ""), group) for pod in pods for group in gpu_groups(pod))
