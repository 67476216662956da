"""YAML as people write it: what is wrong is told with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykai.config import documents
from pykai.config.fields import FieldError

WRONG = [
    ("a: [1", "not YAML: line 2, column 1: did not find expected"),
    ("a: 1\n\tb: 2", "not YAML: line 2, column 1: a tab: indent with spaces"),
    ("a: 1\na: 2", "not YAML: line 2, column 1: key 'a' is written twice"),
    ("? [a]\n: 1", "not YAML: line 1, column 3: a key must be a string"),
    ("a: .nan", "not YAML: line 1, column 4: .nan is not a finite 64-bit number"),
    ("a: -.inf", "not YAML: line 1, column 4: -.inf is not a finite 64-bit number"),
    ("a: 99999999999999999999", "not YAML: line 1, column 4: 99999999999999999999 is not a finite 64-bit number"),
    ("a: *b", "not YAML: line 1, column 4: found undefined alias"),
    ("a: 1\n---\nb: 1", "expected one YAML document, got 2"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FieldError) as refused:
        documents.read_one(text)
    assert str(refused.value).startswith(message)


READ: list[tuple[str, Any]] = [
    ("", None),
    ("# nothing", None),
    ("---\n---\na: 1\n---\n", {"a": 1}),
    ("1: yes\non: 0.5\nat: 2026-01-01", {"1": True, "on": 0.5, "at": "2026-01-01"}),
    ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_what_is_read(text: str, expected: Any) -> None:
    assert documents.read_one(text) == expected


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: b\nc: \xe4\n")
    with pytest.raises(FieldError) as refused:
        documents.read_text(path)
    assert str(refused.value) == f"{path}: cannot be read: line 2 is not UTF-8 text"
    with pytest.raises(FieldError) as refused:
        documents.read_text(tmp_path)
    assert str(refused.value) == f"{tmp_path}: cannot be read: Is a directory"


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "aliases expand to more than 5,000,000 values"),
        ("a: &a [*a]", "aliases expand to more than 5,000,000 values"),
        ("[" * 100_000, "line 1 is nested deeper than 200 levels"),
        ("a:\n" + "- " * 100_000, "line 2 is nested deeper than 200 levels"),
        ('{"a":' * 100_000, "line 1 is nested deeper than 200 levels"),
    ],
)
def test_a_small_text_cannot_become_a_large_document(text: str, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        list(documents.read_all(text))


def test_depth_counts_and_not_brackets() -> None:
    text = "text: '" + "[" * 500 + "'\nlist: " + "[" * 150 + "]" * 150
    found = documents.read_one(text)
    assert isinstance(found, dict)
    assert found["text"] == "[" * 500


def test_aliases_may_be_used() -> None:
    assert documents.read_one("a: &a {x: 1}\nb: *a\nc: [*a, *a]") == {"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}] * 2}


def test_a_file_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "large.yaml"
    file.write_text("a: 1" * 10)
    monkeypatch.setattr(documents, "MAX_BYTES", 20)
    with pytest.raises(FieldError, match="it is larger than 0 MiB"):
        documents.read_text(file)
