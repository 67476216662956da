"""The tool that changes the product to see whether tests notice: it changes what it says, one thing at a time."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import PACKAGES, ROOT, changed, drawn, mutants_of


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
        assert text.count(b"\n") <= source.count(b"\n")


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_and_their_tests_exist(package: str) -> None:
    paths = [Path("src/pykai") / package, *map(Path, PACKAGES[package])]
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []
    assert drawn(package, 5, 1) == drawn(package, 5, 1)
