"""Log lines: readable for people, JSON on demand, and as many as were asked for."""

from __future__ import annotations

import io
import json
import logging
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


def test_a_logger_made_by_name_names_its_component() -> None:
    stream = io.StringIO()
    logs.set_up(stream=stream)
    structlog.get_logger("binder").info("pod bound", pod="team/a")
    assert stream.getvalue().index("component=binder") < stream.getvalue().index("pod=team/a")


@pytest.mark.parametrize("as_json", [False, True])
def test_libraries_and_errors_speak_the_same_way(as_json: bool) -> None:
    stream = io.StringIO()
    logs.set_up(as_json=as_json, stream=stream)
    logging.getLogger("aiohttp.server").info("nobody wants to know")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("aiohttp.server").exception("error handling request to %s", "/metrics")
    said = stream.getvalue()
    assert "nobody" not in said
    assert "error handling request to /metrics" in said
    assert "ValueError: broken" in said
    if as_json:
        (line,) = map(json.loads, said.splitlines())
        assert (line["level"], line["component"]) == ("ERROR", "aiohttp.server")
