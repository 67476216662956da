"""Write a decision: bind requests and evictions at once, then status and events.

A write is assumed when it starts (`cache.assumed`), so the next cycle does not wait for the response.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from pykai.model.plan import Key
from pykai.objects.kinds import BindRequest, Pod
from pykai.scheduler.binds import BindWriter
from pykai.scheduler.decision import Decision
from pykai.scheduler.evictions import EvictionWriter
from pykai.scheduler.status import about_pod
from pykai.scheduler.writer_context import InFlightWrites, WriterContext

log = structlog.get_logger(component="scheduler")


@dataclass(frozen=True)
class WriteConcurrency:
    """The maximum number of concurrent writes of each kind."""

    binds: int = 32
    evictions: int = 16


class Writer:
    """Starts writes without waiting for them."""

    def __init__(self, context: WriterContext, concurrency: WriteConcurrency | None = None) -> None:
        self._context = context
        self._concurrency = concurrency or WriteConcurrency()
        self._placer = BindWriter(context, self._concurrency.binds)
        self._evicter = EvictionWriter(context, self._concurrency.evictions)
        self._nominated: dict[Key, str] = {}
        self.in_flight = InFlightWrites()

    def carry_out(self, decision: Decision) -> None:
        """Start writing a decision."""
        now, assumptions, params = self._context.access.clock(), self._context.assumptions, decision.snapshot.params
        for binding in decision.bindings:
            assumptions.bind(binding.request, binding.pod.metadata.uid)
            self._context.status.placed(binding.bind.pod)
            self.in_flight.start(self._placer.place(binding, params))
        for eviction in decision.evictions:
            assumptions.evict(eviction.pod, now)
            self.in_flight.start(self._evicter.evict(eviction, params))
        for request in decision.missing_node:
            why = f"node {request.spec.selected_node} does not exist"
            self.in_flight.start(self._placer.delete(request, why))
        self._nominate(decision)
        self._context.status.write_timestamps(decision.plan.timestamps)
        self._context.status.update(decision.conditions)

    def give_up(self, failed: Iterable[tuple[BindRequest, Pod | None]]) -> None:
        """Delete `failed` bind requests (pod None: it is gone) and those that could not be deleted before."""
        for request, why in self._placer.remaining():
            self.in_flight.start(self._placer.delete(request, why))
        for request, pod in failed:
            self._placer.given_up(request, pod)
            self.in_flight.start(self._placer.delete(request, f"binding failed: {request.status.reason}"))

    def confirm(self, orders: Iterable[BindRequest]) -> None:
        """Check with the API server bind requests that were written but that no watch has shown."""
        for order in orders:
            self.in_flight.start(self._placer.confirm(order))

    def _nominate(self, decision: Decision) -> None:
        """Record an event once per pod and nominated node; pods evicted to move have the eviction event instead."""
        leaving = {eviction.evict.pod for eviction in decision.evictions}
        nominated = {each.pod: each.node for each in decision.plan.nominations if each.pod not in leaving}
        for pod, node in nominated.items():
            if self._nominated.get(pod) != node:
                about, title = about_pod(decision.pods[pod]), decision.pods[pod].metadata.title
                self._context.access.recorder.record(about, "Pipelined", f"Pod {title} was pipelined to node {node}")
                log.info("pod nominated", pod=title, node=node)
        self._nominated = nominated
