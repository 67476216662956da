"""The kinds of clusters that the benchmarks add: each is read, something is decided in it, and the judge agrees."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.kinds import KINDS, main
from click.testing import CliRunner

from pykai.explain.source import from_file
from pykai.verify.judge import verify

PERF = Path(__file__).parents[4] / "shared" / "perf"


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_gives_the_scheduler_something_to_decide(tmp_path: Path, name: str) -> None:
    if not PERF.is_dir():
        pytest.skip(f"there is no generator at {PERF}")
    file = tmp_path / "snapshot.zip"
    made = CliRunner().invoke(main, [name, "--perf", str(PERF), "--nodes", "32", "--out", str(file)])
    assert made.exit_code == 0, made.output
    found = from_file(file)
    assert found.plan.binds or found.plan.evictions
    assert [str(violation) for violation in verify(found.snapshot, found.plan)] == []
