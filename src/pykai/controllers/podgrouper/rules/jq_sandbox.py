"""Evaluation of the jq programs of Kartas, in a separate process with limits of time and memory.

A program may loop for ever or build a value of any size, and in this process `$ENV` would expose the environment. The
worker process (`jq_worker`) is started on first use and restarted after a program exceeded a limit.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from pykai.kube.api import Object

SECONDS = 2.0
MEMORY_BYTES = 512 << 20
_START_SECONDS = 30.0
_WORKER = Path(__file__).with_name("jq_worker.py")


class JqError(ValueError):
    """The program is invalid, fails on its input, or exceeds a limit."""


class JqEvaluator(Protocol):
    """Evaluates jq programs; both methods raise JqError."""

    def check(self, program: str) -> None:
        """Return if the program compiles."""
        ...

    def evaluate(self, program: str, value: Any) -> list[Any]:
        """Return all values that the program yields for an input."""
        ...


class JqSandbox:
    """A `JqEvaluator` with one worker process; calls block for at most `seconds`, and threads take turns."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def check(self, program: str) -> None:
        """See `JqEvaluator.check`."""
        self._ask({"program": program})

    def evaluate(self, program: str, value: Any) -> list[Any]:
        """See `JqEvaluator.evaluate`."""
        return self._ask({"program": program, "input": value})

    def close(self) -> None:
        """Stop the worker; the next call starts another one."""
        with self._lock:
            self._end()

    def _ask(self, request: Object) -> list[Any]:
        program = request["program"]
        with self._lock:
            try:
                process = self._process or self._start()
                assert process.stdin is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                answer: Object = json.loads(_line(process, self._seconds))
            except TimeoutError:
                self._end()
                raise JqError(f"jq program {program!r} takes longer than {self._seconds:g} s") from None
            except OSError:
                self._end()
                limit = MEMORY_BYTES >> 20
                raise JqError(f"jq program {program!r} crashed, or takes more than {limit} MiB of memory") from None
        if "error" in answer:
            raise JqError(f"jq program {program!r}: {answer['error']}")
        values: list[Any] = answer["values"]
        return values

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", str(_WORKER), str(MEMORY_BYTES)]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, env={})
        _line(self._process, _START_SECONDS)
        atexit.register(self.close)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.close)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return one line of the worker; TimeoutError, or BrokenPipeError if it has exited."""
    assert process.stdout is not None
    descriptor, deadline = process.stdout.fileno(), time.monotonic() + seconds
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            raise BrokenPipeError
        text += part
    return text


SANDBOX = JqSandbox()
"""Shared by all rules of this process."""
