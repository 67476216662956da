"""Extension points: tiny Protocols; the docstring of each states how several plugins compose.

A plugin is a frozen dataclass that implements one or more of them. It takes and returns values and columns, and
keeps no state of the cluster. Third parties register plugins by the entry point group `pykai.plugins`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Mask, Rows
from pykai.model.snapshot import Snapshot

if TYPE_CHECKING:
    from pykai.engine.accumulated import Accumulated
    from pykai.engine.cycle import Cycle
    from pykai.engine.queues import OverCapacity, QueueBook, QueueKey, Taking, Triple
    from pykai.engine.reasons import GangError
    from pykai.engine.scenario import Scenario
    from pykai.engine.trial import Trial
    from pykai.engine.whereabouts import Tally

Rejection = tuple[str, Mask]
"""Why, and which nodes."""
ANY = "any"
"""The `class_key` where a plugin does not distinguish classes of pods at all."""


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
class LiveFilter(Protocol):
    """All must agree. Depends on what this cycle has placed, so it is asked for each pod and candidate node."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def reject(self, cycle: Cycle, pod: int, node: int) -> str | None: ...


@runtime_checkable
class LiveMask(Protocol):
    """All must agree. Like a LiveFilter, but answers for all nodes at once: asked once for each pod."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]: ...


@runtime_checkable
class Blockers(Protocol):
    """All count: pods of whom none may stay in the domain of a node for a pod to be placed there. What a LiveMask
    closes, told by who closes it, so that victims are chosen among them."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def blockers(self, cycle: Cycle, pod: int) -> Sequence[Tally]: ...


@runtime_checkable
class WaitRule(Protocol):
    """Any may demand it: the pod has the node, but something there that no column counts has to be gone first."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool: ...


@runtime_checkable
class Lateness(Protocol):
    """Any may say so: nodes where a pending pod would have to wait for something that no column counts; None: nowhere.
    They do not count as free at once when nodes are compared."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def late(self, cycle: Cycle, pod: int) -> Mask | None: ...


@runtime_checkable
class PodGate(Protocol):
    """First refusal wins; asked once per pod before any node is looked at.

    One that says `by_class = True` answers alike for all pods of a class.
    """

    def refuse(self, cycle: Cycle, pod: int) -> Refusal | None: ...


@dataclass(frozen=True)
class Refusal:
    """Why a pod cannot be placed anywhere; `lasting`: evicting others cannot change it."""

    message: str
    lasting: bool = False


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

    A plugin that never makes a node worse for having less free may declare `packs`: how far its scores lie apart at
    most. Then gangs fill nodes without looking at all others after every pod.
    """

    def measured(self, pod_class: PodClass) -> int | None:
        """The row of the resource; None: all nodes are alike to pods of the class."""
        ...

    def relative(self, measure: Column, low: float, high: float) -> Column:
        """Scores by what nodes have free; NaN on nodes that do not offer the resource."""
        ...


@runtime_checkable
class PodScore(Protocol):
    """Sum over plugins. A score for one pod over all nodes, or None where the plugin has no opinion."""

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
    """First difference wins, in plugin order; smaller keys go first. Pods are told apart by the value of one label,
    None where a pod does not have it."""

    @property
    def pod_label(self) -> str: ...

    def pod_key(self, value: str | None) -> Any: ...


@runtime_checkable
class MemberOrder(Protocol):
    """First difference wins: order of a gang's sub-groups by how well they are served."""

    def member_key(self, members: int, threshold: int) -> Any: ...


@runtime_checkable
class QuotaPolicy(Protocol):
    """At most one: fair shares, limits, the order of queues, and who may reclaim."""

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
class VictimFilter(Protocol):
    """All must agree: whether a gang may be considered as a victim for another one."""

    def judges(self, cycle: Cycle, action: str) -> bool:
        """Whether the filter has anything to say about victims of this action."""
        ...

    def may_evict(self, cycle: Cycle, action: str, gang: int, victim: int) -> bool: ...


@runtime_checkable
class VictimChoice(Protocol):
    """Tried in turn, in plugin order, until one finds victims that help; without any, nobody is evicted for others.

    A way of choosing among the victims that were accumulated up to some batch ("generator" in KAI).
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


@runtime_checkable
class CycleStart(Protocol):
    """All are told once, before the first action: for plugins that keep books beside the node columns."""

    def start(self, cycle: Cycle) -> None: ...


@runtime_checkable
class NeedRelief(Protocol):
    """Sum over plugins: what a class need not find free on nodes, being shared there or coming another way."""

    def relieves(self, cycle: Cycle) -> bool:
        """Whether anything at all is spared in this cycle: asked once, when it has started."""
        ...

    def spared(self, cycle: Cycle, pod_class: PodClass, nodes: Rows) -> Column | None:
        """[resource, node] amounts; None: nothing anywhere."""
        ...


@runtime_checkable
class KeepRule(Protocol):
    """All must agree: whether an evicted pod that gets its node back has all as before, so that it simply stays."""

    def unchanged(self, cycle: Cycle, pod: int, node: int) -> bool: ...


@runtime_checkable
class PlacementObserver(Protocol):
    """All are told of each placement and its undoing; for resources that live outside the node columns.

    Told again where a placement changes its kind: one that has to wait after all, one that was supposed to be evicted
    and stays (its status says which).
    """

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool: ...

    def placed(self, cycle: Cycle, pod: int, node: int) -> None: ...

    def evicted(self, cycle: Cycle, pod: int) -> None: ...


@runtime_checkable
class BindDetails(Protocol):
    """All are asked: what a bind must carry beside node and devices."""

    def claims(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """(claim name in the pod, allocation) pairs."""
        ...

    def zones(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, str]]]:
        """(NUMA zone, amounts) pairs."""
        ...

    def extended_claim(self, cycle: Cycle, pod: int) -> Mapping[str, Any] | None:
        """The claim to be made for the pod's extended resources; None: it needs none."""
        ...


def all_points() -> list[type[Any]]:
    """The extension points, in the order of this file."""
    here = [each for each in globals().values() if getattr(each, "_is_protocol", False)]
    return [point for point in here if point.__module__ == __name__]


def gaps(plugin: object) -> list[str]:
    """What keeps a plugin from being asked: a point it has only a part of, or none at all. Empty: it is complete."""
    found, complete = [], False
    for point in all_points():
        methods = [name for name in vars(point) if not name.startswith("_")]
        missing = [name for name in methods if not hasattr(plugin, name)]
        complete = complete or not missing
        if missing and any(hasattr(plugin, name) for name in methods if name != "concerns"):
            found.append(f"{point.__name__} also needs {' and '.join(missing)}")
    return found if found or complete else ["it implements no extension point"]
