"""How long plugins take at the start of a cycle and when its plan is built. For metrics only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pykai.engine.budgets import Clock
from pykai.engine.policy import Policy

Answer = TypeVar("Answer")


class PluginTimes:
    """Seconds by configured plugin name; 0 for plugins that do nothing at this stage."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(policy.names, 0.0)
        self._clock = clock
        self._names = {id(plugin): name for plugin, name in zip(policy.plugins, policy.names, strict=False)}

    def of(self, plugin: object, ask: Callable[[], Answer]) -> Answer:
        """Return the plugin's answer, and add the time it takes to that of the plugin."""
        began = self._clock()
        answer = ask()
        name = self._names.get(id(plugin))
        if name is not None:
            self.seconds[name] += self._clock() - began
        return answer
