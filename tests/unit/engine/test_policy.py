"""Which plugins of a policy implement which extension point."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pykai.engine import plugin_api
from pykai.engine.policy import Policy
from pykai.plugins import registry


@dataclass(frozen=True)
class HalfAnOrder:
    """Has one of the two methods of GangOrder."""

    def gang_key(self, trial: object, gang: int) -> float:
        return 0.0


@pytest.mark.parametrize("point", plugin_api.all_points(), ids=lambda point: str(point.__name__))
def test_a_plugin_implements_a_point_as_python_has_it(point: type[object]) -> None:
    plugins = [plugin for name in registry.PLUGINS for plugin in registry.make(name, {})] + [HalfAnOrder()]
    assert Policy(tuple(plugins)).of(point) == tuple(plugin for plugin in plugins if isinstance(plugin, point))
