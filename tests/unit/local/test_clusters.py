"""Named clusters: one owner each, records, and an end that leaves nothing."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pykai.local import clusters
from pykai.local.clusters import ClusterError, ClusterRecord, clusters_root
from pykai.local.process import ProcessId, identify

GONE = ProcessId(2**22 + 1, "never")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


def record(**changes: object) -> ClusterRecord:
    base = ClusterRecord(name="demo", phase="ready", owner=GONE, created=time.time(), version="v1.35.4")
    return msgspec.structs.replace(base, **changes)


def store(each: ClusterRecord) -> None:
    clusters.directory_of(each.name).mkdir(parents=True, exist_ok=True)
    clusters.write_record(each)


def test_record_round_trip() -> None:
    each = record(owner=me(), parts={"etcd": GONE}, failure="why")
    store(each)
    assert clusters.read_record("demo") == each
    assert clusters.records() == [each]
    assert clusters.read_record("other") is None


def test_state_tells_the_truth_about_the_owner() -> None:
    assert record(owner=me()).state() == "ready"
    assert record(owner=GONE).state() == "dead"
    assert record(owner=GONE, phase="failed").state() == "failed"


def test_one_owner_per_name() -> None:
    with clusters.owned("demo"), pytest.raises(ClusterError, match="already running"), clusters.owned("demo"):
        pass
    with clusters.owned("demo") as directory:
        assert directory == clusters.directory_of("demo")


def test_a_new_owner_clears_what_a_dead_one_left(sleeper: subprocess.Popen[bytes]) -> None:
    leftover = identify(sleeper.pid)
    assert leftover is not None
    store(record(parts={"etcd": leftover}))
    (clusters.directory_of("demo") / "etcd").mkdir()
    with clusters.owned("demo") as directory:
        assert [path.name for path in directory.iterdir()] == ["lock"]
    assert sleeper.wait(5) != 0


def test_down_ends_owner_and_parts_and_removes_all(sleeper: subprocess.Popen[bytes]) -> None:
    process = identify(sleeper.pid)
    assert process is not None
    store(record(owner=process))
    assert clusters.down("demo")
    assert not process.alive()
    assert not clusters_root().exists()
    assert not clusters.down("demo")


def test_down_spares_a_foreign_process(sleeper: subprocess.Popen[bytes]) -> None:
    store(record(owner=ProcessId(sleeper.pid, "before"), parts={"etcd": ProcessId(sleeper.pid, "before")}))
    assert clusters.down("demo")
    assert sleeper.poll() is None


def test_down_of_a_directory_without_record() -> None:
    with clusters.owned("demo"), pytest.raises(ClusterError, match="just being started"):
        clusters.down("demo")
    assert clusters.down("demo")
    assert clusters.records() == []


def test_await_phase() -> None:
    store(record(owner=me(), phase="starting"))
    assert clusters.await_phase("demo", me(), 0.1) is None
    store(record(owner=me(), phase="failed"))
    found = clusters.await_phase("demo", me(), 1)
    assert found is not None
    assert found.phase == "failed"
    assert clusters.await_phase("demo", GONE, 5) is None
