"""dynamicresources: pods whose resources come as claims on devices (spec/scheduling.md §14).

The books of a cycle are opened once, before the first action, and only where the cluster has something for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import ANY, Refusal, Rejection
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, Column, Mask, Rows
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.plugins.dra.books import Books, open_books
from pykai.plugins.dra.claims import unavailable
from pykai.plugins.dra.extended import served_names, wanted_names

_BOOKS = "dynamicresources"


def books_of(cycle: Cycle) -> Books | None:
    """The books of the cycle; None where DRA is off or nothing in the cluster needs it."""
    books: Books | None = cycle.memo.get(_BOOKS)
    return books


@dataclass(frozen=True)
class DynamicResources:
    """Gate, filter and observer for claims; all answer at once for pods without any."""

    def start(self, cycle: Cycle) -> None:
        books = open_books(cycle)
        if books is not None:
            cycle.memo[_BOOKS] = books

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None:
        claims = cycle.trial.of_class(pod).template.claims
        if not claims:
            return None
        books = books_of(cycle)
        if books is None:
            return Refusal(unavailable(cycle.snapshot.pods.title(pod), claims))
        reason = books.refuse(pod)
        return None if reason is None else Refusal(reason)

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        if pod_class.shared or not pod_class.devices or not snapshot.nodes.dra_gpus.any():
            return ANY
        return frozenset(wanted_names(pod_class.template))

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        """Nodes whose GPUs are devices of a driver take plain GPU requests only through a device class."""
        nodes = snapshot.nodes
        if pod_class.devices and not pod_class.shared and nodes.dra_gpus.any():
            served = served_names(snapshot.objects.device_classes)
            unserved = sorted(n for n in wanted_names(pod_class.template) if n.endswith("gpu") and n not in served)
            if unserved:
                bare = (nodes.dra_gpus > 0) & (nodes.allocatable[GPU] - nodes.dra_gpus <= 0)
                yield f"node(s) offer {unserved[0]} neither by a device plugin nor by a device class", bare

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        books = books_of(cycle)
        return books is not None and (bool(pod_class.template.claims) or books.extends(pod_class))

    def reject(self, cycle: Cycle, pod: int, node: int) -> str | None:
        books = books_of(cycle)
        return None if books is None else books.reject(pod, node)

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        books = books_of(cycle)
        return () if books is None else books.closed(pod)

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool:
        books = books_of(cycle)
        return books is not None and books.would_wait(pod, node)

    def late(self, cycle: Cycle, pod: int) -> Mask | None:
        """Nodes where something that the pod's claims need is still being released."""
        books = books_of(cycle)
        if books is None or not books.ledger.awaited():
            return None
        return books.late(pod, np.flatnonzero(cycle.rankings.of(cycle.trial.of_class(pod)).fits_now))

    def relieves(self, cycle: Cycle) -> bool:
        books = books_of(cycle)
        return books is not None and books.relieves()

    def spared(self, cycle: Cycle, pod_class: PodClass, nodes: Rows) -> Column | None:
        books = books_of(cycle)
        return None if books is None else books.spared(pod_class, nodes)

    def placed(self, cycle: Cycle, pod: int, node: int) -> None:
        books = books_of(cycle)
        if books is None or not self.concerns(cycle, cycle.trial.of_class(pod)):
            return
        if cycle.trial.status[pod] in (Status.ALLOCATED, Status.PIPELINED):
            books.take(pod, node)
            # A place of this cycle that was taken back and given again may come with other devices.
            if cycle.trial.status[pod] == Status.ALLOCATED and books.waits(pod):
                cycle.trial.wait_instead(pod)
        else:
            books.stay(pod)
        books.sharing.settle(pod)

    def evicted(self, cycle: Cycle, pod: int) -> None:
        books = books_of(cycle)
        if books is not None:
            books.leave(pod)
            books.sharing.settle(pod)

    def unchanged(self, cycle: Cycle, pod: int, node: int) -> bool:
        books = books_of(cycle)
        return books is None or books.can_stay(pod)

    def claims(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        return allocations(cycle, pod)

    def zones(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, str]]]:
        return ()

    def extended_claim(self, cycle: Cycle, pod: int) -> Mapping[str, Any] | None:
        return extended_allocation(cycle, pod)


def allocations(cycle: Cycle, pod: int) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """(claim name in the pod, AllocationResult) of every claim of a pod that has a node."""
    books = books_of(cycle)
    return () if books is None else books.allocations(pod)


def extended_allocation(cycle: Cycle, pod: int) -> Mapping[str, Any] | None:
    """What the binder needs to make the claim for a pod's extended resources; None where the pod needs none."""
    books = books_of(cycle)
    return None if books is None else books.extended_allocation(pod)


def claim_statuses(cycle: Cycle) -> dict[tuple[str, str], dict[str, Any]]:
    """Each claim's status once the plan is carried out and evicted pods are gone; pods that wait get nothing yet."""
    books = books_of(cycle)
    return {} if books is None else books.claim_statuses()
