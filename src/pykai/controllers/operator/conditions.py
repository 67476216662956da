"""The status conditions of Config and SchedulingShard: progress of the operator and availability of the system.

Pure. A condition is rewritten only if its generation, status, reason or message changed, and its lastTransitionTime
only if its status changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pykai.kube.api import Object
from pykai.objects.units import rfc3339

Condition = Object

RECONCILING: Final = "Reconciling"
DEPLOYED: Final = "Deployed"
AVAILABLE: Final = "Available"
FULFILLED: Final = "DependenciesFulfilled"
READY: Final = "Ready"


@dataclass(frozen=True)
class Findings:
    """The findings to report: lines about operands that are not deployed, not available or missing. No lines: ready.

    `database`: the result of probing an external Prometheus: None without one, empty if it answered, else the error.
    `remarks`: lines about settings without effect; they change no status.
    """

    not_deployed: Sequence[str] = ()
    not_available: Sequence[str] = ()
    missing: Sequence[str] = ()
    database: str | None = None
    remarks: Sequence[str] = ()


def of_findings(findings: Findings) -> list[tuple[str, bool, str, str]]:
    """Return the conditions that report findings as (type, status, reason, message)."""
    available, reason, message = _availability(findings)
    completed = "\n".join(["Reconciliation completed successfully", *(f"note: {line}" for line in findings.remarks)])
    return [
        (RECONCILING, False, "reconciled", completed),
        (
            DEPLOYED,
            not findings.not_deployed,
            "deployed",
            "\n".join(findings.not_deployed) or "Resources deployed",
        ),
        (AVAILABLE, available, reason, message),
        (FULFILLED, False, "dependencies_missing", "".join(f"\n{line}" for line in findings.missing))
        if findings.missing
        else (FULFILLED, True, "dependencies_fulfilled", "Dependencies are fulfilled"),
        (READY, available, "ready", "System is ready")
        if available
        else (READY, False, "not_ready", "System not ready"),
    ]


def is_true(item: Object, kind: str) -> bool:
    """Whether a condition of an object is true."""
    rows = (item.get("status") or {}).get("conditions") or ()
    return any(row["type"] == kind and row["status"] == "True" for row in rows)


def in_progress() -> list[tuple[str, bool, str, str]]:
    """Return the condition at the start of a generation."""
    return [(RECONCILING, True, "reconciling", "Reconciliation in progress")]


def ignored(why: str) -> list[tuple[str, bool, str, str]]:
    """Return the conditions of an object without effect."""
    return [(kind, False, "ignored", why) for kind in (RECONCILING, DEPLOYED, AVAILABLE, READY)]


def _availability(findings: Findings) -> tuple[bool, str, str]:
    if findings.not_available:
        return False, "available", "\n".join(findings.not_available)
    if findings.database is None:
        return True, "available", "System available"
    if findings.database:
        return False, "prometheus_connection_failed", f"Failed to ping external Prometheus: {findings.database}"
    return True, "prometheus_connected", "External Prometheus connectivity verified"


@dataclass(frozen=True)
class ObservedAt:
    """The observed generation, and the time in seconds since 1970."""

    generation: int
    now: float


def merged(
    present: Sequence[Condition], rows: Sequence[tuple[str, bool, str, str]], moment: ObservedAt
) -> list[Condition] | None:
    """Return the conditions to write; None where nothing changed. Conditions of other types stay as they are."""
    before = {condition["type"]: condition for condition in present}
    after = dict(before)
    for kind, holds, reason, message in rows:
        old, status = before.get(kind), "True" if holds else "False"
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else rfc3339(moment.now)
        after[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": moment.generation,
            "lastTransitionTime": since,
        }
    return list(after.values()) if after != before else None


@dataclass(frozen=True)
class Presence:
    """The live objects by (kind, name), and why other wanted objects could not be written."""

    live: Mapping[tuple[str, str], Object]
    failures: Mapping[tuple[str, str], str] = field(default_factory=dict)


def not_deployed(operands: Mapping[str, Sequence[Object]], presence: Presence) -> list[str]:
    """Return a line for every operand of which an object is absent or could not be updated."""
    lines = []
    for title, objects in operands.items():
        keys = [key_of(each) for each in objects]
        reasons = [presence.failures[key] for key in keys if key in presence.failures]
        if reasons:
            lines.append(f"{title}: not deployed: {'; '.join(reasons)}")
        elif any(key not in presence.live for key in keys):
            lines.append(f"{title}: not deployed")
    return lines


def not_available(operands: Mapping[str, Sequence[Object]], presence: Presence) -> list[str]:
    """Return a line for every workload that is not fully available."""
    lines = []
    for title, objects in operands.items():
        for each in objects:
            check = _CHECKS.get(each["kind"])
            live = presence.live.get(key_of(each))
            if check is not None and (live is None or not check(live)):
                lines.append(f"{title}: {each['kind']} [{each['metadata']['name']}] is not available")
    return lines


def key_of(item: Object) -> tuple[str, str]:
    """Kind and name."""
    return item["kind"], item["metadata"]["name"]


def _deployment_runs(live: Object) -> bool:
    status = live.get("status") or {}
    wanted = (live.get("spec") or {}).get("replicas", 1)
    rows = status.get("conditions") or ()
    runs = any(row["type"] == "Available" and row["status"] == "True" for row in rows)
    return runs and rolled_out(live) and int(status.get("updatedReplicas") or 0) == wanted


def rolled_out(deployment: Object) -> bool:
    """Whether no pod of an older spec is left, except terminating ones."""
    status = deployment.get("status") or {}
    updated = status.get("updatedReplicas", 0)
    return _current(deployment) and bool(status.get("replicas", updated) == updated)


def _daemon_set_runs(live: Object) -> bool:
    status = live.get("status") or {}
    return _current(live) and status.get("desiredNumberScheduled", 0) == status.get("numberAvailable", 0)


def _current(live: Object) -> bool:
    """Whether the status has observed the newest generation."""
    seen = (live.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= live["metadata"].get("generation", 0))


_CHECKS = {"Deployment": _deployment_runs, "DaemonSet": _daemon_set_runs}
