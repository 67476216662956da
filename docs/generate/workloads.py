"""reference/workloads.md: the kinds of workload the pod grouper knows, and which of their pods start together."""

from __future__ import annotations

from docs.generate import markdown
from pykai.controllers.podgrouper.rules.workload_kinds import ANY_VERSION, TABLE, WorkloadKind, wrapped

HEAD = """# Workloads

Generated from the code by `make docs`. The kind of a pod's topmost owner determines its PodGroup. A gang starts
as a whole or not at all; the pods of "one group" start one by one. *Priority* is the priority class if neither the
label `priorityClassName` nor the pods name one; a ConfigMap can set other defaults
(`--default-priorities-configmap-name` of the [pod grouper](flags.md#kai-podgrouper)).
"""
TAIL = """Any other kind is grouped as a `Karta` object in the cluster describes it, else as one group. The pod grouper
ignores pods and workloads with the annotation `kai.scheduler/skip-podgrouper`, and pods without an owner that name a
group in `pod-group-name` ([labels and annotations](objects.md)).
"""


def page() -> str:
    """The text of the page."""
    kinds = dict.fromkeys((row.group, row.kind) for row in TABLE.values())
    rows = [[row for row in TABLE.values() if (row.group, row.kind) == kind] for kind in kinds]
    return "\n".join([HEAD, markdown.table(("kind", "API", "priority", "what starts together"), map(_row, rows)), TAIL])


def _row(versions: list[WorkloadKind]) -> tuple[str, str, str, str]:
    first = versions[0]
    served = "any version" if first.version == ANY_VERSION else ", ".join(f"`{row.version}`" for row in versions)
    priority = "" if first.rule is wrapped else f"`{first.priority}`"
    return f"`{first.kind}`", f"`{first.group}` {served}" if first.group else served, priority, first.starts
