"""Where one local cluster lives: its directory, its ports, its secrets, its kubeconfig.

Everything a cluster leaves on disk is under `Site.directory`, so that removing the directory removes the cluster.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykai.config.fields import FieldError
from pykai.hollow.hollow_node import HOST

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


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
class Site:
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


def prepare(site: Site) -> None:
    """Make the directories and secrets of a new cluster; what an earlier start left is dropped."""
    for leftover in (site.directory / "etcd", site.pki):
        shutil.rmtree(leftover, ignore_errors=True)
    for directory in (site.pki, site.log("any").parent):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    _write_secret(site.service_account_key, pem)
    _write_secret(site.tokens, f"{secrets.token_urlsafe(32)},admin,admin,system:masters\n".encode())


def write_kubeconfig(site: Site) -> None:
    """Write the kubeconfig, once the API server has made its certificate; JSON is YAML too."""
    context = f"kai-local-{site.name}"
    authority = base64.b64encode(site.certificate.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": site.url, "certificate-authority-data": authority}}],
        "users": [{"name": context, "user": {"token": site.admin_token()}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }
    _write_secret(site.kubeconfig, json.dumps(document, indent=2).encode())


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
