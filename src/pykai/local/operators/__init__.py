"""Operators of other projects for local clusters: built unchanged from their Go modules and run as processes.

Each directory here contains a Go module that requires one operator. CRDs and webhooks come from the operator's module;
webhooks are registered with loopback addresses and a certificate for the cluster. An operator has the permissions of
the cluster's administrator and runs without leader election.
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
    """The directory and ports of an operator on this machine."""

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
        """The listen address of its health probes."""
        return f"{HOST}:{self.health_port}"


Flags = Callable[[Place], list[str]]


def _default_flags(place: Place) -> list[str]:
    return [f"--health-probe-bind-address={place.health}", "--metrics-bind-address=0", "--leader-elect=false"]


def _kuberay(place: Place) -> list[str]:
    return [f"--health-probe-bind-address={place.health}", "--metrics-addr=0", "--enable-leader-election=false"]


def _configuration_file(api_version: str, place: Place, **more: object) -> list[str]:
    """Write the configuration file of an operator that reads one, and return its flags."""
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
    """Kueue admits Jobs that name one of its queues; no visibility server, because that must run in a pod."""
    jobs = {"frameworks": ["batch/job"]}
    flags = _configuration_file("config.kueue.x-k8s.io/v1beta1", place, integrations=jobs)
    return [*flags, "--feature-gates=VisibilityOnDemand=false"]


def _karpenter(place: Place) -> list[str]:
    """Karpenter offers one instance type with eight GPUs; hollow kubelets adopt the nodes that it creates."""
    labels = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "local"}
    required = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    instance_type = {
        "name": "gpu-8",
        "offerings": [{"Price": 8.0, "Available": True, "Requirements": required}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "64", "memory": "512Gi", "pods": "250", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"},
    }
    file = place.directory / "instance-types.json"
    file.write_text(json.dumps([instance_type]))
    ports = [f"--health-probe-port={place.health_port}", f"--metrics-port={place.webhook_port}"]
    return [*ports, f"--instance-types-file-path={file}", "--disable-leader-election"]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its Go module, the main package in it, and globs of CRDs and webhook configurations in the module.

    `pods_with`: the label that selects the pods of its webhooks, which its own kustomize installation adds.
    """

    source: str
    command: str
    definitions: str
    flags: Flags
    webhooks: str = ""
    pods_with: str = ""
    health: str = ""
    """Host, port and path of its health probe if no flag sets them."""

    def module(self, name: str) -> Module:
        """Return the Go module that builds the operator."""
        files = (self.definitions, *([self.webhooks] if self.webhooks else ()))
        package = f"{self.source}/{self.command}".rstrip("/")
        return Module(Path(__file__).parent / name, f"operator-{name}", (), self.source, package, files)


OPERATORS: Final = {
    "jobset": Operator(
        "sigs.k8s.io/jobset",
        "",
        "config/components/crd/bases/*.yaml",
        partial(_configuration_file, "config.jobset.x-k8s.io/v1alpha1"),
        "config/components/webhook/manifests.yaml",
        "jobset.sigs.k8s.io/jobset-name",
    ),
    "lws": Operator(
        "sigs.k8s.io/lws",
        "cmd",
        "config/crd/bases/leaderworkerset*.yaml",
        partial(_configuration_file, "config.lws.x-k8s.io/v1alpha1"),
        "config/webhook/manifests.yaml",
        "leaderworkerset.sigs.k8s.io/name",
    ),
    # Without MPIJob: the MPI operator defines that kind as well, in an incompatible version.
    "training": Operator(
        "github.com/kubeflow/training-operator",
        "cmd/training-operator.v1",
        "manifests/base/crds/kubeflow.org_[!m]*.yaml",
        lambda place: [*_default_flags(place), *(f"--enable-scheme={kind}" for kind in _TRAINING_KINDS)],
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
    "kuberay": Operator("github.com/ray-project/kuberay/ray-operator", "", "config/crd/bases/*.yaml", _kuberay),
}
"""The operators by their names in `kai local up --operators`."""
