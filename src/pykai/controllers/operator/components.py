"""The components that a Config deploys, one row each, the objects of a row, and its webhook registrations.

Packages of one layer do not import each other, so the operator gets functions of `admission` as `WebhookParts`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pykai.controllers.operator import component_flags, deployments
from pykai.controllers.operator.deployments import DeploymentParts, deployment
from pykai.controllers.operator.installation import Installation, SecretData
from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.config_kinds import (
    AdmissionSpec,
    BinderSpec,
    Config,
    NodeScaleAdjusterSpec,
    PodGroupControllerSpec,
    PodGrouperSpec,
    PortSpec,
    QueueControllerSpec,
)

AUTHORITY: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"


@dataclass(frozen=True)
class Endpoint:
    """The address at which the API server calls a webhook, and its CA bundle (PEM)."""

    namespace: str
    service: str
    port: int
    authority: bytes


@dataclass(frozen=True)
class WebhookParts:
    """Functions of the webhook package.

    `issue(service, namespace, present)` returns the data of a serving certificate's Secret: `present` itself while it
    is valid. `pods` (with the names of its two), `queues` and `pod_groups` (with the prefix of theirs) return webhook
    configurations; `merged(wanted, live)` keeps the fields that other clients added to a live one.
    """

    issue: Callable[[str, str, SecretData | None], SecretData]
    pods: Callable[[Endpoint, Config, tuple[str, str]], list[Object]]
    queues: Callable[[Endpoint, str], list[Object]]
    pod_groups: Callable[[Endpoint, str], list[Object]]
    merged: Callable[[Object, Object], Object]


def endpoint(service: str, port: int, installation: Installation) -> Endpoint:
    """Return the endpoint of a component's webhook; its CA bundle is empty before there is a certificate."""
    data = installation.facts.certificates.get(service) or {}
    authority = base64.b64decode(data.get(AUTHORITY) or data.get(CERTIFICATE) or "")
    return Endpoint(installation.config.namespace, service, port, authority)


ComponentSpec = (
    PodGrouperSpec | BinderSpec | QueueControllerSpec | PodGroupControllerSpec | NodeScaleAdjusterSpec | AdmissionSpec
)
HEALTH = 8081


@dataclass(frozen=True)
class Component:
    """A component: `title` names it in conditions, `name` names its objects, `command` is the subcommand of `kai`.

    `lease`: the Lease for leader election (empty: all replicas are active). `ports`: those of its Service (none: no
    Service). `probe`: the port of its health probes. `webhook_port` None: it serves no webhooks; `serves`: whether
    they are enabled, `secret`: the Secret of its certificate, `register`: returns the webhook registrations.
    """

    title: str
    name: str
    command: str
    part: Callable[[Config], ComponentSpec]
    arguments: Callable[[Installation], list[str]]
    probe: Callable[[Config], int] = lambda config: HEALTH
    ports: Callable[[Config], tuple[PortSpec, ...]] = lambda config: ()
    alone: bool = False
    lease: str = ""
    secret: str = ""
    webhook_port: Callable[[Config], PortSpec] | None = None
    serves: Callable[[Config], bool] = lambda config: True
    register: Callable[[Installation, WebhookParts], list[Object]] = lambda installation, parts: []
    service_name: Callable[[Config], str] | None = None

    def service(self, config: Config) -> str:
        """Return the name of its Service, for which its certificate is issued and its webhooks are registered."""
        return self.name if self.service_name is None else self.service_name(config)

    def enabled(self, config: Config) -> bool:
        """Whether it is deployed."""
        return self.part(config).service.enabled is not False

    def webhook(self, config: Config) -> bool:
        """Whether it serves webhooks, and so needs a certificate."""
        return self.webhook_port is not None and self.enabled(config) and self.serves(config)

    def objects(self, installation: Installation, parts: WebhookParts) -> list[Object]:
        """Return all its objects; none if it is disabled."""
        config = installation.config
        if not self.enabled(config):
            return []
        workload = self.workload(installation)
        ports = self._ports(config)
        certified: list[Object] = []
        if self.webhook(config):
            certified += self.register(installation, parts)
            if self.name not in installation.facts.provided:
                certified.append(deployments.certificate(self.secret, installation.facts.certificates[self.name]))
        return [
            deployments.account(self.name, installation),
            *([deployments.service(self.service(config), workload.pod_labels, ports)] if ports else []),
            *certified,
            *deployments.lease(self.lease, workload),
            deployment(workload, installation),
            *deployments.budget(workload),
            *deployments.autoscaler(workload, self.part(config).vpa, installation),
        ]

    def workload(self, installation: Installation) -> DeploymentParts:
        """Its Deployment."""
        config = installation.config
        part = self.part(config)
        return DeploymentParts(
            name=self.name,
            command=self.command,
            service=part.service,
            replicas=installation.replicas(part.replicas),
            arguments=self.arguments(installation),
            probe_port=self.probe(config),
            ports={port.name: port.target_port for port in self._ports(config)},
            alone=self.alone,
            secret=self.secret if self.webhook(config) else "",
        )

    def _ports(self, config: Config) -> tuple[PortSpec, ...]:
        if self.webhook_port is None or not self.webhook(config):
            return self.ports(config)
        return self.webhook_port(config), *self.ports(config)


def _metrics_port(port: int) -> PortSpec:
    return PortSpec(port, port, "http-metrics")


def _register_pods(installation: Installation, parts: WebhookParts) -> list[Object]:
    own = installation.config.admission
    called = (own.mutating_webhook_configuration_name, own.validating_webhook_configuration_name)
    at = endpoint("admission", own.webhook.port, installation)
    return parts.pods(replace(at, service=own.service_name), installation.config, called)


def _register(
    service: str,
    own: QueueControllerSpec | PodGroupControllerSpec,
    installation: Installation,
    configurations: Callable[[Endpoint, str], list[Object]],
) -> list[Object]:
    at = endpoint(service, own.controller_service.webhook.port, installation)
    return configurations(at, own.webhooks.webhook_configuration_name_prefix)


COMPONENTS: Final = (
    Component(
        "PodGrouper",
        "pod-grouper",
        "podgrouper",
        lambda config: config.pod_grouper,
        component_flags.pod_grouper,
        lease=names.POD_GROUPER_LEASE,
    ),
    Component(
        "Binder",
        "binder",
        "binder",
        lambda config: config.binder,
        component_flags.binder,
        probe=lambda config: config.binder.probe_port,
        ports=lambda config: (_metrics_port(config.binder.metrics_port),),
        alone=True,
        lease=names.BINDER_LEASE,
    ),
    Component(
        "QueueController",
        "queue-controller",
        "queue-controller",
        lambda config: config.queue_controller,
        component_flags.queue_controller,
        probe=lambda config: config.queue_controller.controller_service.metrics.target_port,
        ports=lambda config: (config.queue_controller.controller_service.metrics,),
        lease=names.QUEUE_CONTROLLER_LEASE,
        webhook_port=lambda config: config.queue_controller.controller_service.webhook,
        secret="queue-webhook-tls-secret",
        serves=lambda config: config.queue_controller.webhooks.enable_validation,
        register=lambda installation, parts: _register(
            "queue-controller", installation.config.queue_controller, installation, parts.queues
        ),
    ),
    Component(
        "PodGroupController",
        "podgroup-controller",
        "podgroup-controller",
        lambda config: config.pod_group_controller,
        component_flags.pod_group_controller,
        lease=names.POD_GROUP_CONTROLLER_LEASE,
        webhook_port=lambda config: config.pod_group_controller.controller_service.webhook,
        secret="podgroup-webhook-tls-secret",
        serves=lambda config: config.pod_group_controller.webhooks.enable_validation,
        register=lambda installation, parts: _register(
            "podgroup-controller", installation.config.pod_group_controller, installation, parts.pod_groups
        ),
    ),
    Component(
        "NodeScaleAdjuster",
        "node-scale-adjuster",
        "node-scale-adjuster",
        lambda config: config.node_scale_adjuster,
        component_flags.node_scale_adjuster,
        alone=True,
        lease=names.NODE_SCALE_ADJUSTER_LEASE,
    ),
    Component(
        "KAIAdmission",
        "admission",
        "admission",
        lambda config: config.admission,
        component_flags.admission,
        probe=lambda config: config.admission.webhook.probe_port,
        ports=lambda config: (_metrics_port(config.admission.webhook.metrics_port),),
        webhook_port=lambda config: PortSpec(
            config.admission.webhook.port, config.admission.webhook.target_port, "webhook"
        ),
        secret="kai-admission-webhook-tls-secret",
        service_name=lambda config: config.admission.service_name,
        register=_register_pods,
    ),
)
