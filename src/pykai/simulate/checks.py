"""Validation of manifests before a simulation, with the rules of an API server and of the admission webhooks.

Fields must exist, have the type that the scheduler reads and values that an API server accepts. Each check yields
(path of the field, problem). ROWS are the fields of Kubernetes' own kinds (1.35), so that an unknown name is an error:
one row per type, its fields by name, `!` for required ones, then `:T` or `:[T]` for the type of the field or of its
items, or `=a|b` for an enumeration. The content of a field without a type is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from msgspec import ValidationError, convert, json

from pykai.cache.podgroups import SubGroupError, sub_group_tree
from pykai.config.fields import Problem, Problems, amounts, labels, located_error, name, texts
from pykai.hollow.kubelet_settings import duration_span, seconds_span
from pykai.kube.api import Fields, Object
from pykai.objects import kinds, names
from pykai.objects.crds import DEFINITIONS
from pykai.objects.schema_validation import violations
from pykai.simulate import pod_checks

_IGNORED: Final = "IgnoredDuringExecution"
_OPERATORS: Final = "In|NotIn|Exists|DoesNotExist"
_EFFECTS: Final = "NoSchedule|PreferNoSchedule|NoExecute"
_OBJECT: Final = "apiVersion kind metadata:Metadata"
ROWS: Final = {
    "Pod": f"{_OBJECT} spec:PodSpec status",
    "Job": f"{_OBJECT} spec:JobSpec status",
    "Node": f"{_OBJECT} spec:NodeSpec status:NodeStatus",
    "PriorityClass": f"{_OBJECT} value! globalDefault description preemptionPolicy=PreemptLowerPriority|Never",
    "ConfigMap": f"{_OBJECT} data binaryData immutable",
    "Namespace": f"{_OBJECT} spec status",
    "Metadata": (
        "name generateName:Text namespace:Text labels:Map annotations:Map ownerReferences:[Owner] finalizers uid "
        "resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds managedFields "
        "selfLink"
    ),
    "Owner": "apiVersion! kind! name! uid! controller blockOwnerDeletion",
    "JobSpec": (
        "parallelism:Whole completions:Whole completionMode=NonIndexed|Indexed template!:Template suspend:Switch "
        "backoffLimit:Whole backoffLimitPerIndex maxFailedIndexes activeDeadlineSeconds ttlSecondsAfterFinished "
        "podFailurePolicy successPolicy podReplacementPolicy=TerminatingOrFailed|Failed selector manualSelector "
        "managedBy"
    ),
    "Template": "metadata:Metadata spec:PodSpec",
    "PodSpec": (
        "schedulerName:Text containers:[Container] initContainers:[Container] ephemeralContainers "
        "resources:Resources priorityClassName:Text priority:Whole preemptionPolicy=PreemptLowerPriority|Never "
        "nodeName:Text nodeSelector:Map affinity:Affinity tolerations:[Toleration] "
        "topologySpreadConstraints:[Spread] schedulingGates:[Named] resourceClaims:[Claim] volumes:[Volume] "
        "overhead:Map runtimeClassName:Text restartPolicy=Always|OnFailure|Never "
        "terminationGracePeriodSeconds:Whole activeDeadlineSeconds:Whole serviceAccountName serviceAccount "
        "automountServiceAccountToken imagePullSecrets securityContext hostNetwork hostPID hostIPC hostUsers "
        "shareProcessNamespace hostname hostnameOverride subdomain setHostnameAsFQDN hostAliases "
        "dnsPolicy=ClusterFirst|ClusterFirstWithHostNet|Default|None dnsConfig readinessGates enableServiceLinks "
        "os workloadRef schedulingGroup"
    ),
    "Container": (
        "name! image command args workingDir ports:[Port] env:[Variable] envFrom resources:Resources "
        "resizePolicy restartPolicy restartPolicyRules volumeMounts:[Mount] volumeDevices livenessProbe "
        "readinessProbe startupProbe lifecycle terminationMessagePath "
        "terminationMessagePolicy=File|FallbackToLogsOnError imagePullPolicy=Always|IfNotPresent|Never "
        "securityContext stdin stdinOnce tty"
    ),
    "Resources": "requests:Map limits:Map claims:[Map]",
    "Port": "name:Text containerPort!:Whole hostPort:Whole hostIP:Text protocol=TCP|UDP|SCTP",
    "Variable": "name!:Text value:Text valueFrom:Map",
    "Mount": "name! mountPath! readOnly recursiveReadOnly subPath subPathExpr mountPropagation",
    "Toleration": f"key:Text operator=|Exists|Equal|Lt|Gt value:Text effect=|{_EFFECTS} tolerationSeconds:Whole",
    "Named": "name!:Text",
    "Claim": "name!:Text resourceClaimName:Text resourceClaimTemplateName:Text",
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity",
    "NodeAffinity": (
        f"requiredDuringScheduling{_IGNORED}:NodeSelector preferredDuringScheduling{_IGNORED}:[NodePreference]"
    ),
    "NodeSelector": "nodeSelectorTerms!:[NodeTerm]",
    "NodeTerm": "matchExpressions:[NodeDemand] matchFields:[NodeDemand]",
    "NodePreference": "weight!:Whole preference!:NodeTerm",
    "NodeDemand": f"key!:Text operator!={_OPERATORS}|Gt|Lt values:[Text]",
    "PodAffinity": f"requiredDuringScheduling{_IGNORED}:[PodTerm] preferredDuringScheduling{_IGNORED}:[PodPreference]",
    "PodTerm": (
        "topologyKey!:Text labelSelector:Selector namespaceSelector:Selector namespaces:[Text] "
        "matchLabelKeys:[Text] mismatchLabelKeys:[Text]"
    ),
    "PodPreference": "weight!:Whole podAffinityTerm!:PodTerm",
    "Selector": "matchLabels:Map matchExpressions:[Demand]",
    "Demand": f"key!:Text operator!={_OPERATORS} values:[Text]",
    "Spread": (
        "maxSkew!:Whole topologyKey!:Text whenUnsatisfiable!=DoNotSchedule|ScheduleAnyway labelSelector:Selector "
        "minDomains:Whole matchLabelKeys:[Text] nodeAffinityPolicy=Honor|Ignore nodeTaintsPolicy=Honor|Ignore"
    ),
    "Volume": (
        "name!:Text configMap:Map secret:Map emptyDir:Map hostPath:Map persistentVolumeClaim:ClaimSource "
        "projected:Map downwardAPI:Map ephemeral:Ephemeral csi:Map nfs:Map image:Map awsElasticBlockStore "
        "azureDisk azureFile cephfs cinder fc flexVolume flocker gcePersistentDisk gitRepo glusterfs iscsi "
        "photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
    ),
    "ClaimSource": "claimName!:Text readOnly:Switch",
    "Ephemeral": "volumeClaimTemplate!:Map",
    "NodeSpec": "taints:[Taint] unschedulable:Switch providerID podCIDR podCIDRs externalID configSource",
    "Taint": f"key!:Text value:Text effect!={_EFFECTS} timeAdded",
    "NodeStatus": (
        "allocatable:Map capacity:Map conditions:[Map] addresses nodeInfo daemonEndpoints images phase "
        "volumesInUse volumesAttached config runtimeHandlers features declaredFeatures"
    ),
}
PLAIN: Final = {"Text": "string", "Whole": "integer", "Switch": "boolean", "Map": "object"}
_FIELD = re.compile(r"(?P<name>\w+)(?P<needed>!?)(?::(?P<list>\[?)(?P<type>\w+)\]?|=(?P<values>\S*))?")


@cache
def schema_of(name: str) -> Schema:
    """Return a type as a schema: its fields, which of them are required, and their values."""
    if name in PLAIN:
        return {"type": PLAIN[name], "nullable": True}
    fields = [match for match in map(_FIELD.fullmatch, ROWS[name].split()) if match is not None]
    return {
        "type": "object",
        "nullable": True,
        "properties": {field["name"]: _of_field(field) for field in fields},
        "required": [field["name"] for field in fields if field["needed"]],
    }


def _of_field(field: re.Match[str]) -> Schema:
    if field["type"]:
        inner = schema_of(field["type"])
        return {"type": "array", "nullable": True, "items": inner} if field["list"] else inner
    return {"nullable": True, **({"enum": field["values"].split("|")} if field["values"] is not None else {})}


_TIMING = {names.ARRIVES: duration_span, names.RUN_SECONDS: seconds_span, names.STOP_SECONDS: seconds_span}
_WHOLE_NUMBERS = {names.GPU_MEMORY_LABEL: " of MiB", names.GPU_COUNT_LABEL: ""}
_PREFIX = names.ARRIVES.partition("/")[0] + "/"


def metadata(meta: Object, below: str = "") -> Problems:
    """Check name, labels and annotations; a template has no name."""
    if not below:
        yield from name(meta.get("name"), "metadata.name")
    yield from labels(meta.get("labels"), f"{below}metadata.labels")
    yield from texts(meta.get("annotations"), f"{below}metadata.annotations")


def shaped(obj: Object, shape: type[Any]) -> Problems:
    """Yield the fields of an object whose type is not the one that the scheduler reads."""

    def read(part: Object) -> object:
        return json.decode(json.encode(part), type=shape)

    try:
        read(obj)
    except ValidationError as error:
        problem = located_error(error, obj, read)
        yield problem.path, problem.message


def timing(obj: Object) -> Problems:
    """Check the annotations for the arrival of an object and the run time of its pods."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    for key, text in annotations.items():
        if not key.startswith(_PREFIX):
            continue
        path = f"metadata.annotations.{key}"
        if key not in _TIMING:
            yield path, f"there is no such annotation (there are: {', '.join(_TIMING)})"
            continue
        try:
            _TIMING[key](text)
        except ValueError as error:
            yield path, str(error)


def pods_in(obj: Object) -> Iterator[tuple[str, Object]]:
    """Yield the object itself if it is a pod, else all pod templates in it, with the path of the parent of `spec`."""
    if obj.get("kind") == "Pod":
        yield "", obj
        return
    yield from _templates(obj.get("spec"), "spec.")


def _templates(part: object, below: str) -> Iterator[tuple[str, Object]]:
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from _templates(item, f"{below[:-1]}[{number}].")
    elif isinstance(part, dict):
        for name, value in part.items():
            spec = value.get("spec") if isinstance(value, dict) else None
            if isinstance(spec, dict) and "containers" in spec:
                yield f"{below}{name}.", value
            else:
                yield from _templates(value, f"{below}{name}.")


def workload(obj: Object) -> Problems:
    """Check the pod templates of a workload, and nothing else."""
    found = list(pods_in(obj))
    if not found:
        yield "spec", "holds no template of pods"
    for below, template in found:
        yield from metadata(template.get("metadata") or {}, below)
        yield from ((f"{below}{path}", message) for path, message in timing(template))
        yield from pod_checks.template(template, below)


def job(obj: Object) -> Problems:
    """Check a Job and its pod template."""
    spec = obj.get("spec") or {}
    for field in ("parallelism", "completions"):
        value = spec.get(field, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f"spec.{field}", f"expected a whole number of at least 0, got {value!r}"
    template = spec.get("template")
    if not isinstance(template, dict):
        yield "spec.template", "is missing: a Job needs a pod template"
        return
    as_pod = {"metadata": {"name": "pod"}, **template}
    yield from ((f"spec.template.{path}", message) for path, message in shaped(as_pod, kinds.Pod))
    yield from metadata(template.get("metadata") or {}, "spec.template.")
    yield from ((f"spec.template.{path}", message) for path, message in timing(template))
    yield from pod_checks.template(template, "spec.template.")


def node(obj: Object) -> Problems:
    """Check a Node and its resources."""
    status = obj.get("status")
    offered = [part for part in ("allocatable", "capacity") if isinstance(status, dict) and status.get(part)]
    if not isinstance(status, dict) or not offered:
        yield "status.allocatable", "is missing: the node would offer nothing"
        return
    for part in offered:
        yield from amounts(status[part], f"status.{part}")
    found = (obj.get("metadata") or {}).get("labels") or {}
    for label, unit in _WHOLE_NUMBERS.items():
        if label in found and not found[label].isdigit():
            yield f"metadata.labels.{label}", f"expected a whole number{unit}, got {found[label]!r}"


def config_map(obj: Object) -> Problems:
    """Check a ConfigMap."""
    yield from texts(obj.get("data"), "data")


def queue(obj: Object) -> Problems:
    """Check the amounts of a Queue; -1 is unlimited."""
    resources = (obj.get("spec") or {}).get("resources")
    if not isinstance(resources, dict):
        yield "spec.resources", "is missing: a queue without it can run nothing"
        return
    for resource, share in resources.items():
        for field, least in (("quota", -1), ("limit", -1), ("overQuotaWeight", 0)):
            value = (share or {}).get(field, 0)
            if isinstance(value, int | float) and value < least:
                unlimited = " (-1 means unlimited)" if least else ""
                yield f"spec.resources.{resource}.{field}", f"{value} is negative{unlimited}"


def pod_group(obj: Object) -> Problems:
    """Check the tree of sub-groups of a PodGroup."""
    try:
        sub_group_tree(convert(obj, kinds.PodGroup))
    except SubGroupError as error:
        yield "spec.subGroups", str(error)


def nothing(obj: Object) -> Problems:
    """Check nothing beyond the types of fields."""
    yield from ()


Schema = Fields


def problems(obj: Object, shape: type[Any], check: Callable[[Object], Problems], sound: set[bytes]) -> Problems:
    """Yield the problems of an object with kind and metadata, the most basic first.

    `shape` is the struct that the scheduler reads, `check` checks the rest. A problem at one stage skips later stages.
    `sound` collects valid objects, so that of objects that differ only in metadata, such as generated jobs, only one is
    checked against the schema.
    """
    yield from metadata(obj["metadata"])
    kind, body = obj["kind"], json.encode({field: value for field, value in obj.items() if field != "metadata"})
    ours, typed = kind in _definitions(), kind in ROWS or kind in _definitions()
    value, schema, path = obj, _schema(kind) if typed else {}, ""
    if typed and body in sound:
        value, schema, path = obj["metadata"], schema["properties"]["metadata"], "metadata"
    unknown = [*_unknown_fields(value, schema, path)] if typed else []
    yield from unknown
    wrong = [*violations(value, schema, path)] if typed else []
    if ours:
        yield from wrong
    yield from shaped(obj, shape)
    if not ours:
        yield from wrong
    if not unknown and not wrong:
        sound.add(body)
    yield from timing(obj)
    yield from check(obj)


@cache
def _definitions() -> dict[str, Schema]:
    return {
        definition.kind: definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for definition in DEFINITIONS
    }


@cache
def _schema(kind: str) -> Schema:
    """Return the fields of a kind; any other field is an error."""
    if kind in ROWS:
        return schema_of(kind)
    schema = _definitions()[kind]
    return {**schema, "properties": {**schema["properties"], "metadata": schema_of("Metadata")}}


def similar_or_all(name: str, known: Iterable[str]) -> str:
    """Return the similar_or_all for an unknown name: the most similar known one, else all of them."""
    alike = {field.lower(): field for field in known}
    found = get_close_matches(str(name).lower(), alike, n=1)
    return f": did you mean {alike[found[0]]}?" if found else f" (known: {', '.join(alike.values())})"


def _unknown_fields(value: object, schema: Fields, path: str) -> Iterator[Problem]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_fields(item, schema.get("items") or {}, f"{path}[{number}]")
        return
    known = schema.get("properties")
    if not isinstance(value, dict) or not known:
        return
    for field, item in value.items():
        below = f"{path}.{field}" if path else field
        if field not in known:
            yield below, f"unknown field{similar_or_all(field, known)}"
        else:
            yield from _unknown_fields(item, known[field], below)
