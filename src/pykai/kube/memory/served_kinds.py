"""Kind-specific rules of the in-memory server: a table of kinds, defaults of new objects, the rules of pods.

`ServedKind` states whether a kind has a status subresource, counts generations, accepts updates without a
resourceVersion, writes labels and annotations with its status, and keeps the status of a new object. The rows of
custom resources come from their definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pykai.kube import api_resources as known
from pykai.kube.api import Fields, Object, Resource
from pykai.kube.errors import Conflict, Forbidden
from pykai.kube.memory.patches import ListKeys, built_in_keys, schema_keys
from pykai.objects.units import rfc3339


@dataclass(frozen=True, slots=True)
class ServedKind:
    """The rules of one kind."""

    resource: Resource
    status: bool = False
    generation: bool = False
    blind_update: bool = True
    keeps_status: bool = False
    schema: Fields | None = field(default=None, hash=False, compare=False)
    list_keys: ListKeys = field(default=built_in_keys, hash=False, compare=False)

    @property
    def custom(self) -> bool:
        """Whether the kind is a custom resource."""
        return self.schema is not None


_STATUS = (
    known.POD,
    known.NODE,
    known.NAMESPACE,
    known.SERVICE,
    known.PERSISTENT_VOLUME,
    known.PERSISTENT_VOLUME_CLAIM,
    known.REPLICATION_CONTROLLER,
    known.DEPLOYMENT,
    known.REPLICA_SET,
    known.STATEFUL_SET,
    known.DAEMON_SET,
    known.JOB,
    known.CRON_JOB,
    known.DISRUPTION_BUDGET,
    known.SCHEDULING_GROUP,
    known.RESOURCE_CLAIM,
    known.CRD,
)
_GENERATION = (
    known.POD,
    known.REPLICATION_CONTROLLER,
    known.DEPLOYMENT,
    known.REPLICA_SET,
    known.STATEFUL_SET,
    known.DAEMON_SET,
    known.JOB,
    known.CRON_JOB,
    known.DISRUPTION_BUDGET,
    known.CRD,
    known.PRIORITY_CLASS,
    known.RESOURCE_SLICE,
    known.DEVICE_CLASS,
    known.DEVICE_TAINT_RULE,
    known.MUTATING_WEBHOOK,
    known.VALIDATING_WEBHOOK,
)
_NEEDS_VERSION = (
    known.LEASE,
    known.DISRUPTION_BUDGET,
    known.CRD,
    known.MUTATING_WEBHOOK,
    known.VALIDATING_WEBHOOK,
)
_KEEPS_STATUS = (known.NODE,)


def built_in(resource: Resource) -> ServedKind:
    """Return the row of a built-in kind."""
    return ServedKind(
        resource,
        status=resource in _STATUS,
        generation=resource in _GENERATION,
        blind_update=resource not in _NEEDS_VERSION,
        keeps_status=resource in _KEEPS_STATUS,
    )


def from_definition(definition: Object) -> list[ServedKind]:
    """Return the rows of a CustomResourceDefinition, one per served version."""
    spec = definition["spec"]
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    rows = []
    for version in spec["versions"]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        resource = Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced)
        has_status = "status" in (version.get("subresources") or {})
        if version.get("served", True):
            keys = schema_keys(schema)
            rows.append(
                ServedKind(resource, has_status, generation=True, blind_update=False, schema=schema, list_keys=keys)
            )
    return rows


def _namespace(body: Object) -> Object:
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {**body, "metadata": {**metadata, "labels": labels}, "status": {"phase": "Active"}}


def _claim(body: Object) -> Object:
    return {**body, "spec": {"volumeMode": "Filesystem", **(body.get("spec") or {})}, "status": {"phase": "Pending"}}


def _volume(body: Object) -> Object:
    return {**body, "status": {"phase": "Available"}}


def _priority_class(body: Object) -> Object:
    return {"preemptionPolicy": "PreemptLowerPriority", **body}


def _definition(body: Object) -> Object:
    spec = body["spec"]
    names = {"listKind": spec["names"]["kind"] + "List", "singular": spec["names"]["kind"].lower(), **spec["names"]}
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    established = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
    status = {"conditions": [established], "acceptedNames": names, "storedVersions": stored}
    return {**body, "spec": {**spec, "names": names}, "status": status}


CREATION_DEFAULTS: dict[Resource, Callable[[Object], Object]] = {
    known.NAMESPACE: _namespace,
    known.PERSISTENT_VOLUME_CLAIM: _claim,
    known.PERSISTENT_VOLUME: _volume,
    known.PRIORITY_CLASS: _priority_class,
    known.CRD: _definition,
}


SPEC_DEFAULTS: Object = {
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


def defaulted_pod(pod: Object, classes: Iterable[Fields]) -> Object:
    """Return a new pod with the server's defaults, its priority resolved and its status reset."""
    spec = {**SPEC_DEFAULTS, **(pod.get("spec") or {})}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [_with_requests(container) for container in spec[part]]
    spec.setdefault("priority", _priority(spec, list(classes)))
    return {**pod, "spec": spec, "status": {"phase": "Pending", **_gate_condition(spec)}}


def _with_requests(container: Object) -> Object:
    """Return a container whose missing requests default to its limits."""
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


def _priority(spec: Object, classes: list[Fields]) -> int:
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


def pod_spec_problems(pod: Object) -> list[tuple[str, str]]:
    """Return missing required fields of a new pod's spec."""
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


def pod_change_problems(old: Object, new: Object) -> list[tuple[str, str]]:
    """Return the changes of immutable fields of a pod."""
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


def bound_pod(pod: Object, binding: Object, now: float) -> Object:
    """Return the pod on its node, with the annotations and labels of the binding; Conflict if it may not be bound."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    wanted = binding.get("metadata") or {}
    node = (binding.get("target") or {}).get("name") or ""
    refusals = {
        f"the UID in the precondition ({wanted.get('uid')}) does not match the UID in record ({metadata['uid']})": (
            wanted.get("uid") not in (None, "", metadata["uid"])
        ),
        f"pod {name} is being deleted, cannot be assigned to a host": "deletionTimestamp" in metadata,
        f'pod {name} is already assigned to node "{pod["spec"].get("nodeName")}"': bool(pod["spec"].get("nodeName")),
        f"pod {name} has non-empty .spec.schedulingGates": bool(pod["spec"].get("schedulingGates")),
    }
    for why, refused in refusals.items():
        if refused:
            raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {why}')
    for part in ("annotations", "labels"):
        if wanted.get(part):
            metadata[part] = {**(metadata.get(part) or {}), **wanted[part]}
    pod["spec"]["nodeName"] = node
    return with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)


def with_condition(pod: Object, condition: Object, now: float) -> Object:
    """Return the pod with a condition set; lastTransitionTime changes only with the condition's status."""
    status = pod.setdefault("status", {})
    old = next((c for c in status.get("conditions") or [] if c["type"] == condition["type"]), None)
    since = (
        old["lastTransitionTime"]
        if old and old["status"] == condition["status"] and "lastTransitionTime" in old
        else None
    )
    new = {**condition, "lastTransitionTime": since or rfc3339(now)}
    others = status.get("conditions") or []
    status["conditions"] = [new if c is old else c for c in others] + ([] if old else [new])
    return pod


def pod_grace(pod: Object, asked: int | None) -> int:
    """Return the grace period in seconds; 0 for a pod that has no node or has ended."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in FINISHED:
        return 0
    chosen = pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return 1 if chosen < 0 else int(chosen)
