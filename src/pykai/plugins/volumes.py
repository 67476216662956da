"""Volumes: nodes are feasible if the pod's bound volumes can be used there and its unbound claims can be served.

The first pod that is placed decides for a claim that waits for a node: the choice (an existing volume, or a node to
provision a new one for) holds for every later pod with the same claim, and no two claims get the same volume. Choices
are journaled, so they are undone with their placement.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import ANY, NodeResourceState, Rejection
from pykai.engine.reasons import Token
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import Mask
from pykai.model.snapshot import Key, Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED
from pykai.objects.kinds import PersistentVolumeClaim
from pykai.plugins.volume_claims import (
    Options,
    PodClaims,
    affinity_of,
    claim_key,
    claims_of,
    options,
    options_key,
    outside,
    reachable,
    zones_of,
)

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NOT_REACHABLE = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
OTHER_ZONE = "node(s) had no available volume zone"
NO_ROOM = "node(s) did not have enough free storage"


@dataclass(frozen=True)
class ClaimsExist:
    """Every claim of the pod exists, and is bound or waits for the pod's node."""

    name: str = "VolumeBinding"
    token: ClassVar[str] = Token.MISSING_OBJECT

    def problem(self, cycle: Cycle, pod: int) -> str | None:
        return claims_of(cycle.snapshot, cycle.trial.of_class(pod)).problem


@dataclass(frozen=True)
class VolumeReach:
    """Nodes that can use the bound volumes of a pod and could serve its other claims."""

    def class_key(self, snapshot: Snapshot, pod_class: PodClass) -> Hashable:
        claims = claims_of(snapshot, pod_class)
        if not claims.bound and not claims.delayed:
            return ANY
        volumes = [snapshot.objects.volumes.get(claim.spec.volume_name) for claim in claims.bound]
        reach = [None if volume is None else (affinity_of(volume), zones_of(volume)) for volume in volumes]
        return (*reach, *[id(claim_options(snapshot, claim)) for claim in claims.delayed])

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]:
        claims = claims_of(snapshot, pod_class)
        return _rejections(snapshot, claims) if claims.bound or claims.delayed else ()


def _rejections(snapshot: Snapshot, claims: PodClaims) -> Iterator[Rejection]:
    for claim in claims.bound:
        volume = snapshot.objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            yield VOLUME_GONE, np.ones(len(snapshot.nodes), dtype=bool)
        else:
            yield NOT_REACHABLE, ~reachable(snapshot, volume)
            if zones := zones_of(volume):
                yield OTHER_ZONE, snapshot.nodes.derived(outside, zones)
    for claim in claims.delayed:
        found = claim_options(snapshot, claim)
        yield NO_ROOM, found.short & ~found.somewhere
        yield NO_VOLUME, ~found.somewhere & ~found.short


def claim_options(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Options:
    """What a claim can be given, worked out once per snapshot for all claims that ask for the same."""
    by_claim, by_ask = snapshot.derived(_known_options)
    key = claim_key(claim)
    found = by_claim.get(key)
    if found is None:
        ask = options_key(snapshot, claim)
        found = by_ask.get(ask)
        if found is None:
            found = by_ask[ask] = options(snapshot, claim)
        by_claim[key] = found
    return found


def _known_options(_: Snapshot) -> tuple[dict[Key, Options], dict[Hashable, Options]]:
    return {}, {}


# ------------------------------------------------------------------------------------------------- choices of a cycle
@dataclass(frozen=True)
class Choice:
    """What a claim is given: a volume by name or, where that is empty, a new one made for the node."""

    volume: str
    node: int


@dataclass(frozen=True)
class VolumeChoice:
    """Claims that wait for a node are served one after the other, each with a volume that no other one has."""

    def open(self, cycle: Cycle) -> VolumeChoices:
        return VolumeChoices(cycle.trial)


class VolumeChoices(NodeResourceState):
    """What claims were given in this cycle, or are about to be given since an earlier one."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.users: dict[Key, frozenset[int]] = {}
        """Per claim the pods that got it in this cycle."""

    @cached_property
    def made(self) -> dict[Key, Choice]:
        """Per claim what it was given."""
        return _choices_under_way(self._trial.snapshot)

    @cached_property
    def taken(self) -> dict[str, Key]:
        """Per volume which claim got it."""
        return {choice.volume: key for key, choice in self.made.items() if choice.volume}

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.template.volumes) and bool(claims_of(self._trial.snapshot, pod_class).delayed)

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        """Nodes where some claim, taken for itself, cannot be served any more."""
        for claim in self._delayed(pod):
            found = claim_options(self._trial.snapshot, claim)
            yield NO_VOLUME, ~_served(found, self.taken, self.made.get(claim_key(claim)))

    def reject(self, pod: int, node: int) -> str | None:
        """Several claims must not count on the same volume."""
        claims = self._delayed(pod)
        if len(claims) < 2:
            return None
        return NO_VOLUME if self._choose(claims, node) is None else None

    def reserve(self, pod: int, node: int) -> None:
        put = self._trial.journal.put_new
        for key, choice in (self._choose(self._delayed(pod), node) or {}).items():
            if key not in self.made or key in self.users:
                put(self.users, key, self.users.get(key, frozenset()) | {pod})
            put(self.made, key, choice)
            if choice.volume:
                put(self.taken, choice.volume, key)

    def release(self, pod: int) -> None:
        """Drop a choice of this cycle when the last pod placed by it is evicted. The volumes of pods that ran, or were
        being bound, before this cycle stay as they are."""
        journal = self._trial.journal
        for key in map(claim_key, self._delayed(pod)):
            users = self.users.get(key, frozenset())
            if pod not in users:
                continue
            if len(users) > 1:
                journal.put_new(self.users, key, users - {pod})
                continue
            journal.drop(self.users, key)
            if self.made[key].volume:
                journal.drop(self.taken, self.made[key].volume)
            journal.drop(self.made, key)

    def _delayed(self, pod: int) -> Sequence[PersistentVolumeClaim]:
        return claims_of(self._trial.snapshot, self._trial.of_class(pod)).delayed

    def _choose(self, claims: Sequence[PersistentVolumeClaim], node: int) -> dict[Key, Choice] | None:
        return _choose(self._trial.snapshot, (self.made, self.taken), claims, node)


def _choices_under_way(snapshot: Snapshot) -> dict[Key, Choice]:
    """What claims of pods on their way to a node since an earlier cycle are about to be given."""
    made: dict[Key, Choice] = {}
    taken: set[str] = set()
    waiting = [c.row for c in snapshot.pods.classes if claims_of(snapshot, c).delayed]
    for pod in np.flatnonzero(np.isin(snapshot.pods.klass, waiting)).tolist():
        node = int(snapshot.pods.node[pod])
        if node >= 0 and IS_ACTIVE_ALLOCATED[snapshot.pods.status[pod]]:
            claims = claims_of(snapshot, snapshot.pods.of_class(pod)).delayed
            chosen = _choose(snapshot, (made, taken), claims, node) or {}
            made.update(chosen)
            taken.update(choice.volume for choice in chosen.values() if choice.volume)
    return made


def _served(found: Options, taken: Mapping[str, Key], choice: Choice | None) -> Mask:
    """Nodes where a claim can be served, with what it was given or with what is left."""
    if choice is not None and not choice.volume:
        alone: Mask = np.arange(len(found.provision)) == choice.node
        return alone
    if choice is not None:
        return next(nodes for name, nodes in found.volumes if name == choice.volume)
    free = [nodes for name, nodes in found.volumes if name not in taken]
    served: Mask = np.logical_or.reduce([found.provision, *free])
    return served


def _choose(
    snapshot: Snapshot,
    given: tuple[Mapping[Key, Choice], Container[str]],
    claims: Sequence[PersistentVolumeClaim],
    node: int,
) -> dict[Key, Choice] | None:
    """What each claim would be given on a node; None where one of them would get nothing. `given`: choices that were
    made, and the volumes in them."""
    made, taken = given
    chosen: dict[Key, Choice] = {}
    for claim in claims:
        key, found = claim_key(claim), claim_options(snapshot, claim)
        choice = made.get(key)
        if choice is None:
            choice = _first(found, (taken, {c.volume for c in chosen.values()}), node)
        if choice is None:
            return None
        chosen[key] = choice
    return chosen


def _first(found: Options, away: tuple[Container[str], Container[str]], node: int) -> Choice | None:
    taken, chosen = away
    free = (name for name, nodes in found.volumes if nodes[node] and name not in taken and name not in chosen)
    volume = next(free, "")
    return Choice(volume, node) if volume or found.provision[node] else None
