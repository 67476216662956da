"""Redaction of snapshots for bug reports; a redacted snapshot leads to the same decisions.

Only the fields that decisions read are kept: no images, commands, environment or free texts. Names, namespaces, labels
and other strings are replaced, equal strings by equal words. The words sort like the strings, because names break ties.
Amounts, times, the vocabulary of Kubernetes and KAI, driver names and device attributes are kept.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from pykai.config.snapshot_file import MEMBER, RawObjects
from pykai.objects import names
from pykai.objects.pod_template import Container

Json = Any
_AMOUNT = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+|[numkKMGTPE]i?|s|h|d)?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)")
_KNOWN_DOMAINS = ("kubernetes.io", "k8s.io", "nvidia.com", "kai.scheduler", "run.ai", "x-k8s.io", "pykai.io")
_VOCABULARY: Final = frozenset(
    {
        names.SCHEDULER_NAME,
        names.SYSTEM_NAMESPACE,
        names.RESERVATION_NAMESPACE,
        names.RESERVATION_APP,
        names.SCALING_NAMESPACE,
        names.SCALING_APP,
        *names.PRIORITY_CLASSES,
        "true",
        "false",
        "system-cluster-critical",
        "system-node-critical",
    }
)
_CONSTANTS: Final = frozenset(value for value in vars(names).values() if isinstance(value, str))
"""All labels, annotations and names that pykai and KAI define."""
_WORDS: Final = frozenset(
    {
        *("apiVersion", "kind", "effect", "operator", "phase", "status", "type", "restartPolicy", "protocol"),
        *("preemptibility", "whenUnsatisfiable", "qosClass", "volumeBindingMode", "receivedResourceType", "driver"),
        *("expression", "allocationMode", "volumeMode", "accessModes", "schedulerName", "policies", "provisioner"),
    }
)
"""Fields whose values are defined by an API, not chosen by users."""
_LABELS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
_AMOUNTS: Final = frozenset({"requests", "limits", "allocatable", "capacity", "overhead"})
"""Fields whose keys users choose: labels (`_LABELS`) and resource names (`_AMOUNTS`)."""
_VERBATIM: Final = frozenset({"attributes"})
"""Fields kept unchanged, because CEL expressions read them."""
_ORDER_LABELS: Final = frozenset({names.KUBEFLOW_ROLE_LABEL, names.RAY_NODE_TYPE_LABEL, names.TASK_PRIORITY_LABEL})
"""Labels whose values determine the order of a gang's pods."""
_DROPPED: Final = frozenset({"message", "reason", "managedFields", "image", "command", "args"})
_OF_CONTAINERS: Final = (names.NVFRACTIONS_PREFIX, names.PORTION_LIMIT_PREFIX)
"""Prefixes of annotations that are followed by a container's name, up to the next dot."""
_DEVICES: Final = ".gpus.devices"
_OWN_DOMAIN = "redacted.io"


def redacted(document: Mapping[str, Json]) -> dict[str, Json]:
    """Return the document of a snapshot file without names and texts; decisions are the same up to names."""
    sections = {name: [_projected(name, obj) for obj in found or ()] for name, found in document["rawObjects"].items()}
    words = Words(sections)
    config = {key: value for key, value in (document.get("config") or {}).items() if key != "usageDBConfig"}
    params = dict(document.get("schedulerParams") or {})
    if pool := params.get("partitionParams"):
        params["partitionParams"] = {name: words.of_key(text) for name, text in pool.items()}
    if label := params.get("queueLabelKey"):
        params["queueLabelKey"] = words.of_key(label)
    made = {"config": config, "schedulerParams": params, "rawObjects": words.replaced(sections)}
    return {**made, **({"discovery": document["discovery"]} if document.get("discovery") else {})}


def redact_file(source: Path, target: IO[bytes]) -> None:
    """Write the redacted snapshot of file `source` to `target`."""
    with zipfile.ZipFile(source) as archive:
        document = msgspec.json.decode(archive.read(MEMBER))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, msgspec.json.encode(redacted(document)))


# ---------------------------------------------------------------------------------------------------------- projection
_CONTAINERS = ("containers", "initContainers")


def _projected(section: str, obj: Json) -> Json:
    """Return the fields of an object that pykai reads."""
    kind = _kinds().get(section)
    if kind is None:
        return {"metadata": {"name": obj["metadata"]["name"]}}
    kept = _fields_read(kind, obj, 0)
    meta = kept["metadata"]
    if owners := meta.get("ownerReferences"):
        meta["ownerReferences"] = [{key: each[key] for key in _OWNER if key in each} for each in owners]
    meta["annotations"] = {k: v for k, v in (meta.get("annotations") or {}).items() if _is_read(k)}
    for name in _CONTAINERS if section == "pods" else ():
        if containers := (kept.get("spec") or {}).get(name):
            kept["spec"][name] = [_container(each) for each in containers]
    return kept


_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_DEPTH = 2


@cache
def _kinds() -> dict[str, type[msgspec.Struct]]:
    """Return the struct of each section of a snapshot file."""
    (info,) = [msgspec.inspect.type_info(RawObjects)]
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: kind for field in info.fields if (kind := _struct_in(field.type)) is not None}


def _struct_in(info: msgspec.inspect.Type) -> type[msgspec.Struct] | None:
    """Return the struct in a type: the type itself, a union member or the element of a list."""
    if isinstance(info, msgspec.inspect.StructType):
        return info.cls
    if isinstance(info, msgspec.inspect.ListType):
        return _struct_in(info.item_type)
    parts = info.types if isinstance(info, msgspec.inspect.UnionType) else ()
    return next((found for part in parts if (found := _struct_in(part)) is not None), None)


def _fields_read(kind: type[msgspec.Struct], obj: Json, depth: int) -> Json:
    """Return the fields of an object that a struct declares, two levels deep; deeper levels are kept unchanged."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    found = {}
    for field in info.fields:
        value, inner = obj.get(field.encode_name), _struct_in(field.type)
        if value is not None:
            narrow = inner is not None and isinstance(value, dict) and depth < _DEPTH
            found[field.encode_name] = _fields_read(inner, value, depth + 1) if narrow and inner else value
    return found


def _is_read(annotation: str) -> bool:
    """Whether decisions may read the annotation."""
    ours = annotation in _CONSTANTS or annotation.startswith((names.GPU_GROUP_LABEL, *_OF_CONTAINERS))
    return ours and annotation != names.TOP_OWNER_METADATA and not annotation.endswith(_DEVICES)


def _container(container: Json) -> Json:
    """Return the fields of a container that decisions read; of its environment only the required ConfigMaps."""
    made = {name: value for name, value in container.items() if name in Container.__struct_encode_fields__}
    refers = [each for each in container.get("env") or () if "configMapKeyRef" in (each.get("valueFrom") or {})]
    maps = [{**each["valueFrom"]["configMapKeyRef"], "key": "key"} for each in refers]
    made["env"] = [{"name": f"v{at}", "valueFrom": {"configMapKeyRef": each}} for at, each in enumerate(maps)]
    made["envFrom"] = [
        {"configMapRef": each["configMapRef"]} for each in container.get("envFrom") or () if "configMapRef" in each
    ]
    made["volumeMounts"] = [{"name": mount.get("name", "")} for mount in container.get("volumeMounts") or ()]
    return {name: value for name, value in made.items() if value not in (None, [], {}, "")}


# --------------------------------------------------------------------------------------------------------------- words
class Words:
    """The replacement of every string in some objects; replacements sort like the strings."""

    def __init__(self, objects: Json) -> None:
        found = sorted(set(_strings(objects, "")))
        width = len(str(len(found)))
        self._known = {text: f"x{number:0{width}d}" for number, text in enumerate(found)}

    def of(self, text: str) -> str:
        """Return the replacement of a name."""
        return self._known.get(text, text)

    def of_key(self, key: str, of: str = "labels") -> str:
        """Return the replacement of a key of labels or of amounts; a key that users chose gets another domain."""
        beginning, name, rest = _parts(key)
        if name:
            return beginning + self.of(name) + rest
        if not _is_private(key, of):
            return key
        return f"{_OWN_DOMAIN}/{self.of(key)}" if "/" in key else self.of(key)

    def replaced(self, value: Json, field: str = "") -> Json:
        """Return the value of a field with all strings replaced."""
        if field in _VERBATIM:
            return value
        if isinstance(value, dict):
            kept = {key: inner for key, inner in value.items() if key not in _DROPPED or field in _LABELS}
            return {self.of_key(key, field): self.replaced(inner, key) for key, inner in kept.items()}
        if isinstance(value, list):
            return [self.replaced(inner, field) for inner in value]
        if not isinstance(value, str) or _is_kept(field, value):
            return value
        return self.of_key(value) if field in _KEYS else self.of(value)


_KEYS = frozenset(
    {"key", "topologyKey", "nodeLabel", "requiredTopologyLevel", "preferredTopologyLevel", "resourceName"}
)
"""Fields whose values are keys of labels."""


def _is_kept(field: str, text: str) -> bool:
    """Whether a string is kept unchanged."""
    if field in _WORDS or field in _ORDER_LABELS or not text or field.startswith(_OF_CONTAINERS):
        return True
    if text == names.DEFAULT_PODSET and field == names.SUBGROUP_LABEL:
        return True
    return text in _VOCABULARY or bool(_AMOUNT.fullmatch(text) or _TIME.fullmatch(text))


def _is_private(key: str, of: str) -> bool:
    """Whether users chose this key of a field."""
    domain, slash, _ = key.partition("/")
    if of not in _LABELS and of not in _AMOUNTS:
        return False
    if key in _CONSTANTS or key in _ORDER_LABELS:
        return False
    return not domain.endswith(_KNOWN_DOMAINS) if slash else of in _LABELS


def _parts(key: str) -> tuple[str, str, str]:
    """Split a key into the parts before, of and after the name of a group or container in it; the name may be empty."""
    group = f"{names.GPU_GROUP_LABEL}/"
    if key.startswith(group):
        return group, key.removeprefix(group), ""
    beginning = next((each for each in _OF_CONTAINERS if key.startswith(each)), "")
    name, dot, rest = key.removeprefix(beginning).partition(".") if beginning else ("", "", "")
    return beginning, name, dot + rest


def _strings(value: Json, field: str) -> Iterator[str]:
    """Yield every string to replace."""
    if field in _VERBATIM:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if name := _parts(key)[1]:
                yield name
            elif _is_private(key, field):
                yield key
            if key not in _DROPPED or field in _LABELS:
                yield from _strings(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, field)
    elif isinstance(value, str) and not _is_kept(field, value) and (field not in _KEYS or _is_private(value, "labels")):
        yield value
