"""The documentation agrees with the code, and its links lead somewhere."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = spec_from_file_location("extension_points", ROOT / "docs" / "extension_points.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_extension_points_is_that_of_the_code(generator: ModuleType) -> None:
    page = generator.PAGE.read_text()
    assert page == generator.with_table(page), "docs/plugins.md is out of date: run `make docs`"


def test_every_extension_point_says_how_plugins_compose(generator: ModuleType) -> None:
    rows = generator.table().splitlines()[2:]
    assert len(rows) == len(generator.protocols()) > 10
    assert all(row.split("|")[2].strip() and row.split("|")[3].strip() for row in rows)


def test_the_example_on_the_page_is_the_file() -> None:
    code = (ROOT / "examples" / "plugins" / "cheapest_first.py").read_text()
    assert f"```python\n{code}```" in (ROOT / "docs" / "plugins.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [found[1] for found in LINK.finditer(page.read_text())]
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


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


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    listed = LINK.findall((folder / "README.md").read_text())
    assert {target for target, _ in listed} == {path.name for path in folder.glob("0*.md")}


def test_no_page_names_a_path_of_some_machine() -> None:
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(work|root|home|Users)/", page.read_text()), page
