"""The machine and the moment a benchmark ran: figures without them say little."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Moment:
    """`load`: processes that wanted to run, on average over the minute before."""

    at: datetime
    load: float


def now() -> Moment:
    """This moment."""
    return Moment(datetime.now(UTC), os.getloadavg()[0])


def title() -> str:
    """Processor, cores and interpreter in one line."""
    return f"{os.cpu_count()} cores of {_processor()}, {platform.system()}, Python {platform.python_version()}"


def _processor() -> str:
    """The name of the processor; its architecture where the system does not tell."""
    told = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", told.read_text()) if told.is_file() else None
    return found[1].strip() if found else platform.machine()
