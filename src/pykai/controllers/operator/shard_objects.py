"""The objects of one shard: a scheduler with its configuration and the Service of its metrics.

The pods of all shards carry `app=kai-scheduler`, by which users find them, and their shard in a label of its own. Of
several replicas only the leader schedules, so only its metrics mean anything: the Service then has no selector, and its
one endpoint is the holder of the lease.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from pykai.config.fields import FieldError
from pykai.controllers.operator import attachments, scheduler_config
from pykai.controllers.operator.arguments import flags
from pykai.controllers.operator.installation import Installation
from pykai.controllers.operator.scheduler_flags import FLAGS
from pykai.controllers.operator.shard_settings import Shard
from pykai.controllers.operator.workloads import Workload, deployment
from pykai.kube.lease import scheduler_lease
from pykai.objects import names
from pykai.objects.config_kinds import Port

Object = dict[str, Any]
ACCOUNT: Final = "scheduler"
TITLE: Final = "Scheduler"
METRICS: Final = "http-metrics"
VERSION: Final = "configMapVersion"


def objects(shard: Shard, installation: Installation) -> list[Object]:
    """All objects of the shard; FieldError names the field of it that is wrong."""
    config = installation.config
    if config.scheduler.service.enabled is False:
        return []
    text = scheduler_config.text(shard, installation)
    workload = _workload(shard, installation, text)
    return [
        _config_map(workload, text),
        *_metrics(workload, shard, installation),
        *attachments.lease(lease_of(shard, config.shared.scheduler_name), workload),
        deployment(workload, installation),
        *attachments.budget(workload),
        *attachments.autoscaler(workload, config.scheduler.vpa, installation),
    ]


def name_of(shard: Shard, installation: Installation) -> str:
    """The name of the shard's objects."""
    return f"{installation.config.shared.scheduler_name}-{shard.name}"


def lease_of(shard: Shard, scheduler_name: str) -> str:
    """The lease for which the shard's replicas are elected; the shard's own flags go before what it and Config say."""
    given = shard.spec.args
    pool = given.get("partition-label-value", shard.spec.partition_label_value)
    name = given.get("scheduler-name", scheduler_name)
    return scheduler_lease(name, pool)


def _workload(shard: Shard, installation: Installation, text: str) -> Workload:
    scheduler = installation.config.scheduler
    name = name_of(shard, installation)
    port = scheduler.scheduler_service.target_port
    return Workload(
        name=name,
        command="scheduler",
        service=scheduler.service,
        replicas=installation.replicas(scheduler.replicas),
        arguments=_arguments(shard, installation),
        probe_port=port,
        ports={METRICS: port},
        labels={names.APP_LABEL: names.SCHEDULER_APP, names.SHARD_LABEL: shard.name},
        annotations={VERSION: hashlib.sha256(text.encode()).hexdigest()[:16]},
        account=ACCOUNT,
        alone=True,
        config_map=(name, scheduler_config.FOLDER),
    )


def _arguments(shard: Shard, installation: Installation) -> list[str]:
    """The flags we set, then the shard's own, which go before them because they come later."""
    config = installation.config
    for name in shard.spec.args:
        if name not in FLAGS:
            raise FieldError(f"spec.args.{name}", "the scheduler has no such flag")
    generated = {
        "scheduler-conf": f"{scheduler_config.FOLDER}/{scheduler_config.FILE}",
        "scheduler-name": config.shared.scheduler_name,
        "namespace": config.namespace,
        "nodepool-label-key": config.shared.node_pool_label_key,
        "partition-label-value": shard.spec.partition_label_value,
        "resource-reservation-app-label": config.binder.resource_reservation.app_label,
        "queue-label-key": config.shared.queue_label_key,
        "listen-address": f":{config.scheduler.scheduler_service.target_port}",
        "metrics-namespace": config.queue_controller.metrics_namespace or None,
        "leader-elect": True if installation.replicas(config.scheduler.replicas) > 1 else None,
        "log-json": True if config.shared.json_log else None,
    }
    return flags(generated) + flags(dict(sorted(shard.spec.args.items())))


def _config_map(workload: Workload, text: str) -> Object:
    metadata = {"name": workload.name, "labels": workload.pod_labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {scheduler_config.FILE: text}}


def _metrics(workload: Workload, shard: Shard, installation: Installation) -> list[Object]:
    asked = installation.config.scheduler.scheduler_service
    port = Port(asked.port, asked.target_port, METRICS)
    elected = workload.replicas > 1
    made = attachments.service(workload.name, {} if elected else workload.pod_labels, [port])
    made["metadata"] |= {"labels": workload.pod_labels, "annotations": {"prometheus.io/scrape": "true"}}
    made["spec"] |= {"type": asked.type}
    if asked.type == "ClusterIP":
        made["spec"]["clusterIP"] = "None"
    return [made, _leader(workload, shard, installation, asked.target_port)] if elected else [made]


def _leader(workload: Workload, shard: Shard, installation: Installation, port: int) -> Object:
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
