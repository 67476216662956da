"""The documentation agrees with the code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from docs.generate import extension_points, fields, site
from docs.generate.links import links
from docs.generate.pages import pages

from pykai.cli.main import COMMANDS
from pykai.cli.simulate import simulate
from pykai.engine.plugin_api import all_points

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / name for name in site.pages()]


def test_generated_files_are_those_of_the_code() -> None:
    stale = [name for name, text in pages().items() if (ROOT / name).read_text() != text]
    assert not stale, "out of date: run `make docs`"


def test_every_extension_point_says_how_plugins_compose() -> None:
    rows = extension_points.table().splitlines()[2:]
    assert len(rows) == len(all_points()) > 10
    assert all(row.split("|")[2].strip() and row.split("|")[3].strip() for row in rows)


def test_the_example_on_the_page_is_the_file() -> None:
    code = (ROOT / "examples" / "plugins" / "cheapest_first.py").read_text()
    assert f"```python\n{code}```" in (ROOT / "docs" / "plugins.md").read_text()


def test_the_quick_start_on_the_pages_is_what_it_shows() -> None:
    """The README leaves lines out, with three dots for them."""
    ran = CliRunner(env={"COLUMNS": "120"}).invoke(simulate, [str(ROOT / "examples" / "quickstart")])
    shown = [line.rstrip() for line in ran.stdout.splitlines()]
    assert _told(ROOT / "docs" / "simulate.md") == shown
    assert [line for line in _told(ROOT / "README.md") if "..." not in line and line not in shown] == []


def _told(page: Path) -> list[str]:
    """The lines of the block that begins as the output does."""
    (block,) = re.findall(r"^```\n(\d+ nodes with .*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return str(block).splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_to_be_typed_exists(page: Path) -> None:
    """Chart values after --set, subcommands of kai, targets of make."""
    text = page.read_text()
    known = [path for path, _ in fields.values(json.loads((fields.CHART / "values.schema.json").read_text()))]
    wrong = [name for name in re.findall(r"--set ([\w.]+)=", text) if name not in known]
    typed = re.findall(r"(?:`|^ *|/|\$ )kai ([a-z][\w-]*)\b(?=[^\n]*`|[^\n`]*$)", text, re.MULTILINE)
    wrong += [name for name in typed if name not in COMMANDS]
    targets = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wrong += [name for name in re.findall(r"`make ([\w-]+)", text) if name not in targets]
    assert wrong == []


@pytest.mark.parametrize("name", ["architecture.md", "glossary.md"])
def test_files_that_are_named_exist(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    packages = {path.name for path in (ROOT / "src" / "pykai").iterdir()}
    named = {found[1] for found in re.finditer(r"`((\w+)/[\w/]+\.py)`", page) if found[2] in packages}
    assert named
    assert not [path for path in named if not (ROOT / "src" / "pykai" / path).is_file()]


def test_every_package_is_described() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src" / "pykai").glob("*/__init__.py")}
    assert set(re.findall(r"^\*\*`(\w+)`\*\*:", page, re.MULTILINE)) == packages


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_the_drawing_of_the_packages_is_the_import_contract(name: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    asked = [set(re.findall(r"\w+", layer)) - {"__main__", "plugin_api"} for layer in layers]
    drawn = re.search(r"^ ?cli  .*?model │ objects$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)
    assert drawn
    rows = [re.sub(r"^ *(└─►)?", "", row).split("  ")[0] for row in drawn[0].split("\n")]
    assert [set(re.findall(r"\w+", row)) for row in rows] == [layer for layer in asked if layer]


def test_every_file_of_the_engine_is_on_the_map() -> None:
    """It is the largest package, and the one that most people come for."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = {path.stem for path in (ROOT / "src" / "pykai" / "engine").glob("*.py")} - {"__init__"}
    start, end = page.index("**`engine`**"), page.index("**`plugins`**")
    named = re.findall(r"^\|.*\|$", page[start:end], re.MULTILINE)
    assert modules - set(re.findall(r"`(\w+)`", " ".join(named))) == set()


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    listed = links((folder / "README.md").read_text())
    assert {link.path for link in listed} == {path.name for path in folder.glob("0*.md")}


def test_no_page_names_a_path_of_some_machine() -> None:
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(work|root|home|Users)/", page.read_text()), page
