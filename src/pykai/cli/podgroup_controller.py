"""`kai podgroup-controller`: updates the status of PodGroups and serves their validating webhook."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from pykai.admission.review import AdmissionRules
from pykai.cli.admission import POD_GROUPS, WEBHOOK, Webhooks, WebhookSettings, webhook_settings
from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import CLIENT, ELECTION, LOGS, SERVERS, WORKERS, Flag, takes, warn_ineffective
from pykai.controllers import pod_group_status
from pykai.controllers.pod_group_status import PodGroupStatusSettings
from pykai.kube.api import Api, Selection
from pykai.kube.informer import InformerFactory
from pykai.objects import names
from pykai.observe.metrics import WorkMetrics

FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only handle pods with this spec.schedulerName."),
    Flag("enable-podgroup-webhook", True, "Serve the validating webhook for PodGroups."),
    Flag("log-level", 3, "Log verbosity, unless --zap-log-level is given."),
    Flag("skip-controller-name-validation", False, "", ineffective="names are not registered anywhere"),
)


def compose(
    settings: PodGroupStatusSettings,
    webhook: WebhookSettings | None,
    api: Api,
    watches: InformerFactory,
    work: WorkMetrics,
) -> Composition:
    """Return the controller as a component, with the validating webhook unless `webhook` is None."""
    metered = replace(settings, meters=work.meter)
    parts = [Part("podgroup-controller", partial(pod_group_status.run, api, watches, metered))]
    if webhook is not None:
        parts.append(Part("podgroup-webhook", Webhooks(api, AdmissionRules(), webhook).run, elected=False))
    return Composition(parts)


@click.command("podgroup-controller")
@takes(FLAGS, WORKERS, ELECTION, SERVERS, WEBHOOK, CLIENT, LOGS)
def podgroup_controller(**flags: Any) -> None:
    """Update the status of PodGroups and validate them."""
    flags["zap_log_level"] = flags["zap_log_level"] or str(max(0, flags["log_level"] - 3))
    process = process_of("podgroup-controller", flags, names.POD_GROUP_CONTROLLER_LEASE)
    warn_ineffective((*FLAGS, *LOGS), flags)
    settings = PodGroupStatusSettings(
        flags["scheduler_name"],
        Selection(fields=f"spec.schedulerName={flags['scheduler_name']}"),
        flags["max_concurrent_reconciles"],
    )
    webhook = webhook_settings(flags, POD_GROUPS) if flags["enable_podgroup_webhook"] else None
    run_component(process, partial(compose, settings, webhook))
