"""Kinds that only wrap another workload: the group is that of the workload inside.

What the user wrote on the wrapper still counts, wherever the inner object does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pykai.controllers.grouping.fields import (
    GroupingError,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    text_at,
)
from pykai.controllers.grouping.priority import default_for, kind_defaults
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names


def group(work: Workload, group_inner: Callable[[Workload], GroupSpec]) -> GroupSpec:
    """The group of the owner below the top one, or of the pod itself where there is none."""
    below = work.owners[:-1]
    inner = _with_missing(_inner_object(work, below), _inherited_labels(work), annotations_of(work.top))
    return group_inner(replace(work, top=inner, owners=(*below[:-1], inner) if below else ()))


def _inner_object(work: Workload, below: tuple[Object, ...]) -> Object:
    if not below:
        return work.pod
    owner = below[-1]
    home = namespace_of(owner) or namespace_of(work.pod)
    found = work.lookup.get(text_at(owner, "apiVersion"), text_at(owner, "kind"), home, name_of(owner))
    if found is None:
        raise GroupingError(f"{text_at(owner, 'kind')} {home}/{name_of(owner)} does not exist")
    return found


def _inherited_labels(work: Workload) -> dict[str, str]:
    """The admin's defaults for the wrapper's kind before the wrapper's own labels."""
    configured = default_for(work.top, kind_defaults(work))
    defaults = {
        names.PRIORITY_CLASS_LABEL: configured.priority_class,
        names.PREEMPTIBILITY_LABEL: configured.preemptibility,
    }
    return {**labels_of(work.top), **{key: value for key, value in defaults.items() if value}}


def _with_missing(obj: Object, more_labels: Mapping[str, str], more_annotations: Mapping[str, str]) -> Object:
    metadata = {
        **(obj.get("metadata") or {}),
        "labels": {**more_labels, **labels_of(obj)},
        "annotations": {**more_annotations, **annotations_of(obj)},
    }
    return {**obj, "metadata": metadata}
