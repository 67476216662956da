"""The resource status of a PodGroup: the sum over its pods, and how much of it cannot be taken back.

The status is all or nothing: if the resources of one pod cannot be told (a claim or node that has not arrived yet),
there is no status to write, and the reason is raised for the loop to retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pykai.cache.gangs import DEFAULT_PRIORITY, effective_preemptibility
from pykai.controllers.status.pods import Object, PodResourcesError, allocated, is_active, is_allocated, requested
from pykai.objects.units import ResourceList, sum_resources

_PREEMPTIBILITIES = frozenset({"preemptible", "non-preemptible"})


@dataclass(frozen=True)
class Surroundings:
    """The cluster objects that the status of a PodGroup depends on, beside its pods."""

    nodes: Mapping[str, Object]
    claims: Mapping[tuple[str, str], Object]
    """By (namespace, name)."""
    priority_classes: Sequence[Object]


def desired(group: Object, pods: Iterable[Object], around: Surroundings) -> dict[str, Any]:
    """The status fields of the group that this controller owns; a list without entries is left out."""
    parts = [_contribution(pod, around) for pod in pods if is_active(pod)]
    asked = sum_resources(chain.from_iterable(asked for asked, _ in parts))
    held = sum_resources(chain.from_iterable(held for _, held in parts))
    fixed = {} if is_preemptible(group, around.priority_classes) else held
    lists = {"requested": asked, "allocated": held, "allocatedNonPreemptible": fixed}
    return {"resourcesStatus": {name: resources for name, resources in lists.items() if resources}}


def _contribution(pod: Object, around: Surroundings) -> tuple[list[ResourceList], list[ResourceList]]:
    """What the pod asks for and what it holds; an error names the pod."""
    try:
        claims = _claims_of(pod, around.claims)
        node = around.nodes.get(pod["spec"].get("nodeName", ""))
        return requested(pod, claims), allocated(pod, claims, node) if is_allocated(pod) else []
    except PodResourcesError as error:
        name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata'].get('name', '')}"
        raise PodResourcesError(f"pod {name}: {error}") from error


def is_preemptible(group: Object, priority_classes: Sequence[Object]) -> bool:
    """Whether the group's pods may be evicted for others: as it says, else by its priority."""
    stated = group["spec"].get("preemptibility") or ""
    priority = _priority(group["spec"].get("priorityClassName", ""), priority_classes)
    return effective_preemptibility(stated if stated in _PREEMPTIBILITIES else "", priority)


def _priority(class_name: str, classes: Sequence[Object]) -> int:
    """The value of the named class, else of the cluster's default class, else the system's default."""
    named = [each for each in classes if each["metadata"]["name"] == class_name]
    default = [each for each in classes if each.get("globalDefault")]
    found = named or default
    return int(found[0].get("value", 0)) if found else DEFAULT_PRIORITY


def _claims_of(pod: Object, claims: Mapping[tuple[str, str], Object]) -> list[Object]:
    """The resource claims the pod refers to, those made from a template through its status."""
    made = {each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses") or ()}
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry["name"] in made and made[entry["name"]] is None:
            continue  # The API server's way to say that this entry needs no claim.
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name is None:
            raise PodResourcesError(f"resource claim {entry['name']} has not been made from its template yet")
        key = (pod["metadata"].get("namespace", ""), name)
        if key not in claims:
            raise PodResourcesError(f"resource claim {name} does not exist")
        found.append(claims[key])
    return found
