"""The files of a release: none is missing, each has a checksum, and the notes are the version's own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from deploy import release

CHANGELOG = """# Changelog

## Unreleased

- later

## 1.2.0 - 2026-01-02

### Added

- this

## 1.2.0-rc1

- before
"""


def test_notes_are_the_section_of_the_version() -> None:
    assert release.notes(CHANGELOG, "1.2.0") == "# pykai 1.2.0 - 2026-01-02\n\n### Added\n\n- this\n"


def test_a_version_that_the_changelog_does_not_know_is_no_release() -> None:
    with pytest.raises(release.ReleaseError, match=r"no section `## 1\.3\.0`"):
        release.notes(CHANGELOG, "1.3.0")


def test_every_file_has_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(CHANGELOG)
    monkeypatch.setattr(release, "CHANGELOG", changelog)
    for name in release.expected("1.2.0"):
        (tmp_path / name).write_text(name)
    files = release.write("1.2.0", tmp_path)
    lines = (line.split("  ") for line in (tmp_path / release.SUMS).read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    assert set(sums) == {each.name for each in files} - {release.SUMS}
    assert sums["images.tar"] == hashlib.sha256(b"images.tar").hexdigest()


def test_a_release_without_images_is_refused(tmp_path: Path) -> None:
    for name in release.expected("1.2.0")[:-1]:
        (tmp_path / name).write_text(name)
    with pytest.raises(release.ReleaseError, match=r"lacks images\.tar"):
        release.write("1.2.0", tmp_path)
