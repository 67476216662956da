"""Where things live on the user's machine: what can be made again in the cache, running clusters in the state."""

from __future__ import annotations

import os
from pathlib import Path


def _from_environment(variable: str, fallback: str) -> Path:
    chosen = os.environ.get(variable, "")
    # The XDG rules say that a relative path is invalid and to be ignored.
    return Path(chosen) if chosen.startswith("/") else Path.home() / fallback


def cache_root() -> Path:
    """The directory of things that may be deleted at any time and are then made again."""
    return _from_environment("XDG_CACHE_HOME", ".cache") / "pykai"


def clusters_root() -> Path:
    """The directory that holds one state directory per running local cluster."""
    return _from_environment("XDG_STATE_HOME", ".local/state") / "pykai" / "clusters"
