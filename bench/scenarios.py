"""What is measured: one row per scenario, and how many pods wait in it at each size.

The sizes and pending pods are those behind KAI's figures, so that the same file is compared. Above `FULL_UP_TO` nodes
KAI was given fewer pending pods, because it would not have come to an end; `few` is that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SIZES = (100, 1_000, 5_000, 10_000)
QUICK = (1_000,)
FULL_UP_TO = 1_000
"""Nodes up to which a scenario gets the generator's own number of pending pods."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """`targets`: size -> how many times less CPU than KAI's is asked for; `most_seconds`: size -> CPU that is allowed
    where KAI does not finish."""

    name: str
    what: str
    few: int | None = None
    """Pending pods (gangs, in reclaim-mixed) above FULL_UP_TO nodes; None: always the generator's own number."""
    grain: int = 1
    """The number of nodes is a multiple of this."""
    targets: Mapping[int, float] = field(default_factory=dict)
    most_seconds: Mapping[int, float] = field(default_factory=dict)

    def case(self, size: int) -> Case:
        """The scenario at a nominal size."""
        nodes = -(-size // self.grain) * self.grain
        return Case(self, size, nodes, None if size <= FULL_UP_TO else self.few)


@dataclass(frozen=True)
class Case:
    """A scenario at one size. `pending` None: the generator's own number."""

    scenario: Scenario
    size: int
    nodes: int
    pending: int | None

    @property
    def key(self) -> str:
        """What KAI's figures are filed under."""
        return f"{self.scenario.name}-{self.size}"

    @property
    def target(self) -> float | None:
        return self.scenario.targets.get(self.size)

    @property
    def most_seconds(self) -> float | None:
        return self.scenario.most_seconds.get(self.size)


EVERY_FILE = {1_000: 40.0, 5_000: 100.0}
"""Size -> the least that is asked of every file."""


def _all_sizes(times: float) -> dict[int, float]:
    """So many times at every size, and nowhere less than of every file."""
    return {size: max(times, EVERY_FILE.get(size, 0.0)) for size in (500, *SIZES)}


SCENARIOS = (
    Scenario(
        "allocate-single",
        "one-GPU pods, each its own group, on an empty cluster",
        5_000,
        targets=EVERY_FILE,
    ),
    Scenario("allocate-gang", "gangs of 16 pods of eight GPUs", 5_000, targets=EVERY_FILE),
    Scenario("fractions", "shares of devices, by fraction and by memory", 5_000, targets=EVERY_FILE),
    Scenario(
        "backlog", "a full cluster and 5,000 pods that cannot be placed", 5_000, grain=16, targets=_all_sizes(100)
    ),
    Scenario("topology", "gangs with required and preferred levels", grain=256, targets=_all_sizes(20)),
    Scenario("preempt", "a full cluster, higher priority arrives in the same queues", 100, targets=_all_sizes(50)),
    Scenario("reclaim-single", "queues below their quota take back single GPUs", 100, targets=_all_sizes(50)),
    Scenario("reclaim-mixed", "the same with gangs and pods of all sizes", 50, targets=_all_sizes(50)),
    Scenario(
        "reclaim-large",
        "one gang takes back half of the cluster",
        targets=_all_sizes(50),
        most_seconds={5_000: 10.0},
    ),
    Scenario("reclaim-unsched", "a gang for which no victims help: time to say no", targets=_all_sizes(200)),
    Scenario("consolidation", "pods that fit only if others move together", 100, targets=_all_sizes(20)),
    Scenario("consolidation-hard", "the same, with more to move than may be moved", 20, targets=_all_sizes(20)),
)
"""The targets are those of the project's plan; a size without one is measured and not judged. Each is held against the
cycle with a filled cache, as a live scheduler has it."""
