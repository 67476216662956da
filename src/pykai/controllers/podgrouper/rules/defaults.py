"""The default group of a workload, the basis of every rule: its fields from labels and annotations.

The default is one group for the whole workload with a minimum of one pod. Priority and preemptibility come from labels
first, then from the administrator's defaults per kind: a ConfigMap whose key `types` holds a JSON list of
`{"typeName": "Deployment", "group": "apps", "priorityName": "inference", "preemptibility": "preemptible"}`. An entry
with a group takes precedence over one without, which applies to the kind in any group. An unreadable ConfigMap counts
as empty, because a typo must not block every pod of the cluster (`ignored_settings` reports it).
"""

from __future__ import annotations

import json as plain_json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import yaml
from msgspec import DecodeError, Struct, json

from pykai.controllers.podgrouper.rules.workload import (
    ForbiddenError,
    GroupingError,
    GroupSpec,
    GroupTopology,
    Workload,
    annotations_of,
    group_version_kind,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    positive,
    text_at,
    uid_of,
)
from pykai.kube.api import Object
from pykai.objects import names, units

PREEMPTIBILITIES = frozenset({"", "preemptible", "semi-preemptible", "non-preemptible"})


@dataclass(frozen=True)
class KindDefault:
    """The administrator's defaults for one kind; empty: none."""

    priority_class: str = ""
    preemptibility: str = ""


KindDefaults = Mapping[str, KindDefault]


class _KindEntry(Struct, rename="camel"):
    """One entry of the list; null is absent."""

    type_name: str | None = None
    group: str | None = None
    priority_name: str | None = None
    preemptibility: str | None = None

    @property
    def key(self) -> str:
        return ".".join(filter(None, (self.type_name, self.group))) if self.type_name else ""


class UnreadableDefaultsError(ValueError):
    """The ConfigMap is missing, may not be read, or its `types` is not a JSON list of valid entries."""


def kind_defaults(work: Workload) -> KindDefaults:
    """Return the administrator's defaults by `Kind.group` or `Kind`; empty if there are none or they are unreadable.

    The empty key holds entries without a typeName.
    """
    try:
        return read_kind_defaults(work)
    except UnreadableDefaultsError:
        return {}


def read_kind_defaults(work: Workload) -> KindDefaults:
    """Return the administrator's defaults; raises UnreadableDefaultsError."""
    if work.settings.kind_defaults is None:
        return {}
    namespace, name = work.settings.kind_defaults
    try:
        found = work.lookup.get("v1", "ConfigMap", namespace, name)
    except ForbiddenError:
        raise UnreadableDefaultsError(f"ConfigMap {namespace}/{name} may not be read") from None
    if found is None:
        raise UnreadableDefaultsError(f"ConfigMap {namespace}/{name} does not exist")
    return _parsed(text_at(found, "data", "types"))


@lru_cache(maxsize=8)
def _parsed(types: str) -> KindDefaults:
    try:
        entries = json.decode(types, type=list[_KindEntry])
    except (DecodeError, UnicodeEncodeError) as error:
        raise UnreadableDefaultsError(f"data key types: {error}") from error
    return {
        entry.key: KindDefault(entry.priority_name or "", (entry.preemptibility or "").lower()) for entry in entries
    }


def default_for(owner: Object, defaults: KindDefaults) -> KindDefault:
    """Return the default for an object's kind: the entry of `Kind.group`, else that of `Kind`."""
    group, _, kind = group_version_kind(owner)
    keys = (f"{kind}.{group}", kind) if kind else ()
    return next((defaults[key] for key in keys if key in defaults), KindDefault())


def priority_class(work: Workload) -> str:
    """Return the first requested class that exists, else the default of the workload's kind."""
    for name in requested_priorities(work):
        if work.has_priority_class(name):
            return name
    return work.default_priority


def requested_priorities(work: Workload) -> Iterator[str]:
    """Yield every requested class, in order of precedence; empty if an owner requests none."""
    of_pod = labels_of(work.pod).get(names.PRIORITY_CLASS_LABEL) or text_at(work.pod, "spec", "priorityClassName")
    for owner in work.chain:
        yield labels_of(owner).get(names.PRIORITY_CLASS_LABEL) or of_pod
    defaults = kind_defaults(work)
    for owner in work.chain:
        yield default_for(owner, defaults).priority_class


def preemptibility(work: Workload, defaults: KindDefaults) -> str:
    """Return one of PREEMPTIBILITIES; empty: the priority decides. Other values are ignored.

    Labels come before the administrator's defaults; an empty label is a value, an empty default is not.
    """
    for obj in (*work.chain, work.pod):
        value = labels_of(obj).get(names.PREEMPTIBILITY_LABEL)
        if value is not None and value in PREEMPTIBILITIES:
            return value
    usual = (default_for(owner, defaults).preemptibility for owner in work.chain)
    return next((value for value in usual if value and value in PREEMPTIBILITIES), "")


MAX_PARTS = 10_000
Annotations = Mapping[str, str]


def segment_topology(work: Workload, template: Annotations) -> GroupTopology | None:
    """Return the topology of each segment, from the pod, the worker template or the workload; None without name and
    level."""
    near = (annotations_of(work.pod), template)
    topology = GroupTopology(
        _first(names.TOPOLOGY, *near, annotations_of(work.top)),
        _first(names.SEGMENT_TOPOLOGY_REQUIRED, *near),
        _first(names.SEGMENT_TOPOLOGY_PREFERRED, *near),
    )
    return topology if topology.name and topology.has_level else None


def _first(key: str, *sources: Annotations) -> str:
    return next(filter(None, (source.get(key) for source in sources)), "")


def checked_count(segments: int) -> int:
    """Return the number of segments; GroupingError if it exceeds the size of a pod group."""
    if segments > MAX_PARTS:
        raise GroupingError(f"number of segments {segments} is greater than max allowed segmentation {MAX_PARTS}")
    return segments


def ceil_div(total: int, size: int) -> int:
    """Return the number of blocks of a size for a total, rounded up."""
    return -(-total // size)


_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_YAML = yaml.resolver.Resolver()
_STRING = "tag:yaml.org,2002:str"
# Strings in one version of YAML, numbers or booleans in another
_AMBIGUOUS = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|0[box][0-9a-fA-F_]+|[yYnN]")


def group(work: Workload) -> GroupSpec:
    """Return one group for all pods of the top owner, with a minimum of one."""
    return replace(
        basic_group(work),
        preemptibility=preemptibility(work, kind_defaults(work)),
        preemption_delay=preemption_delay(work),
        staleness_grace_period=staleness_grace_period(work),
        safe_to_consolidate=safe_to_consolidate(work),
        topology=annotated_topology(annotations_of(work.top)),
    )


def with_batch_minimum(work: Workload) -> GroupSpec:
    """Return the default group with the minimum in annotation `kai.scheduler/batch-min-member` of the top owner."""
    return replace(group(work), min_member=batch_min_member(work.top) or 1)


def batch_min_member(owner: Object) -> int | None:
    """Return the minimum in the annotation of an object; None without one, GroupingError unless it is at least 1."""
    wanted = annotations_of(owner).get(names.BATCH_MIN_MEMBER)
    if wanted is None:
        return None
    return positive(wanted, f"invalid {names.BATCH_MIN_MEMBER} annotation on {text_at(owner, 'kind')}")


def basic_group(work: Workload) -> GroupSpec:
    """Return the default group without preemptibility, durations and topology, which not every kind supports."""
    group_, version, kind = group_version_kind(work.top)
    top = {"name": name_of(work.top), "uid": uid_of(work.top), "group": group_, "version": version, "kind": kind}
    annotations = {names.TOP_OWNER_METADATA: "".join(f"{key}: {_yaml_scalar(text)}\n" for key, text in top.items())}
    return GroupSpec(
        name=group_name(work.top),
        namespace=namespace_of(work.pod),
        owner=owner_reference(work.top),
        queue=queue(work),
        priority_class=priority_class(work),
        labels={**_user(labels_of(work.pod)), **labels_of(work.top)},
        annotations={**annotations, **_user(annotations_of(work.pod)), **annotations_of(work.top)},
    )


def per_pod(work: Workload, spec: GroupSpec) -> GroupSpec:
    """Return a group of this pod alone, owned by the pod."""
    return replace(spec, name=group_name(work.pod), owner=owner_reference(work.pod), min_member=1)


def group_name(owner: Object) -> str:
    """Return the name of the group of an object's pods."""
    return f"pg-{name_of(owner)}-{uid_of(owner)}"


def queue(work: Workload) -> str:
    """Return the queue in the labels; the older key is read only if neither object has the configured one.

    Without one, a project names it, with the node pool if there is one.
    """
    wanted = (
        labels_of(obj).get(key)
        for key in (work.settings.queue_label, names.LEGACY_QUEUE_LABEL)
        for obj in (work.top, work.pod)
    )
    if found := next(filter(None, wanted), None):
        return found
    project = labels_of(work.top).get(names.PROJECT_LABEL) or labels_of(work.pod).get(names.PROJECT_LABEL) or ""
    pool = labels_of(work.pod).get(work.settings.node_pool_label)
    return (f"{project}-{pool}" if project and pool else project) or names.DEFAULT_QUEUE


def preemption_delay(work: Workload) -> float | None:
    """Return the seconds that the group waits before it may cause evictions; None: not set."""
    return next((seconds for seconds in durations(work, names.PREEMPTION_DELAY) if seconds >= 0), None)


def staleness_grace_period(work: Workload) -> float | None:
    """Return the seconds that a stale gang is tolerated, negative: for ever; None: not set."""
    return next(durations(work, names.STALENESS_GRACE_PERIOD), None)


def durations(work: Workload, key: str) -> Iterator[float]:
    """Yield the valid values of an annotation on the owners, the nearest first, and on the pod."""
    for obj in (*work.chain, work.pod):
        seconds = readable_seconds(annotations_of(obj).get(key, ""))
        if seconds is not None:
            yield seconds


def readable_seconds(text: str) -> float | None:
    """Return a duration in seconds; None if the text is invalid."""
    try:
        return units.parse_duration(text)
    except units.DurationError:
        return None


def safe_to_consolidate(work: Workload) -> bool | None:
    """Return whether consolidation may move the pods, by the owners, the nearest first, then the pod; None: not set."""
    wanted = (annotations_of(obj).get(names.SAFE_TO_CONSOLIDATE, "") for obj in (*work.chain, work.pod))
    return next((TRUTH[value] for value in wanted if value in TRUTH), None)


TRUTH = {"true": True, "false": False}


def annotated_topology(annotations: Mapping[str, str]) -> GroupTopology:
    """Return the topology constraint in annotations."""
    return GroupTopology(
        annotations.get(names.TOPOLOGY, ""),
        annotations.get(names.TOPOLOGY_REQUIRED, ""),
        annotations.get(names.TOPOLOGY_PREFERRED, ""),
    )


def _user(source: Mapping[str, str]) -> dict[str, str]:
    return {names.USER_LABEL: source[names.USER_LABEL]} if names.USER_LABEL in source else {}


@lru_cache(maxsize=256)
def _yaml_scalar(text: str) -> str:
    """Return the text unquoted if every version of YAML reads it back as a string, else in double quotes."""
    if _AMBIGUOUS.fullmatch(text):
        return plain_json.dumps(text)
    if _WORD.fullmatch(text) and _YAML.resolve(yaml.ScalarNode, text, (True, False)) == _STRING:  # type: ignore[no-untyped-call]
        return text  # nearly every name; parsing it as YAML takes a millisecond
    try:
        bare = yaml.safe_load(text) == text
    except (yaml.YAMLError, ValueError):
        bare = False
    return text if bare else plain_json.dumps(text)
