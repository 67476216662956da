"""The files of a release beside wheel, images and chart: notes from the changelog, and a checksum of everything.

python -m deploy.release 0.2.0 dist
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
NOTES, SUMS = "RELEASE_NOTES.md", "SHA256SUMS"


class ReleaseError(ValueError):
    """What a release lacks."""


def notes(changelog: str, version: str) -> str:
    """The section of a version; ReleaseError where the changelog has none."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    found = [each for each in sections if re.match(rf"\[?{re.escape(version)}\b", each)]
    if not found:
        raise ReleaseError(f"CHANGELOG.md has no section `## {version}`")
    title, _, text = found[0].partition("\n")
    return f"# pykai {title.strip()}\n\n{text.strip()}\n"


def expected(version: str) -> list[str]:
    """The files that a release consists of."""
    return [
        f"pykai-{version}-py3-none-any.whl", f"pykai-{version}.tar.gz", f"pykai-{version}.cdx.json",
        f"kai-scheduler-{version}.tgz", "images.tar",
    ]  # fmt: skip


def write(version: str, directory: Path) -> list[Path]:
    """Write notes and checksums; gives all files of the release."""
    missing = [name for name in expected(version) if not (directory / name).exists()]
    if missing:
        raise ReleaseError(f"{directory} lacks {', '.join(missing)}")
    (directory / NOTES).write_text(notes(CHANGELOG.read_text(), version))
    signature = directory / f"kai-scheduler-{version}.tgz.prov"
    files = [directory / name for name in (*expected(version), NOTES)] + ([signature] if signature.exists() else [])
    (directory / SUMS).write_text("".join(f"{_digest(each)}  {each.name}\n" for each in files))
    return [*files, directory / SUMS]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        for path in write(sys.argv[1], Path(sys.argv[2])):
            print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")
    except ReleaseError as error:
        sys.exit(f"no release: {error}")
