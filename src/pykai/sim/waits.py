"""Why pods wait, in the words they are told: that of the gang where it is one, their own where they stand alone."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.model.plan import Key, Verdict
from pykai.sim.manifests import Object


def reasons(verdict: Verdict, group: Object | None) -> Mapping[Key, str]:
    """The reason of each waiting pod of a gang, on one line."""
    if not verdict.ready:
        return dict.fromkeys(verdict.pods, _not_ready(verdict, group))
    if len(verdict.pods) > 1 and verdict.reasons:
        together = _line("; ".join(reason.message for reason in verdict.reasons))
        return dict.fromkeys(verdict.pods, together)
    return {pod: _line(message) for pod, message in verdict.pods.items()}


def _not_ready(verdict: Verdict, group: Object | None) -> str:
    needed = ((group or {}).get("spec") or {}).get("minMember")
    waits_for = f"{needed} pods" if needed else "more pods"
    return f"not ready: waiting for {waits_for}, {len(verdict.pods)} exist and wait"


def _line(message: str) -> str:
    return " ".join(message.split())
