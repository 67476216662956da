"""Kubeconfigs whose users get their credentials from a program, as those of cloud providers."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from pykai.kube.auth import CredentialProgram, from_kubeconfig
from pykai.kube.clock import wall
from pykai.kube.errors import CredentialsError
from pykai.objects.units import rfc3339

from .test_auth import CERTIFICATE, KEY, write

V1 = "client.authentication.k8s.io/v1"
COUNTING = """
import json, os, pathlib
runs = pathlib.Path("{folder}/runs")
runs.write_text((runs.read_text() if runs.exists() else "") + "x")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["kind"] == "ExecCredential" and info["apiVersion"] == "{version}", info
status = {{"token": os.environ["PREFIX"] + str(len(runs.read_text())), **{status!r}}}
status["token"] += info["spec"].get("cluster", {{}}).get("server", "")
print(json.dumps({{"kind": "ExecCredential", "status": status}}))
"""


def user(folder: Path, status: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A user whose program prints a token with the number of its runs."""
    (folder / "login.py").write_text(COUNTING.format(folder=folder, version=V1, status=status or {}))
    env = [{"name": "PREFIX", "value": "token-"}]
    return {
        "exec": {"apiVersion": V1, "command": sys.executable, "args": [str(folder / "login.py")], "env": env, **more}
    }


def test_a_token_is_used_until_it_is_rejected(tmp_path: Path) -> None:
    token = from_kubeconfig(write(tmp_path, user(tmp_path))).token
    assert (tmp_path / "runs").read_text() == "x"
    assert [token.current(now) for now in (0.0, 1e6)] == ["token-1", "token-1"]
    assert token.refused()
    assert token.current(1e6) == "token-2"


def test_a_token_that_expires_is_renewed_before(tmp_path: Path) -> None:
    end = {"expirationTimestamp": rfc3339(wall() + 3600)}
    token = from_kubeconfig(write(tmp_path, user(tmp_path, end))).token
    assert [token.current(now) for now in (0.0, 3000.0, 3595.0, 3596.0)] == ["token-1", "token-1", "token-2", "token-2"]


def test_the_program_may_ask_for_the_cluster(tmp_path: Path) -> None:
    token = from_kubeconfig(write(tmp_path, user(tmp_path, provideClusterInfo=True))).token
    assert token.current(0.0) == "token-1https://10.0.0.1:6443/"


def test_a_certificate_is_presented(tmp_path: Path) -> None:
    pair = {"clientCertificateData": CERTIFICATE.decode(), "clientKeyData": KEY.decode()}
    assert isinstance(from_kubeconfig(write(tmp_path, user(tmp_path, pair))).tls, ssl.SSLContext)
    pair["clientKeyData"] = "no key"
    with pytest.raises(CredentialsError, match="a certificate or key cannot be used"):
        from_kubeconfig(write(tmp_path, user(tmp_path, pair)))


def test_a_command_with_a_slash_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (script := tmp_path / "login").write_text('#!/bin/sh\necho \'{"status": {"token": "mine"}}\'\n')
    script.chmod(0o700)
    spec = {"apiVersion": V1, "command": "./login"}
    assert CredentialProgram(tmp_path / "config", spec, {}).run().token == "mine"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("import sys; print('please\\nlog in', file=sys.stderr); sys.exit(3)", "gave no credentials: log in"),
        ("import sys; sys.exit(3)", "gave no credentials: exit code 3"),
        ("print('hello')", "did not print an ExecCredential"),
        ("print('[]')", "did not print an ExecCredential"),
        ("print(" + repr(json.dumps({"status": {}})) + ")", "printed neither a token nor a certificate"),
        (
            "print(" + repr(json.dumps({"status": {"clientCertificateData": "x"}})) + ")",
            "printed neither a token nor a certificate with its key",
        ),
    ],
)
def test_a_program_that_issues_nothing_is_named(tmp_path: Path, script: str, text: str) -> None:
    spec = {"apiVersion": V1, "command": sys.executable, "args": ["-c", script]}
    with pytest.raises(CredentialsError, match=f"{tmp_path}/config: .*{text}"):
        CredentialProgram(tmp_path / "config", spec, {}).run()


def test_a_program_that_is_not_installed_comes_with_its_hint(tmp_path: Path) -> None:
    spec = {"apiVersion": V1, "command": "no-such-login", "installHint": "Install it\nfrom there."}
    with pytest.raises(CredentialsError, match=r"no-such-login cannot be run: .*; Install it from there\."):
        CredentialProgram(tmp_path / "config", spec, {}).run()
