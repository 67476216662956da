"""KAI's figures for the same files, how ours compare with them, and figures as people read them.

A comparison is only made where the file is the same: same scenario, size, pods and groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.measure import Run

COUNTS = ("bound", "evicted", "pipelined", "left_pending")


class Peer(msgspec.Struct, frozen=True):
    """One row of KAI's figures. The figures of a cycle are None where it did not end in time (`timeout`)."""

    nodes: int
    pods: int
    groups: int
    peak_rss_mb: float
    timeout: bool
    cycle_cpu_ms: float | None = None
    bound: int | None = None
    evicted: int | None = None
    pipelined: int | None = None
    left_pending: int | None = None


def read(path: Path) -> dict[str, Peer]:
    """KAI's figures by scenario and size; empty where there is no such file."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Peer]) if path.is_file() else {}


@dataclass(frozen=True)
class Comparison:
    """Our run and, where there is one for the same file, KAI's."""

    run: Run
    peer: Peer | None

    @property
    def ratio(self) -> float | None:
        """How many times more CPU KAI needs; None where either figure is missing."""
        return self._times_less(self.run.cpu_ms)

    @property
    def warm_ratio(self) -> float | None:
        """The same with a filled cache; KAI has none to fill, its sessions are built from objects each time."""
        return self._times_less(self.run.warm_ms)

    def _times_less(self, ours: float | None) -> float | None:
        theirs = self.peer.cycle_cpu_ms if self.peer else None
        return theirs / ours if ours and theirs else None

    @property
    def verdict(self) -> str:
        """Whether the counts are the same; empty where there is nothing to compare."""
        if self.run.counts is None or self.peer is None or self.peer.timeout:
            return ""
        ours = self.run.counts
        theirs = {name: getattr(self.peer, name) for name in COUNTS}
        if all(ours[name] == theirs[name] for name in COUNTS):
            return "same"
        placed_alike = all(ours[name] == theirs[name] for name in COUNTS if name != "evicted")
        return "fewer evictions" if placed_alike and ours["evicted"] < theirs["evicted"] else "differ"

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; a run that did not end has not. None where there is nothing to reach.

        The cycle with a filled cache is what counts, because it is a live scheduler's; the one from parsed objects
        where a run has no other.
        """
        case, ours = self.run.case, self.run.cpu_ms if self.run.warm_ms is None else self.run.warm_ms
        if case.most_seconds is not None:
            return ours is not None and ours / 1000 < case.most_seconds
        if case.target is None or self.peer is None or self.peer.timeout:
            return None
        reached = self._times_less(ours)
        return reached is not None and reached >= case.target


def compare(run: Run, peers: Mapping[str, Peer]) -> Comparison:
    """Our run beside KAI's figures for the same file."""
    peer = peers.get(run.case.key)
    same = peer is not None and (peer.nodes, peer.pods) == (run.nodes, run.pods) and run.groups in (None, peer.groups)
    return Comparison(run, peer if same else None)


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
