"""The Deployment of a component, `kai <component>` with its flags in the one image, and the objects that go with it.

Several replicas use leader election. A component that must not run twice at once is stopped before its successor
starts (strategy Recreate), with election or without: when replicas grow from one to several, the replaced pod does not
take part in the election.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pykai.controllers.operator.installation import VPA_KIND, Installation, SecretData, image_reference
from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.config_kinds import Autoscaler, PortSpec, ServiceSpec

RUN_AS_USER: Final = 10000
_PARTS = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_WEIGHT = 100


def affinity(installation: Installation, own: Object, labels: dict[str, str]) -> Object:
    """Return each part of the component's affinity, else of the global one; by default replicas repel each other."""
    general = installation.config.shared.affinity
    merged = {part: own.get(part) or general.get(part) for part in _PARTS}
    if not merged["podAntiAffinity"]:
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": names.HOSTNAME_LABEL}
        preferred = [{"weight": _WEIGHT, "podAffinityTerm": term}]
        apart: Object = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        if installation.config.shared.require_default_pod_anti_affinity_term:
            apart["requiredDuringSchedulingIgnoredDuringExecution"] = [term]
        merged["podAntiAffinity"] = apart
    return {part: value for part, value in merged.items() if value}


def container_security(installation: Installation) -> Object:
    """Return the security context of containers: that of Config, else one that the restricted profile admits.

    OpenShift assigns the user of a namespace's pods and denies any other.
    """
    shared = installation.config.shared
    if shared.security_context:
        return shared.security_context
    user = {} if shared.openshift else {"runAsUser": RUN_AS_USER}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        **user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


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
"""Default requests and limits by component; CPU limits allow for the start of Python."""


@dataclass(frozen=True)
class DeploymentParts:
    """One Deployment: `name` is also that of its container and, unless `account` is given, of its service account.

    `command` is the component, `ports` the container's ports by name; `probe_port` (0: none) answers `/readyz`
    and `/healthz`.
    `alone`: two copies must not run at once. `secret`: the Secret with its serving certificate.
    `config_map`: the ConfigMap that it reads, and the directory where it is mounted.
    """

    name: str
    command: str
    service: ServiceSpec
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
        """Return the labels of its pods, by which it selects them."""
        return {names.APP_LABEL: self.name, **self.labels}

    @property
    def elected(self) -> bool:
        """Whether its replicas run leader election."""
        return any(argument.startswith("--leader-elect=") for argument in self.arguments)


def deployment(workload: DeploymentParts, installation: Installation) -> Object:
    """Return the Deployment object.

    A rolling update surges by one pod, with one unavailable if there are several. It is stated in full, because a
    change of the strategy removes only fields that we own.
    """
    shared = installation.config.shared
    rolling = {"maxSurge": 1, "maxUnavailable": 1 if workload.replicas > 1 else 0}
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
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": workload.name, "labels": workload.pod_labels},
        "spec": {
            "replicas": workload.replicas,
            "selector": {"matchLabels": workload.pod_labels},
            "strategy": {"type": "Recreate"} if workload.alone else {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {"metadata": _present(metadata), "spec": _present(spec)},
        },
    }


def pull_secrets(installation: Installation) -> list[Object]:
    """Return the image pull secrets of pods without duplicates."""
    shared = installation.config.shared
    named = [installation.environment.pull_secret, shared.images_pull_secret, *shared.additional_image_pull_secrets]
    return [{"name": name} for name in dict.fromkeys(named) if name]


def container(workload: DeploymentParts, installation: Installation) -> Object:
    """Return the container that runs the component."""
    service = workload.service
    usual = RESOURCES.get(workload.command, USUAL_RESOURCES)
    parts = {
        "name": workload.name,
        "image": image_reference(service.image, installation.environment),
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


def _probes(port: int) -> Object:
    """Readiness is probed often; liveness allows two minutes, because a long scheduling cycle does not answer."""
    if not port:
        return {}
    ready = {"httpGet": {"path": "/readyz", "port": port}, "initialDelaySeconds": 2, "periodSeconds": 5}
    alive = {"httpGet": {"path": "/healthz", "port": port}, "initialDelaySeconds": 15, "periodSeconds": 20}
    limits = {"timeoutSeconds": 10, "failureThreshold": 6}
    return {"readinessProbe": {**ready, "timeoutSeconds": 5}, "livenessProbe": {**alive, **limits}}


def _mounts(workload: DeploymentParts) -> list[Object]:
    mounts = []
    if workload.secret:
        mounts.append({"name": "cert", "mountPath": CERTIFICATES, "readOnly": True})
    if workload.config_map[0]:
        mounts.append({"name": "config", "mountPath": workload.config_map[1], "readOnly": True})
    return mounts


def _volumes(workload: DeploymentParts) -> list[Object]:
    volumes: list[Object] = []
    if workload.secret:
        volumes.append({"name": "cert", "secret": {"secretName": workload.secret, "defaultMode": 0o644}})
    if workload.config_map[0]:
        volumes.append({"name": "config", "configMap": {"name": workload.config_map[0]}})
    return volumes


def _present(parts: Object) -> Object:
    return {key: value for key, value in parts.items() if value not in ({}, [], "")}


def account(name: str, installation: Installation) -> Object:
    """Return a service account."""
    secrets = pull_secrets(installation)
    more: Object = {"imagePullSecrets": secrets} if secrets else {}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}, **more}


def service(name: str, selector: Mapping[str, str], ports: Sequence[PortSpec]) -> Object:
    """Return a Service; with an empty selector its endpoints are written elsewhere."""
    rows = [{"name": port.name, "port": port.port, "targetPort": port.target_port, "protocol": "TCP"} for port in ports]
    spec: Object = {"type": "ClusterIP", "ports": rows}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": dict(selector) or {"app": name}},
        "spec": {**spec, "selector": dict(selector)} if selector else spec,
    }


def lease(name: str, workload: DeploymentParts) -> list[Object]:
    """Return the Lease of elected replicas, without a spec: the replicas write holder and times."""
    if not workload.elected:
        return []
    metadata = {"name": name, "labels": workload.pod_labels}
    return [{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}]


def budget(workload: DeploymentParts) -> list[Object]:
    """Return a PodDisruptionBudget if there are several replicas and the Config requests one."""
    wanted = workload.service.pod_disruption_budget
    if workload.replicas <= 1 or not wanted.enabled:
        return []
    spec = {"maxUnavailable": wanted.max_unavailable, "selector": {"matchLabels": workload.pod_labels}}
    return [_of("policy/v1", "PodDisruptionBudget", workload, spec)]


def autoscaler(workload: DeploymentParts, vpa: Autoscaler, installation: Installation) -> list[Object]:
    """Return a VerticalPodAutoscaler if the Config requests one and the kind is installed."""
    if not vpa.enabled or VPA_KIND not in installation.facts.installed:
        return []
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name}
    policies = {"updatePolicy": vpa.update_policy, "resourcePolicy": vpa.resource_policy}
    spec = {"targetRef": target, **{key: value for key, value in policies.items() if value}}
    return [_of("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", workload, spec)]


def certificate(name: str, data: SecretData) -> Object:
    """Return the Secret with a serving certificate."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "data": dict(data),
    }


def _of(version: str, kind: str, workload: DeploymentParts, spec: Object) -> Object:
    metadata = {"name": workload.name, "labels": workload.pod_labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
