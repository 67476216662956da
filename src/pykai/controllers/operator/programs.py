"""What a component would refuse at its start, the operator refuses before: it would end, and what runs now be gone.

The programs themselves are above this package, so they are asked through functions that the operator is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from pykai.config.fields import FieldError
from pykai.controllers.operator.desired import Wanted
from pykai.controllers.operator.scheduler_config import FILE

Object = dict[str, Any]


def _takes_it(*_: object) -> None:
    """A program that nobody knows takes everything."""


@dataclass(frozen=True)
class Programs:
    """How to ask what programs would not take; both raise FieldError.

    `command_line`: of a component, by its name and arguments. `configuration`: of a scheduler, as a document.
    """

    command_line: Callable[[str, Sequence[str]], None] = _takes_it
    configuration: Callable[[Object], None] = _takes_it


def accepted(wanted: Wanted, programs: Programs) -> Wanted:
    """What is wanted, without shards whose scheduler would not start; FieldError where another component would not."""
    for title, objects in wanted.operands.items():
        for problem in _problems(objects, programs):
            raise FieldError(title, problem)
    problems = {name: "; ".join(_problems(objects, programs)) for name, objects in wanted.shards.items()}
    refused = {name: f"spec: {problem}" for name, problem in problems.items() if problem}
    shards = {name: objects for name, objects in wanted.shards.items() if name not in refused}
    return replace(wanted, shards=shards, refused={**wanted.refused, **refused})


def _problems(objects: Sequence[Object], programs: Programs) -> Iterator[str]:
    for item in objects:
        try:
            if item["kind"] == "ConfigMap" and FILE in item.get("data", {}):
                programs.configuration(yaml.safe_load(item["data"][FILE]))
            for container in _containers(item):
                programs.command_line(container["command"][-1], container["args"])
        except FieldError as error:
            yield str(error)


def _containers(item: Object) -> list[Object]:
    """The containers of a workload that run a component of ours."""
    template = (item.get("spec") or {}).get("template") or {}
    found = (template.get("spec") or {}).get("containers") or []
    return [container for container in found if (container.get("command") or [""])[0] == "kai"]
