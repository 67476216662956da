"""A decided state of a cluster: a snapshot and its plan, from a snapshot file, a live cluster or a simulation.

This package and the dashboard read a `Decided`. Remedies are found by deciding again on changed objects. Searches have
no time limit here, so that results do not depend on the speed of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pykai.cache.cluster import Change, ClusterCache
from pykai.config import scheduler_config, snapshot_file
from pykai.config.fields import path_prefix
from pykai.config.snapshot_file import SnapshotFile
from pykai.engine.budgets import UNLIMITED
from pykai.engine.decide import decide, service_order
from pykai.engine.policy import Policy
from pykai.kube.api import Object
from pykai.model.params import SchedulerParams
from pykai.model.plan import Key, Plan, Verdict
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.kinds import Pod, PodGroup
from pykai.plugins import registry
from pykai.scheduler.group_membership import OwnGroups

_PODS = ("pod", "pods", "po")
_GROUPS = ("podgroup", "podgroups", "pg")
Sections = Mapping[str, Sequence[Object]]
"""Complete objects by section of a snapshot file: nodes, pods, queues, podGroups ..."""
Usage = Mapping[str, tuple[float, float, float]]
"""Queue name -> normalised historical usage of cpu, memory and GPUs."""


def _no_objects() -> Sections:
    raise ValueError("this state was not read from whole objects")


@dataclass(frozen=True)
class Decided:
    """A snapshot and the plan for it. `now`: seconds since the epoch."""

    snapshot: Snapshot
    plan: Plan
    policy: Policy
    now: float
    cache: ClusterCache
    """The objects as the scheduler reads them; `again` changes a copy."""
    objects: Callable[[], Sections] = _no_objects
    """Returns the complete objects, read on demand; ValueError if they exist only in the cache."""
    notes: tuple[str, ...] = ()
    """Notes on what could not be read, and on the assumptions made instead."""
    gpu_sharing_mode: str = ""
    """The GPU sharing mode; empty if unknown."""

    @cached_property
    def waiting(self) -> dict[Key, Verdict]:
        """Return the gangs that still have pending pods after the cycle, with their verdicts."""
        return {verdict.gang: verdict for verdict in self.plan.verdicts}

    @cached_property
    def order(self) -> list[Key]:
        """Return the gangs with pending pods before the cycle, in the order of service."""
        return service_order(self.snapshot, self.policy, self.now)

    def again(self, changes: Iterable[Change], only: Key | None = None) -> Decided:
        """Return the state with these objects changed, decided again; `only`: as if this gang alone had a turn."""
        cache = self.cache.copy()
        for change in changes:
            cache.apply(change)
        return decided(cache, self.policy, self.now, past_use(self.snapshot), only)

    def for_all(self) -> Decided:
        """Return the state decided with a turn for every gang."""
        return replace(self, plan=decide(self.snapshot, self.policy, self.now))


def decided(
    cache: ClusterCache, policy: Policy, now: float, usage: Usage | None = None, only: Key | None = None
) -> Decided:
    """Decide on the objects of a cache, which must not change while the result is used; pass a copy."""
    policy = replace(policy, budgets=UNLIMITED)
    taken = cache.snapshot(now, usage)
    return Decided(taken, decide(taken, policy, now, only=only), policy, now, cache)


def past_use(taken: Snapshot) -> Usage:
    """Return the historical usage of a snapshot."""
    queues = taken.queues
    rows = zip(queues.names, queues.usage.T.tolist(), strict=True)
    return {name: (cpu, memory, gpus) for name, (cpu, memory, gpus) in rows if cpu or memory or gpus}


# ------------------------------------------------------------------------------------------------------- snapshot files
@dataclass(frozen=True)
class Opened:
    """A parsed snapshot file with the parameters and policy (without time limits) of its scheduler."""

    file: SnapshotFile
    objects: Sequence[Any]
    """The objects of the file, each pod annotated with its PodGroup."""
    params: SchedulerParams
    policy: Policy
    now: float

    def cache(self) -> ClusterCache:
        """Return a cache with the objects of the file."""
        cache = ClusterCache(self.params)
        cache.load(self.objects)
        return cache


def opened(path: Path, now: float | None = None) -> Opened:
    """Open a file to decide on; `now` None: the latest time in it. FieldError names the invalid field."""
    parsed = snapshot_file.load(path)
    with path_prefix(f"{path}: {snapshot_file.MEMBER}: "):
        return of_file(parsed, now or snapshot_file.observed_at(parsed) or time.time())


def of_file(file: SnapshotFile, now: float) -> Opened:
    """Prepare a parsed file to decide on; FieldError names the invalid field of its configuration."""
    with path_prefix("config"):
        policy = scheduler_config.policy(scheduler_config.read(file.config), registry.make, registry.BUILT_IN)
    objects = joined(file.raw_objects.all())
    params = scheduler_config.params_for(policy, snapshot_file.params(file))
    return Opened(file, objects, params, replace(policy, budgets=UNLIMITED), now)


def from_file(path: Path, now: float | None = None) -> Decided:
    """Decide on a snapshot file, of KAI or of pykai; FieldError names the invalid field."""
    source = opened(path, now)
    found = decided(source.cache(), source.policy, source.now)
    mode = source.file.scheduler_params.gpu_sharing_mode
    return replace(found, objects=partial(snapshot_file.raw_objects, path), gpu_sharing_mode=mode)


def joined(objects: Iterable[Any]) -> list[Any]:
    """Return the objects; pods that own a PodGroup are annotated with it."""
    found = list(objects)
    groups = OwnGroups()
    owners = [groups.change(None, obj) for obj in found if isinstance(obj, PodGroup)]
    return [groups.joined(obj) if isinstance(obj, Pod) else obj for obj in found] if any(owners) else found


# -------------------------------------------------------------------------------------------------------------- targets
class TargetError(ValueError):
    """No gang matches the target."""


def gangs_of(decided: Decided, target: str, namespace: str) -> list[Key]:
    """Return the gangs of a pod, PodGroup or workload, such as `train-0`, `pod/train-0`, `job/train` or `pg/train`.

    TargetError, with similar names, if there is none.
    """
    kind, _, name = target.rpartition("/")
    kind = kind.lower().split(".", 1)[0]
    pods, gangs, found = decided.snapshot.pods, decided.snapshot.gangs, list[Key]()
    if kind in ("", *_PODS):
        rows = pods.rows_of([(namespace, name)]).values()
        found = [gangs.objects[int(pods.gang[row])].metadata.key for row in rows if pods.gang[row] >= 0]
    if not found and kind in ("", *_GROUPS):
        found = list(gangs.rows_of([(namespace, name)]))
    if not found and kind not in (*_PODS, *_GROUPS):
        found = list(_gangs_owned_by(decided, kind, name, namespace))
    if not found:
        raise TargetError(_not_found_message(decided, target, name, namespace))
    return found


def _gangs_owned_by(decided: Decided, kind: str, name: str, namespace: str) -> Iterator[Key]:
    """Yield the gangs of an object: those it owns, and those of pods that it owns, directly or as top owner.

    `kind` is in lower case, singular or plural; empty: any kind.
    """
    for row, group in enumerate(decided.snapshot.gangs.objects):
        if group.metadata.namespace == namespace:
            kinds = [owner_kind.lower() for owner_kind, owner in _owners(decided, row, group) if owner == name]
            if any(kind in ("", each, f"{each}s", f"{each}es") for each in kinds):
                yield namespace, group.metadata.name


def _owners(decided: Decided, row: int, group: Any) -> Iterator[tuple[str, str]]:
    for owner in group.metadata.owner_references or ():
        yield owner.kind, owner.name
    for pod in decided.snapshot.gangs.pods(row)[:1]:
        for owner in decided.snapshot.pods.objects[pod].metadata.owner_references or ():
            yield owner.kind, owner.name
    top = (group.metadata.annotations or {}).get(names.TOP_OWNER_METADATA, "")
    stated = dict(part.strip().split(":", 1) for part in top.splitlines() if ":" in part)
    if "name" in stated:
        yield stated.get("kind", "").strip(), stated["name"].strip()


def _not_found_message(decided: Decided, target: str, name: str, namespace: str) -> str:
    snapshot = decided.snapshot
    known: dict[str, str] = {}
    for objects in (snapshot.pods.objects, snapshot.gangs.objects):
        for obj in objects:
            known.setdefault(obj.metadata.name, obj.metadata.namespace)
    text = f"nothing named {target!r} waits or runs in namespace {namespace}"
    elsewhere = known.get(name, namespace)
    if elsewhere != namespace:
        return f"{text}; there is one in namespace {elsewhere} (-n {elsewhere})"
    here = [each for each, where in known.items() if where == namespace]
    close = get_close_matches(name, here, n=1)
    return text + (f": did you mean {close[0]!r}?" if close else "")
