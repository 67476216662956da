"""`python -m tests` runs all parts to their end, shows which of them prints what, and fails if one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import __main__ as runner
from tests.__main__ import ELSEWHERE, PARTS, PURE_TESTS, main

ROOT = Path(__file__).parents[2]


def _command(file: Path) -> tuple[str, ...]:
    return ("pytest", str(file), "-c", "/dev/null", "--rootdir", str(file.parent))


@pytest.mark.parametrize(("live", "rest", "code"), [("True", "True", 0), ("False", "True", 1), ("True", "False", 1)])
def test_one_part_that_fails_is_enough(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    live: str,
    rest: str,
    code: int,
) -> None:
    monkeypatch.setattr(runner, "RECORDS", tmp_path)
    parts = {"live": live, "rest": rest}
    for name, holds in parts.items():
        (tmp_path / f"test_{name}.py").write_text(f"def test_it() -> None:\n    assert {holds}\n")
    assert main(["-s"], {name: _command(tmp_path / f"test_{name}.py") for name in parts}) == code
    printed = capsys.readouterr().out
    for name, holds in parts.items():
        word = "passed" if holds == "True" else "failed"
        assert f"\n{name}: {word}" in printed
        assert any(line.startswith(f"{name} | ") and f"1 {word}" in line for line in printed.splitlines())
        named = re.search(rf"\n{name}: failed with code 1\n  FAILED \S*test_{name}.py::test_it", printed)
        assert bool(named) == (holds == "False"), "the end of the output names the tests that failed"


@pytest.mark.parametrize(("failures", "code"), [(1, 0), (runner.MOST_AGAIN + 1, 1)])
def test_few_tests_that_fail_run_once_more_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, failures: int, code: int
) -> None:
    """Each of these fails the first time and passes the second."""
    monkeypatch.setattr(runner, "RECORDS", tmp_path)
    monkeypatch.setenv("COVERAGE_FILE", str(tmp_path / "coverage"))
    (tmp_path / "test_load.py").write_text(
        "import pathlib, pytest\n"
        f"@pytest.mark.parametrize('n', range({failures}))\n"
        "def test_it(n):\n"
        "    ran = pathlib.Path(__file__).with_name(f'ran-{n}')\n"
        "    assert ran.exists() or ran.touch()\n"
        "def test_that_passes(): pass\n"
    )
    assert main(["-s"], {"load": (*runner.COVERED, *_command(tmp_path / "test_load.py"))}) == code
    printed = capsys.readouterr().out
    assert ("load: once more, alone: 1 failed" in printed) == (code == 0)
    assert ("test_it[0]" in printed.splitlines()[-1] and "(passed alone)" in printed.splitlines()[-1]) == (code == 0)
    assert ("1 passed, 1 deselected" in printed) == (code == 0), "only what failed runs again"


@pytest.mark.parametrize(("report", "code"), [("this", 0), ("no_such_module", 1)])
def test_a_report_that_fails_is_a_failure(report: str, code: int) -> None:
    assert main([], {}, (report,)) == code


def test_every_test_is_in_one_part() -> None:
    missing = [path for path in PURE_TESTS if not (ROOT / path).exists()]
    assert not missing, "the list names what is not there"
    ignored = {argument.removeprefix("--ignore=") for argument in PARTS["rest"] if argument.startswith("--ignore=")}
    assert ignored == {*ELSEWHERE, *PURE_TESTS}
