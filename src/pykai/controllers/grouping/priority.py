"""Priority class and preemptibility of a pod group: labels first, then what the cluster's admin set per kind.

The admin's defaults are a ConfigMap whose key `types` holds a JSON list of
`{"typeName": "Deployment", "group": "apps", "priorityName": "inference", "preemptibility": "preemptible"}`. An entry
with a group is the better match; one without is for the kind in any group. An unreadable map counts as an empty one,
and an entry without a typeName as none: a typo must not stop every pod of the cluster (`ignored.py` tells).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from msgspec import DecodeError, Struct, json

from pykai.controllers.grouping.fields import Object, group_version_kind, labels_of, text_at
from pykai.controllers.grouping.lookup import ForbiddenError
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names

PREEMPTIBILITIES = frozenset({"", "preemptible", "non-preemptible"})


@dataclass(frozen=True)
class KindDefault:
    """What the admin set for one kind; empty = nothing."""

    priority_class: str = ""
    preemptibility: str = ""


KindDefaults = Mapping[str, KindDefault]


class _Entry(Struct, rename="camel"):
    """One entry of the list; null is absent."""

    type_name: str | None = None
    group: str | None = None
    priority_name: str | None = None
    preemptibility: str | None = None

    @property
    def key(self) -> str:
        return ".".join(filter(None, (self.type_name, self.group))) if self.type_name else ""


class UnreadableDefaultsError(ValueError):
    """The ConfigMap is missing or may not be read, or its `types` is not a JSON list of entries of texts."""


def kind_defaults(work: Workload) -> KindDefaults:
    """The admin's defaults by `Kind.group` or `Kind`; empty where there are none or they cannot be read.

    Under the empty key is what was said of no kind.
    """
    try:
        return read_kind_defaults(work)
    except UnreadableDefaultsError:
        return {}


def read_kind_defaults(work: Workload) -> KindDefaults:
    """The admin's defaults; raises UnreadableDefaultsError."""
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
        entries = json.decode(types, type=list[_Entry])
    except (DecodeError, UnicodeEncodeError) as error:
        raise UnreadableDefaultsError(f"data key types: {error}") from error
    return {
        entry.key: KindDefault(entry.priority_name or "", (entry.preemptibility or "").lower()) for entry in entries
    }


def default_for(owner: Object, defaults: KindDefaults) -> KindDefault:
    """What the admin set for an object's kind: the entry of `Kind.group`, else that of `Kind`."""
    group, _, kind = group_version_kind(owner)
    keys = (f"{kind}.{group}", kind) if kind else ()
    return next((defaults[key] for key in keys if key in defaults), KindDefault())


def priority_class(work: Workload) -> str:
    """The first class somebody asked for that exists, else the default of the workload's kind."""
    return next((wish for wish in priority_wishes(work) if wish and _exists(work, wish)), work.default_priority)


def priority_wishes(work: Workload) -> Iterator[str]:
    """Every class asked for, the strongest first; empty where an owner has no wish."""
    pod_wish = labels_of(work.pod).get(names.PRIORITY_CLASS_LABEL) or text_at(work.pod, "spec", "priorityClassName")
    for owner in work.chain:
        yield labels_of(owner).get(names.PRIORITY_CLASS_LABEL) or pod_wish
    defaults = kind_defaults(work)
    for owner in work.chain:
        yield default_for(owner, defaults).priority_class


def _exists(work: Workload, priority: str) -> bool:
    return work.lookup.get("scheduling.k8s.io/v1", "PriorityClass", "", priority) is not None


def preemptibility(work: Workload, defaults: KindDefaults) -> str:
    """`preemptible`, `non-preemptible`, or empty to let the priority decide; other values are passed over."""
    return next((wish for wish in preemptibility_wishes(work, defaults) if wish in PREEMPTIBILITIES), "")


def preemptibility_wishes(work: Workload, defaults: KindDefaults) -> Iterator[str]:
    """Every value set, the strongest first; an empty label is a value, an empty default is not."""
    for obj in (*work.chain, work.pod):
        if names.PREEMPTIBILITY_LABEL in labels_of(obj):
            yield labels_of(obj)[names.PREEMPTIBILITY_LABEL]
    for owner in work.chain:
        if wish := default_for(owner, defaults).preemptibility:
            yield wish
