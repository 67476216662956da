"""The chart of a release: packed the same whenever it is packed, and signed so that Helm can check it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from deploy import chart

CHART = Path(__file__).parents[3] / "charts" / "kai-scheduler"
HELM = Path(sys.executable).with_name("helm")


def archive(*names: str, time: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as written:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uname = len(name), time, f"user-{time}"
            written.addfile(entry, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_times_owners_and_order_do_not_show() -> None:
    one = chart.normalized(archive("x/Chart.yaml", "x/a", "x/charts/y/Chart.yaml", time=1))
    assert one == chart.normalized(archive("x/charts/y/Chart.yaml", "x/a", "x/Chart.yaml", time=2))
    with tarfile.open(fileobj=io.BytesIO(one)) as packed:
        assert packed.getnames() == ["x/Chart.yaml", "x/a", "x/charts/y/Chart.yaml"]


def test_other_contents_are_other_bytes() -> None:
    assert chart.normalized(archive("x/a", time=1)) != chart.normalized(archive("x/b", time=1))


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
def test_helm_verifies_what_was_signed_and_refuses_what_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, key, ring = tmp_path / "gpg", "release@example.com", tmp_path / "public.gpg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    monkeypatch.setenv("PATH", f"{HELM.parent}{os.pathsep}{os.environ['PATH']}")
    gpg = ["gpg", "--batch", "--quiet"]
    try:
        subprocess.run([*gpg, "--passphrase", "", "--quick-gen-key", key, "rsa2048", "sign", "1d"], check=True)
        ring.write_bytes(subprocess.run([*gpg, "--export", key], check=True, capture_output=True).stdout)
        packed = chart.package(CHART, tmp_path)
        chart.sign(packed, key)
        verify = [str(HELM), "verify", "--keyring", str(ring), str(packed)]
        said = subprocess.run(verify, check=True, capture_output=True, text=True).stdout
        assert key in said
        packed.write_bytes(packed.read_bytes() + b"\0")
        refused = subprocess.run(verify, capture_output=True, text=True)
        assert refused.returncode != 0
        assert "sha256 sum does not match" in refused.stderr
    finally:
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=True)
