"""The benchmark itself, on a cluster of two nodes: from generator to page."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from bench.page import BEGIN, END
from bench.run import BY_NAME, Order, main, run
from click.testing import CliRunner

GENERATOR = dedent("""
    import argparse, json, zipfile
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--out")
    given = parser.parse_args()
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}}
    nodes = [{**node, "metadata": {"name": f"node-{i}"}} for i in range(given.nodes)]
    with zipfile.ZipFile(given.out, "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"rawObjects": {"nodes": nodes}}))
    with open(given.out.removesuffix("zip") + "meta.json", "w") as file:
        json.dump({"running_pods": 0, "pending_pods": 0}, file)
""")
KAI = {"nodes": 2, "pods": 0, "groups": 0, "peak_rss_mb": 400, "timeout": False, "cycle_cpu_ms": 1e9}
COUNTS = {"bound": 0, "evicted": 0, "pipelined": 0, "left_pending": 0}


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are cut to the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def perf(tmp_path: Path) -> Path:
    folder = tmp_path / "perf"
    folder.mkdir()
    (folder / "gen.py").write_text(GENERATOR)
    (folder / "kai.json").write_text(json.dumps({"allocate-gang-2": {**KAI, **COUNTS}}))
    return folder


def test_a_run_prints_and_writes_the_page(tmp_path: Path, perf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text(f"before\n{BEGIN}old figures\n{END}after\n")
    run(Order([BY_NAME["allocate-gang"], BY_NAME["preempt"]], [2], perf, docs=True, root=tmp_path))
    printed = capsys.readouterr().out
    assert "allocate-gang" in printed
    assert "same" in printed
    page = (tmp_path / "docs" / "performance.md").read_text()
    beside, growth = page.split("## Growth")
    assert "| allocate-gang | 2 |" in beside
    assert "| preempt | 2 |" not in beside, "KAI has no figure for it"
    assert "| preempt | 2 |" in growth
    assert "Not in this run: 100, 1,000, 5,000, 10,000 nodes." in page
    front = (tmp_path / "README.md").read_text()
    assert front.startswith("before\n")
    assert front.endswith("after\n")
    assert "allocate-gang" in front
    assert "old figures" not in front
    assert (tmp_path / "docs" / "img" / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenarios", "allocate-single,nonsense"], "there is no scenario 'nonsense'"),
        (["--nodes", "100,many"], "not a list of numbers"),
        (["--nodes", "0"], "at least one node"),
        (["--quick", "--nodes", "100"], "exclude one another"),
        (["--quick", "--perf", "nowhere"], "name another one with --perf DIR"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code != 0
    assert message in result.output
