"""The TLS end of the webhook server: certificates change under it without a restart.

The server listens with one context for good. On every handshake that context hands the connection over to the newest
context whose certificate and key were loaded and fit together, so a half-written pair of files is never served and
open connections live on.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from pykai.admission.certificate_files import CERTIFICATE_FILE, KEY_FILE
from pykai.admission.certificates import CertificateError


class ReloadingContext:
    """A server context that follows the files of a directory; `reload` looks at them."""

    def __init__(self, directory: Path) -> None:
        """Raises CertificateError when the directory holds no usable certificate and key."""
        self._directory = directory
        self._loaded = self._fingerprint()
        self._current = self._load()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.sni_callback = self._hand_over

    def reload(self) -> bool:
        """Take up changed files; answers whether they were taken up, raises CertificateError when they do not fit."""
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
