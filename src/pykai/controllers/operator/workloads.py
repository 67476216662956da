"""The Deployment of a component: `kai <component>` with its flags, in the one image.

Copies beyond the first are elected. A component of which two at work are one too many is stopped before its successor
starts, elected or not: the pods that a change from one copy to several replaces know of no election.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.controllers.operator import images
from pykai.controllers.operator.installation import Installation
from pykai.controllers.operator.placement import affinity, container_security
from pykai.objects import names
from pykai.objects.config_kinds import Service

Object = dict[str, Any]

PROGRAM: Final = "kai"
CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"
_ENVIRONMENT = (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))


def _resources(requests: tuple[str, str], limits: tuple[str, str]) -> Object:
    pairs = {"requests": requests, "limits": limits}
    return {kind: {"cpu": cpu, "memory": memory} for kind, (cpu, memory) in pairs.items()}


USUAL_RESOURCES: Final = _resources(("50m", "256Mi"), ("500m", "512Mi"))
RESOURCES: Final = {
    "binder": _resources(("50m", "200Mi"), ("500m", "400Mi")),
    "scheduler": _resources(("250m", "512Mi"), ("2", "2Gi")),
    "numa-placement-exporter": _resources(("50m", "64Mi"), ("200m", "128Mi")),
}
"""By component, what its container asks for unless Config says; processor limits leave room for Python's start."""


@dataclass(frozen=True)
class Workload:
    """One Deployment: `name` is also that of its container and, unless `account` is given, of its service account.

    `command` is the component, `ports` the container's ports by name; `probe_port` (0: none) answers `/readyz`
    and `/healthz`.
    `alone`: two copies at work are wrong. `secret`: the Secret with its serving certificate.
    `config_map`: the ConfigMap that it reads, and the folder to find it in.
    """

    name: str
    command: str
    service: Service
    replicas: int
    arguments: Sequence[str]
    probe_port: int
    ports: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
    alone: bool = False
    secret: str = ""
    config_map: tuple[str, str] = ("", "")

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of its pods, by which it selects them."""
        return {names.APP_LABEL: self.name, **self.labels}

    @property
    def elected(self) -> bool:
        """Whether its copies are told to have themselves elected."""
        return any(argument.startswith("--leader-elect=") for argument in self.arguments)


def deployment(workload: Workload, installation: Installation) -> Object:
    """The Deployment object."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": workload.name, "labels": workload.pod_labels},
        "spec": {
            "replicas": workload.replicas,
            "selector": {"matchLabels": workload.pod_labels},
            "strategy": {"type": "Recreate"} if workload.alone else _rolling(workload.replicas),
            "template": _template(workload, installation),
        },
    }


def _rolling(replicas: int) -> Object:
    """One pod more, and of several one less; written out, because only what is ours goes when the strategy changes."""
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1 if replicas > 1 else 0}}


def pull_secrets(installation: Installation) -> list[Object]:
    """The image pull secrets of pods, each once."""
    shared = installation.config.shared
    named = [installation.site.pull_secret, shared.images_pull_secret, *shared.additional_image_pull_secrets]
    return [{"name": name} for name in dict.fromkeys(named) if name]


def container(workload: Workload, installation: Installation) -> Object:
    """The container that runs the component."""
    service = workload.service
    usual = RESOURCES.get(workload.command, USUAL_RESOURCES)
    parts = {
        "name": workload.name,
        "image": images.reference(service.image, installation.site),
        "imagePullPolicy": service.image.pull_policy,
        "command": [PROGRAM, workload.command],
        "args": [*workload.arguments, *([f"--webhook-cert-dir={CERTIFICATES}"] if workload.secret else [])],
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _ENVIRONMENT],
        "ports": [{"name": name, "containerPort": port} for name, port in workload.ports.items()],
        "resources": {**usual, **service.resources},
        "securityContext": container_security(installation),
        "volumeMounts": _mounts(workload),
        **_probes(workload.probe_port),
    }
    return _present(parts)


def _template(workload: Workload, installation: Installation) -> Object:
    shared = installation.config.shared
    spec = {
        "serviceAccountName": workload.account or workload.name,
        "containers": [container(workload, installation)],
        "affinity": affinity(installation, workload.service.affinity, workload.pod_labels),
        "nodeSelector": shared.node_selector,
        "tolerations": shared.tolerations,
        "priorityClassName": shared.priority_class_name,
        "imagePullSecrets": pull_secrets(installation),
        "volumes": _volumes(workload),
    }
    metadata = {"labels": workload.pod_labels, "annotations": dict(workload.annotations)}
    return {"metadata": _present(metadata), "spec": _present(spec)}


def _probes(port: int) -> Object:
    """Ready is asked often; alive is given two minutes, because a long scheduling cycle answers nobody."""
    if not port:
        return {}
    ready = {"httpGet": {"path": "/readyz", "port": port}, "initialDelaySeconds": 2, "periodSeconds": 5}
    alive = {"httpGet": {"path": "/healthz", "port": port}, "initialDelaySeconds": 15, "periodSeconds": 20}
    patience = {"timeoutSeconds": 10, "failureThreshold": 6}
    return {"readinessProbe": {**ready, "timeoutSeconds": 5}, "livenessProbe": {**alive, **patience}}


def _mounts(workload: Workload) -> list[Object]:
    mounts = []
    if workload.secret:
        mounts.append({"name": "cert", "mountPath": CERTIFICATES, "readOnly": True})
    if workload.config_map[0]:
        mounts.append({"name": "config", "mountPath": workload.config_map[1], "readOnly": True})
    return mounts


def _volumes(workload: Workload) -> list[Object]:
    volumes: list[Object] = []
    if workload.secret:
        volumes.append({"name": "cert", "secret": {"secretName": workload.secret, "defaultMode": 0o644}})
    if workload.config_map[0]:
        volumes.append({"name": "config", "configMap": {"name": workload.config_map[0]}})
    return volumes


def _present(parts: Object) -> Object:
    return {key: value for key, value in parts.items() if value not in ({}, [], "")}
