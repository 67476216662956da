"""§6.2: which nodes a pod may use at all, whatever is free there: rules 2, 3, 5, 6 (taints, node affinity) and 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pykai.model.pods import GpuKind, PodClass
from pykai.model.snapshot import Snapshot

Fields = Mapping[str, Any]


def allowed(snapshot: Snapshot, pod: int, node: int) -> bool:
    return (
        not snapshot.nodes.conditions[node]
        and suits_gpu_request(snapshot, snapshot.pods.of_class(pod), node)
        and has_worker_role(snapshot, snapshot.pods.of_class(pod), node)
        and tolerates(snapshot, pod, node)
        and matches_node_affinity(snapshot, pod, node)
    )


# --------------------------------------------------------------------------------------------- 2, 3: GPUs of the node
def suits_gpu_request(snapshot: Snapshot, c: PodClass, node: int) -> bool:
    nodes = snapshot.nodes
    if c.legacy_mig:
        return False
    if c.gpu_kind is GpuKind.MEMORY and not nodes.gpu_memory_known[node]:
        return False
    if not c.wants_gpu:
        return True
    if c.shared and nodes.dra_gpus[node] > 0:
        return False
    mig = c.gpu_kind is GpuKind.MIG
    if not nodes.mig[node]:
        return not mig
    if any(_on(snapshot, node, legacy_mig=True)):
        return False
    strategy = nodes.mig_strategy[node]
    return not (strategy == "single" and (mig or c.shared)) and not (strategy == "mixed" and not mig)


def _on(snapshot: Snapshot, node: int, legacy_mig: bool) -> Iterator[bool]:
    for pod, at in enumerate(snapshot.pods.node.tolist()):
        if at == node:
            yield snapshot.pods.of_class(pod).legacy_mig is legacy_mig


# -------------------------------------------------------------------------------------------------------- 7: roles
def has_worker_role(snapshot: Snapshot, c: PodClass, node: int) -> bool:
    params, labels = snapshot.params, snapshot.nodes.labels[node]
    return not params.restrict_nodes or (params.gpu_worker_key if c.wants_gpu else params.cpu_worker_key) in labels


# ------------------------------------------------------------------------------------------------------- 6: taints
def tolerates(snapshot: Snapshot, pod: int, node: int) -> bool:
    tolerations = _decoded(snapshot.pods.objects[pod].spec.tolerations) or []
    taints = [taint for taint in snapshot.nodes.taints[node] if taint.effect in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Fields, taint: Any) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("key") not in (None, "", taint.key):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.value or "")


# ------------------------------------------------------------------------------------- 6: nodeSelector and affinity
def matches_node_affinity(snapshot: Snapshot, pod: int, node: int) -> bool:
    spec, labels = snapshot.pods.objects[pod].spec, snapshot.nodes.labels[node]
    wanted = _decoded(spec.node_selector) or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (_decoded(spec.affinity) or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term(term, labels, snapshot.nodes.names[node]) for term in required["nodeSelectorTerms"])


def _term(term: Fields, labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_requirement(each, labels) for each in expressions) and all(
        _requirement(each, {"metadata.name": name}) for each in fields
    )


def _requirement(requirement: Fields, labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt":
            return _number(labels, key, values, 1)
        case _:
            return _number(labels, key, values, -1)


def _number(labels: Mapping[str, str], key: str, values: Sequence[str], sign: int) -> bool:
    return key in labels and sign * int(labels[key]) > sign * int(values[0])


def _decoded(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw) if bytes(raw) else None
