"""`python -m tests`: the whole of the tests, in two halves side by side.

Tests on a real control plane mostly wait, the others mostly compute, so both together take hardly longer than one of
them. Lines are told apart by the half they come from, and appear when they are whole. Arguments go to both.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from typing import Final

HALVES: Final = {
    "live": ("tests/integration", "-v", "-p", "no:cacheprovider"),
    "rest": ("tests", "--ignore=tests/integration"),
}
"""What pytest is asked for: of the slow half, a line per file. Only one of the two may keep the record of failures."""


def main(arguments: Sequence[str]) -> int:
    """Run both; 0 if both passed, else the exit code of one that did not."""
    running = {name: _start((*half, *arguments)) for name, half in HALVES.items()}
    readers = [Thread(target=_show, args=(name, process)) for name, process in running.items()]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    codes = {name: process.wait() for name, process in running.items()}
    for name, code in codes.items():
        print(f"{name}: {f'failed with code {code}' if code else 'passed'}")
    return next((code for code in codes.values() if code), 0)


def _start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _show(name: str, process: subprocess.Popen[str]) -> None:
    for line in process.stdout or ():
        print(f"{name} | {line}", end="", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
