"""The custom resource definitions: names, versions and printer columns; their schemas come from the kinds' structs."""

from __future__ import annotations

from typing import Any, Final

from pykai.objects import config_kinds, custom_resources, shard_kinds
from pykai.objects.schema import AGE, Definition, PrinterColumn

_GPUS: Final = ".status.{}['nvidia\\.com/gpu']"
_READY: Final = (
    PrinterColumn(
        "Ready", '.status.conditions[?(@.type=="Ready")].status', doc="Whether everything runs as configured."
    ),
    AGE,
)

QUEUE: Final = Definition(
    group="scheduling.run.ai",
    version="v2",
    kind="Queue",
    plural="queues",
    namespaced=False,
    doc="A queue: a team, project or department with a guaranteed share of the cluster, a limit, and a weight for what "
    "is left over. Queues form a tree; workloads name a queue at the bottom of it.",
    spec_struct=custom_resources.QueueSpec,
    status_struct=custom_resources.QueueStatus,
    columns=(
        PrinterColumn("Priority", ".spec.priority"),
        PrinterColumn("Parent", ".spec.parentQueue"),
        PrinterColumn("Children", ".status.childQueues"),
        PrinterColumn("DisplayName", ".spec.displayName"),
        PrinterColumn("GPU-Quota", ".spec.resources.gpu.quota", "number", "The guaranteed GPUs; -1 is unlimited."),
        PrinterColumn("GPU-Limit", ".spec.resources.gpu.limit", "number", "The most GPUs at a time; -1 is unlimited."),
        PrinterColumn("GPU-Allocated", _GPUS.format("allocated"), doc="The GPUs that workloads hold, parts included."),
        PrinterColumn("GPU-Fair-Share", _GPUS.format("fairShare"), doc="The GPUs that the queue may hold at present."),
        PrinterColumn("GPU-Requested", _GPUS.format("requested"), doc="The GPUs that workloads ask for."),
    ),
)
POD_GROUP: Final = Definition(
    group="scheduling.run.ai",
    version="v2alpha2",
    kind="PodGroup",
    plural="podgroups",
    namespaced=True,
    doc="A group of pods that are scheduled together. The pod grouper makes one for every workload; pods name it in "
    "the annotation pod-group-name.",
    spec_struct=custom_resources.PodGroupSpec,
    status_struct=custom_resources.PodGroupStatus,
    short_names=("pg",),
    columns=(
        PrinterColumn("Queue", ".spec.queue", doc="The queue whose share the pods use."),
        PrinterColumn("Phase", ".status.phase", doc="Pending, Running, Succeeded or Failed."),
        PrinterColumn("Running", ".status.running", "integer", "Pods that run."),
        PrinterColumn("Minimum", ".status.minimum", "integer", "Pods that must be able to run before any starts."),
        PrinterColumn("PriorityClass", ".spec.priorityClassName", doc="Decides the order within the queue."),
        AGE,
    ),
)
BIND_REQUEST: Final = Definition(
    group="scheduling.run.ai",
    version="v1alpha2",
    kind="BindRequest",
    plural="bindrequests",
    namespaced=True,
    doc="The decision to run a pod on a node, written by the scheduler and carried out by the binder. "
    "It has the name of its pod and goes with it.",
    spec_struct=custom_resources.BindRequestSpec,
    status_struct=custom_resources.BindRequestStatus,
    columns=(
        PrinterColumn("Node", ".spec.selectedNode", doc="The node the pod is bound to."),
        PrinterColumn("Type", ".spec.receivedResourceType", doc="What kind of GPU share the pod gets."),
        PrinterColumn("Phase", ".status.phase", doc="How far the binder got."),
        AGE,
    ),
)
TOPOLOGY: Final = Definition(
    group="kai.scheduler",
    version="v1alpha1",
    kind="Topology",
    plural="topologies",
    namespaced=False,
    doc="How the nodes of the cluster are arranged, so that workloads can ask to run close together.",
    spec_struct=custom_resources.TopologySpec,
    spec_required=True,
)
CONFIG: Final = Definition(
    group="kai.scheduler",
    version="v1",
    kind="Config",
    plural="configs",
    namespaced=False,
    doc="How the whole system is deployed and configured. Only the object named kai-config is used.",
    spec_struct=config_kinds.Config,
    spec_doc="One part for every component.",
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
    doc="A scheduler of its own for a part of the nodes. The operator runs one for every shard.",
    spec_struct=shard_kinds.ShardSpec,
    status_struct=config_kinds.OperatorStatus,
    status_words={"what": "shard"},
    columns=_READY,
)

DEFINITIONS: Final[tuple[Definition, ...]] = (QUEUE, POD_GROUP, BIND_REQUEST, CONFIG, SHARD, TOPOLOGY)


def manifests() -> list[dict[str, Any]]:
    """All CustomResourceDefinition objects."""
    return [definition.manifest() for definition in DEFINITIONS]
