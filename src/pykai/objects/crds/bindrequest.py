"""BindRequest: the scheduler's decision, made durable for the binder."""

from __future__ import annotations

from pykai.objects.crds.definition import AGE, Column, Definition
from pykai.objects.crds.shapes import array, foreign, foreign_list, quantities, record, text, whole, words

_ALLOCATION = foreign("The devices that were chosen, as an AllocationResult of resource.k8s.io/v1.")

_SPEC = record(
    "Where the pod goes and what it gets there.",
    {
        "podName": text("The pod, in the namespace of this object."),
        "selectedNode": text("The node the pod is bound to."),
        "receivedResourceType": text("What kind of GPU share the pod gets: Regular, Fraction or MigInstance."),
        "receivedGPU": record(
            "How much GPU the pod gets.",
            {
                "count": {"type": "integer", "description": "The number of devices."},
                "portion": text("The part of every device, as a decimal such as 0.50; 1.00 is a whole one."),
            },
        ),
        "selectedGPUGroups": words("For a fraction: the ids of the GPU groups, one for each shared device."),
        "resourceClaimAllocations": array(
            "What the pod's resource claims receive.",
            record(
                "What one claim receives.",
                {"name": text("The name of the claim in the pod's spec."), "allocation": _ALLOCATION},
            ),
        ),
        "extendedResourceClaimAllocation": record(
            "What the claim receives that stands for the pod's extended resources.",
            {
                "allocation": _ALLOCATION,
                "deviceRequests": foreign_list("The requests of the claim."),
                "containerMappings": foreign_list("Which container's resource each request stands for."),
            },
        ),
        "predictedNUMAZones": array(
            "The NUMA zones the node is expected to use.",
            record(
                "What is expected from one zone.",
                {"zone": text("The name of the zone, such as node-0."), "amount": quantities("What it provides.")},
            ),
        ),
        "backoffLimit": whole("How many failed attempts end the request; absent means the binder's own rule."),
    },
)

_STATUS = record(
    "How far the binder got.",
    {
        "phase": text("Pending (also when empty), Succeeded or Failed."),
        "reason": text("What went wrong last."),
        "failedAttempts": whole("How many attempts failed."),
    },
)

BIND_REQUEST = Definition(
    group="scheduling.run.ai",
    version="v1alpha2",
    kind="BindRequest",
    plural="bindrequests",
    namespaced=True,
    doc="The decision to run a pod on a node, written by the scheduler and carried out by the binder. "
    "It has the name of its pod and goes with it.",
    spec=_SPEC,
    status=_STATUS,
    columns=(
        Column("Node", ".spec.selectedNode", doc="The node the pod is bound to."),
        Column("Type", ".spec.receivedResourceType", doc="What kind of GPU share the pod gets."),
        Column("Phase", ".status.phase", doc="How far the binder got."),
        AGE,
    ),
)
