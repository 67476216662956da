"""The custom resource definitions: names, versions and printer columns; their schemas come from the kinds' structs."""

from __future__ import annotations

from typing import Any, Final

from pykai.objects import config_kinds, custom_resources, shard_kinds
from pykai.objects.schema import AGE, Definition, PrinterColumn

_GPUS: Final = ".status.{}['nvidia\\.com/gpu']"
_READY: Final = (
    PrinterColumn(
        "Ready", '.status.conditions[?(@.type=="Ready")].status', doc="Whether everything is deployed as configured."
    ),
    AGE,
)

QUEUE: Final = Definition(
    group="scheduling.run.ai",
    version="v2",
    kind="Queue",
    plural="queues",
    namespaced=False,
    doc="A queue: a team, project or department with a quota, a limit, and a weight for resources over quota. Queues "
    "form a tree; workloads name a leaf queue.",
    spec_struct=custom_resources.QueueSpec,
    status_struct=custom_resources.QueueStatus,
    columns=(
        PrinterColumn("Priority", ".spec.priority"),
        PrinterColumn("Parent", ".spec.parentQueue"),
        PrinterColumn("Children", ".status.childQueues"),
        PrinterColumn("DisplayName", ".spec.displayName"),
        PrinterColumn("GPU-Quota", ".spec.resources.gpu.quota", "number", "The guaranteed GPUs; -1 is unlimited."),
        PrinterColumn(
            "GPU-Limit", ".spec.resources.gpu.limit", "number", "The maximum number of GPUs; -1 is unlimited."
        ),
        PrinterColumn(
            "GPU-Allocated", _GPUS.format("allocated"), doc="The GPUs allocated to workloads, fractions included."
        ),
        PrinterColumn("GPU-Fair-Share", _GPUS.format("fairShare"), doc="The GPUs that the queue may currently hold."),
        PrinterColumn("GPU-Requested", _GPUS.format("requested"), doc="The GPUs that workloads request."),
        AGE,
    ),
)
POD_GROUP: Final = Definition(
    group="scheduling.run.ai",
    version="v2alpha2",
    kind="PodGroup",
    plural="podgroups",
    namespaced=True,
    doc="A gang: pods that are scheduled together. The pod grouper creates one for every workload; pods name it in the "
    "annotation pod-group-name.",
    spec_struct=custom_resources.PodGroupSpec,
    status_struct=custom_resources.PodGroupStatus,
    short_names=("pg",),
    columns=(
        PrinterColumn("Queue", ".spec.queue", doc="The queue that the pods are charged to."),
        PrinterColumn("Phase", ".status.phase", doc="Pending, Running, Succeeded or Failed."),
        PrinterColumn("Running", ".status.running", "integer", "Running pods."),
        PrinterColumn("Minimum", ".status.minimum", "integer", "Pods that must fit before any is bound."),
        PrinterColumn("PriorityClass", ".spec.priorityClassName", doc="Determines the order within the queue."),
        AGE,
    ),
)
BIND_REQUEST: Final = Definition(
    group="scheduling.run.ai",
    version="v1alpha2",
    kind="BindRequest",
    plural="bindrequests",
    namespaced=True,
    doc="A decision to bind a pod to a node, written by the scheduler and executed by the binder. "
    "It has the name of its pod, which owns it.",
    spec_struct=custom_resources.BindRequestSpec,
    status_struct=custom_resources.BindRequestStatus,
    columns=(
        PrinterColumn("Node", ".spec.selectedNode", doc="The node the pod is bound to."),
        PrinterColumn("Type", ".spec.receivedResourceType", doc="Which type of GPU resource the pod receives."),
        PrinterColumn("Phase", ".status.phase", doc="Pending, Succeeded or Failed."),
        AGE,
    ),
)
TOPOLOGY: Final = Definition(
    group="kai.scheduler",
    version="v1alpha1",
    kind="Topology",
    plural="topologies",
    namespaced=False,
    doc="The topology of the cluster's nodes, such as zones and racks, which workloads refer to in constraints.",
    spec_struct=custom_resources.TopologySpec,
    spec_required=True,
)
CONFIG: Final = Definition(
    group="kai.scheduler",
    version="v1",
    kind="Config",
    plural="configs",
    namespaced=False,
    doc="How the system is deployed and configured. Only the object named kai-config is used.",
    spec_struct=config_kinds.Config,
    spec_doc="Global settings and those of each component.",
    status_struct=config_kinds.OperatorStatus,
    status_words={"what": "system"},
    columns=_READY,
)
SHARD: Final = Definition(
    group="kai.scheduler",
    version="v1",
    kind="SchedulingShard",
    plural="schedulingshards",
    namespaced=False,
    doc="A node pool with its own scheduler, which the operator deploys.",
    spec_struct=shard_kinds.ShardSpec,
    status_struct=config_kinds.OperatorStatus,
    status_words={"what": "shard"},
    columns=_READY,
)

DEFINITIONS: Final[tuple[Definition, ...]] = (QUEUE, POD_GROUP, BIND_REQUEST, CONFIG, SHARD, TOPOLOGY)


def manifests() -> list[dict[str, Any]]:
    """Return all CustomResourceDefinition objects."""
    return [definition.manifest() for definition in DEFINITIONS]
