"""Operators of other projects beside a local cluster: built from their Go modules, run as processes, unchanged.

Each directory here holds a module that requires one operator. Its definitions and webhooks come from the operator's own
module too; its webhooks are registered with addresses on loopback and a certificate made for the cluster. It works with
the rights of the cluster's administrator and without leader election.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from pykai.admission.certificates import ServingCredentials, issue
from pykai.hollow.hollow_node import HOST
from pykai.kube.api import Api, Object, Patch
from pykai.kube.operations import MANAGER, define
from pykai.kube.resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from pykai.local.build import Module
from pykai.local.clusters import ClusterError, free_ports
from pykai.local.containers import Command, executing
from pykai.local.control_plane import tail
from pykai.local.session import LocalComponent, connect

AUTOSCALER = "karpenter"
_TRAINING_KINDS = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one operator is on this machine; `certificates` and `webhook_port` are for its webhooks."""

    directory: Path
    kubeconfig: Path
    health_port: int
    webhook_port: int

    @property
    def certificates(self) -> Path:
        """The directory of its serving certificate."""
        return self.directory / "certificates"

    @property
    def health(self) -> str:
        """The address of its probes."""
        return f"{HOST}:{self.health_port}"


Flags = Callable[[Place], list[str]]


def _usual(place: Place) -> list[str]:
    return [f"--health-probe-bind-address={place.health}", "--metrics-bind-address=0", "--leader-elect=false"]


def _ray(place: Place) -> list[str]:
    return [f"--health-probe-bind-address={place.health}", "--metrics-addr=0", "--enable-leader-election=false"]


def _configured(api_version: str, place: Place, **more: object) -> list[str]:
    """For operators that read a file: write it."""
    document = {
        **more,
        "apiVersion": api_version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": place.health},
        "webhook": {"host": HOST, "port": place.webhook_port, "certDir": str(place.certificates)},
        "internalCertManagement": {"enable": False},
    }
    file = place.directory / "configuration.json"
    file.write_text(json.dumps(document))
    return [f"--config={file}"]


def _kueue(place: Place) -> list[str]:
    """It admits Jobs that name one of its queues; its visibility server would need to run in a pod."""
    jobs = {"frameworks": ["batch/job"]}
    flags = _configured("config.kueue.x-k8s.io/v1beta1", place, integrations=jobs)
    return [*flags, "--feature-gates=VisibilityOnDemand=false"]


def _karpenter(place: Place) -> list[str]:
    """With one type of node, which has eight GPUs; hollow kubelets take over what it creates."""
    offer = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "local"}
    required = [{"key": key, "operator": "In", "values": [value]} for key, value in offer.items()]
    machine = {
        "name": "gpu-8",
        "offerings": [{"Price": 8.0, "Available": True, "Requirements": required}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "64", "memory": "512Gi", "pods": "250", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"},
    }
    file = place.directory / "instance-types.json"
    file.write_text(json.dumps([machine]))
    ports = [f"--health-probe-port={place.health_port}", f"--metrics-port={place.webhook_port}"]
    return [*ports, f"--instance-types-file-path={file}", "--disable-leader-election"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: its Go module, the command in it, and where the module keeps definitions and webhooks.

    `pods_with`: the label of the pods that its webhooks ask for, which it adds when it is installed by kustomize.
    """

    source: str
    command: str
    definitions: str
    flags: Flags
    webhooks: str = ""
    pods_with: str = ""
    health: str = ""
    """Host, port and path of its probe, where no flag sets them."""

    def module(self, name: str) -> Module:
        """What is built of it."""
        files = (self.definitions, *([self.webhooks] if self.webhooks else ()))
        package = f"{self.source}/{self.command}".rstrip("/")
        return Module(Path(__file__).parent / name, f"operator-{name}", (), self.source, package, files)


OPERATORS: Final = {
    "jobset": Operator(
        "sigs.k8s.io/jobset",
        "",
        "config/components/crd/bases/*.yaml",
        partial(_configured, "config.jobset.x-k8s.io/v1alpha1"),
        "config/components/webhook/manifests.yaml",
        "jobset.sigs.k8s.io/jobset-name",
    ),
    "lws": Operator(
        "sigs.k8s.io/lws",
        "cmd",
        "config/crd/bases/leaderworkerset*.yaml",
        partial(_configured, "config.lws.x-k8s.io/v1alpha1"),
        "config/webhook/manifests.yaml",
        "leaderworkerset.sigs.k8s.io/name",
    ),
    # MPIJob is left to the MPI operator: both define that kind, in versions that exclude each other.
    "training": Operator(
        "github.com/kubeflow/training-operator",
        "cmd/training-operator.v1",
        "manifests/base/crds/kubeflow.org_[!m]*.yaml",
        lambda place: [*_usual(place), *(f"--enable-scheme={kind}" for kind in _TRAINING_KINDS)],
    ),
    "mpi": Operator(
        "github.com/kubeflow/mpi-operator",
        "cmd/mpi-operator",
        "manifests/base/kubeflow.org_mpijobs.yaml",
        lambda place: [f"--kubeConfig={place.kubeconfig}", "--lock-namespace=default", "--kube-api-qps=500"],
        health=f"{HOST}:8080/healthz",
    ),
    "kueue": Operator(
        "sigs.k8s.io/kueue",
        "cmd/kueue",
        "config/components/crd/bases/*.yaml",
        _kueue,
        "config/components/webhook/manifests.yaml",
        "kueue.x-k8s.io/queue-name",
    ),
    AUTOSCALER: Operator("sigs.k8s.io/karpenter", "kwok", "kwok/**/crds/karpenter.*.yaml", _karpenter),
    "kuberay": Operator("github.com/ray-project/kuberay/ray-operator", "", "config/crd/bases/*.yaml", _ray),
}
"""By the name that `kai local up --operators` takes."""


_LOOK_SECONDS = 0.1
_STOP_SECONDS = 5.0
_WEBHOOKS = {each.kind: each for each in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK)}


def component(name: str, binary: Path) -> LocalComponent:
    """An operator as a part of a local cluster; `binary` was built of its module."""
    return LocalComponent(name, partial(_run, OPERATORS[name], name, binary))


async def _run(operator: Operator, name: str, binary: Path, kubeconfig: Path, ready: asyncio.Event) -> None:
    """Define its kinds, run it, and set `ready` once it answers its probes and its webhooks are in force."""
    place = Place(kubeconfig.parent / "operators" / name, kubeconfig, *_free_ports())
    place.certificates.mkdir(parents=True, exist_ok=True)
    credentials = issue([HOST], datetime.now(UTC))
    (place.certificates / "tls.crt").write_bytes(credentials.certificate)
    (place.certificates / "tls.key").write_bytes(credentials.key)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(place.directory)}
    command = Command([str(binary), *operator.flags(place)], environment, place.directory)
    files, log = binary.parent / "files", kubeconfig.parent / "logs" / f"{name}.log"
    async with connect(kubeconfig) as api:
        await define(api, _documents(files, operator.definitions))
        with log.open("a", buffering=1) as output:

            def say(line: str) -> None:
                output.write(f"{line}\n")

            async with executing(command, say, lambda: _STOP_SECONDS) as process:
                ended = asyncio.create_task(process.wait(), name="ended")
                serving = asyncio.create_task(_serve(api, operator, files, place, credentials))
                await asyncio.wait([ended, serving], return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                    ready.set()
                serving.cancel()
                code = await ended
    raise ClusterError(f"it ended with code {code}; the end of {log}:\n{tail(log)}")


async def _serve(api: Api, operator: Operator, files: Path, place: Place, credentials: ServingCredentials) -> None:
    """Wait until the operator answers, then register its webhooks."""
    probe = f"http://{operator.health or f'{place.health}/readyz'}"
    async with aiohttp.ClientSession() as session:
        while not await _answers(session, probe):
            await asyncio.sleep(_LOOK_SECONDS)
    if not operator.webhooks:
        return
    while not await _listens(place.webhook_port):
        await asyncio.sleep(_LOOK_SECONDS)
    for document in _documents(files, operator.webhooks):
        resource = _WEBHOOKS[document["kind"]]
        name = f"{place.directory.name}-{document['metadata']['name']}"
        hooks = [_on_loopback(hook, operator.pods_with, place, credentials) for hook in document["webhooks"]]
        wanted = {**document, "metadata": {"name": name}, "webhooks": hooks}
        await api.patch(resource.ref(name), Patch.apply(wanted, MANAGER))


def _on_loopback(hook: Object, pods_with: str, place: Place, credentials: ServingCredentials) -> Object:
    """A webhook as this cluster reaches it; one for pods sees those of its operator only."""
    url = f"https://{HOST}:{place.webhook_port}{hook['clientConfig']['service']['path']}"
    client = {"url": url, "caBundle": base64.b64encode(credentials.authority).decode()}
    for_pods = any("pods" in rule["resources"] for rule in hook["rules"])
    selector = {"matchExpressions": [{"key": pods_with, "operator": "Exists"}]}
    return {**hook, "clientConfig": client, **({"objectSelector": selector} if for_pods else {})}


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
            return answer.status == 200
    return False


async def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        return True
    return False


def _documents(files: Path, pattern: str) -> list[Object]:
    read = (yaml.safe_load_all(path.read_text()) for path in sorted(files.glob(pattern)))
    return [document for documents in read for document in documents if document]


def _free_ports() -> tuple[int, int]:
    ports = free_ports()
    return ports.etcd, ports.api
