"""The result of a cycle as values: all that a scheduler writes, shows or waits for. The engine returns nothing else.

Statistics and queue figures are for metrics and reports: no decision depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

Triple = tuple[float, float, float]
"""cpu (milli), memory (bytes), GPUs (devices)."""


class SearchResult(StrEnum):
    """The result of a search for victims, as a label value of KAI's metrics."""

    SOLVED = "solved"
    UNSOLVED = "unsolved"
    """A generator found no victims; as the result of a whole search: a bound ruled it out before any generator ran."""
    VALIDATOR_REJECTED = "validator_rejected"
    """The evictions would have made enough room, but none of them was justified."""
    GENERATORS_EXHAUSTED = "generators_exhausted"
    """Every generator was exhausted, or its own time budget was."""
    NO_GENERATOR = "no_generator"
    DEADLINE_EXHAUSTED = "deadline_exhausted"
    NOT_ATTEMPTED = "not_attempted"
    """There was no time left to begin."""

    @property
    def ends_action(self) -> bool:
        """Whether the action stops searching: its time is used up."""
        return self in (SearchResult.DEADLINE_EXHAUSTED, SearchResult.NOT_ATTEMPTED)


class ScenarioState(StrEnum):
    """The result of a scenario, as a label value of KAI's metrics. Every emitted one is a duplicate or simulated."""

    FILTERED = "filtered"
    """Arithmetic shows that it cannot make enough room."""
    EMITTED = "emitted"
    DUPLICATE = "duplicate"
    SIMULATED = "simulated"
    VALIDATOR_REJECTED = "validator_rejected"


@dataclass(frozen=True)
class GeneratorStatistics:
    """One generator's part of one search."""

    generator: str
    result: SearchResult
    seconds: float
    states: Mapping[ScenarioState, int]


@dataclass(frozen=True)
class SearchStatistics:
    """One gang's search. `reduced_budget`: its action had less time left than the budget of one gang."""

    action: str
    result: SearchResult
    reduced_budget: bool
    generators: tuple[GeneratorStatistics, ...] = ()


@dataclass(frozen=True)
class ActionStatistics:
    """One run of an action, in seconds of the clock that `decide` was given."""

    seconds: float = 0.0
    tried: int = 0
    """Gangs it tried to place."""
    started: int = 0
    """Gangs that it placed and no earlier action had placed."""
    budget_exhausted: bool = False
    """Whether a search had less time, or none, because the action's budget was spent."""


@dataclass(frozen=True)
class Timings:
    """Seconds of the clock that `decide` was given; plugins by their configured name."""

    opening: float = 0.0
    closing: float = 0.0
    plugins_opening: Mapping[str, float] = field(default_factory=dict)
    plugins_closing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueFigures:
    """A queue after a cycle. `usage` is the normalised use over time that the snapshot states."""

    name: str
    display_name: str
    fair_share: Triple
    allocated: Triple
    requested: Triple
    usage: Triple


Key = tuple[str, str]
"""Namespace and name."""


class Bind(msgspec.Struct, frozen=True):
    """Give a pod a node now."""

    pod: Key
    node: str
    resource_type: str
    devices: int
    portion: float
    gpu_groups: tuple[str, ...] = ()
    claims: tuple[tuple[str, Mapping[str, object]], ...] = ()
    extended_claim: Mapping[str, object] | None = None
    """The claim to be made for extended resources: allocation, deviceRequests, containerMappings."""
    numa_zones: tuple[tuple[str, Mapping[str, str]], ...] = ()


@dataclass(frozen=True)
class Nomination:
    """A pod is pipelined to this node: bound once the pods it waits for are gone. Decided again in each cycle."""

    pod: Key
    node: str
    gpu_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evict:
    """Delete a pod, so that another workload can use its resources, or that the pod restarts on another node."""

    pod: Key
    gang: Key
    action: str
    message: str
    evictor: Key | None
    victims: int
    """How many pods the same decision evicts."""
    moves_to: str = ""
    """The node that the pod is nominated to next, if it moves; else empty."""
    heir: Key | None = None
    """The gang placed on the freed resources instead, if the evictor lost them again in the same cycle."""


class QueueDetails(msgspec.Struct, frozen=True):
    """The figures of a queue whose limit or quota a gang would exceed."""

    name: str
    requested: Triple
    deserved: Triple
    allocated_non_preemptible: Triple
    gang_requested: Triple
    gang_requested_non_preemptible: Triple
    allocated: Triple
    limit: Triple


class Reason(msgspec.Struct, frozen=True):
    """One reason why a gang waits: a code for programs, a message for people."""

    code: str
    message: str
    queue: QueueDetails | None = None
    domain: str = ""
    """The topology domain the reason is about; empty: all nodes."""


class Category(StrEnum):
    """What a workload waits for. If several apply, the first one dominates."""

    MISCONFIGURED = "misconfigured"
    NOT_READY = "not ready"
    """Pods are missing, or have scheduling gates."""
    NEVER_FITS = "can never fit"
    QUEUE_POLICY = "queue policy"
    SHORTAGE = "shortage"
    VICTIMS = "waiting for victims"
    BINDING = "binding"


class Dominant(msgspec.Struct, frozen=True):
    """The dominant reason of a verdict, for displays that show one: token, category and text."""

    token: str
    category: Category
    message: str


class ActionVerdict(msgspec.Struct, frozen=True):
    """The result of one action for a pending gang; `code` is a token such as ReclaimQueueAtFairShare."""

    action: str
    code: str
    message: str
    found: int = 0
    """For a gang that allocate tried: for how many pods nodes were found, of how many `needed`; 0 of 0: unknown."""
    needed: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """Why a gang waits: its reasons as data and text, and the text of each of its waiting pods."""

    gang: Key
    reasons: tuple[Reason, ...]
    message: str
    pods: Mapping[Key, str] = msgspec.field(default_factory=dict)
    not_ready: str = ""
    """Why the gang has too few pods to be tried; empty: it has enough."""
    has_place: bool = False
    """Whether some of its pods have a node; then the gang as a whole is not unschedulable."""
    actions: tuple[ActionVerdict, ...] = ()
    """The result of each configured action, in the order in which they ran."""
    dominant: Dominant | None = None
    """The reason that matters most; a plan has one for every verdict."""

    @property
    def ready(self) -> bool:
        """Whether the gang has enough pods to be tried."""
        return not self.not_ready


@dataclass(frozen=True)
class Timestamp:
    """An instant to write on a gang: `last-start`, `last-eviction` or `stale`; None removes it."""

    gang: Key
    what: str
    at: float | None


@dataclass(frozen=True)
class Plan:
    """Decisions in the order in which they were made."""

    binds: tuple[Bind, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    evictions: tuple[Evict, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    timestamps: tuple[Timestamp, ...] = ()
    pending: int = 0
    """Number of this scheduler's pods that stay without a node."""
    stale: Mapping[Key, str] = field(default_factory=dict)
    """Gangs that run below their minimum, and the message for each."""
    core_pods: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    """Semi-preemptible gangs -> the names of the pods that cannot be evicted, sorted."""
    cleared: tuple[Key, ...] = ()
    """Gangs that are no longer pending and still have an unschedulable condition."""
    deadline: float | None = None
    """The next instant at which time alone may change a decision; None: no decision depends on time."""
    queues: tuple[QueueFigures, ...] = ()
    actions: Mapping[str, ActionStatistics] = field(default_factory=dict)
    """Statistics of each action, in the order in which they ran."""
    searches: tuple[SearchStatistics, ...] = ()
    timings: Timings = Timings()
