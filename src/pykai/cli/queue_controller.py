"""`kai queue-controller`: updates the status of Queues, exposes their metrics, and serves their validating webhook."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
import structlog

from pykai.admission.queue_rules import ENFORCEMENTS, Enforcement
from pykai.admission.review import AdmissionRules
from pykai.cli.admission import QUEUES, WEBHOOK, Webhooks, WebhookSettings, watched_queues, webhook_settings
from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import (
    CLIENT,
    ELECTION,
    LOGS,
    Flag,
    address,
    metric_labels,
    metric_prefix,
    pairs,
    takes,
    warn_ineffective,
)
from pykai.controllers import queue_status
from pykai.controllers.queue_status import LABELS, QueueLabels, QueueMetrics, QueueStatusSettings
from pykai.kube.api import Api
from pykai.kube.api_resources import QUEUE
from pykai.kube.informer import InformerFactory
from pykai.objects import kinds, names
from pykai.observe.metrics import WorkMetrics

log = structlog.get_logger("flags")
FLAGS = (
    Flag("enable-webhook", True, "Serve the validating webhook for Queues."),
    Flag("enable-quota-validation", False, "Warn if the quotas of child queues exceed that of their parent."),
    Flag(
        "enforce-quota-violation",
        "None",
        "Response to a limit or quota below what the queue has allocated: None, Warning or Block.",
        check=lambda text: _enforcement_error(text),
    ),
    Flag("metrics-listen-address", ":8080", "Address of /metrics; 0 disables it.", check=address),
    Flag("metrics-namespace", "kai", "Prefix of metric names.", check=metric_prefix),
    Flag("queue-label-to-metric-label", "", "Queue labels to expose as metric labels (queueLabel=metricLabel,...)."),
    Flag("queue-label-to-default-metric-value", "", "Metric values for missing labels (queueLabel=value,...)."),
    Flag("skip-controller-name-validation", False, "", ineffective="names are not registered anywhere"),
)


@dataclass(frozen=True)
class QueueControllerSettings:
    """The settings of the controller, its metrics and, unless None, its webhook."""

    status: QueueStatusSettings = QueueStatusSettings()
    labels: QueueLabels = QueueLabels()
    metrics_namespace: str = "kai"
    webhook: WebhookSettings | None = None
    compare_quotas: bool = False
    enforcement: Enforcement = "None"


def enforcement_of(text: str) -> Enforcement | None:
    """Return the enforcement mode of this name, case-insensitive; None if unknown."""
    return next((mode for mode in ENFORCEMENTS if mode.lower() == text.lower()), None)


def _enforcement_error(text: str) -> str:
    known = ", ".join(ENFORCEMENTS)
    return "" if enforcement_of(text) else f'invalid quota enforcement mode "{text}": must be one of {known}'


def settings_of(flags: dict[str, Any]) -> QueueControllerSettings:
    """Return the settings in the flags; an invalid value is a click.BadParameter that names the flag."""
    labels_flag, defaults_flag = "queue-label-to-metric-label", "queue-label-to-default-metric-value"
    labels = QueueLabels(
        pairs(flags["queue_label_to_metric_label"], labels_flag),
        pairs(flags["queue_label_to_default_metric_value"], defaults_flag),
    )
    if problem := metric_labels(labels.names, LABELS):
        raise click.BadParameter(problem, param_hint=f"--{labels_flag}")
    return QueueControllerSettings(
        labels=labels,
        metrics_namespace=flags["metrics_namespace"],
        webhook=webhook_settings(flags, QUEUES) if flags["enable_webhook"] else None,
        compare_quotas=flags["enable_quota_validation"],
        enforcement=enforcement_of(flags["enforce_quota_violation"]) or "None",
    )


def compose(settings: QueueControllerSettings, api: Api, watches: InformerFactory, work: WorkMetrics) -> Composition:
    """Return the controller as a component."""
    metered = replace(settings.status, meters=work.meter)
    parts = [Part("queue-controller", partial(queue_status.run, api, watches, metered))]
    if settings.webhook is not None:
        admission = AdmissionRules(
            queues=watched_queues(watches), compare_quotas=settings.compare_quotas, enforcement=settings.enforcement
        )
        parts.append(Part("queue-webhook", Webhooks(api, admission, settings.webhook).run, elected=False))
    queues = watches.of(QUEUE, kinds.Queue)
    metrics = QueueMetrics(lambda: [queue for _, queue in queues.items()], settings.labels, settings.metrics_namespace)
    return Composition(parts, [metrics.text])


@click.command("queue-controller")
@takes(FLAGS, ELECTION, WEBHOOK, CLIENT, LOGS)
def queue_controller(**flags: Any) -> None:
    """Update the status of Queues, expose their metrics, and validate them."""
    process = process_of("queue-controller", flags, names.QUEUE_CONTROLLER_LEASE)
    warn_ineffective((*FLAGS, *LOGS), flags)
    settings = settings_of(flags)
    for label in sorted(set(settings.labels.defaults) - set(settings.labels.names)):
        why = f"--queue-label-to-metric-label does not name {label}"
        log.warning("flag has no effect", flag="--queue-label-to-default-metric-value", why=why)
    addresses = replace(process, metrics_address=flags["metrics_listen_address"], health_address="0")
    run_component(addresses, partial(compose, settings))
