"""The bill of materials names what is installed for pykai, and nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path

from deploy import sbom
from deploy.distributions import closure, normal

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def test_everything_that_is_required_is_in_it() -> None:
    bill = sbom.document()
    names = {normal(each["name"]) for each in bill["components"]}
    direct = {normal(text.split(">")[0].split("=")[0].split("[")[0].strip()) for text in PROJECT["dependencies"]}
    assert direct <= names
    assert names == set(closure()) - {"pykai"}
    assert not names & {"pytest", "ruff", "mypy"}


def test_versions_and_references_are_complete() -> None:
    bill = sbom.document()
    known = {each["bom-ref"] for each in [bill["metadata"]["component"], *bill["components"]]}
    assert all(each["version"] for each in bill["components"])
    assert sum("licenses" in each for each in bill["components"]) > len(bill["components"]) / 2
    assert {each["ref"] for each in bill["dependencies"]} == known
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= known
    assert bill == sbom.document()
