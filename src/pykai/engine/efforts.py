"""What searches for victims cost and how they ended, for metrics (spec/operations.md §6.1). No decision reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """How a search ended, in the words of KAI's metrics."""

    SOLVED = "solved"
    UNSOLVED = "unsolved"
    """Nothing was found: by one generator; of a whole search: figures told so before any generator was asked."""
    VALIDATOR_REJECTED = "validator_rejected"
    """There would have been room, but nothing that made it was justified."""
    GENERATORS_EXHAUSTED = "generators_exhausted"
    """Every generator came to its end, or to the end of its own budget."""
    NO_GENERATOR = "no_generator"
    DEADLINE_EXHAUSTED = "deadline_exhausted"
    NOT_ATTEMPTED = "not_attempted"
    """There was no time left to begin."""

    @property
    def ends_action(self) -> bool:
        """Whether nobody else need try: the time is used up."""
        return self in (Result.DEADLINE_EXHAUSTED, Result.NOT_ATTEMPTED)


class State(StrEnum):
    """What became of a scenario, in the words of KAI's metrics. Every emitted one is a duplicate or simulated."""

    FILTERED = "filtered"
    """Figures told that it cannot make enough room."""
    EMITTED = "emitted"
    DUPLICATE = "duplicate"
    SIMULATED = "simulated"
    VALIDATOR_REJECTED = "validator_rejected"


@dataclass(frozen=True)
class GeneratorEffort:
    """One generator's part of one search."""

    generator: str
    result: Result
    seconds: float
    states: Mapping[State, int]


@dataclass(frozen=True)
class SearchEffort:
    """One gang's search. `reduced_budget`: its action had less time left than a gang may search."""

    action: str
    result: Result
    reduced_budget: bool
    generators: tuple[GeneratorEffort, ...] = ()
