"""Address and credentials of the API server, from a kubeconfig or from the pod's service account.

A token file is re-read every minute, because the kubelet rotates the token long before it expires, and at once after
the server rejected it; a program that issues tokens is run again then, and when one has expired. Client certificates
are in files only while TLS loads them.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pykai.kube.api import Fields, Object
from pykai.kube.errors import CredentialsError
from pykai.kube.exec_credentials import CredentialProgram, IssuedCredential

REREAD_SECONDS = 60.0
IN_CLUSTER = "var/run/secrets/kubernetes.io/serviceaccount"


class BearerToken:
    """A bearer token: fixed, read from a file that may change, or issued by a program for some time.

    `issued`: what the program has issued before the token is first used.
    """

    def __init__(
        self,
        fixed: str = "",
        file: Path | None = None,
        program: CredentialProgram | None = None,
        issued: IssuedCredential | None = None,
    ) -> None:
        self._value = fixed
        self._file = file
        self._program = program
        self._issued = issued
        self._read_at: float | None = None
        self._seconds: float | None = REREAD_SECONDS
        """For how long what was read is used; None: until the server rejects it."""

    def current(self, now: float) -> str:
        """Return the token to send at `now` (seconds of any monotonic clock); empty if there is none."""
        over = self._seconds is not None and self._read_at is not None and now - self._read_at >= self._seconds
        if (self._file or self._program) and (self._read_at is None or over):
            self._read()
            self._read_at = now
        return self._value

    def _read(self) -> None:
        if self._file:
            self._value = self._file.read_text().strip()
        elif self._program:
            issued = self._issued or self._program.run()
            self._value, self._seconds, self._issued = issued.token, issued.seconds, None

    def refused(self) -> bool:
        """Record that the server rejected the token; return whether the next use may read another one."""
        self._read_at = None
        return self._file is not None or self._program is not None


@dataclass(frozen=True, slots=True)
class Access:
    """The address and credentials of one API server; `tls` None: plain HTTP."""

    server: str
    tls: ssl.SSLContext | None = None
    token: BearerToken = field(default_factory=BearerToken)


def find_access(kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ) -> Access:
    """Return access by the given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    named = kubeconfig or environ.get("KUBECONFIG", "")
    if named:
        return from_kubeconfig(Path(named), context)
    if "KUBERNETES_SERVICE_HOST" in environ:
        return from_service_account(environ)
    return from_kubeconfig(Path.home() / ".kube" / "config", context)


def from_service_account(environ: Mapping[str, str]) -> Access:
    """Return the access of a pod from its service account files and environment variables."""
    folder = Path(environ.get("CONTAINER_SANDBOX_MOUNT_POINT") or "/") / IN_CLUSTER
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CredentialsError("not inside a cluster: KUBERNETES_SERVICE_HOST is not set")
    token = folder / "token"
    if not token.exists():
        raise CredentialsError(f"{token} is missing: is automountServiceAccountToken off?")
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    name = f"[{host}]" if ":" in host else host
    return Access(f"https://{name}:{port}", tls, BearerToken(file=token))


def from_kubeconfig(path: Path, context: str = "") -> Access:
    """Return the access of one context of a kubeconfig, by default the current one."""
    file = _Kubeconfig.read(path)
    chosen = file.entry("contexts", context or str(file.content.get("current-context") or ""))
    cluster = file.entry("clusters", chosen.get("cluster", ""))
    user = file.entry("users", chosen["user"]) if chosen.get("user") else {}
    if "auth-provider" in user:
        raise CredentialsError(f"{path}: user {chosen['user']!r} has an auth-provider, which Kubernetes 1.26 removed")
    server = str(cluster.get("server") or "")
    if not server.startswith(("http://", "https://")):
        raise CredentialsError(f"{path}: clusters.{chosen['cluster']}.server is not a URL: {server!r}")
    token_file = path.parent / user["tokenFile"] if user.get("tokenFile") else None
    token = BearerToken(file=token_file) if token_file else BearerToken(user.get("token") or "")
    if isinstance(user.get("exec"), dict):
        program = CredentialProgram(path, user["exec"], cluster)
        issued = program.run()
        token = BearerToken(program=program, issued=issued)
        pair = {"client-certificate": issued.certificate, "client-key": issued.key} if issued.certificate else {}
        user = {**user, **{f"{name}-data": base64.b64encode(text.encode()) for name, text in pair.items()}}
    tls = _tls(file, cluster, user) if server.startswith("https://") else None
    return Access(server.rstrip("/"), tls, token)


@dataclass(frozen=True)
class _Kubeconfig:
    """A parsed kubeconfig; paths in it are relative to its directory."""

    path: Path
    content: Object

    @classmethod
    def read(cls, path: Path) -> _Kubeconfig:
        if not path.exists():
            raise CredentialsError(f"there is no kubeconfig at {path}: name one with --kubeconfig or KUBECONFIG")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise CredentialsError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
        if not isinstance(content, dict):
            raise CredentialsError(f"{path} is no kubeconfig: expected a map")
        return cls(path, content)

    def entry(self, kind: str, name: str) -> Object:
        """Return the entry with this name in `contexts`, `clusters` or `users`."""
        entries = self.content.get(kind)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                if not isinstance(held := entry.get(kind.removesuffix("s")), dict):
                    raise CredentialsError(f"{self.path}: {kind}.{name} has no {kind.removesuffix('s')}")
                return held
        raise CredentialsError(f"{self.path}: {kind} has no entry named {name!r}")

    def bytes_of(self, entry: Fields, name: str) -> bytes:
        """Return the bytes of `name-data`, or of the file that `name` points to; empty if both are absent."""
        try:
            if entry.get(f"{name}-data"):
                return base64.b64decode(entry[f"{name}-data"])
            return (self.path.parent / entry[name]).read_bytes() if entry.get(name) else b""
        except (OSError, ValueError, TypeError) as error:
            raise CredentialsError(f"{self.path}: {name} cannot be read: {error}") from error


def _tls(file: _Kubeconfig, cluster: Fields, user: Fields) -> ssl.SSLContext:
    """Return the context that checks the server's certificate and presents the user's, which ssl loads from files."""
    authority = file.bytes_of(cluster, "certificate-authority")
    certificate, key = file.bytes_of(user, "client-certificate"), file.bytes_of(user, "client-key")
    try:
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if certificate and key:
            with tempfile.TemporaryDirectory(prefix="pykai-") as folder:
                certificate_file, key_file = Path(folder) / "tls.crt", Path(folder) / "tls.key"
                for path, content in ((certificate_file, certificate), (key_file, key)):
                    path.touch(mode=0o600)
                    path.write_bytes(content)
                tls.load_cert_chain(certificate_file, key_file)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{file.path}: a certificate or key cannot be used: {error}") from error
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
