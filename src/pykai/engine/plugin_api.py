"""Extension points: tiny Protocols; the docstring of each states how several plugins compose.

A plugin is a frozen dataclass that implements one or more of them. It takes and returns values and columns, and keeps
no state of the cluster: what belongs to one cycle is in a typed slot of the cycle (`Cycle.state`), or is the state of a
`NodeResource`. Third parties import these names from `pykai.plugin_api`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Snapshot

if TYPE_CHECKING:
    from pykai.engine.accumulated import Accumulated
    from pykai.engine.cycle import Cycle
    from pykai.engine.pod_locations import PodCounts
    from pykai.engine.queues import OverCapacity, QueueBook, QueueKey, Taking, Triple
    from pykai.engine.reasons import GangError
    from pykai.engine.scenario import Scenario
    from pykai.engine.trial import Trial

Rejection = tuple[str, Mask]
"""Why, and which nodes."""
ANY = "any"
"""The `class_key` where a plugin does not distinguish classes of pods at all."""
SortKey = float | str | tuple[float | str, ...]
"""What pods and sub-groups are ordered by; the keys of one plugin compare with each other."""


class NodeLook(NamedTuple):
    """Some nodes, as one class of pods sees them at this moment. Blocks are [resource, node]."""

    trial: Trial
    pod_class: PodClass
    nodes: Rows
    idle: Column
    free: Column
    """Idle plus what is being released."""
    fits_now: Mask
    sharable: Column
    """Devices already shared on which the class still fits."""


@runtime_checkable
class NodeFilter(Protocol):
    """All must agree. Depends on the snapshot and the class only, so it is asked once per class and cycle.

    A plugin may have a method `class_key(snapshot, pod_class)`: what its answer depends on. It is asked once for all
    classes with equal keys; None: the class is like no other.
    """

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]: ...


@runtime_checkable
class PodGate(Protocol):
    """First refusal wins; asked once per pod before any node is looked at.

    One that says `by_class = True` answers alike for all pods of a class, whatever was placed before; one with a method
    `concerns(pod_class)` lets all pods of other classes pass.
    """

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None: ...


@dataclass(frozen=True)
class Refusal:
    """Why a pod cannot be placed anywhere; `lasting`: evicting others cannot change it. `token`: see engine/reasons."""

    message: str
    lasting: bool = False
    token: str = "PodRefused"


@runtime_checkable
class NodeScore(Protocol):
    """Sum over plugins. Depends on each node's own figures only: a placement changes one entry.

    A plugin may declare `steady = True`: of all figures its score depends only on whether the class fits at once and
    whether a shared device has room, so that it need not be asked again. It may have a method `class_key(pod_class)`:
    what its score depends on of the class, so that classes with equal keys share their scores; None: like no other.
    """

    def score(self, look: NodeLook) -> Column | float: ...


@runtime_checkable
class RelativeScore(Protocol):
    """Sum over plugins. A score relative to the extremes of a measure over all nodes that are considered: what is or
    will be free of one resource. It must not change the order that the measure gives, whatever the extremes.

    A plugin that makes a node better for having less free, as long as some node has any, may declare `packs`: how far
    its scores lie apart at most. Then pods are placed without looking at all nodes after every one.
    """

    def measured(self, pod_class: PodClass) -> int | None:
        """The row of the resource; None: all nodes are alike to pods of the class."""
        ...

    def relative(self, measure: Column, low: float, high: float) -> Column:
        """Scores by what nodes have free; NaN on nodes that do not offer the resource."""
        ...


@runtime_checkable
class PodScore(Protocol):
    """Sum over plugins. A score for one pod over all nodes, or None where the plugin has no opinion.

    One that says `trees_only = True` has none about pods of gangs without sub-groups and constraints on topology.
    """

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None: ...


@runtime_checkable
class DeviceScore(Protocol):
    """Sum over plugins: how good a device is for a share, from the used portion of its memory (0 = whole device)."""

    def device_score(self, used_portion: float) -> float: ...


@runtime_checkable
class GangOrder(Protocol):
    """First difference wins, in plugin order; smaller keys go first. The column is the same key for many gangs."""

    def gang_key(self, trial: Trial, gang: int) -> float: ...

    def gang_column(self, trial: Trial, gangs: Rows) -> Column: ...


@runtime_checkable
class PodOrder(Protocol):
    """First difference wins, in plugin order; smaller keys go first. Pods are distinguished by the value of one label,
    None where a pod does not have it."""

    @property
    def pod_label(self) -> str: ...

    def pod_key(self, value: str | None) -> SortKey: ...


@runtime_checkable
class MemberOrder(Protocol):
    """First difference wins: order of a gang's sub-groups by how well they are served."""

    def member_key(self, members: int, threshold: int) -> SortKey: ...


@runtime_checkable
class QuotaPolicy(Protocol):
    """At most one: fair shares, limits, the order of queues, and who may reclaim.

    One that declares `priority_in_quota = True` lets queues within their quota reclaim from any of lower priority. It
    may have a method `bounded(cycle, gang)`: False where no request of the gang can be over capacity.
    """

    def fair_shares(self, cycle: Cycle) -> Column: ...

    def queue_key(
        self, book: QueueBook, queue: int, request: Sequence[float], victims: Sequence[float]
    ) -> QueueKey: ...

    def over_capacity(self, cycle: Cycle, gang: int, request: Triple) -> OverCapacity | None: ...

    def can_reclaim(self, cycle: Cycle, gang: int, request: Triple) -> bool: ...

    def most_gpus(self, book: QueueBook, taking: Taking, request: Triple, block: float) -> float:
        """An upper bound of what a reclaim of `request` may take from one sibling queue, in blocks of at most `block`;
        infinite where there is none."""
        ...


@runtime_checkable
class BackgroundPolicy(Protocol):
    """At most one: which pods are background pods, that leave as soon as a workload can use their place."""

    def background_pods(self, snapshot: Snapshot) -> Collection[int]: ...


@runtime_checkable
class VictimFilter(Protocol):
    """All must agree: whether a gang may be considered as a victim for another one.

    A filter or validator that declares `preference = True` is left out where nothing else helps the gang.
    """

    def judges(self, cycle: Cycle, action: str) -> bool:
        """Whether the filter has anything to say about victims of this action."""
        ...

    def may_evict(self, cycle: Cycle, action: str, gang: int, victim: int) -> bool: ...


@runtime_checkable
class VictimColumn(Protocol):
    """A victim filter that answers for many gangs at once; `may_evict` is not asked then."""

    def may_evict_column(self, cycle: Cycle, action: str, gang: int, victims: Rows) -> Mask:
        """By potential victim: what `may_evict` says."""
        ...


@runtime_checkable
class VictimProtection(Protocol):
    """A victim filter that protects gangs for a time."""

    def protected_until(self, cycle: Cycle, action: str, gang: int, victim: int) -> float | None:
        """Until when (seconds since the epoch) a gang may not be a victim for another one; None: it may be now."""
        ...


@runtime_checkable
class VictimBlockers(Protocol):
    """All count: a victim filter or validator that can name what keeps others from being evicted, such as a budget."""

    def blocking(self, cycle: Cycle, gang: int) -> Sequence[str]:
        """What kept others from being evicted for a gang in this cycle."""
        ...


@runtime_checkable
class VictimChoice(Protocol):
    """Tried in turn, in plugin order, until one finds victims that help; without any, no pod is evicted for others.

    A way of choosing among the victims that were accumulated up to some batch ("generator" in KAI). One may have a
    method `one_by_one(order, opens)`: its choices for a single pod that fits nowhere yet, as the batches of a
    `VictimOrder` come and without columns; `opens(node, pods)` says whether the node takes the pod without these, None:
    give up.
    """

    @property
    def generator(self) -> str:
        """The name by which time budgets and metrics know it."""
        ...

    @property
    def for_gangs(self) -> bool:
        """Whether it is of no use to a single pod."""
        ...

    def worth_a_look(self, found: Accumulated) -> Rows:
        """The batches after which a choice could work, in order."""
        ...

    def choices(self, found: Accumulated, latest: int, needs: Sequence[float]) -> Iterator[list[int]]:
        """Batches to evict, one choice after the other; `needs`: GPUs of each wanted pod."""
        ...


@runtime_checkable
class ScenarioValidator(Protocol):
    """All must agree: whether the evictions of a simulated scenario are justified."""

    def justified(self, cycle: Cycle, scenario: Scenario) -> bool: ...


@runtime_checkable
class RunTimes(Protocol):
    """All count: a plugin whose answers depend on how long a gang has run."""

    def run_times(self, snapshot: Snapshot) -> Iterable[float]:
        """Seconds after a gang's start at which an answer may change. Where there are none, no start is written."""
        ...


@dataclass(frozen=True)
class NodeSets:
    """Candidate node sets in order of preference (None is all nodes), or `why` there are none."""

    sets: Iterable[Rows | None]
    why: Iterable[GangError] = ()


@runtime_checkable
class NodeSubsets(Protocol):
    """Each plugin splits every set the former ones produced: where the members of a sub-group may go together."""

    def subsets(
        self, cycle: Cycle, gang: int, group: SubGroupSet | PodSet, pods: Sequence[int], nodes: Rows | None
    ) -> NodeSets: ...

    def domains(self, cycle: Cycle, gang: int, group: SubGroupSet | PodSet) -> Rows | None:
        """By node: the domain that all members of a sub-group must share, -1 where none of them may be; None: anywhere.
        Victims are searched within one domain."""
        ...


# ------------------------------------------------------------------------------------------------------- node resources
@dataclass(frozen=True)
class BindDetails:
    """What a bind carries beside node and devices."""

    claims: tuple[tuple[str, Mapping[str, object]], ...] = ()
    """(claim name in the pod, allocation)."""
    zones: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """(NUMA zone, amounts)."""
    extended_claim: Mapping[str, object] | None = None
    """The claim to create for the pod's extended resources."""


class NodeResourceState:
    """A node resource within one cycle. A subclass overrides what its resource needs; the rest has no effect.

    It changes with the cycle's tentative placements: every change goes through `trial.journal`, so that it is undone
    with them. It holds the trial, not the cycle.
    """

    def concerns(self, pod_class: PodClass) -> bool:
        """Whether pods of a class use the resource: no other method is called for the rest."""
        return True

    def alike(self, pod: int) -> Hashable | None:
        """Equal for pods of one class that get the same answers as long as none of them is placed or evicted; None: the
        pod is like no other. Of gangs with such pods only the first is tried where it finds no place."""
        return None

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        """Nodes on which the pod cannot get the resource, as masks over all nodes; called once per attempt."""
        return ()

    def reject(self, pod: int, node: int) -> str | None:
        """Why the pod cannot get the resource on a node; for what is too expensive to answer for all nodes at once."""
        return None

    def may_wait(self) -> bool:
        """Whether anything of the resource is being released; False: no pod waits for it anywhere."""
        return True

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        """On which of the nodes the pod waits until the resource is released, by position in `nodes`; None: on none.

        Such nodes do not count as available now, and a pod that is placed on one is pipelined.
        """
        return None

    def blockers(self, pod: int) -> Sequence[PodCounts]:
        """Pods of which none may stay in the domain of the pod's node: `infeasible`, by what causes it, so that
        victims are chosen among them."""
        return ()

    @property
    def relieves(self) -> bool:
        """Whether `spared` is not None for some class."""
        return False

    def spared(self, pod_class: PodClass, nodes: Rows) -> Column | None:
        """[resource, node] amounts that pods of a class need not find in the node columns; None: nothing anywhere."""
        return None

    def reserve(self, pod: int, node: int) -> None:
        """A pod got a node, or has it in another way than before: it waits after all, or is not evicted after all (its
        status says which)."""

    def release(self, pod: int) -> None:
        """A pod is evicted, tentatively or for good."""

    def unchanged(self, pod: int, node: int) -> bool:
        """Whether an evicted pod that gets its node back has the resource as before, so that it is not evicted."""
        return True

    def details(self, pod: int) -> BindDetails | None:
        """What the bind of a pod carries."""
        return None


@runtime_checkable
class NodeResource(Protocol):
    """All must agree. A resource that lives outside the node columns: ports, neighbours, volumes, devices, zones. Its
    state filters nodes, says where a pod waits, reserves and releases with each placement, and adds to binds."""

    def open(self, cycle: Cycle) -> NodeResourceState | None:
        """The state of the resource at the start of a cycle; None: nothing in the cluster needs it."""
        ...


def all_points() -> list[type[Any]]:
    """The extension points, in the order of this file."""
    here = [each for each in globals().values() if getattr(each, "_is_protocol", False)]
    return [point for point in here if point.__module__ == __name__]


@cache
def _methods() -> dict[type[Any], list[str]]:
    """The methods of every extension point: plugins are made whenever a process starts or a shard is checked."""
    return {point: [name for name in vars(point) if not name.startswith("_")] for point in all_points()}


def gaps(plugin: object) -> list[str]:
    """What keeps a plugin from being asked: a point it has only a part of, or none at all. Empty: it is complete."""
    found, complete = [], False
    for point, methods in _methods().items():
        missing = [name for name in methods if not hasattr(plugin, name)]
        complete = complete or not missing
        if missing and any(hasattr(plugin, name) for name in methods if name != "concerns"):
            found.append(f"{point.__name__} also needs {' and '.join(missing)}")
    return found if found or complete else ["it implements no extension point"]
