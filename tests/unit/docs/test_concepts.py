"""The pages of docs/concepts say what the code does: their examples run, and what they name exists."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykai.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "concepts"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
SECTIONS = ("The idea", "Rules", "Worked example", "Where in the code", "How it differs")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^\| `(pykai[\w.]*)` \| (.*?) \|", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


COMMANDS_SHOWN = [(page, text) for page in PAGES for text in blocks(page, "console")]


@pytest.mark.parametrize(
    ("page", "block"), COMMANDS_SHOWN, ids=[f"{p.stem}-{n}" for n, (p, _) in enumerate(COMMANDS_SHOWN)]
)
def test_a_command_prints_what_the_page_shows(page: Path, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of three dots stands for lines that the page leaves out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    command, *shown = block.splitlines()
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "kai"
    assert arguments[0] in COMMANDS
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    printed = [line.rstrip() for line in ran.stdout.splitlines()]
    assert missing(shown, printed) == []


def missing(shown: list[str], printed: list[str]) -> list[str]:
    """The lines of the first passage that is not in the output, after the passages before it."""
    at = 0
    for passage in re.split(r"^\.\.\.\n?", "\n".join(shown), flags=re.MULTILINE):
        lines = passage.splitlines()
        starts = range(at, len(printed) - len(lines) + 1)
        found = next((start for start in starts if printed[start : start + len(lines)] == lines), None)
        if found is None:
            return lines
        at = found + len(lines)
    return []


def test_a_difference_would_be_noticed() -> None:
    printed = ["a", "b", "c", "d"]
    assert missing(["a", "...", "c", "d"], printed) == missing(["b", "..."], printed) == []
    assert missing(["...", "b", "c", "...", "..."], printed) == []
    assert missing(["a", "c"], printed) == ["a", "c"]
    assert missing(["c", "...", "a"], printed) == ["a"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_on_a_page_gives_what_the_page_shows(page: Path) -> None:
    source = "\n".join(blocks(page, "pycon"))
    example = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    runner, report = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS), list[str]()
    runner.run(example, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_all_its_parts(page: Path) -> None:
    text = page.read_text()
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == SECTIONS
    assert f"../img/concepts/{page.stem}.svg" in text
    assert "../compatibility.md" in text
    assert blocks(page, "console") or blocks(page, "pycon")
    assert "spec/" not in text


def test_the_index_lists_every_page() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text())
    assert set(linked) == {page.name for page in PAGES}


def test_every_example_is_on_a_page() -> None:
    shown = " ".join(block for _, block in COMMANDS_SHOWN)
    assert [path.name for path in (ROOT / "examples" / "concepts").glob("*.yaml") if path.name not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_that_a_page_names_exists(page: Path) -> None:
    """Rows of "Where in the code" name a package and what to look for in it, in whichever file it is."""
    rows = NAMED.findall(page.read_text())
    assert rows
    for package, names in rows:
        found = defined(package)
        assert [name for name in re.findall(r"`([\w.]+)`", names) if name not in found] == [], package


@cache
def defined(package: str) -> frozenset[str]:
    """The functions and classes of a package, those of classes as `Class.method`."""
    folder = ROOT / "src" / Path(*package.split("."))
    files = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    return frozenset(name for path in files for name in _definitions(ast.parse(path.read_text())))


def _definitions(module: ast.Module) -> list[str]:
    names = []
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            names += [node.name, *(f"{node.name}.{method}" for method in methods)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names
