"""The board of a simulation: moments to choose from, the recorder's figures, evictions and histories."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pykai.cli.simulate import SimulateOptions, simulation
from pykai.dashboard.access import LoopbackGate, Viewer
from pykai.dashboard.board import RecordedBoard
from pykai.dashboard.redaction import RedactedView
from pykai.dashboard.simulated_board import MOST_MOMENTS, DecisionLog, simulated_board
from pykai.dashboard.web_server import Dashboard
from pykai.simulate.history import SimulationResult

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart"


@pytest.fixture(scope="module")
def run() -> tuple[RecordedBoard, SimulationResult, float]:
    noted = DecisionLog()
    played, _ = simulation(SimulateOptions(paths=(QUICKSTART,)), noted.observe)
    outcome = played.play()
    return simulated_board("quickstart", noted, outcome, played.setting.start), outcome, played.setting.start


def test_figures_of_a_moment_are_those_the_recorder_saw(run: tuple[RecordedBoard, SimulationResult, float]) -> None:
    board, outcome, _ = run
    last = board.moment()
    assert last is not None
    for queue in last.overview.queues:
        seen = outcome.history.samples[-1].queues[queue.name]
        assert queue.allocated.gpu == pytest.approx(seen.allocated[2], abs=1e-3), "the run ended at rest"
        assert queue.fair_share.gpu == pytest.approx(seen.fair_share[2])
    assert len(board.moments) > 5
    assert [board.moment(at).at for at in board.moments] == list(board.moments)  # type: ignore[union-attr]
    assert board.samples()[-1].queues["vision"].quota == 3


def test_what_happened_is_there_until_the_chosen_moment(run: tuple[RecordedBoard, SimulationResult, float]) -> None:
    board, outcome, start = run
    gone = [life for life in outcome.history.lives if life.evicted_by]
    assert len(board.evictions()) == len(gone) > 0
    first = min(start + life.evicted_at for life in gone if life.evicted_at is not None)
    assert not board.evictions(first - 1)
    one = board.evictions()[-1]
    history = board.history((one.namespace, one.workload))
    assert "Evicted" in [each.what for each in history]
    assert [each.at for each in history] == sorted(each.at for each in history)
    moment = board.moment()
    assert moment is not None
    assert RedactedView(board, moment, Viewer(), first - 1).evictions[0] == []


async def test_pages_of_a_chosen_moment(run: tuple[RecordedBoard, SimulationResult, float]) -> None:
    board, _, _ = run
    async with TestClient(TestServer(Dashboard(board, LoopbackGate("s")).application())) as browser:
        await browser.get("/?token=s")
        early = await (await browser.get(f"/queues?at={board.moments[0]:.3f}")).text()
        late = await (await browser.get("/queues")).text()
        assert 'id="instant-values"' in late
        assert "GPUs in the cluster" in late, "there is a curve"
        assert f"?at={board.moments[0]:.3f}" in early, "links keep the moment"
        assert early.partition("<main")[2] != late.partition("<main")[2]


def test_many_decisions_are_thinned_out_and_the_newest_stays(
    run: tuple[RecordedBoard, SimulationResult, float],
) -> None:
    from pykai.scheduler.decision import Decision

    noted = DecisionLog()
    moment = run[0].moment()
    assert moment is not None
    decided = moment.decided

    class Fake:
        snapshot, plan, policy, cache = decided.snapshot, decided.plan, decided.policy, decided.cache

    one: Decision = Fake()  # type: ignore[assignment]
    for _ in range(5 * MOST_MOMENTS + 3):
        noted.observe(one)
    found = noted.moments()
    assert len(found) <= MOST_MOMENTS + 1
    assert found[-1].revision == 5 * MOST_MOMENTS + 3
