"""Shared GPUs: who holds how much memory of which device (spec/scheduling.md §4).

A device that is shared is a *group*; its id is what the binder's reservation pod is named after. All amounts are MiB
of device memory. A group that is only being released counts as a releasing whole device (`marked`).
"""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """The state of one shared device."""

    used: float = 0.0
    allocated: float = 0.0
    releasing: float = 0.0
    marked: bool = False

    def holds(self, memory: float, capacity: float) -> bool:
        """Whether a request fits beside what stays on the device, counting what is being released."""
        return (
            self.used != 0
            and capacity - self.allocated + self.releasing - memory >= 0
            and self.allocated != self.releasing
        )

    def holds_now(self, memory: float, capacity: float) -> bool:
        """Whether a request fits without waiting for a release; a device that is only promised is waited for."""
        return self.allocated > 0 and capacity - self.allocated - memory >= 0


EMPTY = Share()
Shares = dict[str, Share]
"""Group id -> state, of one node."""
