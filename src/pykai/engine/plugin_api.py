"""Extension points: small Protocols; the docstring of each states how several plugins compose.

A plugin is a frozen dataclass that implements one or more of them. It takes and returns values and columns, and keeps
no state of the cluster: state of one cycle is kept in a typed slot of the cycle (`Cycle.state`) or in a
`NodeResourceState`. Third parties import these names from `pykai.plugin_api`.
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
"""The reason, and the mask of the nodes it applies to."""
ANY = "any"
"""The `class_key` of a plugin that treats all classes of pods alike."""
SortKey = float | str | tuple[float | str, ...]
"""Sort key of pods and sub-groups; the keys of one plugin are comparable with each other."""


class NodeLook(NamedTuple):
    """The current state of some nodes for one class of pods. Blocks are [resource, node]."""

    trial: Trial
    pod_class: PodClass
    nodes: Rows
    idle: Column
    free: Column
    """Idle plus what is being released."""
    fits_now: Mask
    sharable: Column
    """Number of devices, by node, that are already shared and have room for a pod of the class."""


@runtime_checkable
class NodeFilter(Protocol):
    """A node is feasible if no plugin rejects it. Depends on the snapshot and the class only, so it is called once per
    class and cycle.

    A plugin may have a method `class_key(snapshot, pod_class)` that returns what its answer depends on: it is called
    once for all classes with equal keys. None: the class shares its answer with no other.
    """

    def rejections(self, snapshot: Snapshot, pod_class: PodClass) -> Iterable[Rejection]: ...


@runtime_checkable
class PodGate(Protocol):
    """First refusal wins; called once per pod before any node is filtered.

    A plugin that declares `by_class = True` gives the same answer for all pods of a class, whatever was placed before;
    one with a method `concerns(pod_class)` is not called for pods of classes for which that is False.
    """

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None: ...


@dataclass(frozen=True)
class Refusal:
    """Why a pod cannot be placed on any node; `lasting`: evictions cannot change it. `token`: see engine/reasons."""

    message: str
    lasting: bool = False
    token: str = "PodRefused"


@runtime_checkable
class NodeScore(Protocol):
    """Sum over plugins. The score of a node depends on the state of that node only, so a placement changes one entry.

    A plugin may declare `steady = True`: the only state its score depends on is whether the class fits at once and
    whether a shared device has room, so scores are computed once. It may have a method `class_key(pod_class)` that
    returns what its score depends on: classes with equal keys share scores. None: the class shares them with no other.
    """

    def score(self, look: NodeLook) -> Column | float: ...


@runtime_checkable
class RelativeScore(Protocol):
    """Sum over plugins. A score normalized by the extremes, over all candidate nodes, of one measure: the idle plus
    releasing amount of a resource. Nodes must keep the order of the measure, whatever the extremes are.

    A plugin that scores a node higher the less is free on it may declare `packs`: the largest possible difference of
    two of its scores. Then several pods can be placed without comparing all nodes after each.
    """

    def measured(self, pod_class: PodClass) -> int | None:
        """Return the row of the measured resource; None: all nodes score the same for pods of the class."""
        ...

    def relative(self, measure: Column, low: float, high: float) -> Column:
        """Return scores by the measure of each node, which is NaN on nodes that do not offer the resource."""
        ...


@runtime_checkable
class PodScore(Protocol):
    """Sum over plugins. The scores of all nodes for one pod; None: the plugin does not score the pod.

    A plugin that declares `trees_only = True` scores no pods of gangs without sub-groups and topology constraints; one
    that declares `by_podset = True` returns the identical scores for all pods of a podset.
    """

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None: ...


@runtime_checkable
class DeviceScore(Protocol):
    """Sum over plugins: the score of a device for a shared request, by the used portion of its memory (0: unused)."""

    def device_score(self, used_portion: float) -> float: ...


@runtime_checkable
class GangOrder(Protocol):
    """First difference wins, in plugin order; smaller keys go first. `gang_column` returns the keys of many gangs."""

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
    """First difference wins: the order of a gang's sub-groups, by placed members and threshold."""

    def member_key(self, members: int, threshold: int) -> SortKey: ...


@runtime_checkable
class QuotaPolicy(Protocol):
    """At most one: fair shares, limits, the order of queues, and which gangs may reclaim.

    A plugin that declares `priority_in_quota = True` lets queues within their quota reclaim from any queue of lower
    priority. It may have a method `bounded(cycle, gang)`: False where no request of the gang can be over capacity.
    """

    def fair_shares(self, cycle: Cycle) -> Column: ...

    def queue_key(
        self, book: QueueBook, queue: int, request: Sequence[float], victims: Sequence[float]
    ) -> QueueKey: ...

    def over_capacity(self, cycle: Cycle, gang: int, request: Triple) -> OverCapacity | None: ...

    def can_reclaim(self, cycle: Cycle, gang: int, request: Triple) -> bool: ...

    def most_losses(self, book: QueueBook, taking: Taking, request: Triple, block: Triple) -> Triple:
        """Return an upper bound, by resource, of what a reclaim of `request` may take from one sibling queue, in blocks
        of at most `block`; infinite where there is no bound, negative where it may lose nothing at all."""
        ...


@runtime_checkable
class BackgroundPolicy(Protocol):
    """At most one: which pods are background pods, evicted as soon as a workload can use their resources."""

    def background_pods(self, snapshot: Snapshot) -> Collection[int]: ...


@runtime_checkable
class VictimFilter(Protocol):
    """All must agree: whether a gang may be a victim of another one.

    A filter or validator that declares `preference = True` is ignored in a second search where the first one, which
    respects it, finds no solution.
    """

    def judges(self, cycle: Cycle, action: str) -> bool:
        """Whether the filter applies to victims of this action."""
        ...

    def may_evict(self, cycle: Cycle, action: str, gang: int, victim: int) -> bool: ...


@runtime_checkable
class VictimColumn(Protocol):
    """A victim filter that answers for many gangs at once; `may_evict` is not called then."""

    def may_evict_column(self, cycle: Cycle, action: str, gang: int, victims: Rows) -> Mask:
        """Return, by potential victim, what `may_evict` returns."""
        ...


@runtime_checkable
class VictimProtection(Protocol):
    """A victim filter that protects gangs for a time."""

    def protected_until(self, cycle: Cycle, action: str, gang: int, victim: int) -> float | None:
        """Return until when (seconds since the epoch) `victim` may not be evicted for `gang`; None: it may be now."""
        ...


@runtime_checkable
class VictimBlockers(Protocol):
    """All count: a victim filter or validator that can name what prevents evictions, such as a disruption budget."""

    def blocking(self, cycle: Cycle, gang: int) -> Sequence[str]:
        """Return what prevented evictions for a gang in this cycle."""
        ...


@runtime_checkable
class VictimChoice(Protocol):
    """Tried in plugin order until one finds a set of victims that solves the scenario; without any plugin, no search
    evicts a pod.

    A strategy that chooses among the victims accumulated up to some batch ("generator" in KAI). It may have a method
    `one_by_one(order, opens)`: its choices for a single pod that fits nowhere yet, batch by batch of a `VictimOrder`
    and without columns; `opens(node, pods)` is whether the pod fits on the node without these pods, None: give up.
    """

    @property
    def generator(self) -> str:
        """Its name in time budgets and metrics."""
        ...

    @property
    def for_gangs(self) -> bool:
        """Whether it is skipped for a single pod."""
        ...

    def worth_a_look(self, found: Accumulated) -> Rows:
        """Return the batches after which a choice could succeed, in order."""
        ...

    def choices(self, found: Accumulated, latest: int, needs: Sequence[float]) -> Iterator[list[int]]:
        """Yield sets of batches to evict, each to be simulated; `needs`: GPUs of each pod to place."""
        ...


@runtime_checkable
class ScenarioValidator(Protocol):
    """All must agree: whether the evictions of a simulated scenario are justified."""

    def justified(self, cycle: Cycle, scenario: Scenario) -> bool: ...


@runtime_checkable
class RunTimes(Protocol):
    """All count: a plugin whose answers depend on how long a gang has run."""

    def run_times(self, snapshot: Snapshot) -> Iterable[float]:
        """Return the seconds after a gang's start at which an answer may change; if empty, no start time is written."""
        ...


class NodeSets(NamedTuple):
    """Candidate node sets in order of preference (None: all nodes), or `why` there are none."""

    sets: Iterable[Rows | None]
    why: Iterable[GangError] = ()


@runtime_checkable
class NodeSubsets(Protocol):
    """Where the members of a sub-group may be placed together; each plugin splits every set of the previous plugin."""

    def subsets(
        self, cycle: Cycle, gang: int, group: SubGroupSet | PodSet, pods: Sequence[int], nodes: Rows | None
    ) -> NodeSets: ...

    def domains(self, cycle: Cycle, gang: int, group: SubGroupSet | PodSet) -> Rows | None:
        """Return by node the domain that all members of a sub-group must share, -1 where none may be placed; None: no
        constraint. Victims are searched within one domain."""
        ...


# ------------------------------------------------------------------------------------------------------- node resources
@dataclass(frozen=True)
class BindDetails:
    """What a bind carries in addition to node and devices."""

    claims: tuple[tuple[str, Mapping[str, object]], ...] = ()
    """(claim name in the pod, allocation)."""
    zones: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """(NUMA zone, amounts)."""
    extended_claim: Mapping[str, object] | None = None
    """The claim to create for the pod's extended resources."""


class Companions(NamedTuple):
    """Pods that a pod must be near, and the nodes that are near to them as they are placed."""

    nodes: Mask
    pods: PodCounts


class NodeResourceState:
    """A node resource within one cycle. A subclass overrides what its resource needs; the other methods do nothing.

    It follows the cycle's tentative placements: every change goes through `trial.journal`, so that it is undone with
    them. It may hold a reference to the trial, not to the cycle.
    """

    def concerns(self, pod_class: PodClass) -> bool:
        """Whether pods of a class use the resource; no other method is called for pods that do not."""
        return True

    def alike(self, pod: int) -> Hashable | None:
        """Return a key that is equal for pods of one class that get the same answers as long as none of them is placed
        or evicted; None: the pod shares its answers with no other. If a gang of such pods does not fit, equivalent
        gangs are not tried."""
        return None

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        """Return masks of the nodes on which the pod cannot get the resource; called once per attempt."""
        return ()

    def reject(self, pod: int, node: int) -> str | None:
        """Return why the pod cannot get the resource on a node; for checks too expensive to run for all nodes."""
        return None

    def may_wait(self) -> bool:
        """Whether any of the resource is being released; False: no pod waits for it on any node."""
        return True

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        """Return on which of the nodes the pod must wait for the resource to be released, by position in `nodes`; None:
        on none.

        Such nodes do not count as available now, and a pod placed on one is pipelined.
        """
        return None

    def blockers(self, pod: int) -> Sequence[PodCounts]:
        """Return the pods of which none may stay in the domain of the pod's node: those that make nodes `infeasible`,
        so that victims are chosen among them."""
        return ()

    def companions(self, pod: int) -> Sequence[Companions]:
        """Return the pods that keep other nodes `infeasible` by where they are: only where one of them is a victim the
        pod may be elsewhere."""
        return ()

    @property
    def relieves(self) -> bool:
        """Whether `spared` is not None for some class."""
        return False

    def spared(self, pod_class: PodClass, nodes: Rows) -> Column | None:
        """Return the amounts, [resource, node], that pods of a class do not take from the node columns; None: no
        amounts on any node."""
        return None

    def reserve(self, pod: int, node: int) -> None:
        """Note that a pod got a node, that its placement became a pipelined one, or that its eviction was taken back;
        its status tells which."""

    def release(self, pod: int) -> None:
        """Note that a pod is evicted, tentatively or finally."""

    def unchanged(self, pod: int, node: int) -> bool:
        """Whether an evicted pod that gets its node back has the resource as before, so that it need not restart."""
        return True

    def details(self, pod: int) -> BindDetails | None:
        """Return what the bind of a pod carries for this resource."""
        return None


@runtime_checkable
class NodeResource(Protocol):
    """All must agree. A resource outside the node columns: ports, pod affinity, volumes, devices, NUMA zones. Its state
    filters nodes, decides where a pod waits, reserves and releases with each placement, and adds to binds."""

    def open(self, cycle: Cycle) -> NodeResourceState | None:
        """Return the state of the resource at the start of a cycle; None: nothing in the cluster uses it."""
        ...


def all_points() -> list[type[Any]]:
    """Return the extension points, in the order of this file."""
    here = [each for each in globals().values() if getattr(each, "_is_protocol", False)]
    return [point for point in here if point.__module__ == __name__]


@cache
def _methods() -> dict[type[Any], list[str]]:
    """Return the methods of every extension point; cached, as plugins are checked for every shard."""
    return {point: [name for name in vars(point) if not name.startswith("_")] for point in all_points()}


def gaps(plugin: object) -> list[str]:
    """Return why a plugin would never be called: extension points it implements only in part, or that it implements
    none. Empty: it is complete."""
    found, complete = [], False
    for point, methods in _methods().items():
        missing = [name for name in methods if not hasattr(plugin, name)]
        complete = complete or not missing
        if missing and any(hasattr(plugin, name) for name in methods if name != "concerns"):
            found.append(f"{point.__name__} also needs {' and '.join(missing)}")
    return found if found or complete else ["it implements no extension point"]
