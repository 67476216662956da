"""The tool that changes the product to see whether tests notice: it changes what it says, one thing at a time."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import PACKAGES, ROOT, change_in_place, changed, drawn, functions_below, mutants_of


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("a < b", ["a <= b"]),
        ("a is not b", ["a is b"]),
        ("a + b", ["a - b"]),
        ("a and b and c", ["b and c", "a and c", "a and b"]),
        ("a or b", ["b", "a"]),
        ("not a", ["a"]),
        ("a if b else c", ["c if b else a"]),
        ("7", ["8"]),
        ("True", ["False"]),
        ("'text'", []),
        ("'text' + a", []),
        ("f(a)", []),
    ],
)
def test_every_way_to_change_an_expression(expression: str, found: list[str]) -> None:
    node = ast.parse(expression, mode="eval").body
    assert [ast.unparse(new) for _, new in changed(node)] == found


def test_types_stay_and_places_are_exact() -> None:
    path = ROOT / "src/pykai/kube/informer.py"
    source = path.read_bytes()
    for mutant in mutants_of("kube", path):
        text = source[: mutant.start] + mutant.new.encode() + source[mutant.end :]
        ast.parse(text)
        assert " ".join(source[mutant.start : mutant.end].decode().split()) == mutant.old
        assert text.count(b"\n") == source.count(b"\n")


SOURCE = """
MOST = 1

def wide(limit=2):
    return [
        each
        for each in range(9)
        if each < limit
    ]

class Kept:
    @property
    def double(self):
        def twice():
            return 2 * 3
        return twice()
"""


@pytest.mark.parametrize(
    ("old", "found", "double", "in_place"),
    [
        ("each < limit", [0, 1, 2], 6, True),
        ("3", [0, 1], 8, True),
        ("1", [0, 1], 6, False),
        ("2", [0, 1], 6, False),
    ],
)
def test_a_function_is_changed_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, found: list[int], double: int, in_place: bool
) -> None:
    """What runs when a module is imported cannot be."""
    monkeypatch.setattr("tests.mutants.ROOT", tmp_path)
    path = tmp_path / "some_module.py"
    path.write_text(SOURCE)
    module: dict[str, Any] = {}
    exec(compile(SOURCE, str(path), "exec"), module)
    mutant = next(mutant for mutant in mutants_of("kube", path) if mutant.old == old)
    assert change_in_place(mutant, functions_below(tmp_path)) is in_place
    assert (module["wide"](), module["Kept"]().double) == (found, double)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_and_their_tests_exist(package: str) -> None:
    paths = [Path("src/pykai") / package, *map(Path, PACKAGES[package])]
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []
    assert drawn(package, 5, 1) == drawn(package, 5, 1)
