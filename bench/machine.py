"""The machine and the moment a benchmark ran: figures without them say little."""

from __future__ import annotations

import os
import platform
import re
import sysconfig
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
    return f"{os.cpu_count()} cores of {_processor()}, {platform.system()}, {interpreter()}"


def interpreter() -> str:
    """The version of Python, and whether it was built with profile-guided optimisation, as that of the image is."""
    built = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return f"Python {platform.python_version()}" + (" (optimised)" if "--enable-optimizations" in built else "")


def _processor() -> str:
    """The name of the processor; its architecture where the system does not tell."""
    told = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", told.read_text()) if told.is_file() else None
    return found[1].strip() if found else platform.machine()
