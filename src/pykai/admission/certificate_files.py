"""A directory with `tls.crt`, `tls.key` and `ca.crt`: kept current here, or mounted from a Secret and only read.

`renew` replaces files one by one, each atomically; a reader that meets the moment between them sees a key that does not
belong to the certificate, keeps what it has and looks again (`tls.py`). A renewal that was cut off there is
made up for by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

from pykai.admission.certificates import defect, issue, renewal_reason, trust_bundle

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
AUTHORITY_FILE = "ca.crt"

Trust = Callable[[bytes], Awaitable[None]]


async def renew(directory: Path, names: Sequence[str], now: datetime, trust: Trust) -> str | None:
    """Make the directory's credentials anew where that is due; answers why, or None when they still serve.

    `trust` is awaited with the new bundle (old authority included) before the new certificate can be served: it tells
    the API server. When it raises, the old files stay.
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
    """What an API server must trust to call a server with these files: the authority, else the certificate itself."""
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
