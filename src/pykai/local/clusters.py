"""The local clusters of this user: one directory each, with secrets, kubeconfig, logs, and a record of its processes.

All files of a cluster are in `ClusterFiles.directory`, so that removing it removes the cluster. Invariants: at most one
owner process per name, which holds a lock while it lives; the record is replaced atomically; a signal is sent only to
the process that was recorded, not to a later one of the same pid.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykai.config.fields import FieldError
from pykai.hollow.hollow_node import HOST
from pykai.local.process import ProcessId, end_all

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class ClusterError(RuntimeError):
    """An operation on a cluster failed; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one cluster."""

    etcd: int
    etcd_peer: int
    api: int


def free_ports(host: str = HOST) -> Ports:
    """Three different ports that are free now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind((host, 0))
        return Ports(*(each.getsockname()[1] for each in sockets))


def is_valid_name(name: str) -> bool:
    """Whether the text is a valid name of a cluster, which becomes a directory and a kubeconfig context."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str) -> str:
    """Return the name; FieldError if it is not a valid cluster name."""
    if not is_valid_name(name):
        raise FieldError("", f"cluster name {name!r}: use up to 32 lower-case letters, digits and inner dashes")
    return name


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The directory and addresses of a cluster."""

    directory: Path
    ports: Ports
    host: str = HOST
    """The listen address of the parts: loopback, or one that pods of a real node can reach."""

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.directory.name

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{self.host}:{self.ports.api}"

    @property
    def etcd_url(self) -> str:
        """The client URL of etcd."""
        return f"http://{self.host}:{self.ports.etcd}"

    @property
    def pki(self) -> Path:
        """The directory of keys, tokens and the serving certificate."""
        return self.directory / "pki"

    @property
    def certificate(self) -> Path:
        """The API server's serving certificate, which it generates when it starts."""
        return self.pki / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service account tokens."""
        return self.pki / "sa.key"

    @property
    def tokens(self) -> Path:
        """The API server's token file."""
        return self.pki / "tokens.csv"

    @property
    def egress(self) -> Path:
        """The API server's egress selector configuration, which names the tunnel."""
        return self.directory / "egress.json"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.directory / "kubeconfig"

    def log(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.directory / "logs" / f"{part}.log"

    def admin_token(self) -> str:
        """Return the bearer token of the cluster's administrator."""
        return self.tokens.read_text().partition(",")[0]


def prepare(files: ClusterFiles) -> None:
    """Create the directories and secrets of a new cluster; removes those of an earlier start."""
    for stale in (files.directory / "etcd", files.pki):
        shutil.rmtree(stale, ignore_errors=True)
    for directory in (files.pki, files.log("any").parent):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    _write_secret(files.service_account_key, pem)
    _write_secret(files.tokens, f"{secrets.token_urlsafe(32)},admin,admin,system:masters\n".encode())


def write_kubeconfig(files: ClusterFiles) -> None:
    """Write the kubeconfig as JSON, which is YAML; requires the API server's certificate."""
    context = f"kai-local-{files.name}"
    authority = base64.b64encode(files.certificate.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": files.url, "certificate-authority-data": authority}}],
        "users": [{"name": context, "user": {"token": files.admin_token()}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }
    _write_secret(files.kubeconfig, json.dumps(document, indent=2).encode())


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _from_environment(variable: str, fallback: str) -> Path:
    chosen = os.environ.get(variable, "")
    # The XDG specification says that relative paths are invalid and must be ignored.
    return Path(chosen) if chosen.startswith("/") else Path.home() / fallback


def cache_root() -> Path:
    """Return the cache directory of pykai; everything in it can be rebuilt."""
    return _from_environment("XDG_CACHE_HOME", ".cache") / "pykai"


def clusters_root() -> Path:
    """Return the directory of the cluster directories."""
    return _from_environment("XDG_STATE_HOME", ".local/state") / "pykai" / "clusters"


Phase = Literal["starting", "ready", "failed"]
State = Literal["starting", "ready", "failed", "dead"]
OWNER_STOP_SECONDS = 30.0
PART_STOP_SECONDS = 5.0
_RECORD = "cluster.json"
_LOCK = "lock"
OWNER_LOG = "owner.log"


class ClusterRecord(msgspec.Struct, frozen=True):
    """The state of a cluster, written by its owner process; `failure`: the error if the phase is failed."""

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
        """Return the phase, or "dead" if the owner ended without recording it."""
        return self.phase if self.phase == "failed" or self.owner.alive() else "dead"


def directory_of(name: str) -> Path:
    """Return the directory of a cluster, whether it exists or not; FieldError for an invalid name."""
    return clusters_root() / checked_name(name)


def write_record(record: ClusterRecord) -> None:
    """Replace the record of a cluster atomically."""
    path = directory_of(record.name) / _RECORD
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    unfinished.replace(path)


def read_record(name: str) -> ClusterRecord | None:
    """Read the record of a cluster; None if there is none, ClusterError if it is invalid."""
    path = directory_of(name) / _RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise ClusterError(f"{path} is not the record of a cluster ({error}): remove {path.parent}") from error


def records() -> list[ClusterRecord]:
    """Return the records of all clusters, dead ones included, by name; ignore other files."""
    try:
        names = sorted(path.name for path in clusters_root().iterdir() if is_valid_name(path.name))
    except FileNotFoundError:
        return []
    return [record for record in map(read_record, names) if record is not None]


@contextmanager
def owned(name: str) -> Iterator[Path]:
    """Lock and empty the directory of a cluster; ClusterError if another process owns it.

    The directory remains after the block: the owner removes it (`remove`), or keeps it for the logs of a failure.
    """
    directory = directory_of(name)
    descriptor = _lock(directory)
    try:
        leftover = read_record(name)
        if leftover is not None:
            end_all(leftover.parts.values(), PART_STOP_SECONDS)
        for path in directory.iterdir():
            if path.name not in (_LOCK, OWNER_LOG):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield directory
    finally:
        os.close(descriptor)


def _lock(directory: Path) -> int:
    """Lock the directory and return the descriptor; retries if `down` has removed the lock file meanwhile."""
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


def remove(name: str) -> None:
    """Delete all files of a cluster; with the last cluster, also their common directory."""
    shutil.rmtree(directory_of(name), ignore_errors=True)
    with contextlib.suppress(OSError):
        clusters_root().rmdir()


def down(name: str) -> bool:
    """Stop a cluster and delete its files; False if there is none of this name."""
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
    """Wait for the record to be ready or failed; None on timeout or if the owner ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        record = read_record(name)
        if record is not None and record.owner == owner and record.phase != "starting":
            return record
        if not owner.alive():
            return None
        time.sleep(0.05)
    return None
