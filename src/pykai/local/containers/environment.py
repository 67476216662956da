"""The variables of a container: those it lists, drawn from where it says; and `$(NAME)` in whatever it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pykai.local.containers.sources import Content, NotYetError, Sources

Object = dict[str, Any]
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with every `$(NAME)` of a known variable replaced; `$$` is a dollar."""

    def value(found: re.Match[str]) -> str:
        return variables.get(found[1], found[0]) if found[1] else "$"

    return _REFERENCE.sub(value, text)


async def variables_of(container: Object, sources: Sources, given: Mapping[str, str]) -> dict[str, str]:
    """The `given` variables and, before them, the container's own, in its order."""
    found = dict(given)
    for row in container.get("envFrom") or ():
        found |= await _all_of(row, sources)
    for row in container.get("env") or ():
        value = await _drawn(row, sources) if "valueFrom" in row else expanded(row.get("value", ""), found)
        if value is not None:
            found[row["name"]] = value
    return found


async def _all_of(row: Object, sources: Sources) -> dict[str, str]:
    content: Content = {}
    for kind, ask in (("configMapRef", sources.config_map), ("secretRef", sources.secret)):
        if kind in row:
            content |= await ask(row[kind]["name"], bool(row[kind].get("optional")))
    return {f"{row.get('prefix', '')}{key}": text.decode() for key, text in content.items()}


async def _drawn(row: Object, sources: Sources) -> str | None:
    """A variable's value from elsewhere; None if it is optional and not there."""
    source = row["valueFrom"]
    if "fieldRef" in source:
        return sources.field(source["fieldRef"]["fieldPath"])
    for kind, ask in (("configMapKeyRef", sources.config_map), ("secretKeyRef", sources.secret)):
        if kind in source:
            asked, optional = source[kind], bool(source[kind].get("optional"))
            text = (await ask(asked["name"], optional)).get(asked["key"])
            if text is None and not optional:
                raise NotYetError(f"{asked['name']} has no key {asked['key']!r}")
            return None if text is None else text.decode()
    raise ValueError(f"env {row['name']}: a source of kind {next(iter(source))} is not supported here")
