"""The status of a Queue: its children by name, and the resources of all PodGroups below it.

A queue sums the statuses of its direct children and of its own PodGroups only; sums climb the tree one level per
reconcile, so the loop has to visit the parent whenever a status below it changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pykai.objects.units import sum_resources

Object = Mapping[str, Any]

_LISTS = ("requested", "allocated", "allocatedNonPreemptible")


def desired(
    queue: Object, queues: Sequence[Object], groups: Sequence[Object], above: Collection[str] = ()
) -> dict[str, Any]:
    """The status fields of the queue that this controller owns; a list without entries is left out.

    `queues` and `groups` may hold others too: only children of the queue and groups in it count. `above` are the names
    of the queues above it: a child among them is part of a circle, and its sum would come round for ever.
    """
    name = queue["metadata"]["name"]
    children = [each for each in queues if each["spec"].get("parentQueue") == name]
    members = [each for each in groups if each["spec"].get("queue") == name]
    parts = [each.get("status") or {} for each in children if each["metadata"]["name"] not in above]
    parts += [(each.get("status") or {}).get("resourcesStatus") or {} for each in members]
    status: dict[str, Any] = {key: sum_resources(part.get(key) for part in parts) for key in _LISTS}
    status["childQueues"] = sorted(each["metadata"]["name"] for each in children)
    return {key: value for key, value in status.items() if value}
