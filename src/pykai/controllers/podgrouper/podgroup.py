"""PodGroup objects: created from a GroupSpec, merged with an existing one.

Settings made by users and other controllers on an existing group are kept: its queue, node pool, topology and
scheduling backoff. Labels and annotations are added, never removed. All functions return new objects.
"""

from __future__ import annotations

from typing import Any

from pykai.controllers.podgrouper.rules.workload import (
    POD_GROUP_API,
    GroupingSettings,
    GroupSpec,
    GroupTopology,
    SubGroupSpec,
    annotations_of,
    labels_of,
    owner_references,
    text_at,
)
from pykai.kube.api import Fields, Object
from pykai.objects import names, units

_KEPT_FIELDS = ("markUnschedulable", "schedulingBackoff", "queue")


def pod_group(spec: GroupSpec) -> Object:
    """Return the PodGroup for a spec."""
    metadata = {
        "name": spec.name,
        "namespace": spec.namespace,
        "labels": dict(spec.labels),
        "annotations": dict(spec.annotations),
        "ownerReferences": [dict(spec.owner)],
    }
    optional = {
        "queue": spec.queue,
        "priorityClassName": spec.priority_class,
        "preemptibility": spec.preemptibility,
        "preemptionDelay": _duration(spec.preemption_delay),
        "stalenessGracePeriod": _duration(spec.staleness_grace_period),
        "safeToConsolidate": spec.safe_to_consolidate,
        "subGroups": [_sub_group(sub_group) for sub_group in spec.sub_groups],
    }
    fields = {**_minimum(spec), **_filled(optional), "topologyConstraint": _topology(spec.topology)}
    return {"apiVersion": POD_GROUP_API, "kind": "PodGroup", "metadata": _filled(metadata), "spec": fields}


def _sub_group(sub_group: SubGroupSpec) -> Object:
    constraint = None if sub_group.topology is None else _topology(sub_group.topology)
    more = _filled({"parent": sub_group.parent, "topologyConstraint": constraint})
    return {"name": sub_group.name, **_minimum(sub_group), **more}


def _minimum(part: GroupSpec | SubGroupSpec) -> Object:
    return {"minMember": part.min_member} if part.min_sub_group is None else {"minSubGroup": part.min_sub_group}


def _topology(topology: GroupTopology) -> Object:
    return _filled(
        {
            "topology": topology.name,
            "requiredTopologyLevel": topology.required,
            "preferredTopologyLevel": topology.preferred,
        }
    )


def _filled(entries: Fields) -> Object:
    return {key: value for key, value in entries.items() if value not in (None, "", {}, [])}


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else units.render_duration(seconds)


def keeping_decisions(new: Object, old: Object, settings: GroupingSettings) -> Object:
    """Return the new group with the settings that are kept from the old one."""
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    spec = {key: value for key, value in new_spec.items() if key not in _KEPT_FIELDS}
    spec |= {key: old_spec[key] for key in _KEPT_FIELDS if old_spec.get(key) is not None}
    by_system = annotations_of(old).get(names.TOPOLOGY_SOURCE) == "system"
    if by_system or not text_at(new, "spec", "topologyConstraint", "topology"):
        spec["topologyConstraint"] = old_spec.get("topologyConstraint") or {}
    # Labels of node pool and queue are those of the old group, even if absent there.
    kept = (settings.node_pool_label, settings.queue_label, names.LEGACY_QUEUE_LABEL)
    labels = {key: value for key, value in labels_of(new).items() if key != settings.node_pool_label}
    labels |= {key: labels_of(old)[key] for key in kept if key in labels_of(old)}
    return {**new, "metadata": _filled({**(new.get("metadata") or {}), "labels": labels}), "spec": spec}


def merged(old: Object, new: Object) -> Object:
    """Return the old object with the spec and owner of the new one; labels and annotations are only added."""
    metadata = {
        **(old.get("metadata") or {}),
        "labels": {**labels_of(old), **labels_of(new)},
        "annotations": {**annotations_of(old), **annotations_of(new)},
        "ownerReferences": owner_references(new),
    }
    return {**old, "metadata": _filled(metadata), "spec": new.get("spec") or {}}


def is_same(old: Object, new: Object) -> bool:
    """Whether replacing the old object by the new one would change nothing relevant."""
    return (
        labels_of(new).items() <= labels_of(old).items()
        and annotations_of(new).items() <= annotations_of(old).items()
        and owner_references(new) == owner_references(old)
        and _canonical(old.get("spec")) == _canonical(new.get("spec"))
    )


def _canonical(value: Any) -> Any:
    """Return the value without empty fields, which some writers omit and others write."""
    if isinstance(value, dict):
        return _filled({key: _canonical(item) for key, item in value.items()})
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def pod_group_to_write(spec: GroupSpec, existing: Object | None, settings: GroupingSettings) -> Object | None:
    """Return the object to create or to replace the existing one; None if that is up to date."""
    wanted = pod_group(spec)
    if existing is None:
        return wanted
    wanted = keeping_decisions(wanted, existing, settings)
    return None if is_same(existing, wanted) else merged(existing, wanted)
