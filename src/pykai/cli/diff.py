"""`kai diff`: compares two snapshots, the objects in them and the decisions on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from pykai.cli.replay import reported_input_errors
from pykai.cli.state import output_option, print_as_data
from pykai.explain.source import Decided, Sections, from_file
from pykai.kube.api import Object
from pykai.model.plan import Key, Plan

ROWS = 40
_IGNORED = ("resourceVersion", "managedFields", "generation")


class ObjectChange(Struct, frozen=True, rename="camel"):
    """An object that was `added`, `removed` or `changed`, and the changed fields."""

    kind: str
    name: str
    change: str
    fields: tuple[str, ...] = ()


class PlanChange(Struct, frozen=True, rename="camel"):
    """A pod or workload with another decision. Empty `before` or `after`: no decision."""

    what: str
    name: str
    before: str
    after: str


class Difference(Struct, frozen=True, rename="camel"):
    """All differences."""

    objects: tuple[ObjectChange, ...]
    plan: tuple[PlanChange, ...]


def difference(before: Decided, after: Decided) -> Difference:
    """Return the difference between two states, both read from complete objects."""
    pods = [PlanChange("pod", *each) for each in _changed(_decisions(before.plan), _decisions(after.plan))]
    gangs = [PlanChange("workload", *each) for each in _changed(_reasons(before.plan), _reasons(after.plan))]
    return Difference(tuple(_objects(before.objects(), after.objects())), (*pods, *gangs))


def _objects(before: Sections, after: Sections) -> Iterator[ObjectChange]:
    for section in dict.fromkeys([*before, *after]):
        old, new = _by_name(before.get(section) or ()), _by_name(after.get(section) or ())
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new:
                yield ObjectChange(section, name, "removed" if name in old else "added")
            elif fields := tuple(_fields(_without_ignored(old[name]), _without_ignored(new[name]), "")):
                yield ObjectChange(section, name, "changed", fields)


def _by_name(objects: Iterable[Object]) -> dict[str, Object]:
    metas = ((obj["metadata"], obj) for obj in objects)
    return {"/".join(filter(None, (meta.get("namespace", ""), meta["name"]))): obj for meta, obj in metas}


def _without_ignored(obj: Object) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key not in _IGNORED}
    return {**obj, "metadata": meta}


def _fields(old: Any, new: Any, path: str) -> Iterator[str]:
    """Return the paths of the fields that differ; lists are compared as a whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _fields(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield path


def _changed(old: Mapping[Key, str], new: Mapping[Key, str]) -> Iterator[tuple[str, str, str]]:
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield "/".join(key), old.get(key, ""), new.get(key, "")


def _decisions(plan: Plan) -> dict[Key, str]:
    found = {each.pod: f"evicted ({each.action})" for each in plan.evictions}
    found |= {each.pod: f"promised {each.node}" for each in plan.nominations}
    return found | {each.pod: f"bound to {each.node}" for each in plan.binds}


def _reasons(plan: Plan) -> dict[Key, str]:
    return {each.gang: f"waits: {each.dominant.token}" for each in plan.verdicts if each.dominant is not None}


@click.command("diff")
@click.argument("before", metavar="A.zip", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", metavar="B.zip", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def diff(before: Path, after: Path, output: str) -> None:
    """Show the differences between two snapshots and between their plans."""
    with reported_input_errors(before):
        old = from_file(before)
    with reported_input_errors(after):
        new = from_file(after)
    result = difference(old, new)
    if not print_as_data(result, output):
        _print_difference(result)


def _print_difference(result: Difference) -> None:
    from pykai.observe import tables

    objects = [(each.change, each.kind, each.name, ", ".join(each.fields)) for each in result.objects]
    plan = [(each.what, each.name, each.before or "-", each.after or "-") for each in result.plan]
    parts = []
    if objects:
        columns = ("change", "kind", "name", "fields")
        parts.append(tables.table(f"Objects: {len(objects)}", columns, tables.first(objects, ROWS)))
    if plan:
        columns = ("what", "name", "before", "after")
        parts.append(tables.table(f"Decisions: {len(plan)}", columns, tables.first(plan, ROWS)))
    tables.show(parts)
    if not parts:
        click.echo("nothing differs")
