"""`python -m tests`: the whole of the tests, in parts side by side, then the coverage of the pure packages.

Tests on a real control plane mostly wait, the others mostly compute, so all take hardly longer than the longest
part of them. The others run at a lower priority: what is awaited with a deadline must not starve. Each line begins with
the part it comes from, and appears when it is whole. The tests that failed are named once more at the end, where
whoever sees only the last lines of a log looks. Arguments go to every part.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Final

Command = tuple[str, ...]

PURE_TESTS: Final = (
    *(f"tests/unit/{package}" for package in ("model", "kernels", "engine", "verify", "plugins", "cache")),
    "tests/conformance",
    *(f"tests/properties/test_{name}.py" for name in ("domains", "engine_parts", "fairshare", "numa", "selectors")),
)
"""The tests that cover `model kernels engine verify`, and run with coverage; pyproject.toml has its settings."""

OPERATORS: Final = "tests/integration/test_operators.py"
"""Operators of other projects, whose build takes long (`make test-operators`)."""
ELSEWHERE: Final = ("tests/integration", "tests/node", "tests/browser")
"""What runs on a real control plane, on a real node (`make test-node`) and in a browser (`make test-browser`)."""
PARTS: Final[Mapping[str, Command]] = {
    "live": ("pytest", "tests/integration", f"--ignore={OPERATORS}", "-v", "-p", "no:cacheprovider"),
    "pure": ("coverage", "run", "-m", "pytest", *PURE_TESTS, "-p", "no:cacheprovider"),
    "rest": ("pytest", "tests", *(f"--ignore={path}" for path in (*ELSEWHERE, *PURE_TESTS))),
}
"""Modules to run: of the slow part, a line per file. Only one of them may keep the record of failures."""
URGENT: Final = "live"
"""The part whose tests have deadlines; the others yield the processors to it."""
NICENESS: Final = 10
REPORT: Final[Command] = ("coverage", "report")


def main(arguments: Sequence[str], parts: Mapping[str, Command] = PARTS, report: Command = REPORT) -> int:
    """Run all parts, then the report; 0 if all passed, else the exit code of one that did not."""
    running = {name: _start((*command, *arguments)) for name, command in parts.items()}
    for name in running.keys() - {URGENT}:
        os.setpriority(os.PRIO_PROCESS, running[name].pid, NICENESS)
    failures: dict[str, list[str]] = {name: [] for name in running}
    readers = [Thread(target=_show, args=(name, process, failures[name])) for name, process in running.items()]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    codes = {name: process.wait() for name, process in running.items()}
    if not arguments:
        codes["coverage"] = subprocess.run([sys.executable, "-m", *report], check=False).returncode
    for name, code in codes.items():
        print(f"{name}: {f'failed with code {code}' if code else 'passed'}", *failures.get(name, ()), sep="\n  ")
    return next((code for code in codes.values() if code), 0)


def _start(command: Command) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", *command]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _show(name: str, process: subprocess.Popen[str], failures: list[str]) -> None:
    """Print what the part prints; add the failed tests of its summary to `failures`."""
    for line in process.stdout or ():
        print(f"{name} | {line}", end="", flush=True)
        if line.startswith(("FAILED ", "ERROR ")):
            failures.append(line.rstrip())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
