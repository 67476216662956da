"""A moment as a viewer may see it: objects in hidden namespaces appear only in totals, without names.

All data of a page comes through a `RedactedView`. Names that the viewer may not see are also removed from free text,
such as the reason of an eviction, whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from pykai.dashboard.access import Viewer
from pykai.dashboard.board import Board, BoardSample, DecidedMoment, HistoryLine
from pykai.explain.device_map import DeviceMap, DeviceView, Holder, NodeView
from pykai.explain.views import Amount, EvictionView, QueueView, WorkloadView
from pykai.model.plan import Key
from pykai.model.resources import UNLIMITED

OTHERS = "other queues"
HIDDEN = "(hidden)"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?")
_NAMESPACE = re.compile(r"(?=.*[a-z])[a-z0-9-]+")
_FIGURES = ("gpu", "cpu", "memory")


class Hidden(msgspec.Struct, frozen=True):
    """Totals of workloads whose names are hidden."""

    workloads: int = 0
    pods: int = 0
    gpus: float = 0.0


class RedactedView:
    """A moment of a board, redacted for one viewer."""

    def __init__(self, board: Board, moment: DecidedMoment, viewer: Viewer, until: float | None = None) -> None:
        self.board, self.moment, self.viewer, self._until = board, moment, viewer, until

    @property
    def at(self) -> float:
        return self.moment.at

    # ----------------------------------------------------------------------------------------------------------- texts
    def text(self, text: str) -> str:
        """Return the text without names that the viewer may not see."""
        if self.viewer.sees_all or not text:
            return text
        secret = self._hidden_names
        return _NAME.sub(lambda found: HIDDEN if self._is_hidden(found[0], secret) else found[0], text)

    def _is_hidden(self, found: str, secret: frozenset[str]) -> bool:
        """Whether a token is a hidden name, or `namespace/name` in a hidden namespace, also of a deleted object."""
        namespace, slash, name = found.partition("/")
        if slash and "/" not in name and _NAMESPACE.fullmatch(namespace) and not self.viewer.sees(namespace):
            return True
        return found in secret or any(part in secret for part in found.split("/"))

    @cached_property
    def _hidden_names(self) -> frozenset[str]:
        """Return the hidden names that are not also visible ones."""
        snapshot, sees = self.moment.decided.snapshot, self.viewer.sees
        hidden, shown = set[str](), set[str]()
        keys = zip(snapshot.pods.namespaces, snapshot.pods.names, strict=True)
        groups = zip(snapshot.gangs.namespaces, snapshot.gangs.names, strict=True)
        for namespace, name in (*keys, *groups):
            (shown if sees(namespace) else hidden).update((namespace, name))
        past = ((each.namespace, each.pod, each.workload) for each in self.board.evictions())
        evictors = ((each.evictor_namespace, each.evictor) for each in self.board.evictions())
        for namespace, *rest in (*past, *evictors):
            (shown if sees(namespace) else hidden).update((namespace, *rest))
        if not self.viewer.queues:
            hidden.update(queue.name for queue in self.moment.overview.queues if queue.name not in self._visible_queues)
            hidden.update(
                queue.title for queue in self.moment.overview.queues if queue.name not in self._visible_queues
            )
        if not self.viewer.nodes:
            hidden.update(snapshot.nodes.names)
        return frozenset(hidden - shown - {""})

    # ---------------------------------------------------------------------------------------------------------- queues
    @cached_property
    def queues(self) -> tuple[QueueView, ...]:
        """Return the tree; hidden queues are merged into one row."""
        found = self.moment.overview.queues
        if self.viewer.queues:
            return found
        own = self._visible_queues
        shown = [self._visible_relations(queue) for queue in found if queue.name in own]
        rest = [queue for queue in found if queue.name not in own and queue.leaf]
        return (*shown, _merged(rest)) if rest else tuple(shown)

    @cached_property
    def _visible_queues(self) -> frozenset[str]:
        """Return the queues of visible workloads, and their ancestors."""
        gangs, queues = self.moment.decided.snapshot.gangs, self.moment.decided.snapshot.queues
        used = {gangs.queue[row] for row, namespace in enumerate(gangs.namespaces) if self.viewer.sees(namespace)}
        return frozenset(queues.names[above] for row in used if row >= 0 for above in queues.paths[row])

    def _visible_relations(self, queue: QueueView) -> QueueView:
        own = self._visible_queues
        return msgspec.structs.replace(
            queue,
            may_reclaim_from=tuple(name if name in own else OTHERS for name in queue.may_reclaim_from),
            may_lose_to=tuple(name if name in own else OTHERS for name in queue.may_lose_to),
        )

    def queue(self, name: str) -> QueueView | None:
        """Return a visible queue by name; None otherwise."""
        return next((queue for queue in self.queues if queue.name == name and name != OTHERS), None)

    def samples(self) -> Sequence[BoardSample]:
        """Return the samples of the queues over time."""
        found = self.board.samples()
        if self.viewer.queues:
            return found
        own = self._visible_queues
        return [
            BoardSample(each.at, each.gpus, {name: use for name, use in each.queues.items() if name in own})
            for each in found
        ]

    def _queue_name(self, name: str) -> str:
        return name if self.viewer.queues or name in self._visible_queues else OTHERS

    # ------------------------------------------------------------------------------------------------------- workloads
    @cached_property
    def waiting(self) -> tuple[Sequence[WorkloadView], Hidden]:
        """Return visible pending workloads in the order of service, and the totals of the others."""
        return self.split(self.moment.overview.waiting)

    def split(self, workloads: Iterable[WorkloadView]) -> tuple[Sequence[WorkloadView], Hidden]:
        """Return the visible workloads and the totals of the others."""
        found = list(workloads)
        if self.viewer.namespaces is None and self.viewer.sees_all:
            return found, Hidden()
        seen = [self._workload(each) for each in found if self.viewer.sees(each.namespace)]
        others = [each for each in found if not self.viewer.sees(each.namespace)]
        gpus = round(sum(each.requested.gpu for each in others), 4)
        return seen, Hidden(len(others), sum(each.pods for each in others), gpus)

    def _workload(self, workload: WorkloadView) -> WorkloadView:
        return msgspec.structs.replace(workload, message=self.text(workload.message))

    def workload(self, gang: Key) -> WorkloadView | None:
        """Return a visible workload; None if it is hidden or does not exist."""
        if not self.viewer.sees(gang[0]):
            return None
        found = self.moment.overview.workload(gang)
        return None if found is None else self._workload(found)

    def history(self, gang: Key) -> list[HistoryLine]:
        """Return the history of a workload."""
        found = self.board.history(gang, self._until) if self.viewer.sees(gang[0]) else ()
        return [msgspec.structs.replace(each, message=self.text(each.message)) for each in found]

    # --------------------------------------------------------------------------------------------------------- devices
    @cached_property
    def devices(self) -> DeviceMap:
        """Return the devices; only their totals if the viewer may not list nodes."""
        found = self.moment.devices
        if self.viewer.sees_all:
            return found
        if not self.viewer.nodes:
            return DeviceMap(found.totals, ())
        return DeviceMap(found.totals, tuple(map(self.node_view, found.nodes)))

    def node(self, name: str) -> NodeView | None:
        """Return a visible node by name; None otherwise."""
        row = self.moment.decided.snapshot.nodes.rows.get(name)
        return None if row is None or not self.viewer.nodes else self.node_view(self.moment.devices.nodes[row])

    def node_view(self, node: NodeView) -> NodeView:
        """Return the node without the names of hidden pods."""
        if self.viewer.sees_all:
            return node
        return msgspec.structs.replace(node, devices=tuple(map(self._device, node.devices)))

    def _device(self, device: DeviceView) -> DeviceView:
        holders = tuple(map(self._holder, device.holders))
        return device if holders == device.holders else msgspec.structs.replace(device, holders=holders)

    def _holder(self, holder: Holder) -> Holder:
        queue = self._queue_name(holder.queue) if holder.queue else ""
        if self.viewer.sees(holder.namespace):
            return holder if queue == holder.queue else msgspec.structs.replace(holder, queue=queue)
        return Holder("", "", "", queue, holder.share, holder.leaving)

    # ------------------------------------------------------------------------------------------------------- evictions
    @cached_property
    def evictions(self) -> tuple[Sequence[EvictionView], Hidden]:
        """Return visible evictions, newest first, and the totals of the others."""
        found = self.board.evictions(self._until)
        if self.viewer.sees_all:
            return found, Hidden()
        seen = [self._eviction(each) for each in found if self.viewer.sees(each.namespace)]
        others = [each for each in found if not self.viewer.sees(each.namespace)]
        workloads = {(each.namespace, each.workload) for each in others}
        return seen, Hidden(len(workloads), len(others), round(sum(each.gpus for each in others), 4))

    def _eviction(self, eviction: EvictionView) -> EvictionView:
        known = not eviction.evictor or self.viewer.sees(eviction.evictor_namespace)
        return msgspec.structs.replace(
            eviction,
            message=self.text(eviction.message),
            evictor=eviction.evictor if known else HIDDEN,
            evictor_namespace=eviction.evictor_namespace if known else "",
            evictor_queue=self._queue_name(eviction.evictor_queue) if eviction.evictor_queue else "",
        )


def _merged(queues: Sequence[QueueView]) -> QueueView:
    """Return the sum of hidden queues as one row."""

    def total(field: str) -> Amount:
        amounts = [getattr(queue, field) for queue in queues]
        sums = {}
        for figure in _FIGURES:
            values = [getattr(amount, figure) for amount in amounts]
            sums[figure] = UNLIMITED if UNLIMITED in values else round(sum(values), 4)
        return Amount(**sums)

    return QueueView(
        name=OTHERS,
        title=OTHERS,
        parent="",
        depth=0,
        leaf=True,
        priority=0,
        quota=total("quota"),
        fair_share=total("fair_share"),
        limit=Amount(UNLIMITED, UNLIMITED, UNLIMITED),
        over_quota_weight=0.0,
        allocated=total("allocated"),
        allocated_non_preemptible=total("allocated_non_preemptible"),
        requested=total("requested"),
        usage=Amount(),
        running=sum(queue.running for queue in queues),
        waiting=sum(queue.waiting for queue in queues),
        waiting_pods=sum(queue.waiting_pods for queue in queues),
    )
