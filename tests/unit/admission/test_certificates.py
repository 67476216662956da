"""Serving certificates: whom they name, when they are renewed, whose are left alone, and the files they live in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from pykai.admission import certificates
from pykai.admission.certificates import (
    LIFETIME,
    CertificateError,
    ReloadingContext,
    ServingCredentials,
    ca_bundle,
    defect,
    issue,
    renew,
    renewal_reason,
    service_names,
    still_trusting,
    trust_bundle,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = service_names("admission", "kai-scheduler")


@pytest.fixture(scope="module")
def credentials() -> ServingCredentials:
    return issue([*NAMES, "127.0.0.1"], NOW)


def verified(credentials: ServingCredentials, name: str, at: datetime) -> list[x509.Certificate]:
    """The chain a client builds that trusts the authority."""
    store = Store(x509.load_pem_x509_certificates(credentials.authority))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    return verifier.verify(x509.load_pem_x509_certificate(credentials.certificate), [])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [NOW, NOW + LIFETIME - timedelta(hours=1)])
def test_a_client_that_trusts_the_authority_accepts_the_certificate(
    credentials: ServingCredentials, name: str, at: datetime
) -> None:
    assert len(verified(credentials, name, at)) == 2


@pytest.mark.parametrize(
    ("name", "at"),
    [("other.kai-scheduler.svc", NOW), (NAMES[0], NOW + LIFETIME + timedelta(hours=1)), (NAMES[0], NOW - LIFETIME)],
)
def test_and_no_other_name_or_time(credentials: ServingCredentials, name: str, at: datetime) -> None:
    with pytest.raises(x509.verification.VerificationError):
        verified(credentials, name, at)


def test_keys_are_for_what_they_do_and_nothing_else(credentials: ServingCredentials) -> None:
    def uses(pem: bytes) -> set[str]:
        usage = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.KeyUsage).value
        return {name.strip("_") for name, used in vars(usage).items() if used}

    assert uses(credentials.authority) == {"key_cert_sign", "crl_sign"}
    assert uses(credentials.certificate) == {"digital_signature", "key_encipherment"}


def test_the_key_is_the_certificates_and_in_the_form_users_supply(credentials: ServingCredentials) -> None:
    key = serialization.load_pem_private_key(credentials.key, None)
    certificate = x509.load_pem_x509_certificate(credentials.certificate)
    assert key.public_key() == certificate.public_key()
    assert credentials.key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")


@pytest.mark.parametrize(
    ("names", "after", "reason"),
    [
        (NAMES, timedelta(0), None),
        (NAMES, LIFETIME / 2, None),
        (NAMES, LIFETIME * 0.67, "expires at 2027-01-01 00:00Z"),
        (NAMES, LIFETIME * 2, "expires at"),
        (["127.0.0.1"], timedelta(0), None),
        ([*NAMES, "elsewhere", "10.0.0.1"], timedelta(0), "does not name 10.0.0.1, elsewhere"),
    ],
)
def test_when_a_certificate_is_made_anew(
    credentials: ServingCredentials, names: list[str], after: timedelta, reason: str | None
) -> None:
    actual = renewal_reason(credentials.certificate, names, NOW + after)
    assert actual is None if reason is None else reason in str(actual)


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "no certificate"), (b"", "no certificate"), (b"nonsense", "cannot be read")]
)
def test_what_is_no_certificate_is_replaced(text: bytes | None, reason: str) -> None:
    assert reason in str(renewal_reason(text, NAMES, NOW))


def foreign_certificate() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "acme")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = builder.serial_number(2019).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    return dated.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_an_administrators_certificate_is_left_alone_even_when_it_expires() -> None:
    assert renewal_reason(foreign_certificate(), NAMES, NOW + timedelta(days=400)) is None
    assert defect(foreign_certificate(), b"any", None) is None


def test_a_certificate_names_something() -> None:
    with pytest.raises(CertificateError, match="at least one DNS name"):
        issue([], NOW)


def test_a_service_with_a_very_long_name() -> None:
    names = service_names("admission", "n" * 63)
    assert renewal_reason(issue(names, NOW).certificate, names, NOW) is None


def test_the_bundle_holds_living_authorities_once(credentials: ServingCredentials) -> None:
    short = issue(NAMES, NOW - LIFETIME + timedelta(days=1))
    both = [credentials.authority, short.authority, credentials.authority]
    assert trust_bundle(both, NOW) == credentials.authority + short.authority
    assert trust_bundle(both, NOW + timedelta(days=2)) == credentials.authority
    assert trust_bundle([b""], NOW) == b""


def test_what_cannot_be_read_is_not_in_the_way_of_what_can(credentials: ServingCredentials) -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
    assert trust_bundle([b"nonsense", broken + credentials.authority], NOW) == credentials.authority


def test_authorities_that_may_still_be_in_use_stay_trusted(credentials: ServingCredentials) -> None:
    later = issue(NAMES, NOW + LIFETIME * 0.7).authority
    both = later + credentials.authority
    assert still_trusting(later, credentials.authority) == both
    assert still_trusting(later, both) == still_trusting(credentials.authority, both) == both, "as it is: no write"
    assert still_trusting(b"", both) == both
    after = issue(NAMES, NOW + LIFETIME * 1.2).authority
    assert still_trusting(after, both) == after + later, "what had expired when the new one was made goes"
    own = credentials.authority
    assert still_trusting(own, foreign_certificate()) == own, "what others signed is not ours to keep"
    assert still_trusting(later, b"nonsense") == later


def test_the_number_of_former_authorities_is_limited(
    credentials: ServingCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykai.admission.certificates._FORMER", 1)
    second, third = (issue(NAMES, NOW + timedelta(days=day)).authority for day in (1, 2))
    assert still_trusting(third, second + credentials.authority) == third + second


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("tls.key", b"", "there is no key"),
        ("tls.key", b"nonsense", "the key is not the certificate's"),
        ("ca.crt", b"", "the authority that signed the certificate is missing"),
        ("ca.crt", b"nonsense", "the authority that signed the certificate is missing"),
    ],
)
async def test_files_that_do_not_belong_together_are_made_anew(
    tmp_path: Path, file: str, content: bytes, reason: str
) -> None:
    await renew(tmp_path, NAMES, NOW, Trusting())
    (tmp_path / file).write_bytes(content)
    assert await renew(tmp_path, NAMES, NOW, Trusting()) == reason
    assert await renew(tmp_path, NAMES, NOW, Trusting()) is None


async def test_a_renewal_that_was_cut_off_between_key_and_certificate_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await renew(tmp_path, NAMES, NOW, Trusting())
    (tmp_path / "tls.key").unlink()
    with monkeypatch.context() as killed:
        replace = certificates._replace

        def until_the_certificate(path: Path, content: bytes, mode: int) -> None:
            if path.name == "tls.crt":
                raise KeyboardInterrupt
            replace(path, content, mode)

        killed.setattr(certificates, "_replace", until_the_certificate)
        with pytest.raises(KeyboardInterrupt):
            await renew(tmp_path, NAMES, NOW, Trusting())
    assert await renew(tmp_path, NAMES, NOW, Trusting()) == "the key is not the certificate's"
    ReloadingContext(tmp_path)


class Trusting:
    """An API server's trust, as `renew` sees it."""

    def __init__(self, failing: bool = False) -> None:
        self.bundles: list[bytes] = []
        self._failing = failing

    async def __call__(self, bundle: bytes) -> None:
        if self._failing:
            raise ConnectionError("the API server is away")
        self.bundles.append(bundle)


async def test_files_are_made_kept_and_renewed_with_the_old_authority_still_trusted(tmp_path: Path) -> None:
    directory, trust = tmp_path / "certificates", Trusting()
    assert await renew(directory, NAMES, NOW, trust) == "there is no certificate"
    first = (directory / "tls.crt").read_bytes()
    assert (directory / "tls.key").stat().st_mode & 0o777 == 0o600
    assert await renew(directory, NAMES, NOW, trust) is None
    later = NOW + LIFETIME * 0.9
    assert "expires" in str(await renew(directory, NAMES, later, trust))
    assert (directory / "tls.crt").read_bytes() != first
    assert trust.bundles[1].endswith(trust.bundles[0])
    assert ca_bundle(directory) == trust.bundles[1]


async def test_nothing_changes_while_the_api_server_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await renew(tmp_path, NAMES, NOW, Trusting(failing=True))
    assert list(tmp_path.iterdir()) == []


async def test_a_lost_key_is_a_reason(tmp_path: Path) -> None:
    await renew(tmp_path, NAMES, NOW, Trusting())
    (tmp_path / "tls.key").unlink()
    assert await renew(tmp_path, NAMES, NOW, Trusting()) == "there is no key"


def test_a_supplied_certificate_is_its_own_authority(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(b"supplied")
    assert ca_bundle(tmp_path) == b"supplied"
    (tmp_path / "tls.crt").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither ca\.crt nor tls\.crt"):
        ca_bundle(tmp_path)
