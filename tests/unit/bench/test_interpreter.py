"""The interpreter that benchmarks may run on, out of a Go module."""

from __future__ import annotations

import gzip
import platform
import zipfile
from pathlib import Path

import pytest
from bench import interpreter
from bench.measure import BenchError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path, root = tmp_path / "module.zip", f"{interpreter.MODULE}/python/internal/data"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(f"{root}/linux-amd64/bin/python3.12.gz", gzip.compress(b"#!/bin/sh\necho it runs\n"))
        packed.writestr(f"{root}/linux-amd64/lib/os.py", "plain")
        packed.writestr(f"{root}/darwin-arm64/bin/python3.12.gz", b"another platform's")
        packed.writestr(f"{interpreter.MODULE}/README.md", "not a file of the interpreter")
    return path


def machine(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: kind)


def test_the_files_of_this_platform_are_unpacked(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, "x86_64")
    home = tmp_path / "python"
    interpreter.unpack(archive, home)
    found = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert found == {"bin/python3.12": "#!/bin/sh\necho it runs\n", "lib/os.py": "plain"}
    assert (home / "bin" / "python3.12").stat().st_mode & 0o111
    assert interpreter.optimised(home) == home / "bin" / "python3.12", "what is there is not downloaded again"


def test_a_platform_without_one_is_refused(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "riscv64")
    with pytest.raises(BenchError, match="riscv64"):
        interpreter.unpack(archive, tmp_path / "python")
