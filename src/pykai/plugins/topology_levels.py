"""Which levels of a topology a constraint names, and whether a topology has them (spec/scheduling.md §12).

Depths count levels from the widest, 1; 0 is the root. Not a plugin: how the topology plugin reads its constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykai.model.gangs import TopologyRequirement


class ConstraintError(ValueError):
    """A constraint that no cluster could satisfy: it names an unknown topology, an unknown level, or no level."""


@dataclass(frozen=True)
class Depths:
    """Depths of the levels a constraint names; 0 where it names none."""

    required: int
    preferred: int

    @property
    def deepest(self) -> int:
        return max(self.required, self.preferred)

    def candidates(self, common: int = 0) -> range:
        """Depths to look for domains at, narrow ones first; one domain holds all nodes down to depth `common`."""
        return range(self.deepest, max(self.required, common) - 1, -1)


def depths(topologies: Mapping[str, Sequence[str]], wish: TopologyRequirement, sub_group: str) -> Depths:
    """Where the levels are that a constraint of a sub-group names; without a name it is the whole workload's."""
    if wish.topology not in topologies:
        raise ConstraintError(f"Requested topology {wish.topology} does not exist")
    if not wish.required and not wish.preferred:
        whom = f"subgroup {sub_group}" if sub_group else "workload"
        raise ConstraintError(f"no topology constraints were found for {whom}, with topology name {wish.topology}")
    who = f"sub-group {sub_group}" if sub_group else "workload"
    known = {"": 0, **{level: depth for depth, level in enumerate(topologies[wish.topology], start=1)}}
    for kind, level in (("required", wish.required), ("preferred", wish.preferred)):
        if level not in known:
            raise ConstraintError(
                f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, "
                f"but the topology tree '{wish.topology}' does not contain a level with this name"
            )
    return Depths(known[wish.required], known[wish.preferred])
