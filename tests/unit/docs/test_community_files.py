"""Workflows, hooks and templates: valid, and they run only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from docs.generate.site import ROOT

FILES = [ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_a_yaml_mapping(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_targets_that_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    called = [name for step in steps for name in re.findall(r"^make ([\w-]+)", step.get("run", ""), re.MULTILINE)]
    assert called
    assert set(called) <= TARGETS
    assert all(("run" in step) != ("uses" in step) for step in steps)
    assert all("@" in step["uses"] for step in steps if "uses" in step)
    assert all("timeout-minutes" in job for job in jobs.values())


def test_every_supported_python_is_tested() -> None:
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["test"]["strategy"]
    assert matrix["matrix"]["python-version"] == ["3.11", "3.12", "3.13", "3.14"]
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_hooks_run_programs_of_the_environment() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["id"] for hook in repository["hooks"]} >= {"ruff", "ruff-format", "mypy"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])


def test_the_license_is_the_whole_text() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text
    assert "END OF TERMS AND CONDITIONS" in text
