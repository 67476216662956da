"""Figures as people read them, the same on the terminal and on the page."""

from __future__ import annotations

from bench.peer import COUNTS, Comparison, Peer

NONE = "-"


def cpu(milliseconds: float | None) -> str:
    """CPU time: milliseconds below a second, seconds from there."""
    if milliseconds is None:
        return NONE
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def peer_cpu(peer: Peer | None) -> str:
    return "not finished" if peer is not None and peer.timeout else cpu(peer.cycle_cpu_ms if peer else None)


def times(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def target(comparison: Comparison) -> str:
    """What was asked for: a ratio, or seconds where KAI does not finish; nothing where there is nothing to compare."""
    case = comparison.run.case
    if case.most_seconds is not None:
        return f"< {case.most_seconds:.0f} s"
    return NONE if comparison.peer is None else times(case.target)


def met(comparison: Comparison) -> str:
    return {None: NONE, True: "yes", False: "no"}[comparison.met]


def mib(amount: float | None) -> str:
    return NONE if amount is None else f"{amount:,.0f}"


def counts(found: object) -> str:
    """bound / evicted / pipelined / left of a run or of KAI."""
    values = [found.get(name) if isinstance(found, dict) else getattr(found, name, None) for name in COUNTS]
    return NONE if None in values else " / ".join(f"{value:,}" for value in values)


def per_pod(milliseconds: float | None) -> str:
    """CPU per pod, in microseconds."""
    return NONE if milliseconds is None else f"{milliseconds * 1000:,.0f} µs"
