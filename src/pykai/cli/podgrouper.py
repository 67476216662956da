"""`kai podgrouper`: puts the pods of workloads in PodGroups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from pykai.cli.component import Composition, Part, process_of, run_component
from pykai.cli.flags import CLIENT, ELECTION, LOGS, SERVERS, WORKERS, Flag, pairs, takes, warn_ineffective
from pykai.controllers.podgrouper import grouper as controller
from pykai.controllers.podgrouper.deferred import GroupExpectations
from pykai.controllers.podgrouper.grouper import PodGrouperSettings
from pykai.controllers.podgrouper.rules.workload import GroupingSettings
from pykai.kube.api import Api, Selection
from pykai.kube.informer import InformerFactory
from pykai.objects import names
from pykai.observe.metrics import WorkMetrics

FLAGS = (
    Flag("scheduler-name", names.SCHEDULER_NAME, "Only group pods with this spec.schedulerName."),
    Flag("queue-label-key", names.QUEUE_LABEL, "Label of pods and workloads that names their queue."),
    Flag("nodepool-label-key", names.NODE_POOL_LABEL, "Label that names the node pool."),
    Flag("search-legacy-pg", True, "Keep using PodGroups whose names older versions gave."),
    Flag("knative-gang-schedule", True, "Group the pods of a Knative revision as a gang."),
    Flag("deployment-gang-schedule", True, "Group the pods of a Deployment together instead of one by one."),
    Flag("generic-karta-fallback", True, "Group other kinds as Karta objects describe."),
    Flag("default-priorities-configmap-name", "", "ConfigMap with priority and preemptibility per kind."),
    Flag("default-priorities-configmap-namespace", "", "Namespace of that ConfigMap."),
    Flag("pod-label-selector", "", "Group only pods with these labels (k=v,k2=v2)."),
    Flag("namespace-label-selector", "", "Group only pods of namespaces with these labels (k=v,k2=v2)."),
)


def settings_of(flags: dict[str, Any]) -> PodGrouperSettings:
    """Return the settings in the flags; the name and namespace of the ConfigMap are required together."""
    name, namespace = flags["default_priorities_configmap_name"], flags["default_priorities_configmap_namespace"]
    if bool(name) != bool(namespace):
        raise click.UsageError("--default-priorities-configmap-name and -namespace must be given together")
    grouping = GroupingSettings(
        scheduler_name=flags["scheduler_name"],
        queue_label=flags["queue_label_key"],
        node_pool_label=flags["nodepool_label_key"],
        search_legacy_groups=flags["search_legacy_pg"],
        knative_gang=flags["knative_gang_schedule"],
        deployment_gang=flags["deployment_gang_schedule"],
        karta_fallback=flags["generic_karta_fallback"],
        kind_defaults=(namespace, name) if name else None,
    )
    return PodGrouperSettings(
        grouping,
        pod_labels=pairs(flags["pod_label_selector"], "pod-label-selector"),
        namespace_labels=pairs(flags["namespace_label_selector"], "namespace-label-selector"),
        workers=flags["max_concurrent_reconciles"],
    )


def with_selectors(settings: PodGrouperSettings) -> PodGrouperSettings:
    """Return the settings of a pod grouper with its own informers, which receive only the selected pods."""
    labels = ",".join(f"{key}={value}" for key, value in settings.pod_labels.items())
    fields = f"spec.schedulerName={settings.grouping.scheduler_name}"
    return replace(settings, pods=Selection(labels=labels, fields=fields))


def compose(
    settings: PodGrouperSettings,
    api: Api,
    watches: InformerFactory,
    work: WorkMetrics,
    expectations: GroupExpectations | None = None,
) -> Composition:
    """Return the pod grouper as a component; `expectations`: shared with a scheduler in the same process."""
    metered = replace(settings, meters=work.meter)
    return Composition([Part("pod-grouper", partial(controller.run, api, watches, metered, expected=expectations))])


@click.command("podgrouper")
@takes(FLAGS, WORKERS, ELECTION, SERVERS, CLIENT, LOGS)
def podgrouper(**flags: Any) -> None:
    """Create PodGroups for the pods of workloads."""
    process = process_of("pod-grouper", flags, names.POD_GROUPER_LEASE)
    warn_ineffective(LOGS, flags)
    run_component(process, partial(compose, with_selectors(settings_of(flags))))
