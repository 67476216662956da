"""The result of a cycle: what to write, as values. Carrying it out needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

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
class Pipeline:
    """A pod will get this node once what it waits for is gone; decided anew in each cycle."""

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
    """Who has the place now, where the evictor lost it again in the same cycle."""


class Verdict(msgspec.Struct, frozen=True):
    """Why a gang waits: its reasons as data and text, and the text per pod."""

    gang: Key
    reasons: tuple[tuple[str, str], ...]
    """(code, message) pairs."""
    message: str
    pods: Mapping[Key, str] = msgspec.field(default_factory=dict)
    ready: bool = True


@dataclass(frozen=True)
class GangMark:
    """A timestamp to note on a gang: when it started, was evicted or became stale; None removes it."""

    gang: Key
    what: str
    at: float | None


@dataclass(frozen=True)
class Plan:
    """Decisions in the order in which they were made."""

    binds: tuple[Bind, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    evictions: tuple[Evict, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    marks: tuple[GangMark, ...] = ()
    pending: int = 0
    """Our pods that stay without a node."""
