"""Webhook registrations, seen from the operator: it knows which are wanted, others know what they look like.

The rules of registration and the making of certificates belong to the webhook package, which is none of ours to import;
the application hands them in as `WebhookParts`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.controllers.operator.installation import Installation, SecretData

Object = dict[str, Any]
AUTHORITY: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"


@dataclass(frozen=True)
class Endpoint:
    """Where the API server finds a webhook, and the PEM authorities it may trust there."""

    namespace: str
    service: str
    port: int
    authority: bytes


@dataclass(frozen=True)
class PodScope:
    """Which pods the pod webhooks see; `queue_label_key` None: those of all namespaces.

    `guards_devices`: also pods that ask for no share of a GPU.
    """

    scheduler_name: str
    system_namespace: str
    queue_label_key: str | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    guards_devices: bool = False


@dataclass(frozen=True)
class WebhookParts:
    """What the webhook package contributes.

    `issue(service, namespace, present)` gives what the Secret of a serving certificate should hold: `present` itself
    while it serves. `pods`, `queues` and `pod_groups` give webhook configurations; `merged(wanted, live)` keeps what
    others added to a live one.
    """

    issue: Callable[[str, str, SecretData | None], SecretData]
    pods: Callable[[Endpoint, PodScope, tuple[str, str]], list[Object]]
    queues: Callable[[Endpoint, str], list[Object]]
    pod_groups: Callable[[Endpoint, str], list[Object]]
    merged: Callable[[Object, Object], Object]


def endpoint(service: str, port: int, installation: Installation) -> Endpoint:
    """Where a component's webhook is; without a certificate yet, nobody is trusted."""
    data = installation.facts.certificates.get(service) or {}
    authority = base64.b64decode(data.get(AUTHORITY) or data.get(CERTIFICATE) or "")
    return Endpoint(installation.config.namespace, service, port, authority)


def scope(installation: Installation) -> PodScope:
    """Which pods the pod webhooks are to see."""
    config = installation.config
    key = config.shared.queue_label_key if config.admission.queue_label_selector else None
    return PodScope(
        config.shared.scheduler_name,
        config.namespace,
        key,
        config.shared.namespace_label_selector,
        config.shared.pod_label_selector,
        config.admission.block_nvidia_visible_devices,
    )
