"""The command itself: its table, and that a subcommand loads nothing it does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from pykai import __version__
from pykai.cli.main import COMMANDS, main


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_help_lists_the_table_without_importing_it() -> None:
    code = """
import sys
from click.testing import CliRunner
from pykai.cli.main import main
print(CliRunner().invoke(main, ["--help"]).output)
print(sorted(name for name in sys.modules if name.startswith("pykai.")))
"""
    out = run_python(code)
    assert all(f"{name} " in out and row.help[:20] in out for name, row in COMMANDS.items())
    assert "['pykai.cli', 'pykai.cli.main']" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_is_a_command(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")


def test_replay_stays_light() -> None:
    code = """
import sys
import pykai.cli.replay
print([name for name in ("matplotlib", "aiohttp", "rich", "yaml", "asyncio", "celpy", "jq") if name in sys.modules])
"""
    heavy = set(run_python(code).strip("[]\n'").replace("'", "").split(", ")) - {""}
    assert heavy <= {"yaml"}


def test_simulate_draws_no_plots_unless_asked() -> None:
    code = """
import sys
from click.testing import CliRunner
from pykai.cli.main import main
result = CliRunner().invoke(main, ["simulate", "--nodes", "1", "--until", "1s", "-o", "json"])
print(result.exit_code, "matplotlib" in sys.modules)
"""
    assert run_python(code).strip() == "0 False"


def test_version_and_unknown_commands() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"kai, version {__version__}\n"
    refused = CliRunner().invoke(main, ["nosuch"])
    assert refused.exit_code == 2
    assert "No such command 'nosuch'" in refused.output
