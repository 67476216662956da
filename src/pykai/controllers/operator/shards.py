"""The objects of one shard: a scheduler with its configuration and the Service of its metrics.

The pods of all shards carry `app=kai-scheduler`, by which users select them, and a label with their shard. Of several
replicas only the leader schedules, so the metrics Service then has no selector, and its only endpoint is the holder of
the lease. Settings that the scheduler would reject at startup are rejected here, with the name of the field.
"""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import yaml

from pykai.config import scheduler_config as scheduler_file
from pykai.config.fields import FieldError
from pykai.controllers.operator import deployments
from pykai.controllers.operator.component_flags import PolicyRow, changed, flags, in_order, sharing_mode
from pykai.controllers.operator.deployments import DeploymentParts, deployment
from pykai.controllers.operator.installation import Installation, Shard
from pykai.kube.api import Object
from pykai.kube.lease import scheduler_lease
from pykai.objects import names
from pykai.objects.config_kinds import PortSpec
from pykai.objects.shard_kinds import ShardSpec

FILE: Final = "config.yaml"
FOLDER: Final = "/etc/config"
SPREAD: Final = "spread"

PLUGINS: Final = {
    "predicates": 1900,
    "proportion": 1800,
    "priority": 1700,
    "nodeavailability": 1600,
    "resourcetype": 1500,
    "podaffinity": 1400,
    "preferences": 1350,
    "imagelocality": 1340,
    "elastic": 1300,
    "kubeflow": 1200,
    "ray": 1100,
    "subgrouporder": 1000,
    "taskorder": 900,
    "nominatednode": 800,
    "dynamicresources": 700,
    "minruntime": 600,
    "disruptionbudgets": 550,
    "topology": 500,
    "snapshot": 400,
    "backgroundpods": 380,
    "sg-nodelocalgreedy": 360,
    "sg-multinodegang": 350,
    "gpupack": 300,
    "gpuspread": 300,
    "nodeplacement": 200,
    "gpusharingorder": 100,
}
ACTIONS: Final = {"allocate": 500, "consolidation": 400, "reclaim": 300, "preempt": 200, "stalegangeviction": 100}
_PACKING = ("gpupack", "gpusharingorder")
_SPREADING = ("gpuspread",)


def plugins(spec: ShardSpec) -> dict[str, PolicyRow]:
    """Return the settings of every plugin of the shard."""
    packs = spec.placement_strategy.gpu != SPREAD
    budgets = spec.disruption_budgets not in ("", "ignore")
    off = ("imagelocality", *(_SPREADING if packs else _PACKING), *(() if budgets else ("disruptionbudgets",)))
    waits = {
        "defaultPreemptMinRuntime": spec.min_runtime.preempt_min_runtime,
        "defaultReclaimMinRuntime": spec.min_runtime.reclaim_min_runtime,
    }
    arguments: dict[str, dict[str, str]] = {
        "proportion": {} if spec.k_value is None else {"kValue": f"{spec.k_value:.15g}"},
        "minruntime": {name: value for name, value in waits.items() if value},
        "disruptionbudgets": {"mode": spec.disruption_budgets} if budgets else {},
        "nodeplacement": {"cpu": spec.placement_strategy.cpu, "gpu": spec.placement_strategy.gpu},
    }
    usual = {name: PolicyRow(name not in off, priority, arguments.get(name, {})) for name, priority in PLUGINS.items()}
    return changed(usual, spec.plugins)


def actions(spec: ShardSpec) -> dict[str, PolicyRow]:
    """Return the settings of every action of the shard; the spread strategy disables consolidation."""
    spreads = SPREAD in (spec.placement_strategy.gpu, spec.placement_strategy.cpu)
    usual = {name: PolicyRow(not (spreads and name == "consolidation"), at, {}) for name, at in ACTIONS.items()}
    return changed(usual, spec.actions)


def config_document(shard: Shard, installation: Installation) -> Object:
    """Return the scheduler's configuration; FieldError names the invalid field of the shard."""
    spec = shard.spec
    rows = [
        {"name": name, **({"arguments": dict(row.arguments)} if row.arguments else {})}
        for name, row in in_order(plugins(spec))
    ]
    names = [name for name, _ in in_order(actions(spec))]
    if not names:
        raise FieldError("spec.actions", "all actions are switched off: the scheduler would do nothing")
    made: Object = {"actions": ", ".join(names), "tiers": [{"plugins": rows}]}
    parts = {
        "queueDepthPerAction": dict(spec.queue_depth_per_action),
        "usageDBConfig": usage_database(spec, installation),
        "scenarioSearchBudgets": dict(spec.scenario_search_budgets),
    }
    made |= {name: part for name, part in parts.items() if part}
    try:
        scheduler_file.read(made)
    except FieldError as error:
        raise FieldError(f"spec.{error.path}" if error.path else "spec", error.message) from error
    return made


def scheduler_config_text(shard: Shard, installation: Installation) -> str:
    """Return the configuration file."""
    return yaml.encode(config_document(shard, installation)).decode()


def usage_database(spec: ShardSpec, installation: Installation) -> Object | None:
    """Return the database of past usage; a Prometheus without an address is ours, or the one that Config names."""
    given = spec.usage_db_config
    if not given or given.get("clientType") != "prometheus":
        return given
    if given.get("connectionString") or given.get("connectionStringEnvVar"):
        return given
    database = installation.config.prometheus
    if database.external_prometheus_url:
        return {**given, "connectionString": database.external_prometheus_url}
    if database.enabled:
        address = f"http://usage-prometheus.{installation.config.namespace}.svc.cluster.local:9090"
        return {**given, "connectionString": address}
    raise FieldError(
        "spec.usageDBConfig.connectionString",
        "prometheus connection string not configured: either enable internal prometheus or configure external "
        "TSDB connection URL",
    )


SCHEDULER_ACCOUNT: Final = "scheduler"
SCHEDULER_TITLE: Final = "Scheduler"
METRICS: Final = "http-metrics"
VERSION: Final = "configMapVersion"


def shard_objects(shard: Shard, installation: Installation) -> list[Object]:
    """Return all objects of the shard; FieldError names its invalid field."""
    config = installation.config
    if config.scheduler.service.enabled is False:
        return []
    text = scheduler_config_text(shard, installation)
    workload = _workload(shard, installation, text)
    metadata = {"name": workload.name, "labels": workload.pod_labels}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {FILE: text}},
        *_metrics(workload, shard, installation),
        *deployments.lease(lease_of(shard, config.shared.scheduler_name), workload),
        deployment(workload, installation),
        *deployments.budget(workload),
        *deployments.autoscaler(workload, config.scheduler.vpa, installation),
    ]


def scheduler_name(shard: Shard, installation: Installation) -> str:
    """Return the name of the shard's objects."""
    return f"{installation.config.shared.scheduler_name}-{shard.name}"


def lease_of(shard: Shard, scheduler_name: str) -> str:
    """Return the Lease of the shard's replicas; the shard's flags override its other fields and Config."""
    given = shard.spec.args
    pool = given.get("partition-label-value", shard.spec.partition_label_value)
    name = given.get("scheduler-name", scheduler_name)
    return scheduler_lease(name, pool)


def _workload(shard: Shard, installation: Installation, text: str) -> DeploymentParts:
    scheduler = installation.config.scheduler
    name = scheduler_name(shard, installation)
    port = scheduler.scheduler_service.target_port
    return DeploymentParts(
        name=name,
        command="scheduler",
        service=scheduler.service,
        replicas=installation.replicas(scheduler.replicas),
        arguments=_scheduler_flags(shard, installation),
        probe_port=port,
        ports={METRICS: port},
        labels={names.APP_LABEL: names.SCHEDULER_APP, names.SHARD_LABEL: shard.name},
        annotations={VERSION: hashlib.sha256(text.encode()).hexdigest()[:16]},
        account=SCHEDULER_ACCOUNT,
        alone=True,
        config_map=(name, FOLDER),
    )


def _scheduler_flags(shard: Shard, installation: Installation) -> list[str]:
    """Return the flags we set, then the shard's own, which override them because the last value of a flag wins."""
    config = installation.config
    generated = {
        "scheduler-conf": f"{FOLDER}/{FILE}",
        "scheduler-name": config.shared.scheduler_name,
        "namespace": config.namespace,
        "nodepool-label-key": config.shared.node_pool_label_key,
        "partition-label-value": shard.spec.partition_label_value,
        "resource-reservation-app-label": config.binder.resource_reservation.app_label,
        "queue-label-key": config.shared.queue_label_key,
        "listen-address": f":{config.scheduler.scheduler_service.target_port}",
        "gpu-sharing-mode": names.NVFRACTIONS if sharing_mode(config) == names.NVFRACTIONS else None,
        "metrics-namespace": config.queue_controller.metrics_namespace or None,
        "qps": config.scheduler.service.k8s_client_config.qps,
        "burst": config.scheduler.service.k8s_client_config.burst,
        "leader-elect": True if installation.replicas(config.scheduler.replicas) > 1 else None,
        "log-json": True if config.shared.json_log else None,
    }
    return flags(generated) + flags(dict(sorted(shard.spec.args.items())))


def _metrics(workload: DeploymentParts, shard: Shard, installation: Installation) -> list[Object]:
    service = installation.config.scheduler.scheduler_service
    port = PortSpec(service.port, service.target_port, METRICS)
    elected = workload.replicas > 1
    made = deployments.service(workload.name, {} if elected else workload.pod_labels, [port])
    labels = {
        **workload.pod_labels,
        names.APP_LABEL: workload.name,
    }  # as KAI's ServiceMonitors select; pods keep theirs
    made["metadata"] |= {"labels": labels, "annotations": {"prometheus.io/scrape": "true"}}
    made["spec"] |= {"type": service.type}
    if service.type == "ClusterIP":
        made["spec"]["clusterIP"] = "None"
    return [made, _leader(workload, shard, installation, service.target_port)] if elected else [made]


def _leader(workload: DeploymentParts, shard: Shard, installation: Installation, port: int) -> Object:
    lease = lease_of(shard, installation.config.shared.scheduler_name)
    leader = installation.facts.leaders.get(lease)
    ends: list[Object] = []
    if leader is not None:
        target = {"kind": "Pod", "namespace": installation.config.namespace, "name": leader.pod}
        where = {"nodeName": leader.node} if leader.node else {}
        ends = [{"addresses": [leader.address], "conditions": {"ready": True}, "targetRef": target, **where}]
    labels = {
        **workload.pod_labels,
        "kubernetes.io/service-name": workload.name,
        "endpointslice.kubernetes.io/managed-by": names.OPERATOR,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{workload.name}-leader", "labels": labels},
        "addressType": "IPv6" if leader is not None and ":" in leader.address else "IPv4",
        "endpoints": ends,
        "ports": [{"name": METRICS, "port": port, "protocol": "TCP"}],
    }
