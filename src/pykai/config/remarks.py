"""What a scheduler's configuration says in vain: arguments that no plugin asks for, values that a default stands for.

KAI takes such configurations without a word; they are taken here, too, but told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from weakref import ref

from pykai.config.scheduler import Make, PluginChoice, SchedulerConfig
from pykai.objects import duration


def _length_of_time(text: str) -> str:
    try:
        return "is negative: 0s is used" if duration.parse_long(text) < 0 else ""
    except duration.DurationError:
        return "is not a duration such as 30m or 1h: 0s is used"


def _way_to_resolve(text: str) -> str:
    return "" if text in ("lca", "queue") else "is neither lca nor queue: lca is used"


def _counts(_: str) -> str:
    return ""


READ: Final[Mapping[tuple[str, str], Callable[[str], str]]] = {
    ("minruntime", "defaultPreemptMinRuntime"): _length_of_time,
    ("minruntime", "defaultReclaimMinRuntime"): _length_of_time,
    ("minruntime", "reclaimResolveMethod"): _way_to_resolve,
}
"""Arguments with values that count as not given, and what to say of such a value; empty where it counts."""


class _Heard(Mapping[str, str]):
    """Arguments that remember which of them somebody asked for."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.asked.add(key)
        return self._given[key]

    def __iter__(self) -> Iterator[str]:
        self.asked.update(self._given)
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def remarks(config: SchedulerConfig, make: Make) -> list[str]:
    """A line for everything in the configuration that has no effect, with its path; the configuration can be made."""
    choices = config.plugins or ()
    return [line for number, choice in enumerate(choices) for line in _of_plugin(choice, choices[:number], make)]


def _of_plugin(choice: PluginChoice, before: tuple[PluginChoice, ...], make: Make) -> Iterator[str]:
    if choice.name in (other.name for other in before):
        yield f"{choice.path}.name: plugin {choice.name} is named before: its word counts twice"
    asked = _asked_for(choice, make)
    known = f"known: {', '.join(sorted(asked))}" if asked else "it takes none"
    for name, text in choice.arguments.items():
        path = f"{choice.path}.arguments.{name}"
        if name not in asked:
            yield f"{path}: plugin {choice.name} has no such argument ({known}): it has no effect"
        elif wrong := READ.get((choice.name, name), _counts)(text):
            yield f"{path}: {text!r} {wrong}"


def _asked_for(choice: PluginChoice, make: Make) -> set[str]:
    """The arguments that the plugin asks for when it is made: all of them if it keeps them, as it may ask later."""
    heard = _Heard(choice.arguments)
    asked, kept = heard.asked, ref(heard)
    made = make(choice.name, heard)
    del heard
    return {*choice.arguments} if made and kept() is not None else asked
