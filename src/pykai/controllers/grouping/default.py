"""The pod group of a workload we know nothing special about, from which every other rule starts.

One group for the whole workload, one pod enough to start it; queue, priority and the rest from labels and annotations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import yaml

from pykai.controllers.grouping.fields import (
    Object,
    annotations_of,
    group_version_kind,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from pykai.controllers.grouping.priority import kind_defaults, preemptibility, priority_class
from pykai.controllers.grouping.spec import GroupSpec, Topology
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names, units

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_YAML = yaml.resolver.Resolver()
_STRING = "tag:yaml.org,2002:str"
# Strings in the one version of YAML, numbers or truth values in another.
_AMBIGUOUS = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|0[box][0-9a-fA-F_]+|[yYnN]")


def group(work: Workload) -> GroupSpec:
    """One group for all pods of the top owner, one pod at least."""
    return replace(
        plain(work),
        preemptibility=preemptibility(work, kind_defaults(work)),
        preemption_delay=preemption_delay(work),
        staleness_grace_period=staleness_grace_period(work),
        topology=annotated_topology(annotations_of(work.top)),
    )


def plain(work: Workload) -> GroupSpec:
    """The same without the wishes that not every kind honours: preemptibility, durations, topology."""
    return GroupSpec(
        name=group_name(work.top),
        namespace=namespace_of(work.pod),
        owner=owner_reference(work.top),
        queue=queue(work),
        priority_class=priority_class(work),
        labels=_labels(work),
        annotations=_annotations(work),
    )


def per_pod(work: Workload, spec: GroupSpec) -> GroupSpec:
    """A group for this pod alone, which goes when the pod goes."""
    return replace(spec, name=group_name(work.pod), owner=owner_reference(work.pod), min_member=1)


def group_name(owner: Object) -> str:
    """The name of the group of everything an object owns."""
    return f"pg-{name_of(owner)}-{uid_of(owner)}"


def queue(work: Workload) -> str:
    """The queue the workload asks for; the older label key is read only where nobody uses the configured one."""
    wanted = (
        labels_of(obj).get(key)
        for key in (work.settings.queue_label, names.LEGACY_QUEUE_LABEL)
        for obj in (work.top, work.pod)
    )
    return next(filter(None, wanted), None) or _project_queue(work) or names.DEFAULT_QUEUE


def _project_queue(work: Workload) -> str:
    project = labels_of(work.top).get(names.PROJECT_LABEL) or labels_of(work.pod).get(names.PROJECT_LABEL) or ""
    pool = labels_of(work.pod).get(work.settings.node_pool_label)
    return f"{project}-{pool}" if project and pool else project


def preemption_delay(work: Workload) -> float | None:
    """Seconds the group waits before it may cause evictions; None where nobody asks for it."""
    return next((seconds for seconds in durations(work, names.PREEMPTION_DELAY) if seconds >= 0), None)


def staleness_grace_period(work: Workload) -> float | None:
    """Seconds a broken gang is tolerated, negative = for ever; None where nobody says."""
    return next(durations(work, names.STALENESS_GRACE_PERIOD), None)


def durations(work: Workload, key: str) -> Iterator[float]:
    """The readable values of an annotation on the owners, the nearest first, and on the pod."""
    for obj in (*work.chain, work.pod):
        seconds = readable_seconds(annotations_of(obj).get(key, ""))
        if seconds is not None:
            yield seconds


def readable_seconds(text: str) -> float | None:
    """A duration in seconds; None where the text is not one."""
    try:
        return units.parse_duration(text)
    except units.DurationError:
        return None


def annotated_topology(wishes: Mapping[str, str]) -> Topology:
    """The topology that annotations ask for."""
    return Topology(
        wishes.get(names.TOPOLOGY, ""),
        wishes.get(names.TOPOLOGY_REQUIRED, ""),
        wishes.get(names.TOPOLOGY_PREFERRED, ""),
    )


def _labels(work: Workload) -> dict[str, str]:
    return {**_entry(names.USER_LABEL, labels_of(work.pod)), **labels_of(work.top)}


def _annotations(work: Workload) -> dict[str, str]:
    return {
        names.TOP_OWNER_METADATA: _top_owner_metadata(work.top),
        **_entry(names.USER_LABEL, annotations_of(work.pod)),
        **annotations_of(work.top),
    }


def _entry(key: str, source: Mapping[str, str]) -> dict[str, str]:
    return {key: source[key]} if key in source else {}


def _top_owner_metadata(top: Object) -> str:
    group_, version, kind = group_version_kind(top)
    entries = {"name": name_of(top), "uid": uid_of(top), "group": group_, "version": version, "kind": kind}
    return "".join(f"{key}: {_yaml_scalar(text)}\n" for key, text in entries.items())


@lru_cache(maxsize=4096)
def _yaml_scalar(text: str) -> str:
    """The text bare where every version of YAML reads it back as a string, else in double quotes."""
    if _AMBIGUOUS.fullmatch(text):
        return json.dumps(text)
    if _WORD.fullmatch(text) and _YAML.resolve(yaml.ScalarNode, text, (True, False)) == _STRING:  # type: ignore[no-untyped-call]
        return text  # What nearly every name is; reading it as YAML would take a millisecond.
    try:
        bare = yaml.safe_load(text) == text
    except (yaml.YAMLError, ValueError):
        bare = False
    return text if bare else json.dumps(text)
