"""How long plugins take when a cycle opens and when it is read out; for metrics, no decision reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pykai.engine.budgets import Clock
from pykai.engine.points import BindDetails
from pykai.engine.policy import Policy

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle

Answer = TypeVar("Answer")


class PluginTimes:
    """Seconds by configured name; a plugin that has nothing to do at this stage has spent 0."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(policy.names, 0.0)
        self._clock = clock
        self._names = {id(plugin): name for plugin, name in zip(policy.plugins, policy.names, strict=False)}

    def of(self, plugin: object, ask: Callable[[], Answer]) -> Answer:
        """What the plugin answers; the time it takes is added to its own."""
        began = self._clock()
        answer = ask()
        name = self._names.get(id(plugin))
        if name is not None:
            self.seconds[name] += self._clock() - began
        return answer


@dataclass(frozen=True)
class TimedDetails:
    """A plugin's BindDetails, timed."""

    plugin: BindDetails
    times: PluginTimes

    def claims(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        return self.times.of(self.plugin, partial(self.plugin.claims, cycle, pod))

    def zones(self, cycle: Cycle, pod: int) -> Sequence[tuple[str, Mapping[str, str]]]:
        return self.times.of(self.plugin, partial(self.plugin.zones, cycle, pod))

    def extended_claim(self, cycle: Cycle, pod: int) -> Mapping[str, Any] | None:
        return self.times.of(self.plugin, partial(self.plugin.extended_claim, cycle, pod))
