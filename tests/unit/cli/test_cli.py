"""The command itself: its table, and that a subcommand loads nothing it does not use."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

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


_SLOW_IMPORT = """
import sys, time, types
from pykai.__main__ import start
slow = types.ModuleType("pykai.cli.main")
slow.main = lambda: (print("started", flush=True), time.sleep(60))
sys.modules["pykai.cli.main"] = slow
start()
"""


def test_process_1_ends_at_once_when_it_is_terminated_during_its_start() -> None:
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", _SLOW_IMPORT]
    if shutil.which("unshare") is None or subprocess.run([*command[:3], "true"], capture_output=True).returncode:
        pytest.skip("no right to make a PID namespace")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        (init,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        os.kill(int(init), signal.SIGTERM)
        assert parent.wait(timeout=20) == 128 + signal.SIGTERM


def test_version_and_unknown_commands() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"kai, version {__version__}\n"
    refused = CliRunner().invoke(main, ["nosuch"])
    assert refused.exit_code == 2
    assert "No such command 'nosuch'" in refused.output


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["simulte"], "simulate"), (["schedular", "--v=3"], "scheduler"), (["local", "stauts"], "status")],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(typed: list[str], meant: str) -> None:
    refused = CliRunner().invoke(main, typed)
    assert refused.exit_code == 2
    assert f"Did you mean '{meant}'?" in refused.output


def test_version_and_help_are_commands() -> None:
    assert CliRunner().invoke(main, ["version"]).output.startswith(f"kai {__version__} (Python 3.")
    assert CliRunner().invoke(main, ["help", "replay"]).output.startswith("Usage: kai replay")
    assert CliRunner().invoke(main, ["help"]).output == CliRunner().invoke(main, ["--help"], prog_name="kai").output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete_commands(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0, script.output
    assert f"_KAI_COMPLETE={shell}_complete" in script.output
    words = {"COMP_WORDS": "kai sim", "COMP_CWORD": "1", "_KAI_COMPLETE": "bash_complete"}
    assert "plain,simulate" in CliRunner(env=words).invoke(main, prog_name="kai").output


def test_an_image_without_pykai_local_says_so() -> None:
    code = """
import sys
sys.modules["pykai.local"] = None
from click.testing import CliRunner
from pykai.cli.main import main
result = CliRunner().invoke(main, ["local", "up"])
print(result.exit_code, result.output)
"""
    out = run_python(code)
    assert out.startswith("1 ")
    assert "needs pykai.local, which container images leave out" in out


def test_help_of_local_clusters_does_not_load_the_product() -> None:
    code = """
import sys
from click.testing import CliRunner
from pykai.cli.main import main
CliRunner().invoke(main, ["local", "--help"])
print([name for name in ("aiohttp", "numpy", "rich.console", "structlog", "pykai.scheduler") if name in sys.modules])
"""
    assert run_python(code).strip() == "[]"


def test_the_operator_starts_without_the_programs_whose_flags_it_checks() -> None:
    code = """
import sys
import pykai.cli.operator
print([name for name in ("numpy", "pykai.cli.scheduler", "pykai.plugins.registry") if name in sys.modules])
"""
    assert run_python(code).strip() == "[]"
