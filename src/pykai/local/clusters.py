"""The named clusters of this user: a directory each with its ports, secrets, kubeconfig, and a record of who runs it.

Everything a cluster leaves on disk is under `ClusterFiles.directory`, so that removing it removes the cluster.
Invariants: at most one owner per name (it holds a lock for as long as it lives); the record is replaced whole, so a
reader sees an old one or a new one; a process is signalled only if it is the one that was recorded.
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
    """The cluster cannot do what was asked; the text is for the user."""


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


def can_be_name(name: str) -> bool:
    """Whether a cluster can be called so: it becomes a directory and a context."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str) -> str:
    """The cluster name, if it can be one; FieldError otherwise."""
    if not can_be_name(name):
        raise FieldError("", f"cluster name {name!r}: use up to 32 lower-case letters, digits and inner dashes")
    return name


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """One cluster's place on this machine."""

    directory: Path
    ports: Ports
    host: str = HOST
    """The address on which the parts listen: loopback, or where pods of a real node reach them."""

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
        """etcd's address for clients."""
        return f"http://{self.host}:{self.ports.etcd}"

    @property
    def pki(self) -> Path:
        """The directory of keys, tokens and the serving certificate."""
        return self.directory / "pki"

    @property
    def certificate(self) -> Path:
        """The API server's certificate, which it makes itself when it starts."""
        return self.pki / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service account tokens."""
        return self.pki / "sa.key"

    @property
    def tokens(self) -> Path:
        """The API server's list of bearer tokens."""
        return self.pki / "tokens.csv"

    @property
    def egress(self) -> Path:
        """The file by which the API server finds the tunnel."""
        return self.directory / "egress.json"

    @property
    def kubeconfig(self) -> Path:
        """The file `kubectl` and every client needs."""
        return self.directory / "kubeconfig"

    def log(self, part: str) -> Path:
        """The file a part writes its output to."""
        return self.directory / "logs" / f"{part}.log"

    def admin_token(self) -> str:
        """The bearer token of the cluster's administrator."""
        return self.tokens.read_text().partition(",")[0]


def prepare(files: ClusterFiles) -> None:
    """Make the directories and secrets of a new cluster; what an earlier start left is dropped."""
    for leftover in (files.directory / "etcd", files.pki):
        shutil.rmtree(leftover, ignore_errors=True)
    for directory in (files.pki, files.log("any").parent):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    _write_secret(files.service_account_key, pem)
    _write_secret(files.tokens, f"{secrets.token_urlsafe(32)},admin,admin,system:masters\n".encode())


def write_kubeconfig(files: ClusterFiles) -> None:
    """Write the kubeconfig, once the API server has made its certificate; JSON is YAML too."""
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
    # The XDG rules say that a relative path is invalid and to be ignored.
    return Path(chosen) if chosen.startswith("/") else Path.home() / fallback


def cache_root() -> Path:
    """The directory of things that may be deleted at any time and are then made again."""
    return _from_environment("XDG_CACHE_HOME", ".cache") / "pykai"


def clusters_root() -> Path:
    """The directory that holds one state directory per running local cluster."""
    return _from_environment("XDG_STATE_HOME", ".local/state") / "pykai" / "clusters"


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
