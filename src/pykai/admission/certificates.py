"""Serving certificates of the webhooks: a private CA and one certificate that it signed, issued together.

The CA's key is discarded after signing, so that it cannot sign for another name. A renewal issues a new CA; the CA
bundle contains the old one until that expires, so that servers may switch at different times. A certificate supplied
by an administrator is recognised by its issuer and never replaced. The current time is always an argument.

The files `tls.crt`, `tls.key` and `ca.crt` are in one directory, either renewed here (`renew`) or mounted from a Secret
and only read. `renew` replaces one file after another, each atomically. Between two of them the key does not belong to
the certificate: `ReloadingContext` then keeps the previous pair and checks again. The next renewal repairs an
interrupted one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
_AUTHORITY = "kai-webhook-ca"
_CLOCK_SKEW = timedelta(hours=1)
_COMMON_NAME_LENGTH = 64
_FORMER = 16
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\s*", re.DOTALL)


class CertificateError(ValueError):
    """A certificate or key cannot be used; the message names it and the reason."""


@dataclass(frozen=True)
class ServingCredentials:
    """PEM texts: what the API server trusts, and the certificate and key (PKCS#1) the server presents."""

    authority: bytes
    certificate: bytes
    key: bytes


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names under which an API server calls a webhook's Service."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")


def issue(names: Sequence[str], now: datetime) -> ServingCredentials:
    """Issue credentials for the DNS names and IP addresses (at least one), valid from `now` (aware) for LIFETIME."""
    if not names:
        raise CertificateError("a serving certificate needs at least one DNS name or IP address")
    authority_key, key = _new_key(), _new_key()
    authority_name = _name(f"{_AUTHORITY}-{x509.random_serial_number():040x}")
    period = (now - _CLOCK_SKEW, now + LIFETIME)
    authority = (
        _builder(authority_name, authority_name, authority_key, period)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        _builder(_name(names[0][:_COMMON_NAME_LENGTH]), authority_name, key, period)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.TraditionalOpenSSL
    key_text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return ServingCredentials(_pem(authority), _pem(leaf), key_text)


def renewal_reason(certificate: bytes | None, names: Sequence[str], now: datetime) -> str | None:
    """Return why the certificate (PEM; None: missing) must be renewed; None: it is valid, or not issued by us."""
    if not certificate:
        return "there is no certificate"
    try:
        leaf = x509.load_pem_x509_certificate(certificate)
    except ValueError as problem:
        return f"the certificate cannot be read: {problem}"
    if not _is_ours(leaf):
        return None
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if now >= begin + (end - begin) * 2 / 3:  # leaves months to notice a failing renewal
        return f"the certificate expires at {end:%Y-%m-%d %H:%M}Z"
    missing = sorted(set(names) - set(_names_in(leaf)))
    return f"the certificate does not name {', '.join(missing)}" if missing else None


@lru_cache(maxsize=16)
def defect(certificate: bytes | None, key: bytes | None, authority: bytes | None) -> str | None:
    """Return why a certificate issued by us does not fit the key and CAs; None: it fits, or is not issued by us.

    Results are cached: parsing an RSA key takes 40 ms, and the operator checks each server in every reconcile.
    """
    leaf = next(iter(_certificates_in(certificate or b"")), None)
    if leaf is None or not _is_ours(leaf):
        return None
    if not key:
        return "there is no key"
    if not _is_key_of(leaf, key):
        return "the key is not the certificate's"
    if not any(_has_signed(signer, leaf) for signer in _certificates_in(authority or b"")):
        return "the authority that signed the certificate is missing"
    return None


def _is_key_of(certificate: x509.Certificate, key: bytes) -> bool:
    try:
        return serialization.load_pem_private_key(key, None).public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def trust_bundle(authorities: Iterable[bytes], now: datetime) -> bytes:
    """Return the CAs (PEM texts, newest first) that have not expired, without duplicates: the `caBundle` of a webhook.

    Unreadable certificates are omitted, because they must not block the distribution of a new CA.
    """
    kept: dict[bytes, None] = {}
    for text in authorities:
        for certificate in _certificates_in(text):
            if certificate.not_valid_after_utc > now:
                kept[_pem(certificate)] = None
    return b"".join(kept)


def still_trusting(bundle: bytes, before: bytes) -> bytes:
    """Return the bundle with those of our CAs that were trusted before and had not expired when it was issued.

    Servers switch at different times, and several may each have issued a CA. Only the latest few are kept.
    """
    wanted, former = _certificates_in(bundle), _certificates_in(before)
    made = max((each.not_valid_before_utc for each in wanted), default=None)
    ours = [each for each in former if _is_ours(each) and (made is None or each.not_valid_after_utc > made)]
    kept = [each for each in ours if each not in wanted][:_FORMER]
    if not kept:
        return bundle
    if all(each in former for each in wanted) and len(former) == len(wanted) + len(kept):
        return before
    return b"".join(map(_pem, [*wanted, *kept]))


def _certificates_in(text: bytes) -> list[x509.Certificate]:
    """Return the certificates that can be parsed."""
    found = []
    for block in _PEM.findall(text):
        with contextlib.suppress(ValueError):
            found.append(x509.load_pem_x509_certificate(block))
    return found


def _is_ours(certificate: x509.Certificate) -> bool:
    issuers = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(issuer.value).startswith(_AUTHORITY) for issuer in issuers)


def _names_in(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, period: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(period[0])
        .not_valid_after(period[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
AUTHORITY_FILE = "ca.crt"

Trust = Callable[[bytes], Awaitable[None]]


async def renew(directory: Path, names: Sequence[str], now: datetime, trust: Trust) -> str | None:
    """Renew the directory's credentials if due; return the reason, or None if they are still valid.

    `trust` is awaited with the new CA bundle (including the old CA) before the new certificate is served: it updates
    the webhook configurations. If it raises, the old files remain.
    """
    certificate, key, authority = (_read(directory / name) for name in (CERTIFICATE_FILE, KEY_FILE, AUTHORITY_FILE))
    reason = renewal_reason(certificate, names, now) or defect(certificate, key, authority)
    if reason is None and not key:
        reason = "there is no key"
    if reason is None:
        return None
    fresh = issue(names, now)
    bundle = trust_bundle([fresh.authority, authority or b""], now)
    await trust(bundle)
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / AUTHORITY_FILE, bundle, 0o644)
    _replace(directory / KEY_FILE, fresh.key, 0o600)
    _replace(directory / CERTIFICATE_FILE, fresh.certificate, 0o644)
    return reason


def ca_bundle(directory: Path) -> bytes:
    """Return what an API server must trust to call a server with these files: the CA, else the certificate itself."""
    bundle = _read(directory / AUTHORITY_FILE) or _read(directory / CERTIFICATE_FILE)
    if not bundle:
        raise FileNotFoundError(f"{directory} holds neither {AUTHORITY_FILE} nor {CERTIFICATE_FILE}")
    return bundle


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes, mode: int) -> None:
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    fresh.replace(path)


class ReloadingContext:
    """A TLS server context that uses the files of a directory; `reload` checks them for changes."""

    def __init__(self, directory: Path) -> None:
        """Load the files; raise CertificateError if the directory has no usable certificate and key."""
        self._directory = directory
        self._loaded = self._fingerprint()
        self._current = self._load()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.sni_callback = self._hand_over

    def reload(self) -> bool:
        """Load changed files; return whether they changed; CertificateError if certificate and key do not match."""
        fingerprint = self._fingerprint()
        if fingerprint == self._loaded:
            return False
        self._current = self._load()
        self._loaded = fingerprint
        return True

    def _hand_over(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _fingerprint(self) -> tuple[bytes, ...]:
        try:
            return tuple((self._directory / name).read_bytes() for name in (CERTIFICATE_FILE, KEY_FILE))
        except OSError as problem:
            raise CertificateError(f"cannot read the serving certificate: {problem}") from None

    def _load(self) -> ssl.SSLContext:
        fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        fresh.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            fresh.load_cert_chain(self._directory / CERTIFICATE_FILE, self._directory / KEY_FILE)
        except (OSError, ValueError) as problem:
            raise CertificateError(
                f"{CERTIFICATE_FILE} and {KEY_FILE} in {self._directory} are no pair that can be served: {problem}"
            ) from None
        return fresh
