"""Who owns a pod: the chain of owner references from the pod upwards.

An owner we may not read ends the chain below it: the pod is grouped by what we can see. Everything else that is wrong
with the chain is an error, because grouping by half a chain would put pods in the wrong gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pykai.controllers.grouping.fields import (
    GroupingError,
    Object,
    annotations_of,
    full_name,
    name_of,
    namespace_of,
    owner_references,
    text_at,
    uid_of,
)
from pykai.controllers.grouping.lookup import ForbiddenError, Lookup
from pykai.objects import names


@dataclass(frozen=True)
class Ownership:
    """The top owner, and every owner from the direct one up to it; a pod without owners is its own top, alone."""

    top: Object
    owners: tuple[Object, ...]


def ownership(pod: Object, lookup: Lookup) -> Ownership:
    """Everything above a pod; raises GroupingError where the chain is broken, forked or a circle."""
    owners: list[Object] = []
    references = owner_references(pod)[:1]
    while references:
        try:
            owner = _fetched(references[0], namespace_of(pod), lookup)
        except ForbiddenError:
            break
        if any(_is_same(owner, seen) for seen in owners):
            raise GroupingError(f"{_described(owner)} is its own owner")
        owners.append(owner)
        references = _single(owner)
    return Ownership(owners[-1] if owners else pod, tuple(owners))


def _fetched(reference: Object, home: str, lookup: Lookup) -> Object:
    kind, owner_name, wanted = (text_at(reference, key) for key in ("kind", "name", "uid"))
    owner = lookup.get(text_at(reference, "apiVersion"), kind, home, owner_name)
    missing = f"failed to find {kind}: <{home}/{owner_name}>, uid: <{wanted}>"
    if owner is None:
        raise GroupingError(f"{missing}: it does not exist")
    if uid_of(owner) != wanted:
        raise GroupingError(f"{missing}: Owner resource with uid {wanted} not found")
    return owner


def _single(owner: Object) -> list[Object]:
    references = owner_references(owner)
    if len(references) > 1:
        several = ", ".join(f"{text_at(ref, 'kind')} {text_at(ref, 'name')}" for ref in references)
        raise GroupingError(f"found {_described(owner)} with multiple owners: [{several}]")
    return references


def _is_same(one: Object, other: Object) -> bool:
    return text_at(one, "kind") == text_at(other, "kind") and full_name(one) == full_name(other)


def _described(owner: Object) -> str:
    return f"{text_at(owner, 'kind')} <{name_of(owner)} in namespace {namespace_of(owner)}>"


def skips_grouping(obj: Object) -> bool:
    """Whether the user asked the grouper to leave the pods of this object (or this pod) alone."""
    return annotations_of(obj).get(names.SKIP_PODGROUPER) == "true"


def has_labels(labels: Mapping[str, str] | None, selector: Mapping[str, str] | None) -> bool:
    """Whether labels contain every entry of a selector; an empty selector selects everything."""
    return (selector or {}).items() <= (labels or {}).items()
