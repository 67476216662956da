"""Which names objects may have (RFC 1123), and how anything else becomes one."""

from __future__ import annotations

import hashlib
import re

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LENGTH = 253


def is_subdomain(text: str) -> bool:
    return len(text) <= _LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def object_name(text: str) -> str:
    """The text where it can be a name, else what is left of it and a sum of all: different texts, different names."""
    if is_subdomain(text):
        return text
    readable = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:200].strip("-")
    return "-".join(filter(None, (readable, hashlib.sha256(text.encode()).hexdigest()[:8])))
