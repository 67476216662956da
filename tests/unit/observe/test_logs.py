"""Log lines: readable for people, JSON on demand, and as many as were asked for."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from pykai.observe import logs


@pytest.fixture(autouse=True)
def usual_logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def shown(verbosity: int = 3, as_json: bool = False) -> list[str]:
    stream = io.StringIO()
    logs.set_up(verbosity, as_json, stream)
    log = structlog.get_logger(component="scheduler")
    log.debug("looked at", pod="team/a")
    log.info("pod scheduled", pod="team/a", gpus=0.5)
    log.warning("trouble", pod="team/a")
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(("verbosity", "lines"), [(1, 1), (3, 2), (4, 3)])
def test_verbosity(verbosity: int, lines: int) -> None:
    assert len(shown(verbosity)) == lines


def test_a_line_for_people_names_what_it_is_about() -> None:
    line = shown()[0]
    assert "pod scheduled" in line
    assert "pod=team/a" in line
    assert "gpus=0.5" in line


def test_a_line_for_machines() -> None:
    found = json.loads(shown(as_json=True)[0])
    assert found["timestamp"].endswith("Z")
    assert {key: found[key] for key in ("event", "level", "pod", "gpus", "component")} == {
        "event": "pod scheduled",
        "level": "INFO",
        "pod": "team/a",
        "gpus": 0.5,
        "component": "scheduler",
    }
