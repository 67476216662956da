"""Signatures of what failed: who is not easier to place need not be searched for (spec/scheduling.md §16.1)."""

from __future__ import annotations

from collections.abc import Sequence

from pykai.engine.cycle import Cycle
from pykai.engine.shapes import ToldApart

Request = tuple[float, ...]
Requests = dict[str, list[Request]]
"""What pods demand of a node -> what each of those that demand it asks for, in order."""


class Failures:
    """Shapes for which no victims helped: a gang that is not easier to place need not be tried (§16.1)."""

    def __init__(self, cycle: Cycle, per_queue: bool, apart: ToldApart) -> None:
        self.cycle = cycle
        self.per_queue = per_queue
        self.apart = apart
        self._known: dict[object, Requests] = {}
        self._constraints: dict[int, str] = {}

    def hopeless(self, gang: int, pods: Sequence[int]) -> bool:
        if not self._known:
            return False
        requests = self._requests(pods)
        known = self._known.get(self._signature(gang, requests))
        return known is not None and not any(_easier(requests[demand], known[demand]) for demand in known)

    def remember(self, gang: int, pods: Sequence[int]) -> bool:
        """Note that nobody could be evicted for this gang; whether that tells of others of its shape."""
        if not self.cycle.snapshot.params.use_signatures:
            return False
        if self.per_queue or not self._queue_is_full(gang, pods):
            self._note(gang, pods)
        return True

    def _queue_is_full(self, gang: int, pods: Sequence[int]) -> bool:
        """Whether the gang's own queue has no place for it: that says nothing about gangs of other queues."""
        quota, request = self.cycle.quota, self.cycle.queue_request(pods, self.cycle.snapshot.max_gpu_memory)
        return quota is not None and quota.over_capacity(self.cycle, gang, request) is not None

    def _note(self, gang: int, pods: Sequence[int]) -> None:
        requests = self._requests(pods)
        signature = self._signature(gang, requests)
        known = self._known.get(signature)
        if known is None or all(_no_more(requests[demand], known[demand]) for demand in known):
            self._known[signature] = requests

    def _signature(self, gang: int, requests: Requests) -> object:
        """Constraints without amounts: topology, and what the pods demand of nodes."""
        gangs = self.cycle.snapshot.gangs
        queue = gangs.queue[gang] if self.per_queue else -1
        shape = gangs.trees.get(gang)
        return queue, gangs.priority[gang], self.apart(gang), repr(shape) if shape else "", frozenset(requests)

    def _demand(self, pod: int) -> str:
        c = self.cycle.trial.of_class(pod)
        known = self._constraints.get(c.row)
        if known is None:
            t = c.template
            sidecars = [container for container in t.init_containers if container.restart_policy == "Always"]
            ports = [port for container in (*t.containers, *sidecars) for port in container.ports or ()]
            shared = (c.gpu_kind, c.devices) if c.shared else ()
            named = (c.namespace, c.labels) if c.labels or t.volumes or t.claims else ()
            known = self._constraints[c.row] = repr(
                (t.node_selector, t.affinity, t.tolerations, t.volumes, t.claims, ports, shared, named)
            )
        return known

    def _requests(self, pods: Sequence[int]) -> Requests:
        found: Requests = {}
        for pod in pods:
            found.setdefault(self._demand(pod), []).append(self._request(pod))
        return {demand: sorted(requests) for demand, requests in found.items()}

    def _request(self, pod: int) -> Request:
        """Amounts, and the memory of a shared device, which they do not tell."""
        c = self.cycle.trial.of_class(pod)
        return (*c.request.tolist(), float(c.memory_mib))


def _within(a: Request, b: Request) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


def _no_more(requests: Sequence[Request], known: Sequence[Request]) -> bool:
    return len(requests) <= len(known) and all(_within(a, b) for a, b in zip(requests, known, strict=False))


def _easier(requests: Sequence[Request], known: Sequence[Request]) -> bool:
    if len(known) > len(requests):
        return True
    differing = next(((a, b) for a, b in zip(requests, known, strict=False) if a != b), None)
    return differing is not None and _within(*differing)
