"""The desired objects of every operand, from the Config, its shards and the observed cluster.

Pure. Every object carries the label by which the operator selects it, and the Config as its owner, so that garbage
collection removes all of them with the Config, whether or not an operator runs. Settings that a component would reject
at startup are rejected here, so that the running component is not replaced by one that exits. The components are above
this package in the import order, so the operator gets their validation as functions (`Validators`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from msgspec import yaml

from pykai.config.fields import FieldError
from pykai.controllers.operator import deployments
from pykai.controllers.operator.component_flags import flags, sharing_mode
from pykai.controllers.operator.components import COMPONENTS, WebhookParts
from pykai.controllers.operator.deployments import DeploymentParts, container, pull_secrets
from pykai.controllers.operator.installation import (
    MONITOR_KIND,
    PROMETHEUS_KIND,
    VPA_KIND,
    Installation,
    Shard,
    read_shard,
)
from pykai.controllers.operator.shards import FILE, SCHEDULER_ACCOUNT, SCHEDULER_TITLE, plugins, shard_objects
from pykai.kube.api import Object
from pykai.objects import names, units
from pykai.objects.config_kinds import PortSpec
from pykai.objects.units import parse_timestamp, rfc3339

NUMA_EXPORTER_TITLE: Final = "NumaPlacementExporter"
NUMA_EXPORTER: Final = "numa-placement-exporter"
NUMA_PLUGIN: Final = "numa"
NUMA_NODES: Final = {"feature.node.kubernetes.io/memory-numa": "true"}
_SOCKETS, _SYSFS, _SYSFS_ROOT = "podresources", "sysfs", "/host/sys"
_ROOT = {"runAsUser": 0, "runAsNonRoot": False}
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def numa_exporter_objects(shards: Sequence[Shard], installation: Installation) -> list[Object]:
    """Return the objects of the NUMA exporter; none if nothing needs it."""
    enabled = installation.config.numa_placement_exporter.service.enabled
    if enabled is None:
        tables = (plugins(shard.spec) for shard in shards)
        enabled = any(NUMA_PLUGIN in table and table[NUMA_PLUGIN].enabled for table in tables)
    if not enabled:
        return []
    return [deployments.account(NUMA_EXPORTER, installation), _daemon_set(installation)]


def _daemon_set(installation: Installation) -> Object:
    own, shared = installation.config.numa_placement_exporter, installation.config.shared
    workload = DeploymentParts(NUMA_EXPORTER, NUMA_EXPORTER, own.service, 1, _numa_exporter_flags(installation), 0)
    paths = {_SOCKETS: own.pod_resources_host_path, _SYSFS: own.sysfs_host_path}
    inside = {_SOCKETS: own.pod_resources_host_path, _SYSFS: _SYSFS_ROOT}
    runs = container(workload, installation)
    runs["env"].append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    runs["securityContext"] = {**(shared.security_context or _CONFINED), **_ROOT}
    runs["volumeMounts"] = [{"name": name, "mountPath": path, "readOnly": True} for name, path in inside.items()]
    spec: Object = {
        "serviceAccountName": NUMA_EXPORTER,
        "containers": [runs],
        "nodeSelector": own.node_selector or NUMA_NODES,
        "volumes": [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in paths.items()],
    }
    optional = {
        "affinity": own.service.affinity,
        "tolerations": [*shared.daemonsets_tolerations, *own.tolerations],
        "priorityClassName": shared.priority_class_name,
        "imagePullSecrets": pull_secrets(installation),
    }
    spec |= {key: value for key, value in optional.items() if value}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NUMA_EXPORTER, "labels": workload.pod_labels},
        "spec": {
            "selector": {"matchLabels": workload.pod_labels},
            "template": {"metadata": {"labels": workload.pod_labels}, "spec": spec},
        },
    }


def _numa_exporter_flags(installation: Installation) -> list[str]:
    own = installation.config.numa_placement_exporter
    return flags(
        {
            "podresources-socket": own.pod_resources_socket or f"{own.pod_resources_host_path}/kubelet.sock",
            "sysfs-root": _SYSFS_ROOT,
            "poll-interval": own.poll_interval or None,
            "drift-resync-interval": own.drift_resync_interval or None,
            "zap-devel": False if installation.config.shared.json_log else None,
        }
    )


PROMETHEUS_TITLE: Final = "KAI-prometheus"
USAGE_SERVICE: Final = "usage-prometheus"
DEPRECATED: Final = "kai/deprecation-timestamp"
_PORT = 9090
_USUAL_RETENTION = 30 * 86400.0


def prometheus_objects(installation: Installation) -> list[Object]:
    """Return the objects of the database of past usage, of installed kinds only: a Prometheus through its operator.

    It is not deleted as soon as it is disabled, because it holds the past usage of all queues: it is annotated with a
    timestamp and deleted when its data would have expired anyway.
    """
    prometheus = installation.config.prometheus
    installed = installation.facts.installed
    if not prometheus.enabled:
        return _retired_prometheus(installation)
    monitors: list[Object] = []
    if prometheus.service_monitor.enabled and MONITOR_KIND in installed:
        port = installation.config.queue_controller.controller_service.metrics.name
        here, nearby = {"matchNames": [installation.config.namespace]}, {"matchNames": ["monitoring", "default"]}
        exporter = {"app.kubernetes.io/name": "kube-state-metrics"}
        monitors = [
            _service_monitor(installation, "queue-controller", {"app": "queue-controller"}, here, port),
            _service_monitor(installation, "kube-state-metrics", exporter, nearby, "http"),
        ]
    if prometheus.external_prometheus_url:
        return monitors
    if PROMETHEUS_KIND not in installed:
        return []
    return [*_prometheus_access(installation), _prometheus(installation), *monitors]


def _retired_prometheus(installation: Installation) -> list[Object]:
    """Return the objects of a disabled Prometheus: it and its access until its data has expired, then none."""
    live = installation.facts.database
    if live is None:
        return []
    marked = (live["metadata"].get("annotations") or {}).get(DEPRECATED, "")
    since = parse_timestamp(marked)
    try:
        retention = units.parse_long_duration(str((live.get("spec") or {}).get("retention") or ""))
    except units.DurationError:
        retention = _USUAL_RETENTION
    if since is not None and installation.facts.now >= since + retention:
        return []
    mark = {DEPRECATED: rfc3339(installation.facts.now) if since is None else marked}
    database = _prometheus(installation)
    database["metadata"]["annotations"] = mark
    return [*_prometheus_access(installation), database]


def _prometheus_access(installation: Installation) -> list[Object]:
    name = installation.config.prometheus.instance_name
    service = deployments.service(USAGE_SERVICE, {"prometheus": name}, [PortSpec(_PORT, _PORT, "web")])
    return [deployments.account(name, installation), service]


def _prometheus(installation: Installation) -> Object:
    prometheus = installation.config.prometheus
    mine = {"matchLabels": {prometheus.accounting_label_key: prometheus.accounting_label_value}}
    spec: Object = {
        "serviceAccountName": prometheus.instance_name,
        "podMetadata": {"labels": {"app": prometheus.instance_name}},
        "retention": prometheus.retention_period,
        "scrapeInterval": prometheus.sample_interval,
        "serviceMonitorSelector": mine,
        "serviceMonitorNamespaceSelector": {},
        "ruleSelector": mine,
        "ruleNamespaceSelector": {},
    }
    if prometheus.enable_persistent_storage:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": prometheus.storage_class_name,
            "resources": {"requests": {"storage": str(prometheus.storage_size)}},
        }
        spec["storage"] = {"volumeClaimTemplate": {"spec": claim}}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": prometheus.instance_name},
        "spec": spec,
    }


def _service_monitor(installation: Installation, name: str, labels: dict[str, str], where: Object, port: str) -> Object:
    prometheus = installation.config.prometheus
    how = {
        "port": port,
        "interval": prometheus.service_monitor.interval,
        "scrapeTimeout": prometheus.service_monitor.scrape_timeout,
        "bearerTokenFile": prometheus.service_monitor.bearer_token_file,
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": name, "labels": {prometheus.accounting_label_key: prometheus.accounting_label_value}},
        "spec": {"selector": {"matchLabels": labels}, "namespaceSelector": where, "endpoints": [how]},
    }


SCHEDULERS = "SchedulerForConfig"
_CLUSTER_WIDE = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


@dataclass(frozen=True)
class Wanted:
    """The objects of each operand by title, those of each shard by name, and problems.

    `missing`: lines about missing prerequisites of the cluster. `refused`: by shard, the invalid field and why.
    `remarks`: by shard, lines about settings without effect.
    """

    operands: Mapping[str, Sequence[Object]]
    shards: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def all(self) -> Iterator[Object]:
        """Yield every object."""
        for objects in (*self.operands.values(), *self.shards.values()):
            yield from objects


def desired(installation: Installation, specs: Mapping[str, Object], parts: WebhookParts, owner: Object) -> Wanted:
    """Return all desired objects; `specs` are those of the shards by name, `owner` the reference to the Config."""
    config = installation.config
    shards, refused = _read(specs)
    operands = {row.title: row.objects(installation, parts) for row in COMPONENTS}
    operands[PROMETHEUS_TITLE] = prometheus_objects(installation)
    enabled = config.scheduler.service.enabled is not False
    operands[SCHEDULERS] = [deployments.account(SCHEDULER_ACCOUNT, installation)] if enabled else []
    operands[NUMA_EXPORTER_TITLE] = numa_exporter_objects(shards, installation)
    made: dict[str, list[Object]] = {}
    for shard in shards:
        try:
            made[shard.name] = shard_objects(shard, installation)
        except FieldError as error:
            refused[shard.name] = str(error)
    return Wanted(
        {title: [_stamped(each, config.namespace, owner) for each in items] for title, items in operands.items()},
        {name: [_stamped(each, config.namespace, owner) for each in items] for name, items in made.items()},
        _missing(installation),
        refused,
    )


def _read(specs: Mapping[str, Object]) -> tuple[list[Shard], dict[str, str]]:
    """Return the valid shards and the errors of the others; of two shards for the same nodes the first is used."""
    shards: dict[str, Shard] = {}
    refused: dict[str, str] = {}
    for name, spec in sorted(specs.items()):
        try:
            shard = read_shard(name, spec)
        except FieldError as error:
            refused[name] = str(error)
            continue
        first = shards.setdefault(shard.spec.partition_label_value, shard)
        if first is not shard:
            refused[name] = f"spec.partitionLabelValue: shard {first.name} already schedules these nodes"
    return list(shards.values()), refused


def _missing(installation: Installation) -> list[str]:
    """Return lines about prerequisites of the requested operands that the cluster lacks."""
    config, installed, lines = installation.config, installation.facts.installed, []
    kind = MONITOR_KIND if config.prometheus.external_prometheus_url else PROMETHEUS_KIND
    if config.prometheus.enabled and kind not in installed:
        lines.append(f"{PROMETHEUS_TITLE} is missing prometheus operator")
    if installation.facts.fractions and sharing_mode(config) == names.NVFRACTIONS:
        lines.append(f"Gpu Sharing is not ready. {installation.facts.fractions}")
    if VPA_KIND in installed:
        return lines
    titles = [row.title for row in COMPONENTS if row.enabled(config) and row.part(config).vpa.enabled]
    if config.scheduler.vpa.enabled:
        titles.append(SCHEDULER_TITLE)
    return lines + [f"{title} is missing vertical pod autoscaler" for title in titles]


def _stamped(item: Object, namespace: str, owner: Object) -> Object:
    """Return the object with our label and owner."""
    metadata = item["metadata"]
    labels = {**(metadata.get("labels") or {}), names.MANAGED_BY_LABEL: names.OPERATOR}
    where = {} if item["kind"] in _CLUSTER_WIDE else {"namespace": namespace}
    return {**item, "metadata": {**metadata, **where, "labels": labels, "ownerReferences": [owner]}}


def _accepts(*_: object) -> Sequence[str]:
    """Accept everything without remarks."""
    return ()


@dataclass(frozen=True)
class Validators:
    """Validation by the components themselves; both raise FieldError.

    `command_line`: of a component, by its name and arguments; the path of an unknown flag begins with `args.`.
    `configuration`: of a scheduler, as a document; the lines it returns name what the scheduler would accept without
    effect.
    """

    command_line: Callable[[str, Sequence[str]], object] = _accepts
    configuration: Callable[[Object], Sequence[str]] = _accepts


def validated(wanted: Wanted, validators: Validators) -> Wanted:
    """Return the objects without shards whose scheduler would not start; FieldError if another component would not."""
    for title, objects in wanted.operands.items():
        for problem in _wrong_flags(objects, validators):
            raise FieldError(title, problem)
    shards, refused, remarks = dict(wanted.shards), dict(wanted.refused), {}
    for name, objects in wanted.shards.items():
        problems, lines = [], []
        maps = [item.get("data", {}) for item in objects if item["kind"] == "ConfigMap"]
        for document in [_document(data[FILE]) for data in maps if FILE in data]:
            try:
                lines += [_in_shard(line, document) for line in validators.configuration(document)]
            except FieldError as error:
                problems.append(_in_shard(str(error), document))
        for problem in _wrong_flags(objects, validators):
            problems.append(f"spec.{problem}" if problem.startswith("args.") else f"spec: {problem}")
        if problems:
            del shards[name]
            refused[name] = "; ".join(problems)
        elif lines:
            remarks[name] = lines
    return replace(wanted, shards=shards, refused=refused, remarks=remarks)


def _wrong_flags(objects: Sequence[Object], validators: Validators) -> Iterator[str]:
    """Yield what is wrong with the command lines of the containers that run a component of pykai."""
    for item in objects:
        template = (item.get("spec") or {}).get("template") or {}
        for found in (template.get("spec") or {}).get("containers") or []:
            if (found.get("command") or [""])[0] != "kai":
                continue
            try:
                validators.command_line(found["command"][-1], found["args"])
            except FieldError as error:
                yield str(error)


@lru_cache(maxsize=64)
def _document(text: str) -> Object:
    """Return a parsed configuration file (cached: it rarely changes between two reconciles)."""
    return yaml.decode(text, type=Object)


_PLUGIN = re.compile(r"^tiers\[0\]\.plugins\[(\d+)\]")


def _in_shard(line: str, document: Object) -> str:
    """Rewrite a line about the configuration file as one about the shard."""
    plugin = _PLUGIN.match(line)
    if plugin is None:
        return f"spec.{line}"
    name = document["tiers"][0]["plugins"][int(plugin[1])]["name"]
    return f"spec.plugins.{name}{line[plugin.end() :]}"
