"""jq programs of users run with limits, without environment and files, and never block the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykai.controllers.podgrouper.reader import EvaluatedJq, NotEvaluatedError
from pykai.controllers.podgrouper.rules.jq_sandbox import JqError, JqSandbox


@pytest.fixture
def sandbox() -> Iterator[JqSandbox]:
    made = JqSandbox(seconds=1.0)
    yield made
    made.close()


def test_values_of_a_program(sandbox: JqSandbox) -> None:
    assert sandbox.evaluate(".spec.parts[] | .size", {"spec": {"parts": [{"size": 1}, {"size": None}]}}) == [1, None]
    sandbox.check(".a.b")
    with pytest.raises(JqError, match=r"jq program '\.a\.'"):
        sandbox.check(".a.")
    with pytest.raises(JqError, match="Cannot iterate"):
        sandbox.evaluate(".[]", 7)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def forever: forever; forever", "takes longer than 1 s|crashed, or takes more than 512 MiB"),
        ("[range(1e12)] | length", "takes longer than 1 s|crashed, or takes more than 512 MiB|emory"),
        ('"a" * 1e9 | length', "crashed, or takes more than 512 MiB|takes longer|emory|too long"),
        ("repeat(1)", "yields more than 10000 values"),
        ('"x" * 2000000', "yields more than 1048576 bytes"),
    ],
)
def test_a_program_that_exceeds_a_limit_is_stopped_and_the_next_one_runs(
    sandbox: JqSandbox, program: str, reason: str
) -> None:
    sandbox.check(".")
    began = time.monotonic()
    with pytest.raises(JqError, match=reason):
        sandbox.evaluate(program, {})
    assert time.monotonic() - began < 30
    assert sandbox.evaluate(".a", {"a": 1}) == [1]


def test_the_environment_is_empty(sandbox: JqSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert sandbox.evaluate("$ENV, env", {}) == [{}, {}]


def test_files_cannot_be_read(sandbox: JqSandbox, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"token": 1}')
    with pytest.raises(JqError):
        sandbox.evaluate(f'import "secret" as $s {{search: "{tmp_path}"}}; $s', {})


async def test_the_event_loop_goes_on_while_a_program_runs(sandbox: JqSandbox) -> None:
    sandbox.check(".")
    jq, turns = EvaluatedJq(sandbox), 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    turning = asyncio.create_task(turn())
    with pytest.raises(NotEvaluatedError) as missing:
        jq.evaluate("[range(1e12)] | length", {})
    await jq.fetch(missing.value)
    turning.cancel()
    assert turns > 10
    with pytest.raises(JqError):
        jq.evaluate("[range(1e12)] | length", {})
