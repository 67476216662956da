"""Start and stop of parts, with a shell script in the place of the control plane."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pykai.local import cluster
from pykai.local.cluster import ControlPlane, PartError, start_cluster
from pykai.local.site import Site, free_ports


def script(directory: Path, body: str) -> Path:
    path = directory / "binary"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_part_that_crashes_at_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    binary = script(tmp_path, 'echo "cannot open the door"; exit 3')
    plane = ControlPlane(Site(tmp_path / "demo", free_ports()), binary)
    with pytest.raises(PartError, match=r"(?s)etcd ended with code 3.*cannot open the door") as failure:
        plane.start()
    assert failure.value.part == "etcd"
    assert plane.processes() == {}


def test_a_part_that_never_answers_is_named_and_stopped(tmp_path: Path) -> None:
    binary = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    plane = ControlPlane(Site(tmp_path / "demo", free_ports()), binary)
    with pytest.raises(PartError, match="etcd is not ready in time"):
        plane.start(seconds=0.3)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_taken_port_is_tried_again_with_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = script(tmp_path, f'echo "$3" >> {tmp_path}/tries; echo "bind: address already in use"; exit 1')
    with pytest.raises(PartError, match="address already in use"):
        start_cluster(tmp_path / "demo", binary)
    assert len((tmp_path / "tries").read_text().splitlines()) == cluster._PORT_ATTEMPTS


def test_other_failures_are_not_tried_again(tmp_path: Path) -> None:
    binary = script(tmp_path, f"echo x >> {tmp_path}/tries; exit 1")
    with pytest.raises(PartError):
        start_cluster(tmp_path / "demo", binary)
    assert (tmp_path / "tries").read_text() == "x\n"
