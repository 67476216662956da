"""`decide` is the only door of the engine: who calls it, and that nothing else opens a cycle or runs an action.

Import contracts (pyproject.toml) hold this for the product; this test also looks at tests and benchmarks, which the
contracts do not see.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSIDE = ("src/pykai/engine/", "src/pykai/plugins/")
PARTS = (
    *("tests/unit/engine/", "tests/unit/plugins/", "tests/unit/cache/", "tests/properties/", "tests/conformance/"),
    "tests/integration/test_differential.py",  # compares the scores of single plugins
)
"""Tests of the engine's parts may open a cycle to look at one part; running its actions is for `decide` alone."""
CALLERS = {
    "src/pykai/scheduler/decision.py": 1,
    "src/pykai/cli/replay.py": 2,
    "src/pykai/explain/source.py": 2,
    "src/pykai/dashboard/live_board.py": 1,
}
"""Where the product decides, and at how many places there."""


@cache
def sources(folder: str) -> Mapping[str, ast.Module]:
    """The modules below a folder, parsed once for all tests."""
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in sorted((ROOT / folder).rglob("*.py"))}


def calls(tree: ast.Module, name: str) -> int:
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sum(isinstance(func, ast.Name) and func.id == name for func in called)


def imported(tree: ast.Module, module: str) -> set[str]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module]
    return {alias.name for node in found for alias in node.names}


def test_the_product_decides_at_these_places() -> None:
    outside = {name: tree for name, tree in sources("src").items() if not name.startswith(INSIDE)}
    deciding = {name: tree for name, tree in outside.items() if "decide" in imported(tree, "pykai.engine.decide")}
    assert {name: calls(tree, "decide") for name, tree in deciding.items()} == CALLERS


@pytest.mark.parametrize("folder", ["src", "tests", "bench"])
def test_cycles_are_opened_inside_only(folder: str) -> None:
    opened = [
        name
        for name, tree in sources(folder).items()
        if calls(tree, "Cycle") and not name.startswith((*INSIDE, *PARTS))
    ]
    assert opened == []


@pytest.mark.parametrize("folder", ["src", "tests", "bench"])
def test_the_table_of_actions_is_used_by_decide_only(folder: str) -> None:
    users = [name for name, tree in sources(folder).items() if "ACTIONS" in imported(tree, "pykai.engine.decide")]
    assert users == []
