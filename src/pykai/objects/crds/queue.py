"""Queue: who may use how much of the cluster."""

from __future__ import annotations

from pykai.objects.crds.definition import Column, Definition
from pykai.objects.crds.shapes import (
    Schema,
    array,
    decimal,
    duration,
    moment,
    quantities,
    record,
    text,
    whole,
    words,
)


def _share(unit: str) -> Schema:
    return record(
        f"What the queue may use of this resource, in {unit}.",
        {
            "quota": decimal(f"The guaranteed amount, in {unit}. -1 is unlimited; 0 guarantees nothing."),
            "overQuotaWeight": decimal(
                "The queue's weight when resources beyond all quotas are divided among the queues that want them. "
                "0 takes part in no such division."
            ),
            "limit": decimal(f"The most the queue may ever use, in {unit}. -1 is unlimited; 0 allows nothing."),
        },
    )


_SPEC = record(
    "What the queue is entitled to.",
    {
        "displayName": text("A name for people; used in messages and metrics instead of the object's name."),
        "parentQueue": text(
            "The name of the queue this one is part of; empty for a queue at the top. "
            "A queue whose parent does not exist is not scheduled."
        ),
        "resources": record(
            "The queue's share of every resource. Required: a queue without it can run nothing.",
            {
                "gpu": _share("GPUs, fractions allowed"),
                "cpu": _share("thousandths of a CPU (1000 is one core)"),
                "memory": _share("megabytes (1 MB is 1,000,000 bytes)"),
            },
        ),
        "priority": whole(
            "Queues with a higher priority are served first and give back last. 100 if absent.",
        ),
        "preemptMinRuntime": duration(
            "How long a workload of this queue runs at least before one of the same queue may preempt it."
        ),
        "reclaimMinRuntime": duration(
            "How long a workload of this queue runs at least before another queue may take its resources back."
        ),
    },
)

_CONDITION = record(
    "One condition of the queue.",
    {
        "type": text("What the condition is about."),
        "status": text("True, False or Unknown."),
        "lastProbeTime": moment("When the condition was last checked.", nullable=True),
        "lastTransitionTime": moment("When the status last changed.", nullable=True),
        "reason": text("Why, as one word for programs."),
        "message": text("Why, in plain words."),
    },
    required=["type", "status"],
)

_STATUS = record(
    "What the queue uses now; written by the queue controller.",
    {
        "conditions": array(
            "Conditions of the queue.",
            _CONDITION,
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
        "childQueues": words("The names of the queues that name this one as their parent."),
        "allocated": quantities("What the workloads of this queue and of all queues below it hold."),
        "allocatedNonPreemptible": quantities("The part of `allocated` that is held by workloads nobody may preempt."),
        "requested": quantities("What the workloads of this queue and of all queues below it ask for."),
    },
)

QUEUE = Definition(
    group="scheduling.run.ai",
    version="v2",
    kind="Queue",
    plural="queues",
    namespaced=False,
    doc="A queue: a team, project or department with a guaranteed share of the cluster, a limit, and a weight for what "
    "is left over. Queues form a tree; workloads name a queue at the bottom of it.",
    spec=_SPEC,
    status=_STATUS,
    columns=(
        Column("Priority", ".spec.priority"),
        Column("Parent", ".spec.parentQueue"),
        Column("Children", ".status.childQueues"),
        Column("DisplayName", ".spec.displayName"),
    ),
)
