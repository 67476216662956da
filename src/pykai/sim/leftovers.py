"""Takes away what nobody needs any more: finished pods and the groups made for them, so that long runs stay small.

A finished pod stays while others of its group run: a gang that has lost members to success is not a broken one.
"""

from __future__ import annotations

from pykai.sim.history import PodLife
from pykai.sim.stage import Stage
from pykai.sim.store import Key


class Leftovers:
    """Knows the members of every group, those that are gone included."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._members: dict[Key, list[Key]] = {}
        self._made: set[Key] = set()

    def made(self, group: Key) -> None:
        """A PodGroup that nobody wrote: it goes with its pods."""
        self._made.add(group)

    def joined(self, life: PodLife) -> None:
        """A pod came into its group."""
        self._members.setdefault((life.namespace, life.group), []).append(life.key)

    def sweep(self, life: PodLife) -> None:
        """A pod has ended, and its group expects no others: was it the last?"""
        group = (life.namespace, life.group)
        members = self._members[group]
        if any(self._stage.history.lives[pod].ended_at is None for pod in members):
            return
        for pod in members:
            self._stage.store.remove("Pod", pod)
        members.clear()
        if group in self._made:
            self._stage.store.remove("PodGroup", group)
