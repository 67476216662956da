"""The result of a cycle as values: all that a scheduler writes, shows or waits for. Nothing else leaves the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from pykai.model.statistics import ActionStatistics, QueueFigures, SearchStatistics, Timings, Triple

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
    """A pod is pipelined to this node: it starts there once what it waits for is gone. Decided anew in each cycle."""

    pod: Key
    node: str
    gpu_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evict:
    """Delete a pod so that another workload, or the pod itself elsewhere, can have its place."""

    pod: Key
    gang: Key
    action: str
    message: str
    evictor: Key | None
    victims: int
    """How many pods the same decision evicts."""
    moves_to: str = ""
    """The node the pod itself is meant for next, where it moves."""
    heir: Key | None = None
    """The gang that has the place now, where the evictor lost it again in the same cycle."""


class QueueDetails(msgspec.Struct, frozen=True):
    """The figures of a queue that is full, by which a gang was refused."""

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


class Verdict(msgspec.Struct, frozen=True):
    """Why a gang waits: its reasons as data and text, and the text of each of its waiting pods."""

    gang: Key
    reasons: tuple[Reason, ...]
    message: str
    pods: Mapping[Key, str] = msgspec.field(default_factory=dict)
    not_ready: str = ""
    """Why the gang cannot be tried at all: it has too few pods; empty where it can."""
    has_place: bool = False
    """Whether some of its pods have a node: then the gang as a whole is not unschedulable."""

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
    """Our pods that stay without a node."""
    stale: Mapping[Key, str] = field(default_factory=dict)
    """Gangs that run below their minimum, and the message for each."""
    cleared: tuple[Key, ...] = ()
    """Gangs that do not wait any more and still show a condition from when they did."""
    deadline: float | None = None
    """The next instant at which time alone may change the decision; None: nothing depends on time."""
    queues: tuple[QueueFigures, ...] = ()
    actions: Mapping[str, ActionStatistics] = field(default_factory=dict)
    """What each action cost and did, in the order in which they ran."""
    searches: tuple[SearchStatistics, ...] = ()
    timings: Timings = Timings()
