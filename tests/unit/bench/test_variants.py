"""The variants: what is asked of them, what is worst, and a run on two nodes from generator to page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
from bench.measure import OutOfTimeError, checked
from bench.variant_runs import (
    CPU,
    LIMIT,
    SIMULATIONS,
    ActionCpu,
    Growth,
    Judged,
    KaiFigures,
    Searches,
    Variant,
    VariantCase,
    VariantCycle,
    VariantFiles,
    VariantRun,
    growths,
)
from bench.variants import Order, cpu, main, reached, run, searches, worst_first
from click.testing import CliRunner

SEARCHES = {"reclaim": Searches(10, 5, 20, 15, 6), "preempt": Searches(1, 0, 5, 5, 5)}
CYCLE = VariantCycle(100.0, {}, 1, 5, 2, 3, 4, SEARCHES)
CUT = "cut at 40 s, in reclaim"
GENERATOR = dedent("""
    import argparse, json, pathlib, zipfile
    assert (pathlib.Path(__file__).parent / "gen.py").is_file()
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?")
    parser.add_argument("--list", action="store_true")
    for number in ("--nodes", "--seed"):
        parser.add_argument(number, type=int)
    parser.add_argument("--out")
    given = parser.parse_args()
    if given.list:
        print("empty              nothing runs, nothing waits\\nbare")
        raise SystemExit
    nodes = [
        {"metadata": {"name": f"node-{i}"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}}
        for i in range(given.nodes)
    ]
    with zipfile.ZipFile(given.out, "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"rawObjects": {"nodes": nodes}}))
    with open(given.out.removesuffix("zip") + "meta.json", "w") as file:
        json.dump({"nodes": given.nodes, "pending_pods": 0, "pending_groups": 0}, file)
""")


def ours(milliseconds: float | None = 100.0, size: int = 96, name: str = "full", **more: Any) -> VariantRun:
    """A run; None: it did not finish."""
    cycle = None
    if milliseconds is not None:
        cycle = msgspec.structs.replace(CYCLE, cycle_cpu_ms=milliseconds, **more)
    return VariantRun(VariantCase(Variant(name, ""), size), size, 50, 60, cycle)


def kai(seconds: float = 2.5, note: str = "") -> KaiFigures:
    return KaiFigures(seconds, 1, 6, 5, note)


def test_searches_of_all_actions_count() -> None:
    assert CYCLE.all_searches == Searches(11, 5, 25, 20, 6)


@pytest.mark.parametrize(
    ("seconds", "note", "milliseconds", "missed"),
    [
        (2.5, "", 125.0, []),
        (2.5, "", 126.0, [CPU]),
        (2.0, "", 400.0, []),
        (2.0, "", 401.0, [CPU]),
        (40.0, CUT, 2000.0, []),
        (40.0, CUT, 2001.0, [CPU]),
        (2.5, "", None, [CPU]),
    ],
)
def test_more_is_asked_where_kai_needs_long(
    seconds: float, note: str, milliseconds: float | None, missed: list[str]
) -> None:
    assert Judged(ours(milliseconds), kai(seconds, note)).missed == missed


@pytest.mark.parametrize(
    ("size", "milliseconds", "missed"),
    [(1_000, 2000.0, []), (1_000, 2001.0, [CPU]), (1_000, None, [CPU]), (320, 9_999.0, []), (320, None, [])],
)
def test_seconds_are_asked_at_1000_nodes(size: int, milliseconds: float | None, missed: list[str]) -> None:
    assert Judged(ours(milliseconds, size), None).missed == missed


@pytest.mark.parametrize(
    ("found", "missed", "shown"),
    [
        (Searches(10, 0, 20, 20, 2), [], "yes"),
        (Searches(10, 0, 21, 21, 3), [SIMULATIONS], "missed: simulations"),
        (Searches(5_000, 0, 5_000, 5_000, 2_000), [LIMIT], "missed: limit of simulations"),
        (Searches(10, 10, 10, 0, 1), [], "-"),
    ],
)
def test_failed_simulations_are_held_against_searches(found: Searches, missed: list[str], shown: str) -> None:
    judged = Judged(ours(searches={"reclaim": found}), None)
    assert (judged.missed, reached(judged)) == (missed, shown)


def test_the_worst_comes_first() -> None:
    far, near = Judged(ours(900.0, name="far"), kai()), Judged(ours(50.0, name="near"), kai())
    unfinished, unjudged = Judged(ours(None, 320, "unfinished"), None), Judged(ours(9.0, 320, searches={}), None)
    assert worst_first([unjudged, near, far, unfinished]) == [unfinished, far, near, unjudged]


def test_rows_have_both_sides() -> None:
    cut = Judged(ours(4_000.0), kai(40.07, CUT))
    assert cpu([cut]).rows == [["full", "96", "50", "4.00 s", "cut at 40 s", "> 10x", "20x", "missed: CPU"]]
    counts = ["11", "5", "25", "20", "1.8", "6"]
    assert searches([cut]).rows == [["full", "96", *counts, "1 / 5 / 2 / 3", "1 / 6 / 5"]]
    assert searches([Judged(ours(None), None)]).rows == [["full", "96", *["-"] * 8]]


def deciding(milliseconds: float, size: int, name: str = "full") -> VariantRun:
    return ours(1000.0, size, name, actions={"allocate": ActionCpu(1.0), "reclaim": ActionCpu(milliseconds - 1.0)})


@pytest.mark.parametrize(
    ("runs", "flat"),
    [
        ((deciding(10, 96), deciding(90, 320), deciding(20, 1_000)), True),
        ((deciding(10, 96), deciding(21, 1_000)), False),
        ((deciding(10, 96), ours(None, 1_000)), False),
        ((deciding(10, 96),), None),
    ],
)
def test_deciding_about_a_gang_is_asked_to_cost_the_same_at_all_sizes(
    runs: tuple[VariantRun, ...], flat: bool | None
) -> None:
    assert Growth(runs).flat is flat


def test_what_grows_most_comes_first() -> None:
    runs = [deciding(20, 1_000, "a"), deciding(10, 96, "a"), deciding(10, 96, "b"), deciding(50, 1_000, "b")]
    found = growths(Judged(each, None) for each in runs)
    assert [(each.runs[0].case.variant.name, each.deciding, each.cycle) for each in found] == [("b", 5, 1), ("a", 2, 1)]


@pytest.fixture
def perf(tmp_path: Path) -> Path:
    folder = tmp_path / "perf"
    folder.mkdir()
    (folder / "gen.py").write_text("")
    (folder / "variants.py").write_text(GENERATOR)
    theirs = {"bound": 0, "evicted": 0, "pipelined": 0, "cpu_s": 1e6}
    (folder / "variants.json").write_text(json.dumps({"bare": {"nodes": 2, "seed": 7, "kai": theirs}}))
    return folder


def test_a_run_prints_and_writes_its_section(tmp_path: Path, perf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text("# Page\n")
    run(Order([], [2], perf, docs=True, root=tmp_path))
    printed = capsys.readouterr().out
    assert "empty" in printed
    written = page.read_text()
    assert written.startswith("# Page\n\n<!-- written by `make bench-variants` -->\n## Variants\n")
    assert "| empty | nothing runs, nothing waits |" in written
    assert "Of 2 cycles 0 miss something that is asked, and 0 did not finish." in written
    (row,) = (row for row in written.splitlines() if row.startswith("| bare | 2 | 0 |") and "1000000.00 s" in row)
    assert row.endswith("| 20x | yes |")


def test_another_seed_is_another_file_without_figures_of_kai(
    tmp_path: Path, perf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = VariantFiles(perf, tmp_path / "files")
    (bare,) = files.chosen(["bare"])
    assert files.of(VariantCase(bare, 2)) != files.of(VariantCase(bare, 2, seed=8))
    run(Order(["bare"], [2], perf, docs=False, seed=8, root=tmp_path))
    assert "20x" not in capsys.readouterr().out


def test_files_are_made_anew_when_the_generator_or_its_part_changes(tmp_path: Path, perf: Path) -> None:
    def path() -> Path:
        files = VariantFiles(perf, tmp_path / "files")
        return files.of(VariantCase(files.variants["bare"], 2))

    first = path()
    assert path() == first
    (perf / "gen.py").write_text("# changed")
    assert path() != first


def test_a_process_may_use_so_much_cpu() -> None:
    with pytest.raises(OutOfTimeError):
        checked([sys.executable, "-c", "while True: pass"], cpu_seconds=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "bare,nonsense"], "there is no variant 'nonsense' (there are: empty, bare)"),
        (["--nodes", "many"], "not a list of numbers"),
        (["--perf", "nowhere"], "name another one with --perf DIR"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str, perf: Path) -> None:
    result = CliRunner().invoke(main, ["--perf", str(perf), *arguments])
    assert result.exit_code != 0
    assert message in result.output


def test_a_cycle_within_one_tick_of_the_clock_misses_nothing() -> None:
    found = Judged(ours(0.0, size=1_000), KaiFigures(40.0, 1, 2, 3))
    assert found.ratio == 400_000
    assert CPU not in found.missed
