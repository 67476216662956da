"""Queue objects -> QueueTable. A queue without its parent is left out with its subtree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pykai.model.resources import QUEUE_RESOURCES, UNLIMITED
from pykai.model.snapshot import QueueTable
from pykai.objects.kinds import ObjectMeta, Queue, QueueResource, QueueResources, QueueSpec
from pykai.objects.units import parse_duration

DEFAULT_PRIORITY = 100
MEGABYTE = 1e6
_FREE = QueueResource(quota=UNLIMITED, limit=UNLIMITED, over_quota_weight=1.0)
_COMMON_PARENT = Queue(
    metadata=ObjectMeta(name="default"),
    spec=QueueSpec(resources=QueueResources(cpu=_FREE, memory=_FREE, gpu=_FREE)),
)


def reachable(queues: Iterable[Queue]) -> list[Queue]:
    """Queues whose every ancestor exists and which are in no circle, in name order."""
    by_name = {queue.metadata.name: queue for queue in queues}
    parents = _parents(queues)
    return [by_name[name] for name in sorted(by_name) if _missing(parents, name) is None]


def _left_out(queues: Iterable[Queue], kept: Mapping[str, int]) -> dict[str, str]:
    """Queues that are not kept, and which queue above each is missing; empty where they form a circle."""
    parents = _parents(queues)
    return {name: _missing(parents, name) or "" for name in parents.keys() - kept.keys()}


def _parents(queues: Iterable[Queue]) -> dict[str, str]:
    return {queue.metadata.name: queue.spec.parent_queue for queue in queues}


def _missing(parents: Mapping[str, str], name: str) -> str | None:
    """The first queue above this one that does not exist, empty where it comes back to itself; None: all exist."""
    seen = set[str]()
    while name in parents and name not in seen:
        seen.add(name)
        name = parents[name]
        if not name:
            return None
    return "" if name in parents else name


def flattened(queues: Iterable[Queue]) -> list[Queue]:
    """Without full-hierarchy fairness all queues that have a parent share one common parent."""
    leaves = [queue for queue in queues if queue.spec.parent_queue]
    common = _COMMON_PARENT.metadata.name
    moved = [
        Queue(
            metadata=queue.metadata,
            spec=QueueSpec(
                display_name=queue.spec.display_name,
                parent_queue=common,
                resources=queue.spec.resources,
                priority=queue.spec.priority,
                preempt_min_runtime=queue.spec.preempt_min_runtime,
                reclaim_min_runtime=queue.spec.reclaim_min_runtime,
            ),
        )
        for queue in leaves
        if queue.metadata.name != common
    ]
    return [_COMMON_PARENT, *moved]


def queue_table(
    queues: Sequence[Queue], usage: Mapping[str, tuple[float, float, float]], full_hierarchy: bool
) -> QueueTable:
    """`usage`: queue name -> normalised historical use of (cpu, memory, gpu)."""
    considered = queues if full_hierarchy else flattened(queues)
    kept = reachable(considered)
    names = [queue.metadata.name for queue in kept]
    rows = {name: row for row, name in enumerate(names)}
    parent = [rows[queue.spec.parent_queue] if queue.spec.parent_queue else -1 for queue in kept]
    children: list[list[int]] = [[] for _ in kept]
    for row, above in enumerate(parent):
        if above >= 0:
            children[above].append(row)
    return QueueTable(
        names=names,
        titles=[queue.spec.display_name or queue.metadata.name for queue in kept],
        rows=rows,
        parent=parent,
        children=children,
        deserved=_column(kept, "quota"),
        limit=_column(kept, "limit"),
        weight=_column(kept, "over_quota_weight", unit=1.0),
        usage=np.array([usage.get(name, (0.0, 0.0, 0.0)) for name in names]).reshape(-1, QUEUE_RESOURCES).T.copy(),
        priority=[DEFAULT_PRIORITY if queue.spec.priority is None else queue.spec.priority for queue in kept],
        creation=[_created(queue) for queue in kept],
        preempt_min_runtime=[_runtime(queue.spec.preempt_min_runtime) for queue in kept],
        reclaim_min_runtime=[_runtime(queue.spec.reclaim_min_runtime) for queue in kept],
        paths=[tuple(_path(row, parent)) for row in range(len(kept))],
        left_out=_left_out(considered, rows),
    )


def _column(queues: Sequence[Queue], field: str, unit: float = MEGABYTE) -> np.ndarray:
    """[resource, queue] of one field; memory in bytes, anything below -1 clipped to unlimited."""
    nothing = QueueResources()
    resources = [queue.spec.resources or nothing for queue in queues]
    block = np.array(
        [[float(getattr(getattr(r, name), field)) for r in resources] for name in ("cpu", "memory", "gpu")]
    ).reshape(QUEUE_RESOURCES, len(queues))
    block[1] = np.where(block[1] > 0, block[1] * unit, block[1])
    return block if field == "over_quota_weight" else np.maximum(block, UNLIMITED)


def _created(queue: Queue) -> float:
    created = queue.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def _runtime(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _path(row: int, parent: Sequence[int]) -> Iterable[int]:
    while row >= 0:
        yield row
        row = parent[row]
