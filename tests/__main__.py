"""`python -m tests`: the whole of the tests, in parts side by side, then the coverage of the pure packages.

Tests on a real control plane mostly wait, the others mostly compute, so all take hardly longer than the longest
part of them. The others run at a lower priority: what is awaited with a deadline must not starve. Each line begins with
the part it comes from, and appears when it is whole. Arguments go to every part.

Few failures may be due to the load that the parts are for each other: these tests run once more, alone. What fails
again is a failure; what passes then is named all the same. The last lines name every test that failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Final

Command = tuple[str, ...]

COVERED: Final = ("coverage", "run", "-m")
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
    "live": ("pytest", "tests/integration", f"--ignore={OPERATORS}", "-v"),
    "pure": (*COVERED, "pytest", *PURE_TESTS),
    "rest": ("pytest", "tests", *(f"--ignore={path}" for path in (*ELSEWHERE, *PURE_TESTS))),
}
"""Modules to run: of the slow part, a line per file."""
FAILURE: Final = re.compile(r"(FAILED|ERROR) \S")
"""A line of pytest's summary. Lines of the log have more spaces after the level."""
RECORDS: Final = Path(".pytest_cache")
"""Where each part keeps the record of its failures, in a folder of its own."""
MOST_AGAIN: Final = 5
"""With more failures than these, load is not the reason."""
URGENT: Final = "live"
"""The part whose tests have deadlines; the others yield the processors to it."""
NICENESS: Final = 10
REPORT: Final[Command] = ("coverage", "report")


def main(arguments: Sequence[str], parts: Mapping[str, Command] = PARTS, report: Command = REPORT) -> int:
    """Run all parts, then the report; 0 if all passed, else the exit code of one that did not."""
    commands = {name: (*command, "-o", f"cache_dir={RECORDS / name}", *arguments) for name, command in parts.items()}
    running = {name: _start(command) for name, command in commands.items()}
    for name in running.keys() - {URGENT}:
        os.setpriority(os.PRIO_PROCESS, running[name].pid, NICENESS)
    failures: dict[str, list[str]] = {name: [] for name in running}
    readers = [Thread(target=_show, args=(name, process, failures[name])) for name, process in running.items()]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    codes = {name: process.wait() for name, process in running.items()}
    for name in [name for name, failed in failures.items() if codes[name] and 0 < len(failed) <= MOST_AGAIN]:
        codes[name] = _again(name, commands[name], failures[name])
    if not arguments:
        codes["coverage"] = subprocess.run([sys.executable, "-m", *report], check=False).returncode
    for name, code in codes.items():
        print(f"{name}: {f'failed with code {code}' if code else 'passed'}", *failures.get(name, ()), sep="\n  ")
    return next((code for code in codes.values() if code), 0)


def _again(name: str, command: Command, failures: list[str]) -> int:
    """Run the tests of a part that failed once more, without coverage; the exit code."""
    print(f"{name}: once more, alone: {len(failures)} failed", flush=True)
    alone = command[len(COVERED) :] if command[: len(COVERED)] == COVERED else command
    failed_twice: list[str] = []
    process = _start((*alone, "--last-failed", "--last-failed-no-failures", "none"))
    _show(name, process, failed_twice)
    code = process.wait()
    failures[:] = failed_twice or [f"{line} (passed alone)" for line in failures]
    return code


def _start(command: Command) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", *command]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _show(name: str, process: subprocess.Popen[str], failures: list[str]) -> None:
    """Print what the part prints; add the failed tests of its summary to `failures`."""
    for line in process.stdout or ():
        print(f"{name} | {line}", end="", flush=True)
        if FAILURE.match(line):
            failures.append(line.rstrip())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
