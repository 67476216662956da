"""Helm as a function, and the ten sets of values the chart is checked with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
CHART = Path(__file__).parents[3] / "charts" / "kai-scheduler"
NAMESPACE = "kai-scheduler"

VALUE_SETS: Mapping[str, Object] = {
    "defaults": {},
    "gpu-sharing": {"global": {"gpuSharing": True, "blockNvidiaVisibleDevices": True}},
    "high-availability": {"operator": {"replicaCount": 3}, "global": {"requireDefaultPodAntiAffinityTerm": True}},
    "openshift": {"openshift": True, "numaPlacementExporter": {"enabled": True}, "binder": {"cdiEnabled": True}},
    "autoscaling": {
        "global": {"clusterAutoscaling": True, "vpa": {"enabled": True}},
        "nodescaleadjuster": {"labels": {"team": "infra"}, "scalingPodImage": {"tag": "v9"}},
    },
    "private-registry": {
        "global": {
            "registry": "registry.example.com/ai/",
            "tag": "v1.2.3",
            "imagePullPolicy": "Always",
            "imagePullSecrets": [{"name": "pull"}, {"name": "pull-too"}],
        },
        "binder": {"image": {"tag": "v1.2.4"}, "resourceReservationImage": {"name": "own-reservation"}},
        "crdupgrader": {"image": {"registry": "mirror.example.com"}},
    },
    "placement": {
        "global": {
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "priorityClassName": "system-cluster-critical",
            "securityContext": {"runAsUser": 2000, "runAsNonRoot": True},
            "podSecurityContext": {"fsGroup": 2000},
            "jsonLog": True,
        },
        "admission": {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}},
    },
    "own-scheduler": {
        "scheduler": {
            "placementStrategy": "spread",
            "args": {"v": "5", "schedule-period": "2s"},
            "goMemLimitRatio": 0.8,
            "plugins": {"elastic": {"enabled": False}, "proportion": {"arguments": {"kValue": "2"}}},
            "actions": {"preempt": {"priority": 900}},
            "scenarioSearchBudgets": {"maxJobSearchDuration": "1m"},
        },
        "global": {"nodePoolLabelKey": "example.com/pool", "podLabelSelector": {"ai": "yes"}},
        "binder": {"plugins": {"volumebinding": {"arguments": {"bindTimeoutSeconds": "60"}}}},
    },
    "legacy-names": {
        "global": {
            "resourceReservation": {
                "namespace": "runai-reservation",
                "serviceAccount": "runai-reservation",
                "appLabel": "runai-reservation",
                "namespaceLabels": {"pod-security.kubernetes.io/enforce": "baseline"},
            }
        },
        "podgrouper": {"queueLabelKey": "runai/queue", "image": {"name": "podgrouper"}},
        "operator": {"image": {"name": "operator", "pullPolicy": "Always"}},
        "postCleanup": {"enabled": False},
        "admission": {"name": "kai-admission", "cdi": False, "gpuPodRuntimeClassName": "kata"},
    },
    "minimal": {
        "defaultShard": {"enabled": False},
        "defaultQueue": {"createDefaultQueue": False},
        "defaultPriorityClasses": {"enabled": False},
        "crdupgrader": {"enabled": False},
        "admission": {"enabled": False},
        "podgrouper": {"enabled": False},
        "global": {"resourceReservation": {"createNamespace": False, "createServiceAccount": False}},
    },
    "monitoring": {
        "prometheus": {"enabled": True, "externalPrometheusUrl": "http://prometheus.example.com:9090"},
        "serviceMonitors": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
        "kaiConfig": {"render": True},
        "kaiConfigDeployer": {"enabled": False},
    },
}


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run helm, which comes with the development environment."""
    beside = Path(sys.executable).parent / "helm"
    program = str(beside) if beside.exists() else shutil.which("helm")
    assert program, "helm is missing: `make env` installs it (package helm-binary)"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def render(folder: Path, values: Object, *arguments: str) -> str:
    """The text of the chart with these values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return helm("template", "kai-scheduler", str(CHART), "-n", NAMESPACE, "-f", str(file), *arguments).stdout


def objects(text: str) -> list[Object]:
    """The objects in a rendered text."""
    return [item for item in yaml.safe_load_all(text) if item]


def by_name(items: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name."""
    return {(item["kind"], item["metadata"]["name"]): item for item in items}
