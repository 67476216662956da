"""Plugins by name: what is not there, or only half there, is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pykai.plugins import registry


@dataclass(frozen=True)
class ScoresNobodyAsks:
    """A PodScore that forgot to say whom it concerns."""

    def pod_score(self, cycle: Any, pod: int) -> None:
        return None


@dataclass(frozen=True)
class Chooser:
    """A VictimChoice without a name."""

    def worth_a_look(self, found: Any) -> list[int]:
        return []

    def choices(self, found: Any, latest: int, needs: Any) -> list[int]:
        return []


@dataclass(frozen=True)
class Idler:
    """Implements nothing."""


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (ScoresNobodyAsks(), "plugin 'mine': ScoresNobodyAsks: PodScore also needs concerns"),
        (Chooser(), "plugin 'mine': Chooser: VictimChoice also needs generator"),
        (Idler(), "plugin 'mine': Idler: it implements no extension point"),
    ],
)
def test_a_plugin_that_would_never_be_heard_is_refused(
    monkeypatch: pytest.MonkeyPatch, plugin: object, message: str
) -> None:
    monkeypatch.setitem(registry.PLUGINS, "mine", lambda _: (plugin,))
    with pytest.raises(registry.IncompletePluginError, match=message):
        registry.make("mine")


@pytest.mark.parametrize("name", registry.PLUGINS)
def test_every_plugin_of_the_table_is_complete(name: str) -> None:
    registry.make(name)


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(registry.UnknownPluginError, match=r"'nope' does not exist \(known: .*proportion"):
        registry.make("nope")
