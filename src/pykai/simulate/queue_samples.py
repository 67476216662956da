"""Samples of the queues of a simulation: what their pods hold and request, and their fair shares in the last plan.

Amounts are sums over the pods, which the recorder adds and subtracts as pods come and go. A sample shows the state at
the end of an instant: it is taken when the first change of a later instant comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized

from msgspec import convert

from pykai.cache.requests import gpus_per_node
from pykai.kube.api import EventType, Object
from pykai.kube.api_resources import NODE, QUEUE, RESOURCE_SLICE
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.model.plan import Plan, QueueFigures, Triple
from pykai.model.resources import GPU
from pykai.model.snapshot import QueueTable, Snapshot
from pykai.objects import kinds, names
from pykai.objects.units import amount, milli
from pykai.simulate.history import History, QueueSample, Sample

NOTHING: Triple = (0.0, 0.0, 0.0)


class QueueTotals:
    """Amounts by queue, updated as pods come and go."""

    def __init__(self) -> None:
        self._totals: dict[str, list[float]] = {}
        self._rolled_up: tuple[Mapping[str, str], Mapping[str, Triple]] | None = None
        """The parents and the result of the last `rolled_up`; None after a change."""

    def add(self, queue: str, amounts: Triple, sign: int = 1) -> None:
        """Add a pod's amounts to its queue, or subtract them (`sign` -1)."""
        self._rolled_up = None
        total = self._totals.setdefault(queue, [0.0, 0.0, 0.0])
        for number, value in enumerate(amounts):
            total[number] += sign * value

    def rolled_up(self, parents: Mapping[str, str]) -> Mapping[str, Triple]:
        """Return the amounts of every queue including those of the queues below it."""
        if self._rolled_up is not None and self._rolled_up[0] is parents:
            return self._rolled_up[1]
        found: dict[str, list[float]] = {}
        for queue, total in self._totals.items():
            above, seen = queue, set[str]()
            while above and above not in seen:
                seen.add(above)
                mine = found.setdefault(above, [0.0, 0.0, 0.0])
                for number, value in enumerate(total):
                    mine[number] += value
                above = parents.get(above, "")
        rounded = {queue: (round(a, 3), round(b, 3), round(c, 4)) for queue, (a, b, c) in found.items()}
        self._rolled_up = parents, rounded
        return rounded


class QueueSampler:
    """Appends samples to a history; `waits` are the pods that wait. `on_sample` is called with each sample."""

    def __init__(self, watches: InformerFactory, history: History, waits: Sized, past_counts: bool) -> None:
        self.requested, self.allocated = QueueTotals(), QueueTotals()
        self.on_sample: Callable[[Sample], None] = lambda _: None
        self.table: QueueTable | None = None
        """The queues of the last cycle, including queues of the scheduler without an object."""
        self._history = history
        self._waits = waits
        self._past_counts = past_counts
        self._queues = watches.of(QUEUE, Object)
        self._nodes = watches.of(NODE, Object)
        self._slices = watches.of(RESOURCE_SLICE, Object)
        self._capacity: Triple | None = None
        self._parents: Mapping[str, str] | None = None
        self._shares: Mapping[str, QueueFigures] = {}
        self._unsampled_since: float | None = None

    async def follow(self, now: Callable[[], float]) -> None:
        """Follow the capacity of the cluster and the queues, but for their status, which changes with every pod."""

        def queue_changed(change: WatchChange[Object]) -> None:
            if change.old is None or change.type is EventType.DELETED or _parent(change.old) != _parent(change.object):
                self.before_change(now())
                self._parents = None

        def capacity_changed(change: WatchChange[Object]) -> None:
            self.before_change(now())
            self._capacity = None

        await self._queues.synced()
        self._queues.subscribe(queue_changed)
        for watch in (self._nodes, self._slices):
            await watch.synced()
            watch.subscribe(capacity_changed)

    def current(self) -> Mapping[str, Object]:
        """Return the queues as they are now."""
        return {name: queue for (_, name), queue in self._queues.items()}

    def observe(self, snapshot: Snapshot, plan: Plan) -> None:
        """Note the queues of a cycle."""
        self._shares = {queue.name: queue for queue in plan.queues}
        self.table = snapshot.queues

    def before_change(self, now: float) -> None:
        """Take the sample of the current state before its first change at a later instant."""
        if self._unsampled_since is not None and now > self._unsampled_since:
            self._sample(self._unsampled_since)
        self._unsampled_since = now

    def finish(self, now: float) -> None:
        """Take the last samples."""
        if self._unsampled_since is not None:
            self._sample(self._unsampled_since)
        self._sample(now)

    def _sample(self, at: float) -> None:
        if self._parents is None:
            self._parents = {name: _parent(queue) for name, queue in self.current().items()}
        parents = self._parents
        allocated, requested = self.allocated.rolled_up(parents), self.requested.rolled_up(parents)
        roots = [name for name, above in parents.items() if not above]
        decided = self.table.names if self.table is not None else ()
        shown = [*parents, *(name for name in decided if name not in parents)]
        samples = self._history.samples
        last = samples[-1].queues if samples else {}
        found = Sample(
            at=round(at, 3),
            queues={name: self._queue_sample(name, allocated, requested, last.get(name)) for name in shown},
            gpus_used=round(sum(allocated.get(name, NOTHING)[GPU] for name in roots), 4),
            capacity=self._current_capacity(),
            waiting=len(self._waits),
        )
        if samples and samples[-1].at == found.at:
            samples.pop()
        samples.append(found)
        self.on_sample(found)

    def _queue_sample(
        self,
        name: str,
        allocated: Mapping[str, Triple],
        requested: Mapping[str, Triple],
        last: QueueSample | None,
    ) -> QueueSample:
        """Return the sample of a queue: the last one, if nothing has changed."""
        share = self._shares.get(name)
        past = (share.usage if share else NOTHING) if self._past_counts else None
        fair = share.fair_share if share else NOTHING
        found = QueueSample(fair, allocated.get(name, NOTHING), requested.get(name, NOTHING), past)
        return last if last is not None and last == found else found

    def _current_capacity(self) -> Triple:
        if self._capacity is None:
            offered = [(node.get("status") or {}).get("allocatable") or {} for _, node in self._nodes.items()]
            self._capacity = (
                sum(milli(row.get("cpu", 0)) for row in offered),
                sum(amount(row.get("memory", 0)) for row in offered),
                sum(amount(row.get(names.NVIDIA_GPU, 0)) for row in offered) + self._claimable(),
            )
        return self._capacity

    def _claimable(self) -> int:
        """Return the GPUs of nodes that resource claims can allocate."""
        slices = [convert(each, kinds.ResourceSlice) for _, each in self._slices.items()]
        return sum(count for node, count in gpus_per_node(slices).items() if self._nodes.get(node) is not None)


def _parent(queue: Object) -> str:
    return (queue.get("spec") or {}).get("parentQueue") or ""
