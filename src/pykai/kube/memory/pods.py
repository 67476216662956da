"""What the server knows about pods: defaults, which fields may change, binding and grace.

Functions are pure; the priority classes they need are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykai.kube.api import Object
from pykai.kube.errors import Conflict, Forbidden
from pykai.kube.memory.metadata import timestamp

SPEC_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
CHANGEABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds")
WHILE_GATED = ("nodeSelector", "affinity")
FINISHED = ("Succeeded", "Failed")


def defaulted(pod: Object, classes: Iterable[Mapping[str, Any]]) -> Object:
    """A new pod with the server's defaults, its priority resolved and its status reset."""
    spec = {**SPEC_DEFAULTS, **(pod.get("spec") or {})}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [_with_requests(container) for container in spec[part]]
    spec.setdefault("priority", _priority(spec, list(classes)))
    return {**pod, "spec": spec, "status": {"phase": "Pending", **_gate_condition(spec)}}


def _with_requests(container: Object) -> Object:
    """A container whose requests are its limits where it does not say."""
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _gate_condition(spec: Object) -> Object:
    if not spec.get("schedulingGates"):
        return {}
    text = "Scheduling is blocked due to non-empty scheduling gates"
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": text}]}


def _priority(spec: Object, classes: list[Mapping[str, Any]]) -> int:
    name = spec.get("priorityClassName")
    if not name:
        chosen = next((c for c in classes if c.get("globalDefault")), None)
        if chosen is None:
            return 0
        spec["priorityClassName"] = chosen["metadata"]["name"]
        return int(chosen["value"])
    for candidate in classes:
        if candidate["metadata"]["name"] == name:
            return int(candidate["value"])
    raise Forbidden(f"no PriorityClass with name {name} was found")


def spec_problems(pod: Object) -> list[tuple[str, str]]:
    """What is missing from a new pod's spec."""
    containers = pod["spec"].get("containers") or []
    if not containers:
        return [("spec.containers", "Required value")]
    found = []
    for index, container in enumerate(containers):
        found += [
            (f"spec.containers[{index}].{name}", "Required value")
            for name in ("name", "image")
            if not container.get(name)
        ]
    return found


def change_problems(old: Object, new: Object) -> list[tuple[str, str]]:
    """What an update changes that a pod does not allow."""
    before, after = old["spec"], new.get("spec") or {}
    gated = bool(before.get("schedulingGates"))
    found = []
    if _fixed(before, gated) != _fixed(after, gated):
        allowed = "image, activeDeadlineSeconds, terminationGracePeriodSeconds, tolerations (only additions)"
        found.append(("spec", f"Forbidden: pod updates may not change fields other than {allowed}"))
    kept = after.get("tolerations") or []
    if any(toleration not in kept for toleration in before.get("tolerations") or []):
        found.append(
            ("spec.tolerations", "Forbidden: existing toleration can not be modified except its tolerationSeconds")
        )
    gates = before.get("schedulingGates") or []
    if any(gate not in gates for gate in after.get("schedulingGates") or []):
        found.append(("spec.schedulingGates", "Forbidden: only deletion is allowed"))
    return found


def _fixed(spec: Object, gated: bool) -> Object:
    free = {*CHANGEABLE, "tolerations", "schedulingGates", *(WHILE_GATED if gated else ())}
    rest = {name: value for name, value in spec.items() if name not in free}
    for lists in ("containers", "initContainers"):
        rest[lists] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(lists) or []]
    return rest


def bound(pod: Object, binding: Object, now: float) -> Object:
    """The pod on its node, with the annotations and labels of the binding; Conflict if it may not be bound."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    wish = binding.get("metadata") or {}
    node = (binding.get("target") or {}).get("name") or ""
    refusals = {
        f"the UID in the precondition ({wish.get('uid')}) does not match the UID in record ({metadata['uid']})": (
            wish.get("uid") not in (None, "", metadata["uid"])
        ),
        f"pod {name} is being deleted, cannot be assigned to a host": "deletionTimestamp" in metadata,
        f'pod {name} is already assigned to node "{pod["spec"].get("nodeName")}"': bool(pod["spec"].get("nodeName")),
        f"pod {name} has non-empty .spec.schedulingGates": bool(pod["spec"].get("schedulingGates")),
    }
    for why, refused in refusals.items():
        if refused:
            raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {why}')
    for field in ("annotations", "labels"):
        if wish.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **wish[field]}
    pod["spec"]["nodeName"] = node
    return with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)


def with_condition(pod: Object, condition: Object, now: float) -> Object:
    """The pod with a condition set; the transition time moves only when its status does."""
    status = pod.setdefault("status", {})
    old = next((c for c in status.get("conditions") or [] if c["type"] == condition["type"]), None)
    since = (
        old["lastTransitionTime"]
        if old and old["status"] == condition["status"] and "lastTransitionTime" in old
        else None
    )
    new = {**condition, "lastTransitionTime": since or timestamp(now)}
    others = status.get("conditions") or []
    status["conditions"] = [new if c is old else c for c in others] + ([] if old else [new])
    return pod


def grace(pod: Object, asked: int | None) -> int:
    """Seconds the kubelet gets to stop a pod; 0 for one that is on no node or finished."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in FINISHED:
        return 0
    chosen = pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return 1 if chosen < 0 else int(chosen)
