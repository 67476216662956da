"""RFC 3339 instants as seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(text: str | None) -> float | None:
    """The instant a timestamp names; None where there is none or it cannot be read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def rfc3339(instant: float) -> str:
    """The instant in UTC with whole seconds, as Kubernetes writes it."""
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
