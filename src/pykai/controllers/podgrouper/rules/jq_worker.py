"""The process in which jq programs run: reads one JSON request per line, writes one JSON response per line.

`jq_sandbox` starts it as a script. Programs come from Karta objects, whose authors need not be trusted: this process
has no environment, cannot open files, and has a memory limit.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from functools import lru_cache
from itertools import islice
from typing import Any

import jq

MAX_VALUES = 10_000
MAX_ANSWER_BYTES = 1 << 20


@lru_cache(maxsize=1024)
def _compiled(program: str) -> Any:
    return jq.compile(program)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        program = _compiled(request["program"])
        found = list(islice(program.input_value(request["input"]), MAX_VALUES + 1)) if "input" in request else []
    except ValueError as error:
        return {"error": str(error)}
    if len(found) > MAX_VALUES:
        return {"error": f"yields more than {MAX_VALUES} values"}
    return {"values": found}


def main() -> None:
    """Answer requests until the input ends; the first argument limits the address space in bytes."""
    os.environ.clear()
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        text = json.dumps(_answer(json.loads(line)))
        if len(text) > MAX_ANSWER_BYTES:
            text = json.dumps({"error": f"yields more than {MAX_ANSWER_BYTES} bytes"})
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
