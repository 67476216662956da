"""Claims that several pods share count once on a node.

The node columns charge every pod for all devices of its claims. For claims that several pods name, this module keeps a
correction per node and claim, so that idle and releasing are those of the devices: in use while a pod uses them,
releasing while all pods that hold them leave, and pipelined onto once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pykai.engine.trial import Trial
from pykai.model.resources import GPU
from pykai.model.status import IS_ACTIVE_USED, Status
from pykai.plugins.dra.claims import Key


class Effect(NamedTuple):
    """What pods do to a node's idle and releasing GPUs."""

    idle: float = 0.0
    releasing: float = 0.0

    def less(self, other: Effect) -> Effect:
        return Effect(self.idle - other.idle, self.releasing - other.releasing)


class Heads(NamedTuple):
    """Numbers of pods on one node that use a claim, are leaving, or wait for it."""

    using: int
    leaving: int
    waiting: int

    def charged(self) -> Effect:
        """As the columns have it, per GPU of the claim."""
        return Effect(-self.using - self.leaving, self.leaving - self.waiting)

    def shared(self) -> Effect:
        """As it is, per GPU of the claim."""
        if self.using:
            return Effect(-1.0, 0.0)
        released, waited = float(self.leaving > 0), float(self.waiting > 0)
        return Effect(-released, released - waited)


@dataclass(frozen=True)
class SharedClaim:
    pods: tuple[int, ...]
    gpus: float


class Sharing:
    """The claims that several pods name, and the corrections made for each so far, by node."""

    def __init__(self, trial: Trial, claims: Mapping[Key, SharedClaim]) -> None:
        self.trial = trial
        self.claims = claims
        self.of_pod: dict[int, list[Key]] = {}
        self.applied: dict[Key, dict[int, Effect]] = {key: {} for key in claims}
        for key, claim in claims.items():
            for pod in claim.pods:
                self.of_pod.setdefault(pod, []).append(key)
            for node in sorted({node for pod in claim.pods for node, _ in self._places(pod)}):
                self._correct(node, key, claim)

    def settle(self, pod: int) -> None:
        """Bring the corrections for a pod's claims up to date: where the pod is, and where any were made."""
        for key in self.of_pod.get(pod, ()):
            for node in sorted({self.trial.node[pod], *self.applied[key]}):
                if node >= 0:
                    self._correct(node, key, self.claims[key])

    def spared(self, pod: int) -> dict[int, float]:
        """Node row -> GPUs a pod need not find free there, because a pod that shares its claims has them already."""
        found: dict[int, float] = {}
        for key in self.of_pod.get(pod, ()):
            claim = self.claims[key]
            for node in {node for other in claim.pods for node, _ in self._places(other)}:
                found[node] = found.get(node, 0.0) + claim.gpus
        return found

    def _places(self, pod: int) -> list[tuple[int, Status]]:
        """The nodes on which a pod is charged, and as what: one that was given another place still leaves its own."""
        trial, pods = self.trial, self.trial.snapshot.pods
        status, origin = Status(trial.status[pod]), int(pods.node[pod])
        places = [(trial.node[pod], status)] if IS_ACTIVE_USED[status] and trial.node[pod] >= 0 else []
        if pod in trial.placed and origin >= 0 and IS_ACTIVE_USED[int(pods.status[pod])]:
            places.append((origin, Status.RELEASING))
        return places

    def _heads(self, node: int, claim: SharedClaim) -> Heads:
        found = [status for pod in claim.pods for place, status in self._places(pod) if place == node]
        leaving, waiting = found.count(Status.RELEASING), found.count(Status.PIPELINED)
        return Heads(len(found) - leaving - waiting, leaving, waiting)

    def _correct(self, node: int, key: Key, claim: SharedClaim) -> None:
        trial, gpus = self.trial, claim.gpus
        if not trial.snapshot.nodes.allocatable[GPU, node] > 0:
            return
        heads = self._heads(node, claim)
        wanted = heads.shared().less(heads.charged())
        change = wanted.less(self.applied[key].get(node, Effect()))
        if not any(change):
            return
        trial.journal.put_new(self.applied[key], node, wanted)
        for block, by in ((trial.idle, change.idle), (trial.releasing, change.releasing)):
            trial.journal.column(block, node)
            block[GPU, node] += by * gpus
        trial.touched.append(node)
