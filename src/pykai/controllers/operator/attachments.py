"""What goes with a Deployment: service account, Service, lease, disruption budget, vertical autoscaler, certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykai.controllers.operator.installation import VPA_KIND, Installation, SecretData
from pykai.controllers.operator.workloads import Workload, pull_secrets
from pykai.objects.config_kinds import Autoscaler, Port

Object = dict[str, Any]


def account(name: str, installation: Installation) -> Object:
    """A service account."""
    secrets = pull_secrets(installation)
    more: Object = {"imagePullSecrets": secrets} if secrets else {}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}, **more}


def service(name: str, selector: Mapping[str, str], ports: Sequence[Port]) -> Object:
    """A Service; an empty selector leaves its endpoints to others."""
    rows = [{"name": port.name, "port": port.port, "targetPort": port.target_port, "protocol": "TCP"} for port in ports]
    spec: Object = {"type": "ClusterIP", "ports": rows}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": dict(selector) or {"app": name}},
        "spec": {**spec, "selector": dict(selector)} if selector else spec,
    }


def lease(name: str, workload: Workload) -> list[Object]:
    """The Lease of copies that are elected; it has no spec, because who holds it and since when is theirs to write."""
    if not workload.elected:
        return []
    metadata = {"name": name, "labels": workload.pod_labels}
    return [{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}]


def budget(workload: Workload) -> list[Object]:
    """A disruption budget, where there is more than one copy and one is asked for."""
    asked = workload.service.pod_disruption_budget
    if workload.replicas <= 1 or not asked.enabled:
        return []
    spec = {"maxUnavailable": asked.max_unavailable, "selector": {"matchLabels": workload.pod_labels}}
    return [_of("policy/v1", "PodDisruptionBudget", workload, spec)]


def autoscaler(workload: Workload, asked: Autoscaler, installation: Installation) -> list[Object]:
    """A vertical autoscaler, where one is asked for and the cluster knows them."""
    if not asked.enabled or VPA_KIND not in installation.facts.installed:
        return []
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name}
    policies = {"updatePolicy": asked.update_policy, "resourcePolicy": asked.resource_policy}
    spec = {"targetRef": target, **{key: value for key, value in policies.items() if value}}
    return [_of("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", workload, spec)]


def certificate(name: str, data: SecretData) -> Object:
    """The Secret with a serving certificate."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "data": dict(data),
    }


def _of(version: str, kind: str, workload: Workload, spec: Object) -> Object:
    metadata = {"name": workload.name, "labels": workload.pod_labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
