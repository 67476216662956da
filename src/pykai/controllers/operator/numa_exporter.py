"""The NUMA placement exporter: a DaemonSet that reads the kubelet's pod resources socket on NUMA nodes.

Unless Config decides, it runs while some shard uses the `numa` plugin. It is the only part of the system that runs as
root and sees the host, because the socket belongs to root; a security context for all components does not change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pykai.controllers.operator import attachments, scheduler_config
from pykai.controllers.operator.arguments import flags
from pykai.controllers.operator.installation import Installation
from pykai.controllers.operator.shard_settings import Shard
from pykai.controllers.operator.workloads import Workload, container, pull_secrets

Object = dict[str, Any]
TITLE: Final = "NumaPlacementExporter"
NAME: Final = "numa-placement-exporter"
PLUGIN: Final = "numa"
USUAL_NODES: Final = {"feature.node.kubernetes.io/memory-numa": "true"}
_SOCKETS, _SYSFS, _SYSFS_ROOT = "podresources", "sysfs", "/host/sys"
_ROOT = {"runAsUser": 0, "runAsNonRoot": False}
_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def objects(shards: Sequence[Shard], installation: Installation) -> list[Object]:
    """Its objects; none where nothing needs it."""
    if not _enabled(shards, installation):
        return []
    return [attachments.account(NAME, installation), _daemon_set(installation)]


def _enabled(shards: Sequence[Shard], installation: Installation) -> bool:
    asked = installation.config.numa_placement_exporter.service.enabled
    if asked is not None:
        return asked
    tables = (scheduler_config.plugins(shard.spec) for shard in shards)
    return any(PLUGIN in table and table[PLUGIN].enabled for table in tables)


def _daemon_set(installation: Installation) -> Object:
    own, shared = installation.config.numa_placement_exporter, installation.config.shared
    workload = Workload(NAME, NAME, own.service, 1, _arguments(installation), 0)
    paths = {_SOCKETS: own.pod_resources_host_path, _SYSFS: own.sysfs_host_path}
    inside = {_SOCKETS: own.pod_resources_host_path, _SYSFS: _SYSFS_ROOT}
    runs = container(workload, installation)
    runs["env"].append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    runs["securityContext"] = {**(shared.security_context or _CONFINED), **_ROOT}
    runs["volumeMounts"] = [{"name": name, "mountPath": path, "readOnly": True} for name, path in inside.items()]
    spec: Object = {
        "serviceAccountName": NAME,
        "containers": [runs],
        "nodeSelector": own.node_selector or USUAL_NODES,
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
        "metadata": {"name": NAME, "labels": workload.pod_labels},
        "spec": {
            "selector": {"matchLabels": workload.pod_labels},
            "template": {"metadata": {"labels": workload.pod_labels}, "spec": spec},
        },
    }


def _arguments(installation: Installation) -> list[str]:
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
