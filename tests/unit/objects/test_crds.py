"""The definitions are structural, explained, and agree with the table of kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from charts.generate import definitions

from pykai.kube.api_resources import PRODUCT
from pykai.kube.memory.served_kinds import from_definition
from pykai.objects.crds import DEFINITIONS, manifests

PLAIN = ("metadata", "spec.usageDBConfig")


def test_yaml_says_what_the_tables_say() -> None:
    assert [yaml.safe_load(text) for text in definitions().values()] == manifests()


def test_kinds_are_those_the_client_knows() -> None:
    rows = [row for manifest in manifests() for row in from_definition(manifest)]
    assert {row.resource for row in rows} == set(PRODUCT)
    assert {row.resource.kind for row in rows if not row.status} == {"Topology"}


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a schema with its path."""
    yield path, schema
    for name, part in (schema.get("properties") or {}).items():
        yield from schemas(part, f"{path}.{name}" if path else name)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from schemas(schema[name], f"{path}[]")


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_every_field_has_a_type_and_is_explained(definition: Any) -> None:
    root = definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, schema in schemas(root):
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        if not path.endswith("[]") and path not in PLAIN:
            assert schema.get("description", "").endswith((".", "?")), path
        assert set(schema.get("required") or ()) <= set(schema.get("properties") or ()), path


COLUMNS = {
    "Queue": [
        *["Priority", "Parent", "Children", "DisplayName"],
        *["GPU-Quota", "GPU-Limit", "GPU-Allocated", "GPU-Fair-Share", "GPU-Requested", "Age"],
    ],
    "Config": ["Ready", "Age"],
    "SchedulingShard": ["Ready", "Age"],
    "PodGroup": ["Queue", "Phase", "Running", "Minimum", "PriorityClass", "Age"],
    "BindRequest": ["Node", "Type", "Phase", "Age"],
}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_names_and_columns(definition: Any) -> None:
    spec = definition.manifest()["spec"]
    version = spec["versions"][0]
    columns = [column["name"] for column in version.get("additionalPrinterColumns", [])]
    assert columns == COLUMNS.get(definition.kind, [])
    assert spec["names"].get("shortNames") == (["pg"] if definition.kind == "PodGroup" else None)
    assert (version["served"], version["storage"], len(spec["versions"])) == (True, True, 1)
