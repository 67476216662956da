"""Address and credentials of the API server, from a kubeconfig or from the pod's service account.

A token file is re-read every minute, because the kubelet rotates the token long before it expires, and at once after
the server rejected it; a program that issues tokens is run again then, and when one has expired. Client certificates
are in files only while TLS loads them.
"""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pykai.kube.api import Fields, Object
from pykai.kube.clock import wall
from pykai.kube.errors import CredentialsError
from pykai.objects.units import parse_timestamp

REREAD_SECONDS = 60.0
IN_CLUSTER = "var/run/secrets/kubernetes.io/serviceaccount"
EXEC_GROUP: Final = "client.authentication.k8s.io/"
PROGRAM_SECONDS = 300.0
"""The time limit of a program; it may open a browser for a login."""
_RENEW_SECONDS = 10.0
"""How long before its end a token is renewed."""


@dataclass(frozen=True)
class IssuedCredential:
    """What a credential program printed: a token, a client certificate, or both (ExecCredential).

    `seconds`: for how long it may be used; None: until the server rejects it.
    """

    token: str = ""
    certificate: str = ""
    key: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class CredentialProgram:
    """The credential program of a user in the kubeconfig at `path`, as managed clusters of cloud providers need it.

    `spec` is `user.exec`; `cluster` is passed to the program if that asks for it.
    """

    path: Path
    spec: Fields
    cluster: Fields

    def run(self) -> IssuedCredential:
        """Run the program and return what it issues; CredentialsError if it cannot be run or prints something else."""
        version, command = str(self.spec.get("apiVersion") or ""), str(self.spec.get("command") or "")
        if not command or not version.startswith(EXEC_GROUP):
            raise CredentialsError(f"{self.path}: user.exec needs a command and an apiVersion of {EXEC_GROUP}*")
        if "/" in command:
            command = str(self.path.parent / command)
        interactive = self.spec.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
        given = {str(each.get("name")): str(each.get("value")) for each in self.spec.get("env") or ()}
        request: Object = {"interactive": interactive}
        if self.spec.get("provideClusterInfo"):
            request["cluster"] = dict(self.cluster)
        info = {"kind": "ExecCredential", "apiVersion": version, "spec": request}
        try:
            done = subprocess.run(
                [command, *map(str, self.spec.get("args") or ())],
                env={**os.environ, **given, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                timeout=PROGRAM_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            hint = " ".join(str(self.spec.get("installHint") or "").split())
            raise CredentialsError(f"{self.path}: {command} cannot be run: {error}{hint and f'; {hint}'}") from error
        if done.returncode:
            lines = (done.stderr or b"").decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else f"exit code {done.returncode}"
            raise CredentialsError(f"{self.path}: {command} gave no credentials: {why}")
        return self._read(command, done.stdout)

    def _read(self, command: str, printed: bytes) -> IssuedCredential:
        try:
            found: Any = msgspec.json.decode(printed)
            status = dict(found["status"])
            end = parse_timestamp(status.get("expirationTimestamp"))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise CredentialsError(f"{self.path}: {command} did not print an ExecCredential") from error
        issued = IssuedCredential(
            token=str(status.get("token") or ""),
            certificate=str(status.get("clientCertificateData") or ""),
            key=str(status.get("clientKeyData") or ""),
            seconds=None if end is None else max(end - wall() - _RENEW_SECONDS, 1.0),
        )
        if not issued.token and not (issued.certificate and issued.key):
            raise CredentialsError(f"{self.path}: {command} printed neither a token nor a certificate with its key")
        return issued


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


def find_access(kubeconfig: str = "", context: str = "") -> Access:
    """Return access by the given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if named:
        return from_kubeconfig(Path(named), context)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return from_service_account()
    return from_kubeconfig(Path.home() / ".kube" / "config", context)


def from_service_account() -> Access:
    """Return the access of a pod from its service account files and environment variables."""
    folder = Path(os.environ.get("CONTAINER_SANDBOX_MOUNT_POINT") or "/") / IN_CLUSTER
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
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
