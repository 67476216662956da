"""Fields of schemas as tables: chart values, and the spec of Config and SchedulingShard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from docs.generate import markdown, policies
from pykai.objects.crds import DEFINITIONS

CHART = Path(__file__).parents[2] / "charts" / "kai-scheduler"
Schema = Mapping[str, Any]

VALUES = """# Values of the chart

Generated from `charts/kai-scheduler/values.schema.json` and `values.yaml` by `make docs`. `helm` refuses a value that
is not in this table. Most values become fields of the Config `kai-config` ([configuration](configuration.md)), those
of `scheduler` fields of the SchedulingShard `default`.
"""
CONFIGURATION = """# Configuration

Generated from the code by `make docs`. The operator reads one Config, named `kai-config`, and every SchedulingShard;
the chart creates both from its [values](values.md). A change of either is rolled out at once:

    kubectl patch config.kai.scheduler kai-config --type merge -p '{"spec":{"global":{"jsonLog":true}}}'
    kubectl patch schedulingshard default --type merge -p '{"spec":{"args":{"v":"5"}}}'
"""
SHARED = ("service", "vpa", "image", "resources", "k8sClientConfig", "podDisruptionBudget")
"""Parts that several components have: described once, in sections of their own."""


def values_page() -> str:
    """reference/values.md."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = [(f"`{path}`", markdown.code(_at(given, path)), about) for path, about in values(schema)]
    return f"{VALUES}\n{markdown.table(('value', 'default', 'meaning'), rows)}"


def values(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every value that is not a map of named values, with what it means."""
    for name, field in (schema.get("properties") or {}).items():
        path = f"{prefix}{name}"
        if field.get("properties"):
            yield from values(field, f"{path}.")
        else:
            yield path, _meaning(field)


def _at(given: Any, path: str) -> Any:
    for name in path.split("."):
        given = given.get(name) if isinstance(given, dict) else None
    return given


def _meaning(field: Schema) -> str:
    chosen = ", ".join(f"`{each}`" for each in field.get("enum") or ())
    return f"{field.get('description', '')} {f'One of {chosen}.' if chosen else ''}".strip()


def configuration_page() -> str:
    """reference/configuration.md."""
    kinds = [each for each in DEFINITIONS if each.kind in ("Config", "SchedulingShard")]
    parts: dict[str, Schema] = {}
    sections = [f"## {each.kind}\n\n{each.doc}\n\n{_fields(each.spec, parts)}" for each in kinds]
    while missing := [name for name in parts if f"### {name}\n" not in "".join(sections)]:
        sections.append(f"### {missing[0]}\n\n{_fields(parts[missing[0]], parts)}")
    return "\n".join([CONFIGURATION, *sections, policies.sections()])


def described(spec: Schema) -> str:
    """A table of all fields of a kind."""
    return _fields(spec, None)


def _fields(schema: Schema, parts: dict[str, Schema] | None) -> str:
    """`parts` collects what is to be described in a section of its own; None: nothing is."""
    return markdown.table(("field", "default", "meaning"), list(_rows(schema, "", parts)))


def _rows(schema: Schema, prefix: str, parts: dict[str, Schema] | None) -> Iterator[Sequence[str]]:
    for name, field in (schema.get("properties") or {}).items():
        path, inner = f"{prefix}{name}", field
        for key, mark in (("additionalProperties", ".*"), ("items", "[]")):
            if isinstance(field.get(key), Mapping) and field[key].get("properties"):
                yield f"`{path}`", "", _meaning(field)
                path, inner = path + mark, field[key]
        if not inner.get("properties"):
            yield f"`{path}`", markdown.code(field.get("default")), _meaning(field)
        elif parts is not None and name in SHARED:
            parts.setdefault(name, field)
            yield f"`{path}`", _usual(field), f"{_meaning(field)} Fields: [{name}](#{name.lower()})."
        else:
            yield from _rows(inner, f"{path}.", parts)


def _usual(field: Schema) -> str:
    """What differs from component to component: whether it runs, and the name of its image."""
    fields = field["properties"]
    image = (fields.get("image") or {}).get("properties") or fields
    found = {"enabled": fields.get("enabled", {}).get("default"), "image": image.get("name", {}).get("default")}
    return ", ".join(f"{name} {markdown.code(value)}" for name, value in found.items() if value is not None)
