"""Operators of other projects beside a local cluster: built from their Go modules, run as processes, unchanged.

Each directory here holds a module that requires one operator. Its definitions and webhooks come from the operator's own
module too; its webhooks are registered with addresses on loopback and a certificate made for the cluster. It works with
the rights of the cluster's administrator and without leader election.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pykai.hollow.hollow_node import HOST
from pykai.local.build import Module

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
