"""How long plugins take when a cycle opens and when it is read out; for metrics, no decision reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pykai.engine.budgets import Clock
from pykai.engine.policy import Policy

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
