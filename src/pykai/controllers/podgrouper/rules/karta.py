"""Grouping by configuration: a `Karta` object in the cluster describes a kind without a row in the table.

A Karta describes a tree of components: how many pods each has and which pods belong to it, by jq programs. Paths to
scale and instance ids are evaluated on the workload, those of pod selectors on the pod. A component has its own scale
times the sum of those of its children, or the one of the two that is stated. Where no component states a scale, each
with pods counts as one pod. A component without a selector in its subtree selects every pod.

There are two forms. `podGroup`: one group per workload, with named components as sub-groups. `podGroups`, the older
one: a pod is matched against members, and the values at the member's key paths, read from the pod, name its group. A
kind that no valid Karta describes, or more than one, is grouped by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.jq_sandbox import JqError, JqEvaluator
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupSpec,
    GroupTopology,
    SubGroupSpec,
    Workload,
    full_name,
    group_version_kind,
    map_at,
    maps_at,
    text_at,
    uid_of,
    value_at,
)
from pykai.kube.api import Object
from pykai.objects.names import is_subdomain

_SELECTOR_PATHS = (
    ("podSelector", "componentTypeSelector", "keyPath"),
    ("podSelector", "componentInstanceSelector", "idPath"),
)
_SCALE_FIELDS = ("minReplicasPath", "replicasPath")
_WORKLOAD_PATHS = (*(("scaleDefinition", field) for field in _SCALE_FIELDS), ("instanceIdPath",))

KARTA_API = "run.ai/v1alpha1"
_GANG = ("spec", "optimizationInstructions", "gangScheduling")


class KartaError(GroupingError):
    """The Karta is invalid or does not match its workload."""


@dataclass(frozen=True)
class Structure:
    """The components by name; `root` names the workload itself."""

    root: str
    components: Mapping[str, Object]
    jq: JqEvaluator

    def component(self, name: str) -> Object:
        if name not in self.components:
            raise KartaError(f"component {name} is not part of the structure")
        return self.components[name]

    def children(self, name: str) -> list[str]:
        return [child for child, definition in self.components.items() if text_at(definition, "ownerRef") == name]


def structure(karta: Object, jq: JqEvaluator) -> Structure:
    """Return the tree of a Karta; KartaError unless it is one tree of distinct components with valid programs."""
    root = map_at(karta, "spec", "structureDefinition", "rootComponent") or {}
    children = maps_at(karta, "spec", "structureDefinition", "childComponents") or []
    names = [text_at(definition, "name") for definition in (root, *children)]
    if not all(names) or len(set(names)) != len(names):
        raise KartaError(f"component names must be given and distinct, found {names}")
    found = Structure(names[0], dict(zip(names, (root, *children), strict=True)), jq)
    for name in names[1:]:
        _check_descent(found, name)
    paths = (*_SELECTOR_PATHS, *_WORKLOAD_PATHS)
    try:
        for program in (text_at(definition, *path) for definition in found.components.values() for path in paths):
            if program:
                jq.check(program)
    except JqError as error:
        raise KartaError(str(error)) from error
    return found


def _check_descent(found: Structure, name: str) -> None:
    seen: set[str] = set()
    current = name
    while current != found.root:
        if current in seen or current not in found.components:
            raise KartaError(f"component {name} does not descend from {found.root}: ownerRef leads to {current!r}")
        seen.add(current)
        current = text_at(found.components[current], "ownerRef")


def values(jq: JqEvaluator, program: str, obj: Object) -> list[Any]:
    """Return everything that a jq program yields for an object."""
    try:
        return jq.evaluate(program, obj)
    except JqError as error:
        raise KartaError(str(error)) from error


def scale(found: Structure, name: str, workload: Object, instance: str | None = None) -> int:
    """Return the pods of a component, or of one instance of it; 0 if nothing states how many."""
    if not any(map(_has_scale, found.components.values())):
        return sum(map_at(definition, "specDefinition") is not None for definition in _subtree(found, name))
    own = _own_scale(found, name, workload, instance)
    below = sum(scale(found, child, workload) for child in found.children(name))
    return own * below if own and below else own or below


def _has_scale(definition: Object) -> bool:
    return any(text_at(definition, "scaleDefinition", field) for field in _SCALE_FIELDS)


def _own_scale(found: Structure, name: str, workload: Object, instance: str | None) -> int:
    """Return the scale that a component itself states, 0 if it states none."""
    definition = found.component(name)
    minimum, replicas = (_counts(found.jq, definition, field, workload) for field in _SCALE_FIELDS)
    counts = [least or usual for least, usual in zip_longest(minimum, replicas, fillvalue=0)]
    id_path = text_at(definition, "instanceIdPath")
    if instance is None or not id_path:
        return sum(counts)
    identities = values(found.jq, id_path, workload)
    return sum(count for identity, count in zip(identities, counts, strict=False) if identity == instance)


def _counts(jq: JqEvaluator, definition: Object, field: str, workload: Object) -> list[int]:
    program = text_at(definition, "scaleDefinition", field)
    found = values(jq, program, workload) if program else []
    if not all(value is None or isinstance(value, int | float) for value in found):
        raise KartaError(f"{field} {program!r} yields {found}, expected numbers")
    return [int(value or 0) for value in found]


def owns(found: Structure, name: str, pod: Object) -> bool:
    """Whether the pod belongs to a component or to one below it."""
    subtree = _subtree(found, name)
    selecting = [definition for definition in subtree if any(text_at(definition, *path) for path in _SELECTOR_PATHS)]
    return not selecting or any(_selects(found.jq, definition, pod) for definition in selecting)


def _subtree(found: Structure, name: str) -> list[Object]:
    below = [definition for child in found.children(name) for definition in _subtree(found, child)]
    return [found.component(name), *below]


def _selects(jq: JqEvaluator, definition: Object, pod: Object) -> bool:
    key, identity = (text_at(definition, *path) for path in _SELECTOR_PATHS)
    wanted = map_at(definition, "podSelector", "componentTypeSelector") or {}
    if key and not _has(values(jq, key, pod), wanted.get("value")):
        return False
    return not identity or _has(values(jq, identity, pod), None)


def _has(found: list[Any], wanted: str | None) -> bool:
    return any(value is not None and wanted in (None, str(value)) for value in found)


# ---------------------------------------------------------------------------------------------------------- rule
def by_karta(work: Workload) -> GroupSpec:
    """Return the group that a Karta describes, else the default one."""
    found = candidates(work)
    return described(work, found[0]) if len(found) == 1 else defaults.with_batch_minimum(work)


def candidates(work: Workload) -> list[Object]:
    """Return the valid Kartas that describe the kind of the top owner."""
    group_, version, kind = group_version_kind(work.top)
    wanted = {"run.ai/karta-group": group_, "run.ai/karta-version": version, "run.ai/karta-kind": kind}
    return [karta for karta in work.lookup.list(KARTA_API, "Karta", "", wanted) if _describes(karta, work)]


def _describes(karta: Object, work: Workload) -> bool:
    try:
        root = map_at(karta, "spec", "structureDefinition", "rootComponent", "kind") or {}
        structure(karta, work.jq)
        has_gang = bool(_pod_group(karta) or _pod_groups(karta))
    except ValueError:
        return False
    is_root = tuple(root.get(part) or "" for part in ("group", "version", "kind")) == group_version_kind(work.top)
    return is_root and has_gang and value_at(karta, "metadata", "deletionTimestamp") is None


def _pod_group(karta: Object) -> Object | None:
    return map_at(karta, *_GANG, "podGroup")


def _pod_groups(karta: Object) -> list[Object]:
    return maps_at(karta, *_GANG, "podGroups") or []


def described(work: Workload, karta: Object) -> GroupSpec:
    """Return the group that one Karta describes; the default one if it has no gang."""
    spec = defaults.group(work)
    if (wanted := _pod_group(karta)) is not None:
        return _by_component(work, spec, structure(karta, work.jq), wanted)
    if wanted_groups := _pod_groups(karta):
        return _by_member(work, spec, structure(karta, work.jq), wanted_groups)
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
        return replace(spec, min_member=scale(found, found.root, work.top))
    parts = []
    for mapping in mappings:
        component = text_at(mapping, "componentName")
        parts.append(SubGroupSpec(component, _min_member(work, found, component), topology=_topology(mapping)))
    own = next((part for part in parts if owns(found, part.name, work.pod)), None)
    sub_groups = tuple(part.taking(work.pod_name) if part is own else part for part in parts)
    return replace(spec, min_member=0, min_sub_group=len(sub_groups), sub_groups=sub_groups)


def _min_member(work: Workload, found: Structure, component: str) -> int:
    pods = scale(found, component, work.top)
    if pods <= 0:
        raise KartaError(f"component {component} must expose a replica scale definition")
    return pods


def _topology(source: Object) -> GroupTopology | None:
    constraint = map_at(source, "topology")
    if constraint is None:
        return None
    keys = ("topologyName", "requiredTopologyLevel", "preferredTopologyLevel")
    topology = GroupTopology(*(text_at(constraint, key) for key in keys))
    if not (topology.name and topology.has_level):
        raise KartaError("a topology constraint must have a topologyName and a required or preferred level")
    return topology


# ------------------------------------------------------------------------------------------------ podGroups
def _by_member(work: Workload, spec: GroupSpec, found: Structure, wanted: list[Object]) -> GroupSpec:
    definition, member = _member_of(work, found, wanted)
    keys = [_key(work, path) for path in _key_paths(member)]
    name = "-".join(("pg", uid_of(work.top), *keys))
    if not is_subdomain(name):
        raise KartaError(f"pod {full_name(work.pod)}: {name!r} is not a valid name for a pod group")
    gang = [other for other in maps_at(definition, "members") or [] if _key_paths(other) == _key_paths(member)]
    pods = sum(_member_scale(work, found, other) for other in gang)
    return replace(spec, name=name, min_member=max(1, pods))


def _member_of(work: Workload, found: Structure, wanted: list[Object]) -> tuple[Object, Object]:
    """Return the first pod group definition, and its member, that matches the pod."""
    for definition in wanted:
        for member in maps_at(definition, "members") or []:
            if not owns(found, text_at(member, "componentName"), work.pod):
                continue
            results = (each for program in member.get("filters") or [] for each in values(work.jq, program, work.pod))
            if all(each is not None and each is not False for each in results):
                return definition, member
    raise KartaError(f"pod {full_name(work.pod)} does not match any Karta pod group member definition")


def _key_paths(member: Object) -> list[str]:
    return list(member.get("groupByKeyPaths") or [])


def _key(work: Workload, path: str) -> str:
    found = values(work.jq, path, work.pod)
    if len(found) != 1 or found[0] in (None, ""):
        raise KartaError(f"pod {full_name(work.pod)}: key path {path!r} yields {found}, expected one value")
    return str(found[0])


def _member_scale(work: Workload, found: Structure, member: Object) -> int:
    """Return the number of the component's pods, only of the pod's instance if instances are grouped separately."""
    component = text_at(member, "componentName")
    id_path = text_at(found.component(component), "podSelector", "componentInstanceSelector", "idPath")
    instance = _key(work, id_path) if id_path and id_path in _key_paths(member) else None
    return scale(found, component, work.top, instance)
