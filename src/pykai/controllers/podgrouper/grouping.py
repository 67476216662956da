"""From a pod to its group: the chain of owner references, the rule of the workload's kind, and ignored settings.

An owner that may not be read (RBAC) ends the chain below it. Every other problem of the chain is an error, because an
incomplete chain would put pods into the wrong gang. An invalid label must not keep a pod from running: no rule fails on
one, and `ignored_settings` lists them for an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pykai.controllers.podgrouper.rules import karta, native
from pykai.controllers.podgrouper.rules.defaults import (
    PREEMPTIBILITIES,
    TRUTH,
    UnreadableDefaultsError,
    read_kind_defaults,
    readable_seconds,
)
from pykai.controllers.podgrouper.rules.workload import (
    ForbiddenError,
    GroupingError,
    GroupingSettings,
    GroupSpec,
    ObjectLookup,
    Workload,
    annotations_of,
    full_name,
    group_version_kind,
    labels_of,
    name_of,
    namespace_of,
    owner_references,
    text_at,
    uid_of,
    value_at,
)
from pykai.controllers.podgrouper.rules.workload_kinds import group_workload, known
from pykai.kube.api import Object
from pykai.objects import names


@dataclass(frozen=True)
class Ownership:
    """The top owner, and all owners from the direct one up to it; a pod without owners is its own top owner."""

    top: Object
    owners: tuple[Object, ...]


def ownership(pod: Object, lookup: ObjectLookup) -> Ownership:
    """Return the owners of a pod; GroupingError if the chain is broken, forked or a cycle."""
    owners: list[Object] = []
    seen: set[tuple[str, str]] = set()
    references = owner_references(pod)[:1]
    while references:
        try:
            owner = _read_owner(references[0], namespace_of(pod), lookup)
        except ForbiddenError:
            break
        identity = text_at(owner, "kind"), full_name(owner)
        if identity in seen:
            raise GroupingError(f"{_title(owner)} is its own owner")
        seen.add(identity)
        owners.append(owner)
        references = owner_references(owner)
        if len(references) > 1:
            several = ", ".join(f"{text_at(ref, 'kind')} {text_at(ref, 'name')}" for ref in references)
            raise GroupingError(f"found {_title(owner)} with multiple owners: [{several}]")
    return Ownership(owners[-1] if owners else pod, tuple(owners))


def _read_owner(reference: Object, home: str, lookup: ObjectLookup) -> Object:
    kind, owner_name, wanted = (text_at(reference, key) for key in ("kind", "name", "uid"))
    owner = lookup.get(text_at(reference, "apiVersion"), kind, home, owner_name)
    missing = f"failed to find {kind}: <{home}/{owner_name}>, uid: <{wanted}>"
    if owner is None:
        raise GroupingError(f"{missing}: it does not exist")
    if uid_of(owner) != wanted:
        raise GroupingError(f"{missing}: Owner resource with uid {wanted} not found")
    return owner


def _title(owner: Object) -> str:
    return f"{text_at(owner, 'kind')} <{name_of(owner)} in namespace {namespace_of(owner)}>"


def skips_grouping(obj: Object) -> bool:
    """Whether this object (or pod) is annotated to opt its pods out of grouping."""
    return annotations_of(obj).get(names.SKIP_PODGROUPER) == "true"


def has_labels(labels: Mapping[str, str] | None, selector: Mapping[str, str] | None) -> bool:
    """Whether labels contain every entry of a selector; an empty selector selects everything."""
    return (selector or {}).items() <= (labels or {}).items()


def with_node_pool(spec: GroupSpec, pod: Object, settings: GroupingSettings) -> GroupSpec:
    """Return the group with the node pool of its pod, unless the workload names one."""
    key = settings.node_pool_label
    pool = labels_of(pod).get(key)
    return spec if pool is None or key in spec.labels else replace(spec, labels={**spec.labels, key: pool})


def pod_patch(spec: GroupSpec, pod: Object) -> Object | None:
    """Return the merge patch that assigns the pod to its group; None if up to date. A sub-group is never removed."""
    wanted: dict[str, dict[str, str]] = {}
    if annotations_of(pod).get(names.POD_GROUP_ANNOTATION) != spec.name:
        wanted["annotations"] = {names.POD_GROUP_ANNOTATION: spec.name}
    sub_group = spec.sub_group_of(namespace_of(pod), name_of(pod))
    if sub_group is not None and labels_of(pod).get(names.SUBGROUP_LABEL) != sub_group.name:
        wanted["labels"] = {names.SUBGROUP_LABEL: sub_group.name}
    return {"metadata": wanted} if wanted else None


def ignored_settings(work: Workload) -> list[str]:
    """Return one line per label, annotation or setting without effect: its name and what was expected."""
    lines = [line for obj in (*work.chain, work.pod) for line in _ignored_on_object(obj)]
    try:
        if "" in read_kind_defaults(work):
            lines.append("an entry of the defaults per kind ignored: it has no typeName")
    except UnreadableDefaultsError as error:
        lines.append(f"defaults per kind ignored: {error}")
    gvk = group_version_kind(work.top)
    found = [] if not work.settings.karta_fallback or known(*gvk) else karta.candidates(work)
    if len(found) > 1:
        several = ", ".join(sorted(text_at(one, "metadata", "name") for one in found))
        lines.append(f"Kartas ignored: {several} all describe {'/'.join(gvk)}, expected one")
    return [*lines, *native.ignored_settings(work)]


def _ignored_on_object(obj: Object) -> Iterator[str]:
    where = f"{text_at(obj, 'kind') or 'Pod'} {full_name(obj)}"
    preemptibility = labels_of(obj).get(names.PREEMPTIBILITY_LABEL, "")
    if preemptibility not in PREEMPTIBILITIES:
        yield (
            f"{where}: label {names.PREEMPTIBILITY_LABEL}={preemptibility} ignored: "
            "expected preemptible, semi-preemptible or non-preemptible"
        )
    consolidate = annotations_of(obj).get(names.SAFE_TO_CONSOLIDATE)
    if consolidate is not None and consolidate not in TRUTH:
        yield f"{where}: annotation {names.SAFE_TO_CONSOLIDATE}={consolidate} ignored: expected true or false"
    for key, may_be_negative in ((names.PREEMPTION_DELAY, False), (names.STALENESS_GRACE_PERIOD, True)):
        text = annotations_of(obj).get(key)
        seconds = None if text is None else readable_seconds(text)
        if text is not None and (seconds is None or (seconds < 0 and not may_be_negative)):
            wanted = "a duration" if may_be_negative else "a duration of at least 0s"
            yield f"{where}: annotation {key}={text} ignored: expected {wanted}, such as 90s or 5m"


def workload_of(pod: Object, lookup: ObjectLookup, settings: GroupingSettings) -> Workload | None:
    """Return the pod with its owners; None if the pod must not be grouped.

    Not grouped are pods of other schedulers, those that opt out, and those without owners that a user put in a group.
    """
    user_assigned = names.POD_GROUP_ANNOTATION in annotations_of(pod) and not owner_references(pod)
    user_assigned = user_assigned and not native.names_group(pod)
    if text_at(pod, "spec", "schedulerName") != settings.scheduler_name or skips_grouping(pod) or user_assigned:
        return None
    # Items of a list lack both fields, and an owner reference to the pod needs them.
    pod = {**pod, "apiVersion": pod.get("apiVersion") or "v1", "kind": pod.get("kind") or "Pod"}
    try:
        found = ownership(pod, lookup)
    except GroupingError:
        if value_at(pod, "metadata", "deletionTimestamp") is None:
            raise
        return None  # terminating, and its owners are already deleted
    if any(skips_grouping(owner) for owner in found.owners):
        return None
    return Workload(found.top, pod, found.owners, settings, lookup)


def group_of(work: Workload) -> GroupSpec:
    """Return the group of a pod with its node pool: from the group that the pod refers to, or by its owner's kind."""
    spec = (native.rule_of(work) or group_workload)(work)
    return with_node_pool(spec, work.pod, work.settings)
