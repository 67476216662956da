"""Credentials from a program that a kubeconfig names, as kubectl gets them for clusters of cloud providers.

The program prints an ExecCredential of client.authentication.k8s.io: a token, a client certificate, or both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from pykai.kube.api import Fields, Object
from pykai.kube.clock import wall
from pykai.kube.errors import CredentialsError
from pykai.objects.units import parse_timestamp

GROUP: Final = "client.authentication.k8s.io/"
TIMEOUT_SECONDS = 300.0
"""For a login in a browser, too."""
_RENEW_SECONDS = 10.0
"""How long before its end a token is renewed."""


@dataclass(frozen=True)
class IssuedCredential:
    """What a program printed. `seconds`: for how long it may be used, None: until the server rejects it."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class CredentialProgram:
    """The program of a user in the kubeconfig at `path`: its `user.exec`, and the cluster, which it may be given."""

    path: Path
    spec: Fields
    cluster: Fields

    def run(self, environ: Mapping[str, str] = os.environ) -> IssuedCredential:
        """Run the program and return what it issues; CredentialsError if it cannot be run or prints something else."""
        version, command = str(self.spec.get("apiVersion") or ""), str(self.spec.get("command") or "")
        if not command or not version.startswith(GROUP):
            raise CredentialsError(f"{self.path}: user.exec needs a command and an apiVersion of {GROUP}*")
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
                env={**environ, **given, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            hint = " ".join(str(self.spec.get("installHint") or "").split())
            raise CredentialsError(f"{self.path}: {command} cannot be run: {error}{hint and f'; {hint}'}") from error
        if done.returncode:
            said = (done.stderr or b"").decode(errors="replace").strip().splitlines()
            why = said[-1] if said else f"exit code {done.returncode}"
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
