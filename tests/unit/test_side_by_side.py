"""`python -m tests` runs all parts to their end, shows which of them prints what, and fails if one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.__main__ import ELSEWHERE, PARTS, PURE_TESTS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("live", "rest", "code"), [("True", "True", 0), ("False", "True", 1), ("True", "False", 1)])
def test_one_part_that_fails_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], live: str, rest: str, code: int
) -> None:
    parts = {"live": live, "rest": rest}
    for name, holds in parts.items():
        (tmp_path / f"test_{name}.py").write_text(f"def test_it() -> None:\n    assert {holds}\n")
    commands = {
        name: ("pytest", str(tmp_path / f"test_{name}.py"), "-c", "/dev/null", "--rootdir", str(tmp_path))
        for name in parts
    }
    assert main(["-p", "no:cacheprovider"], commands) == code
    printed = capsys.readouterr().out
    for name, holds in parts.items():
        word = "passed" if holds == "True" else "failed"
        assert f"\n{name}: {word}" in printed
        assert any(line.startswith(f"{name} | ") and f"1 {word}" in line for line in printed.splitlines())
        named = re.search(rf"\n{name}: failed with code 1\n  FAILED \S*test_{name}.py::test_it", printed)
        assert bool(named) == (holds == "False"), "the end of the output names the tests that failed"


@pytest.mark.parametrize(("report", "code"), [("this", 0), ("no_such_module", 1)])
def test_a_report_that_fails_is_a_failure(report: str, code: int) -> None:
    assert main([], {}, (report,)) == code


def test_every_test_is_in_one_part() -> None:
    missing = [path for path in PURE_TESTS if not (ROOT / path).exists()]
    assert not missing, "the list names what is not there"
    ignored = {argument.removeprefix("--ignore=") for argument in PARTS["rest"] if argument.startswith("--ignore=")}
    assert ignored == {*ELSEWHERE, *PURE_TESTS}
