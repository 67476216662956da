"""Images and chart of the release before this one, built from the project's history."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.node.layout import PROJECT

VERSION = "0.1.0"
COMMIT = "8ff3a44d"
"""The last one of that version; a tag `v0.1.0` comes first where there is one."""
REGISTRY = "localhost/earlier"
_BUILT = PROJECT / "build" / "earlier"


@dataclass(frozen=True)
class Release:
    """What an installation of it needs."""

    chart: Path
    images: Path


def found() -> str:
    """The commit of the earlier release in this history; empty where there is none, as in an unpacked archive."""
    for name in (f"v{VERSION}", COMMIT):
        asked = ["git", "-C", str(PROJECT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    return ""


def build(commit: str) -> Release:
    """Build what is not there yet; it is kept for the next run."""
    home = _BUILT / commit[:12]
    sources, images = home / "sources", home / "images.tar"
    if not images.exists():
        sources.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "-C", PROJECT, "archive", commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", sources], input=archive, check=True)
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "build", "-q", "--wheel", "--out-dir", home, sources], check=True)
        (wheel,) = home.glob("*.whl")
        unfinished = home / "unfinished.tar"
        environment = {**os.environ, "PYTHONPATH": f"{sources / 'src'}{os.pathsep}{sources}"}
        command = [sys.executable, "-m", "deploy.image", str(wheel), str(unfinished), REGISTRY]
        subprocess.run(command, cwd=sources, env=environment, check=True)
        unfinished.rename(images)
    return Release(sources / "charts" / "kai-scheduler", images)
