"""A redacted snapshot holds no string of the cluster's owner."""

from __future__ import annotations

import json
from typing import Any

from pykai.explain.redact import redacted
from tests import builders


def test_no_name_text_or_secret_of_the_original_remains() -> None:
    secrets = {
        "node": "payroll-node-17",
        "label": "payroll.example.com/floor",
        "value": "third-floor",
        "queue": "payroll-queue",
        "namespace": "payroll-space",
        "pod": "payroll-job-0",
        "group": "payroll-group",
        "image": "registry.payroll/secret-image",
        "command": "rm-the-books",
        "variable": "PAYROLL_PASSWORD",
        "password": "hunter-two",
        "map": "payroll-settings",
        "note": "call-the-boss",
        "owner": "payroll-owner",
        "taint": "payroll-only",
        "url": "prometheus.payroll",
    }
    s = secrets
    node = builders.node(s["node"], 8, {s["label"]: s["value"], "kubernetes.io/hostname": s["node"]})
    node["spec"]["taints"] = [{"key": s["taint"], "value": s["value"], "effect": "NoSchedule"}]
    container = {
        "name": s["owner"],
        "image": s["image"],
        "command": [s["command"]],
        "args": [s["command"]],
        "env": [
            {"name": s["variable"], "value": s["password"]},
            {"name": s["variable"], "valueFrom": {"configMapKeyRef": {"name": s["map"], "key": s["variable"]}}},
        ],
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
    }
    pod: dict[str, Any] = builders.pod(s["pod"], s["group"], annotations={"team/note": s["note"]})
    pod["metadata"] |= {"namespace": s["namespace"], "uid": s["pod"], "labels": {s["label"]: s["value"]}}
    pod["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": s["owner"], "uid": "u"}]
    pod["spec"] |= {
        "containers": [container],
        "nodeSelector": {s["label"]: s["value"]},
        "serviceAccountName": s["owner"],
    }
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "x", "message": s["note"]}]
    group = builders.pod_group(s["group"], s["queue"], metadata={"namespace": s["namespace"]})
    document = {
        "config": {"actions": "allocate", "usageDBConfig": {"connectionString": s["url"]}},
        "rawObjects": {
            "nodes": [node],
            "pods": [pod],
            "podGroups": [group],
            "queues": [builders.queue(s["queue"])],
            "configMaps": [{"metadata": {"name": s["map"], "namespace": s["namespace"]}}],
        },
    }
    text = json.dumps(redacted(document))
    assert [name for name, secret in secrets.items() if secret in text] == []
    assert "nvidia.com/gpu" in text
    made = redacted(document)["rawObjects"]
    found = made["pods"][0]
    assert found["metadata"]["annotations"]["pod-group-name"] == made["podGroups"][0]["metadata"]["name"]
    assert found["spec"]["nodeSelector"].items() <= made["nodes"][0]["metadata"]["labels"].items()
    reference = found["spec"]["containers"][0]["env"][0]["valueFrom"]["configMapKeyRef"]
    assert reference["name"] == made["configMaps"][0]["metadata"]["name"]


def test_words_sort_as_the_names_did() -> None:
    nodes = [builders.node(name, 1) for name in ("b", "a", "c")]
    made = redacted({"rawObjects": {"nodes": nodes}})["rawObjects"]["nodes"]
    b, a, c = (node["metadata"]["name"] for node in made)
    assert a < b < c
