"""What a cycle cost and how the queues stand in it, for metrics and reports. No decision reads any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Triple = tuple[float, float, float]
"""cpu (milli), memory (bytes), GPUs (devices)."""


class SearchResult(StrEnum):
    """How a search for victims ended, in the words of KAI's metrics."""

    SOLVED = "solved"
    UNSOLVED = "unsolved"
    """Nothing was found: by one generator; of a whole search: arithmetic ruled it out before any generator ran."""
    VALIDATOR_REJECTED = "validator_rejected"
    """The evictions would have made enough room, but none of them was justified."""
    GENERATORS_EXHAUSTED = "generators_exhausted"
    """Every generator came to its end, or to the end of its own budget."""
    NO_GENERATOR = "no_generator"
    DEADLINE_EXHAUSTED = "deadline_exhausted"
    NOT_ATTEMPTED = "not_attempted"
    """There was no time left to begin."""

    @property
    def ends_action(self) -> bool:
        """Whether the action stops searching: its time is used up."""
        return self in (SearchResult.DEADLINE_EXHAUSTED, SearchResult.NOT_ATTEMPTED)


class ScenarioState(StrEnum):
    """What became of a scenario, in the words of KAI's metrics. Every emitted one is a duplicate or simulated."""

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
    """One gang's search. `reduced_budget`: its action had less time left than a gang may search."""

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
    """Gangs that got a place by it, and had none by an earlier action."""
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
