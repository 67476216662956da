"""Volumes: a pod goes where its bound volumes can be used and its unbound claims can be served (§6.2.6, §15).

A claim that waits for a node is served by the first pod placed: that choice (an existing volume, or a node a new one is
made for) binds every later pod with the same claim, and no two claims get the same volume. Choices are kept in the
trial's journal, so they go when the placement they belong to is undone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import ANY, Rejection
from pykai.model.pods import PodClass
from pykai.model.resources import Mask
from pykai.model.snapshot import Key, Snapshot
from pykai.model.status import IS_ACTIVE_ALLOCATED
from pykai.objects.kinds import PersistentVolumeClaim
from pykai.plugins.volume_claims import PodClaims, claim_key, claims_of
from pykai.plugins.volume_options import Options, affinity_of, options, options_key, reachable

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NOT_REACHABLE = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_ROOM = "node(s) did not have enough free storage"


@dataclass(frozen=True)
class ClaimsExist:
    """Every claim of the pod exists, and is bound or waits for the pod's node."""

    name: str = "VolumeBinding"

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
        reach = [None if volume is None else affinity_of(volume) for volume in volumes]
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


@dataclass(frozen=True, eq=False)
class Choices:
    """Per claim what it was given, per volume which claim got it, and per claim the pods that got it in this cycle."""

    made: dict[Key, Choice]
    taken: dict[str, Key]
    users: dict[Key, frozenset[int]]


@dataclass(frozen=True)
class VolumeChoice:
    """Claims that wait for a node are served one after the other, each with something the others have not got."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return bool(pod_class.template.volumes) and bool(claims_of(cycle.snapshot, pod_class).delayed)

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        """Nodes where some claim, taken for itself, cannot be served any more."""
        choices = _choices(cycle)
        for claim in claims_of(cycle.snapshot, cycle.trial.of_class(pod)).delayed:
            found = claim_options(cycle.snapshot, claim)
            yield NO_VOLUME, ~_served(found, choices, choices.made.get(claim_key(claim)))

    def reject(self, cycle: Cycle, pod: int, node: int) -> str | None:
        """Several claims must not count on the same volume."""
        claims = claims_of(cycle.snapshot, cycle.trial.of_class(pod))
        if len(claims.delayed) < 2:
            return None
        return NO_VOLUME if _choose(cycle.snapshot, _choices(cycle), claims, node) is None else None

    def placed(self, cycle: Cycle, pod: int, node: int) -> None:
        claims = claims_of(cycle.snapshot, cycle.trial.of_class(pod))
        if not claims.delayed:
            return
        choices, put = _choices(cycle), cycle.trial.journal.put_new
        for key, choice in (_choose(cycle.snapshot, choices, claims, node) or {}).items():
            if key not in choices.made or key in choices.users:
                put(choices.users, key, choices.users.get(key, frozenset()) | {pod})
            put(choices.made, key, choice)
            if choice.volume:
                put(choices.taken, choice.volume, key)

    def evicted(self, cycle: Cycle, pod: int) -> None:
        """What was chosen for a place of this cycle is open again with the last pod that loses it; a pod that runs, or
        is on its way to a node, has its volumes: its eviction leaves them as they are."""
        choices, journal = _choices(cycle), cycle.trial.journal
        for claim in claims_of(cycle.snapshot, cycle.trial.of_class(pod)).delayed:
            key = claim_key(claim)
            users = choices.users.get(key, frozenset())
            if pod not in users:
                continue
            if len(users) > 1:
                journal.put_new(choices.users, key, users - {pod})
                continue
            journal.drop(choices.users, key)
            if choices.made[key].volume:
                journal.drop(choices.taken, choices.made[key].volume)
            journal.drop(choices.made, key)


def _choices(cycle: Cycle) -> Choices:
    found: Choices | None = cycle.memo.get("volume_choices")
    if found is None:
        found = cycle.memo["volume_choices"] = _choices_under_way(cycle)
    return found


def _choices_under_way(cycle: Cycle) -> Choices:
    """What claims of pods on their way to a node since an earlier cycle are about to be given."""
    snapshot, choices = cycle.snapshot, Choices({}, {}, {})
    waiting = [c.row for c in snapshot.pods.classes if claims_of(snapshot, c).delayed]
    for pod in np.flatnonzero(np.isin(snapshot.pods.klass, waiting)).tolist():
        node = int(snapshot.pods.node[pod])
        if node >= 0 and IS_ACTIVE_ALLOCATED[snapshot.pods.status[pod]]:
            chosen = _choose(snapshot, choices, claims_of(snapshot, snapshot.pods.of_class(pod)), node) or {}
            choices.made.update(chosen)
            choices.taken.update({choice.volume: key for key, choice in chosen.items() if choice.volume})
    return choices


def _served(found: Options, choices: Choices, choice: Choice | None) -> Mask:
    """Nodes where a claim can be served, with what it was given or with what is left."""
    if choice is not None and not choice.volume:
        alone: Mask = np.arange(len(found.provision)) == choice.node
        return alone
    if choice is not None:
        return next(nodes for name, nodes in found.volumes if name == choice.volume)
    free = [nodes for name, nodes in found.volumes if name not in choices.taken]
    served: Mask = np.logical_or.reduce([found.provision, *free])
    return served


def _choose(snapshot: Snapshot, choices: Choices, claims: PodClaims, node: int) -> dict[Key, Choice] | None:
    """What each claim would be given on a node; None where one of them would get nothing."""
    chosen: dict[Key, Choice] = {}
    for claim in claims.delayed:
        key, found = claim_key(claim), claim_options(snapshot, claim)
        choice = choices.made.get(key)
        if choice is None:
            away = {*choices.taken, *(c.volume for c in chosen.values())}
            choice = _first(found, away, node)
        if choice is None:
            return None
        chosen[key] = choice
    return chosen


def _first(found: Options, away: set[str], node: int) -> Choice | None:
    free = (name for name, nodes in found.volumes if nodes[node] and name not in away)
    volume = next(free, "")
    return Choice(volume, node) if volume or found.provision[node] else None
