"""What a component would refuse at its start, the operator refuses before: it would end, and what runs now be gone.

The programs themselves are above this package, so they are asked through functions that the operator is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from pykai.config.fields import FieldError
from pykai.controllers.operator.desired import Wanted
from pykai.controllers.operator.scheduler_config import FILE

Object = dict[str, Any]


def _takes_it(*_: object) -> Sequence[str]:
    """A program that nobody knows takes everything, and finds a use for it."""
    return ()


@dataclass(frozen=True)
class Programs:
    """How to ask what programs would not take; both raise FieldError.

    `command_line`: of a component, by its name and arguments. `configuration`: of a scheduler, as a document; the lines
    it gives are about what the scheduler would take without any effect.
    """

    command_line: Callable[[str, Sequence[str]], object] = _takes_it
    configuration: Callable[[Object], Sequence[str]] = _takes_it


def accepted(wanted: Wanted, programs: Programs) -> Wanted:
    """What is wanted, without shards whose scheduler would not start; FieldError where another component would not."""
    for title, objects in wanted.operands.items():
        for problem in _wrong_flags(objects, programs):
            raise FieldError(title, problem)
    problems = {name: "; ".join(_wrong_in_shard(objects, programs)) for name, objects in wanted.shards.items()}
    refused = {name: problem for name, problem in problems.items() if problem}
    shards = {name: objects for name, objects in wanted.shards.items() if name not in refused}
    remarks = {name: lines for name, objects in shards.items() if (lines := _remarks(objects, programs))}
    return replace(wanted, shards=shards, refused={**wanted.refused, **refused}, remarks=remarks)


def _wrong_in_shard(objects: Sequence[Object], programs: Programs) -> Iterator[str]:
    for document in _configurations(objects):
        try:
            programs.configuration(document)
        except FieldError as error:
            yield _in_shard(str(error), document)
    yield from (f"spec: {problem}" for problem in _wrong_flags(objects, programs))


def _wrong_flags(objects: Sequence[Object], programs: Programs) -> Iterator[str]:
    for container in (found for item in objects for found in _containers(item)):
        try:
            programs.command_line(container["command"][-1], container["args"])
        except FieldError as error:
            yield str(error)


def _remarks(objects: Sequence[Object], programs: Programs) -> list[str]:
    """What is in vain in the configurations among the objects, all of which are accepted."""
    found = _configurations(objects)
    return [_in_shard(line, document) for document in found for line in programs.configuration(document)]


def _configurations(objects: Sequence[Object]) -> list[Object]:
    """The configurations of schedulers among the objects."""
    data = [item.get("data", {}) for item in objects if item["kind"] == "ConfigMap"]
    return [yaml.safe_load(files[FILE]) for files in data if FILE in files]


_PLUGIN = re.compile(r"^tiers\[0\]\.plugins\[(\d+)\]")


def _in_shard(line: str, document: Object) -> str:
    """A line about the file as one about the shard it was made of."""
    plugin = _PLUGIN.match(line)
    if plugin is None:
        return f"spec.{line}"
    name = document["tiers"][0]["plugins"][int(plugin[1])]["name"]
    return f"spec.plugins.{name}{line[plugin.end() :]}"


def _containers(item: Object) -> list[Object]:
    """The containers of a workload that run a component of ours."""
    template = (item.get("spec") or {}).get("template") or {}
    found = (template.get("spec") or {}).get("containers") or []
    return [container for container in found if (container.get("command") or [""])[0] == "kai"]
