"""PodGroup: the pods that are scheduled together or not at all."""

from __future__ import annotations

from pykai.objects.crds.definition import AGE, Column, Definition
from pykai.objects.crds.shapes import (
    NAME_PATTERN,
    array,
    choice,
    duration,
    moment,
    quantities,
    record,
    switch,
    text,
    whole,
)

_TOPOLOGY_CONSTRAINT = record(
    "Which pods must or should be close to one another.",
    {
        "topology": text("The name of the Topology object whose levels are meant."),
        "requiredTopologyLevel": text(
            "All pods run within one domain of this level, or none is scheduled. A node label or an alias of a level."
        ),
        "preferredTopologyLevel": text(
            "Pods run within one domain of this level if there is room, else within a wider one. "
            "A node label or an alias of a level."
        ),
    },
)

_SUBGROUP = record(
    "A part of the group with a minimum of its own. Pods name it in the label kai.scheduler/subgroup-name.",
    {
        "name": text("The name of the subgroup, unique in the group.", minLength=1, pattern=NAME_PATTERN),
        "minMember": whole("How many pods of this subgroup must run for it to count.", minimum=0, nullable=True),
        "minSubGroup": whole("How many of the subgroups directly below this one must be satisfied.", minimum=0),
        "parent": text(
            "The subgroup this one is part of; absent for one directly below the group.", pattern=NAME_PATTERN
        ),
        "topologyConstraint": _TOPOLOGY_CONSTRAINT,
    },
    required=["name"],
)

_SPEC = record(
    "What the group needs to start and how it is treated.",
    {
        "minMember": whole(
            "How many pods must be able to run before any of them is started. Absent means 1, 0 means that every pod "
            "stands for itself. Not together with minSubGroup.",
            minimum=0,
            nullable=True,
        ),
        "minSubGroup": whole(
            "How many of the direct subgroups must be satisfied; absent means all, 0 means none. "
            "Not together with minMember.",
            minimum=0,
        ),
        "queue": text("The queue whose share the pods use."),
        "priorityClassName": text(
            "The PriorityClass that decides the order within the queue; 50 if absent or unknown."
        ),
        "preemptibility": choice(
            "Whether running pods may be taken down for others. Absent: preemptible below priority 100.",
            "preemptible",
            "non-preemptible",
        ),
        "topologyConstraint": _TOPOLOGY_CONSTRAINT,
        "subGroups": array(
            "The parts of the group, as a tree by `parent`.",
            _SUBGROUP,
        ),
        "markUnschedulable": switch(
            "Whether waiting pods get the condition PodScheduled=False, which makes a cluster autoscaler add nodes. "
            "Absent means true."
        ),
        "schedulingBackoff": whole(
            "-1 (or absent): try until it fits. 1: try once per node pool and then leave the group alone.",
        ),
        "preemptionDelay": duration(
            "How long the group waits, counted from its creation or its last eviction, before it may take others down."
        ),
        "stalenessGracePeriod": duration(
            "How long a running group may have fewer pods than its minimum before all of them are taken down; "
            "negative means for ever. Absent means the scheduler's own setting."
        ),
    },
)

_CONDITION_FIELDS = {
    "status": text("True, False or Unknown."),
    "transitionID": text("A number that grows with every change."),
    "lastTransitionTime": moment("When the status last changed.", nullable=True),
    "reason": text("Why, as one word for programs."),
    "message": text("Why, in plain words."),
}

_QUEUE_DETAILS = record(
    "The numbers of the queue that stood in the way.",
    {
        "name": text("The name of the queue."),
        "queueRequestedResources": quantities("What the queue's workloads ask for."),
        "queueDeservedResources": quantities("The queue's quota."),
        "queueAllocatedResources": quantities("What the queue's workloads hold."),
        "queueAllocatedNonPreemptibleResources": quantities("What the queue's non-preemptible workloads hold."),
        "queueResourceLimits": quantities("The queue's limit."),
        "podGroupRequestedResources": quantities("What this group asks for."),
        "podGroupRequestedNonPreemptibleResources": quantities("What this group asks for without being preemptible."),
    },
)

_REASON = record(
    "One reason why the group waits.",
    {
        "reason": text("The reason as one word, such as OverLimit or PodSchedulingErrors."),
        "message": text("The reason in plain words."),
        "details": record("What the reason is about.", {"queueDetails": _QUEUE_DETAILS}),
    },
)

_STATUS = record(
    "What became of the group.",
    {
        "conditions": array(
            "Kept for older readers; not written.",
            record("One condition.", {"type": text("What the condition is about."), **_CONDITION_FIELDS}),
        ),
        "schedulingConditions": array(
            "Why the group could not be scheduled, one entry per node pool; written by the scheduler.",
            record(
                "The last verdict for one node pool.",
                {
                    "type": text("UnschedulableOnNodePool."),
                    "nodePool": text("The node pool the verdict is for."),
                    "reasons": array("All reasons, in the order of their weight.", _REASON),
                    **_CONDITION_FIELDS,
                },
            ),
        ),
        "resourcesStatus": record(
            "What the pods of the group hold and ask for; written by the pod group controller.",
            {
                "allocated": quantities("What the pods hold."),
                "allocatedNonPreemptible": quantities("The same, if the group is not preemptible."),
                "requested": quantities("What the pods ask for."),
            },
        ),
    },
)

POD_GROUP = Definition(
    group="scheduling.run.ai",
    version="v2alpha2",
    kind="PodGroup",
    plural="podgroups",
    namespaced=True,
    doc="A group of pods that are scheduled together. The pod grouper makes one for every workload; pods name it in "
    "the annotation pod-group-name.",
    spec=_SPEC,
    status=_STATUS,
    short_names=("pg",),
    columns=(
        Column("Queue", ".spec.queue", doc="The queue whose share the pods use."),
        Column("MinMember", ".spec.minMember", "integer", "Pods that must be able to run before any starts."),
        Column("PriorityClass", ".spec.priorityClassName", doc="Decides the order within the queue."),
        AGE,
    ),
)
