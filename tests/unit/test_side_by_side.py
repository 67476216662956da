"""`python -m tests` runs both halves to their end, shows who says what, and fails if one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import __main__ as side_by_side


@pytest.mark.parametrize(("live", "rest", "code"), [("True", "True", 0), ("False", "True", 1), ("True", "False", 1)])
def test_one_half_that_fails_is_enough(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    live: str,
    rest: str,
    code: int,
) -> None:
    halves = {"live": live, "rest": rest}
    for name, holds in halves.items():
        (tmp_path / f"test_{name}.py").write_text(f"def test_it() -> None:\n    assert {holds}\n")
    given = {
        name: (str(tmp_path / f"test_{name}.py"), "-c", "/dev/null", "--rootdir", str(tmp_path)) for name in halves
    }
    monkeypatch.setattr(side_by_side, "HALVES", given)
    assert side_by_side.main(["-p", "no:cacheprovider"]) == code
    printed = capsys.readouterr().out
    for name, holds in halves.items():
        word = "passed" if holds == "True" else "failed"
        assert f"\n{name}: {word}" in printed
        assert any(line.startswith(f"{name} | ") and f"1 {word}" in line for line in printed.splitlines())
