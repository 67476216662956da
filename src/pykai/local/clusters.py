"""The named clusters of this user: one directory each, with a record of who runs it and how it fares.

Invariants: at most one owner per name (it holds a lock for as long as it lives); the record is replaced whole, so a
reader sees an old one or a new one; a process is signalled only if it is the one that was recorded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from pykai.local.control_plane import ClusterError
from pykai.local.process import ProcessId, end_all
from pykai.local.site import can_be_name, checked_name, clusters_root

Phase = Literal["starting", "ready", "failed"]
State = Literal["starting", "ready", "failed", "dead"]
OWNER_STOP_SECONDS = 30.0
PART_STOP_SECONDS = 5.0
_RECORD = "cluster.json"
_LOCK = "lock"
OWNER_LOG = "owner.log"


class ClusterRecord(msgspec.Struct, frozen=True):
    """What the owner of a cluster says about it; `failure` is empty while all is well."""

    name: str
    phase: Phase
    owner: ProcessId
    created: float
    version: str
    nodes: int = 0
    url: str = ""
    kubeconfig: str = ""
    parts: dict[str, ProcessId] = {}
    components: list[str] = []
    failure: str = ""

    def state(self) -> State:
        """The phase, or "dead" if the owner has gone without saying so."""
        return self.phase if self.phase == "failed" or self.owner.alive() else "dead"


def directory_of(name: str) -> Path:
    """The directory of a cluster, whether it exists or not; FieldError for a name that cannot be one."""
    return clusters_root() / checked_name(name)


def write_record(record: ClusterRecord) -> None:
    """Replace the record of a cluster."""
    path = directory_of(record.name) / _RECORD
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    unfinished.replace(path)


def read_record(name: str) -> ClusterRecord | None:
    """The record of a cluster; None if there is none, ClusterError names one that cannot be read."""
    path = directory_of(name) / _RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise ClusterError(f"{path} is not the record of a cluster ({error}): remove {path.parent}") from error


def records() -> list[ClusterRecord]:
    """All clusters of this user by name, dead ones too; what else lies there is none of our business."""
    try:
        found = sorted(path.name for path in clusters_root().iterdir() if can_be_name(path.name))
    except FileNotFoundError:
        return []
    return [record for record in map(read_record, found) if record is not None]


@contextmanager
def owned(name: str) -> Iterator[Path]:
    """The fresh directory of a cluster, held by this process; ClusterError if another process holds it.

    It stays after the block: the owner removes it (`remove`) or leaves it to show what failed.
    """
    directory = directory_of(name)
    descriptor = _lock(directory)
    try:
        _end_leftovers(name)
        for path in directory.iterdir():
            if path.name not in (_LOCK, OWNER_LOG):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield directory
    finally:
        os.close(descriptor)


def _lock(directory: Path) -> int:
    """A locked descriptor. `down` may remove the directory at any moment: such a lock guards nothing, try again."""
    while True:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ClusterError(f"cluster {directory.name!r} is already running") from None
        if os.fstat(descriptor).st_nlink > 0:
            return descriptor
        os.close(descriptor)


def _end_leftovers(name: str) -> None:
    record = read_record(name)
    if record is not None:
        end_all(record.parts.values(), PART_STOP_SECONDS)


def remove(name: str) -> None:
    """Delete all files of a cluster, and the directory of clusters with the last one."""
    shutil.rmtree(directory_of(name), ignore_errors=True)
    with contextlib.suppress(OSError):
        clusters_root().rmdir()


def down(name: str) -> bool:
    """Stop a cluster and delete all it left; False if there was none."""
    directory = directory_of(name)
    if not directory.exists():
        return False
    record = read_record(name)
    if record is not None:
        end_all([record.owner], OWNER_STOP_SECONDS)
        end_all(record.parts.values(), PART_STOP_SECONDS)
    elif _is_locked(directory):
        raise ClusterError(f"cluster {name!r} is just being started; try again in a moment")
    remove(name)
    return True


def _is_locked(directory: Path) -> bool:
    try:
        os.close(_lock(directory))
    except ClusterError:
        return True
    return False


def await_phase(name: str, owner: ProcessId, seconds: float) -> ClusterRecord | None:
    """The record once the owner says ready or failed; None if it ends or says neither in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        record = read_record(name)
        if record is not None and record.owner == owner and record.phase != "starting":
            return record
        if not owner.alive():
            return None
        time.sleep(0.05)
    return None
