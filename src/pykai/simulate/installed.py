"""What an installation brings along, for manifests that rely on it: priority classes, and queues if there are none."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.objects import names
from pykai.simulate.generate import manifest, queue
from pykai.simulate.manifests import Manifest, Object

PRIORITIES = {
    "train": 50,
    "build-preemptible": 75,
    "build": 100,
    "inference": 125,
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""Those of the chart, and those that every cluster has."""
PARENT_QUEUE = "default-parent-queue"
SOURCE = "installed"
"""Where these objects come from, in messages."""


def missing(among: Sequence[Manifest]) -> list[Manifest]:
    """The installed objects that these manifests do not define themselves."""
    known = {one.title for one in among}
    objects = [_priority_class(name, value) for name, value in PRIORITIES.items()]
    if not any(one.obj.get("kind") == "Queue" for one in among):
        objects += [queue(PARENT_QUEUE, "", 0), queue(names.DEFAULT_QUEUE, PARENT_QUEUE, 0)]
    found = [manifest(SOURCE, number, obj) for number, obj in enumerate(objects)]
    return [one for one in found if one.title not in known]


def _priority_class(name: str, value: int) -> Object:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
