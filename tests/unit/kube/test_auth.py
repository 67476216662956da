"""Kubeconfigs and service accounts: what is read, and what is said when it cannot be used."""

from __future__ import annotations

import base64
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykai.kube.auth import REREAD_SECONDS, BearerToken, find_access, from_kubeconfig, from_service_account
from pykai.kube.errors import CredentialsError


def certificate() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    return signed.public_bytes(serialization.Encoding.PEM), key.private_bytes(serialization.Encoding.PEM, form, plain)


CERTIFICATE, KEY = certificate()


def write(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "bare", "context": {"cluster": "c"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_tokens_and_contexts(tmp_path: Path) -> None:
    access = from_kubeconfig(write(tmp_path, {"token": "secret"}))
    assert access.server == "https://10.0.0.1:6443"
    assert access.token.current(0.0) == "secret"
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    bare = from_kubeconfig(tmp_path / "config", "bare")
    assert bare.token.current(0.0) == ""


def test_certificates_from_data_and_from_files(tmp_path: Path) -> None:
    coded = {name: base64.b64encode(value).decode() for name, value in (("crt", CERTIFICATE), ("key", KEY))}
    user = {"client-certificate-data": coded["crt"], "client-key-data": coded["key"]}
    access = from_kubeconfig(write(tmp_path, user, **{"certificate-authority-data": coded["crt"]}))
    assert access.tls is not None
    assert len(access.tls.get_ca_certs()) == 1
    (tmp_path / "c.pem").write_bytes(CERTIFICATE)
    (tmp_path / "k.pem").write_bytes(KEY)
    user = {"client-certificate": "c.pem", "client-key": str(tmp_path / "k.pem")}
    assert from_kubeconfig(write(tmp_path, user, **{"certificate-authority": "c.pem"})).tls is not None


def test_verification_is_off_only_when_asked(tmp_path: Path) -> None:
    access = from_kubeconfig(write(tmp_path, {}, **{"insecure-skip-tls-verify": True}))
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("user", "cluster", "context", "text"),
    [
        ({"auth-provider": {}}, {}, "", "has an auth-provider, which Kubernetes 1.26 removed"),
        ({"exec": {}}, {}, "", "needs a command and an apiVersion of client.authentication.k8s.io/"),
        ({}, {"server": "10.0.0.1"}, "", "clusters.c.server is not a URL"),
        ({}, {}, "there", "contexts has no entry named 'there'"),
    ],
)
def test_what_cannot_be_used_is_said(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], context: str, text: str
) -> None:
    with pytest.raises(CredentialsError, match=text):
        from_kubeconfig(write(tmp_path, user, **cluster), context)


WITH_FILES = """
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://a:1"}}]
users: [{name: u, user: {client-certificate: nowhere, client-key: nowhere}}]
"""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: [", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"- a", "expected a map"),
        (b"contexts: x", "contexts has no entry named ''"),
        (b"current-context: x\ncontexts: [a]", "contexts has no entry named 'x'"),
        (b"current-context: x\ncontexts: [{name: x}]", "contexts.x has no context"),
        (WITH_FILES.encode(), "client-certificate cannot be read"),
        (WITH_FILES.replace("client-certificate: nowhere", "client-certificate-data: AAA").encode(), "client-cert"),
    ],
)
def test_a_kubeconfig_that_is_none_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    (path := tmp_path / "config").write_bytes(content)
    with pytest.raises(CredentialsError, match=f"{path}.*{says}"):
        from_kubeconfig(path)


def test_a_missing_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CredentialsError, match="nothing-here"):
        find_access(str(tmp_path / "nothing-here"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "elsewhere"))
    with pytest.raises(CredentialsError, match="elsewhere"):
        find_access()


def test_inside_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="KUBERNETES_SERVICE_HOST"):
        from_service_account()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    with pytest.raises(CredentialsError, match=r"^/var/run/secrets/kubernetes\.io/serviceaccount/token is missing"):
        from_service_account()
    monkeypatch.setenv("CONTAINER_SANDBOX_MOUNT_POINT", str(tmp_path))
    with pytest.raises(CredentialsError, match=f"{tmp_path}/var/run/secrets/.*automountServiceAccountToken"):
        from_service_account()
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    folder.mkdir(parents=True)
    (folder / "token").write_text("t1\n")
    (folder / "ca.crt").write_bytes(CERTIFICATE)
    (folder / "namespace").write_text("kai-scheduler")
    access = from_service_account()
    assert access.server == "https://[fd00::1]:6443"
    assert access.token.current(0.0) == "t1"


def test_a_token_file_is_read_again_after_a_while_and_after_a_refusal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    token = BearerToken(file=file)
    assert token.current(0.0) == "one"
    file.write_text("two")
    assert token.current(REREAD_SECONDS - 1) == "one"
    assert token.current(REREAD_SECONDS) == "two"
    file.write_text("three")
    assert token.refused()
    assert token.current(REREAD_SECONDS + 1) == "three"
    assert not BearerToken("fixed").refused()
