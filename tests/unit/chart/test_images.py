"""The file that images are built from: three targets, known commands, no root. Only building needs an engine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pykai.cli.main import COMMANDS
from pykai.controllers.operator.deployments import RUN_AS_USER
from pykai.controllers.operator.installation import RESERVATION, SCALING_POD

ROOT = Path(__file__).parents[3]


def stages() -> dict[str, list[str]]:
    """The instructions of every stage of the Dockerfile."""
    text = re.sub(r"\\\n(\s*#.*\n)*", " ", (ROOT / "Dockerfile").read_text())
    found: dict[str, list[str]] = {}
    for line in filter(None, (each.strip() for each in text.splitlines())):
        if line.startswith("FROM "):
            name = line.split(" AS ")[1]
            found[name] = []
        if found and not line.startswith("#"):
            found[name].append(line)
    return found


def test_the_targets_are_the_images_the_operator_asks_for() -> None:
    assert list(stages())[-3:] == [RESERVATION, SCALING_POD, "kai"]
    for name in (RESERVATION, SCALING_POD, "kai"):
        assert stages()[name][0] == f"FROM runtime AS {name}"


@pytest.mark.parametrize(
    ("target", "entry"),
    [
        ("kai", ["kai"]),
        (RESERVATION, ["kai", "resource-reservation"]),
        (SCALING_POD, ["true"]),
    ],
)
def test_what_images_run(target: str, entry: list[str]) -> None:
    (line,) = [each for each in stages()[target] if each.startswith("ENTRYPOINT ")]
    assert json.loads(line.removeprefix("ENTRYPOINT ")) == entry
    assert len(entry) < 2 or entry[1] in COMMANDS


def test_images_do_not_run_as_root() -> None:
    assert f"USER {RUN_AS_USER}:0" in stages()["runtime"]
    assert not [line for name in list(stages())[-3:] for line in stages()[name] if line.startswith("USER")]


def test_everything_that_is_copied_is_there_and_let_in() -> None:
    sources = [
        source
        for line in stages()["build"]
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(sources) == let_in
    for source in sources:
        assert (ROOT / source).exists(), source
