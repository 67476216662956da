"""Histories with faults: the product passes, a seed is one history byte for byte, planted bugs are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest
from click.testing import CliRunner

from pykai.cli import fault_campaign
from pykai.cli.fault_campaign import product_of
from pykai.cli.main import main
from pykai.kube.api import Patch
from pykai.kube.api_resources import NODE
from pykai.kube.memory import MemoryApi
from pykai.simulate.faults.api import Fault
from pykai.simulate.faults.run import ChangeLog, Outcome, play
from pykai.simulate.faults.shrink import shrunk, story
from pykai.simulate.faults.worlds import FEATURES, LAYOUTS, world

from .planted import BUGS, found_by

SEEDS = 25
"""`make faults` plays thousands; these are about a minute of a processor."""
FIRST_SEED = {
    "double_bind": 1,
    "lost_unreserve": 4,
    "stale_status": 3,
    "leaked_reservation": 2,
    "forgotten_relist": 3,
    "unwatched_deployment": 5,
}
"""Where to look for each bug; `make faults-planted` looks from 1."""


def test_no_violation_is_found_in_the_product() -> None:
    result = CliRunner().invoke(main, ["simulate", "--faults", f"1-{SEEDS}"])
    assert result.exit_code == 0, result.output
    assert f"{SEEDS} histories" in result.output
    assert "answer lost after the write" in result.output


def test_an_interrupted_campaign_says_what_was_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seeds: range) -> Iterator[Outcome]:
        yield Outcome(seeds[0], faults=[Fault(1.0, "watch broken", "here")], cpu=0.4)
        raise KeyboardInterrupt

    monkeypatch.setattr(fault_campaign, "_outcomes", interrupted)
    result = CliRunner().invoke(main, ["simulate", "--faults", "1-1000"])
    assert result.exit_code == 0, result.output
    assert "interrupted\n1 histories in 0 s of CPU, 1 faults:\n        1  watch broken\n" in result.output


def test_a_seed_is_one_history_in_every_process() -> None:
    """Also where Python orders its sets differently."""
    command = [sys.executable, "-m", "pykai", "simulate", "--faults", "14"]
    outputs = {
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert b"history" in outputs.pop()


def test_worlds_have_every_feature_and_layout() -> None:
    worlds = [world(seed) for seed in range(60)]
    assert {feature for each in worlds for feature in each.features} == set(FEATURES)
    assert {each.layout for each in worlds} == set(LAYOUTS)


@pytest.mark.parametrize("name", FIRST_SEED)
def test_a_planted_bug_is_found(name: str) -> None:
    assert found_by(BUGS[name], FIRST_SEED[name], 5) is not None


def test_a_failing_history_is_shrunk_to_a_short_story() -> None:
    bug = BUGS["leaked_reservation"]
    whole = found_by(bug, FIRST_SEED["leaked_reservation"], 5)
    assert whole is not None
    with bug():
        short = shrunk(whole, partial(play, whole.seed, product_of), 12)
    assert short.violations
    assert len(short.faults) < len(whole.faults)
    text = story(short, whole)
    assert f"seed {whole.seed}" in text
    assert "WRONG  " in text


@pytest.mark.virtual_time
async def test_a_change_is_reported_with_its_fields() -> None:
    api = MemoryApi(lambda: 0.0)
    log = ChangeLog(api)
    await api.create(NODE, {"metadata": {"name": "n", "labels": {"rack": "a"}}})
    await api.patch(
        NODE.ref("n"), Patch.merge({"metadata": {"labels": {"rack": "b"}}, "spec": {"unschedulable": True}})
    )
    await api.delete(NODE.ref("n"))
    changed = "Node n: metadata.labels.rack a -> b, spec.unschedulable None -> True"
    assert (log.count, log.first, log.last) == (3, f"Node n made; {changed}; Node n deleted", "Node n deleted")
    log.reset()
    assert (log.count, log.first) == (0, "")


def test_a_fault_of_a_user_names_its_object() -> None:
    texts = [str(fault) for fault in play(4, product_of).faults if fault.point.startswith("deed ")]
    assert not any("deed" in text for text in texts)
    assert 'queue edited: team-c {"spec":{"resources":{"gpu":{"quota":2,"limit":-1}}}}' in texts


@pytest.mark.parametrize("seeds", ["x", "3-1", "-5", "1-", ""])
def test_seeds_that_are_none_are_refused(seeds: str) -> None:
    result = CliRunner().invoke(main, ["simulate", f"--faults={seeds}"])
    assert result.exit_code == 2
    assert "neither a seed nor a range" in result.output
