"""Grouping without code: a `Karta` object in the cluster describes a kind we do not know.

Two forms. `podGroup`: one group per workload, with named components as sub-groups. `podGroups`, the older one: a pod is
matched against members, and the values at the member's key paths, read from the pod, name its group. A kind that no
valid Karta describes, or more than one, is grouped by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import (
    Object,
    full_name,
    group_version_kind,
    map_at,
    maps_at,
    text_at,
    uid_of,
    value_at,
)
from pykai.controllers.grouping.karta_structure import KartaError, Structure, owns, scale, structure, values
from pykai.controllers.grouping.spec import GroupSpec, SubGroup, Topology
from pykai.controllers.grouping.workload import Workload
from pykai.objects.names import is_subdomain

KARTA_API = "run.ai/v1alpha1"
_GANG = ("spec", "optimizationInstructions", "gangScheduling")


def group(work: Workload) -> GroupSpec:
    """The group that a Karta describes, else the default one."""
    found = candidates(work)
    return described(work, found[0]) if len(found) == 1 else default.group(work)


def candidates(work: Workload) -> list[Object]:
    """The valid Kartas that tell how to group the kind of the top owner."""
    group_, version, kind = group_version_kind(work.top)
    wanted = {"run.ai/karta-group": group_, "run.ai/karta-version": version, "run.ai/karta-kind": kind}
    return [karta for karta in work.lookup.list(KARTA_API, "Karta", "", wanted) if _describes(karta, work.top)]


def _describes(karta: Object, top: Object) -> bool:
    try:
        root = map_at(karta, "spec", "structureDefinition", "rootComponent", "kind") or {}
        structure(karta)
        has_gang = bool(_pod_group(karta) or _pod_groups(karta))
    except ValueError:
        return False
    is_root = tuple(root.get(part) or "" for part in ("group", "version", "kind")) == group_version_kind(top)
    return is_root and has_gang and value_at(karta, "metadata", "deletionTimestamp") is None


def _pod_group(karta: Object) -> Object | None:
    return map_at(karta, *_GANG, "podGroup")


def _pod_groups(karta: Object) -> list[Object]:
    return maps_at(karta, *_GANG, "podGroups") or []


def described(work: Workload, karta: Object) -> GroupSpec:
    """The group one Karta describes; the default one where it says nothing about gangs."""
    spec = default.group(work)
    if (wanted := _pod_group(karta)) is not None:
        return _by_component(work, spec, structure(karta), wanted)
    if wanted_groups := _pod_groups(karta):
        return _by_member(work, spec, structure(karta), wanted_groups)
    return spec


# ------------------------------------------------------------------------------------------------- podGroup
def _by_component(work: Workload, spec: GroupSpec, found: Structure, wanted: Object) -> GroupSpec:
    spec = replace(
        spec,
        name=f"pg-{uid_of(work.top)}-{text_at(wanted, 'name')}",
        topology=_topology(wanted) or spec.topology,
    )
    mappings = maps_at(wanted, "subGroups") or []
    if not mappings:
        return replace(spec, min_member=_needed(work, found, found.root))
    sub_groups = _placed(work, found, [_sub_group(work, found, mapping) for mapping in mappings])
    return replace(spec, min_member=0, min_sub_group=len(sub_groups), sub_groups=sub_groups)


def _sub_group(work: Workload, found: Structure, mapping: Object) -> SubGroup:
    component = text_at(mapping, "componentName")
    return SubGroup(component, _needed(work, found, component), topology=_topology(mapping))


def _needed(work: Workload, found: Structure, component: str) -> int:
    pods = scale(found, component, work.top)
    if pods <= 0:
        raise KartaError(f"component {component} must expose a replica scale definition")
    return pods


def _placed(work: Workload, found: Structure, sub_groups: list[SubGroup]) -> tuple[SubGroup, ...]:
    own = next((sub_group for sub_group in sub_groups if owns(found, sub_group.name, work.pod)), None)
    return tuple(part.taking(work.pod_name) if part is own else part for part in sub_groups)


def _topology(source: Object) -> Topology | None:
    wish = map_at(source, "topology")
    if not wish:
        return None
    return Topology(
        text_at(wish, "topologyName"),
        text_at(wish, "requiredTopologyLevel"),
        text_at(wish, "preferredTopologyLevel"),
    )


# ------------------------------------------------------------------------------------------------ podGroups
def _by_member(work: Workload, spec: GroupSpec, found: Structure, wanted: list[Object]) -> GroupSpec:
    definition, member = _membership(work, found, wanted)
    keys = [_key(work, path) for path in _key_paths(member)]
    name = "-".join(("pg", uid_of(work.top), *keys))
    if not is_subdomain(name):
        raise KartaError(f"pod {full_name(work.pod)}: {name!r} is not a valid name for a pod group")
    gang = [other for other in maps_at(definition, "members") or [] if _key_paths(other) == _key_paths(member)]
    pods = sum(_member_scale(work, found, other) for other in gang)
    return replace(spec, name=name, min_member=max(1, pods))


def _membership(work: Workload, found: Structure, wanted: list[Object]) -> tuple[Object, Object]:
    for definition, member in _members(wanted):
        if owns(found, text_at(member, "componentName"), work.pod) and _passes(member, work.pod):
            return definition, member
    raise KartaError(f"pod {full_name(work.pod)} does not match any Karta pod group member definition")


def _members(wanted: list[Object]) -> Iterator[tuple[Object, Object]]:
    for definition in wanted:
        for member in maps_at(definition, "members") or []:
            yield definition, member


def _passes(member: Object, pod: Object) -> bool:
    return all(all(_is_true(value) for value in values(program, pod)) for program in member.get("filters") or [])


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _key_paths(member: Object) -> list[str]:
    return list(member.get("groupByKeyPaths") or [])


def _key(work: Workload, path: str) -> str:
    found = values(path, work.pod)
    if len(found) != 1 or found[0] in (None, ""):
        raise KartaError(f"pod {full_name(work.pod)}: key path {path!r} yields {found}, expected one value")
    return str(found[0])


def _member_scale(work: Workload, found: Structure, member: Object) -> int:
    """Pods of the member's component; of the pod's own instance alone where instances are grouped apart."""
    component = text_at(member, "componentName")
    id_path = text_at(found.component(component), "podSelector", "componentInstanceSelector", "idPath")
    instance = _key(work, id_path) if id_path and id_path in _key_paths(member) else None
    return scale(found, component, work.top, instance)
