"""reference/objects.md: the labels and annotations users write or meet, and the fields of the kinds they create."""

from __future__ import annotations

from docs.generate import fields, markdown
from pykai.objects import names
from pykai.objects.crds import DEFINITIONS

HEAD = """# Labels, annotations, custom resources

Generated from the code by `make docs`. A "workload" is a pod or its topmost owner: a Job, a
Deployment, a RayCluster.
"""
WRITTEN_BY_USERS = {
    names.QUEUE_LABEL: (
        "label",
        "workload, shared ResourceClaim",
        "The queue. The chart value `podgrouper.queueLabelKey` selects another key.",
    ),
    names.LEGACY_QUEUE_LABEL: ("label", "workload", "Older name of the queue label; read if the other is absent."),
    names.PROJECT_LABEL: ("label", "workload", "The queue, if neither queue label is set."),
    names.PRIORITY_CLASS_LABEL: (
        "label",
        "workload",
        "The PriorityClass of the gang; goes before `spec.priorityClassName` of the pods.",
    ),
    names.PREEMPTIBILITY_LABEL: (
        "label",
        "workload",
        "`preemptible`, `semi-preemptible` or `non-preemptible`; by default priorities below 100 are preemptible.",
    ),
    names.NODE_POOL_LABEL: ("label", "node, queue, workload", "The shard; absent: the default shard."),
    names.SUBGROUP_LABEL: ("label", "pod", "The sub-group of its PodGroup that the pod belongs to."),
    names.TASK_PRIORITY_LABEL: ("label", "pod", "A number: pods of a gang with a larger one are placed first."),
    names.USER_LABEL: ("label", "workload", "The user; copied to the PodGroup."),
    names.GPU_FRACTION: ("annotation", "pod", "The requested fraction of a GPU, such as `0.5`."),
    names.GPU_MEMORY: ("annotation", "pod", "The requested GPU memory in MiB; excludes `gpu-fraction`."),
    names.GPU_FRACTION_DEVICES: (
        "annotation",
        "pod",
        "The number of GPUs on each of which the pod gets the fraction or memory; 1 if absent.",
    ),
    names.GPU_FRACTION_LIMIT: (
        "annotation",
        "pod",
        "With `gpu-fraction` in mode NvFractions: the largest fraction that the pod may use.",
    ),
    names.GPU_MEMORY_LIMIT: (
        "annotation",
        "pod",
        "With `gpu-memory` in mode NvFractions: the most memory that the pod may use, a quantity such as `8Gi`.",
    ),
    names.NVFRACTIONS_PREFIX: (
        "annotation",
        "pod",
        "Followed by the container and `.gpu-memory.request`, `.gpu-memory.limit` (quantities) or `.gpu-compute.mode` "
        "(`time-slicing`, `sm-sharing`): the share of this container in mode "
        "[NvFractions](../concepts/gpu-sharing.md#nvfractions). The binder writes `.gpus.devices`.",
    ),
    names.PORTION_LIMIT_PREFIX: (
        "annotation",
        "pod",
        "Followed by the container and `.gpu-memory.portion.limit`: `gpu-fraction.limit` of this container.",
    ),
    names.GPU_FRACTION_CONTAINER: ("annotation", "pod", "The container that gets the share; the first if absent."),
    names.GPU_FRACTION_CONTAINER_TYPE: (
        "annotation",
        "pod",
        "`InitContainer`: an init container gets the share.",
    ),
    names.POD_GROUP_ANNOTATION: (
        "annotation",
        "pod",
        "The pod's PodGroup. The pod grouper writes it, unless the pod has no owner and names a group itself.",
    ),
    names.SKIP_PODGROUPER: ("annotation", "workload", "`true`: the pod grouper ignores its pods."),
    names.BATCH_MIN_MEMBER: ("annotation", "workload", "The number of pods that must start together; 1 if absent."),
    names.TOPOLOGY: ("annotation", "workload", "The Topology that the placement annotations refer to."),
    names.TOPOLOGY_REQUIRED: ("annotation", "workload", "All pods run in one domain of this level, or none starts."),
    names.TOPOLOGY_PREFERRED: (
        "annotation",
        "workload",
        "Pods run in one domain of this level if they fit, else in one of a wider level.",
    ),
    names.SEGMENT_SIZE: ("annotation", "workload", "The number of pods per segment, for gangs of equal segments."),
    names.SEGMENT_TOPOLOGY_REQUIRED: (
        "annotation",
        "workload",
        "Each segment runs in one domain of this level, or none starts.",
    ),
    names.SEGMENT_TOPOLOGY_PREFERRED: (
        "annotation",
        "workload",
        "Each segment runs in one domain of this level if it fits, else in one of a wider level.",
    ),
    names.PREEMPTION_DELAY: (
        "annotation",
        "workload",
        "For this time after its creation or last eviction, no pods are evicted for the workload.",
    ),
    names.STALENESS_GRACE_PERIOD: (
        "annotation",
        "workload",
        "How long the gang may run below its minimum; negative: for ever.",
    ),
    names.BACKGROUND_LABEL: ("label", "pod", "`true`: evicted as soon as a workload can use its resources."),
    names.IGNORE_WORKLOAD_API: (
        "annotation",
        "workload, pod",
        "`true`: grouped by its kind, not by the Kubernetes Workload API.",
    ),
    names.EVICTION_STRATEGY: (
        "annotation",
        "workload, PodGroup",
        "`suspend`: an eviction sets `spec.suspend` of the workload, whose controller deletes the pods. Otherwise pods "
        "are deleted.",
    ),
    names.SAFE_TO_CONSOLIDATE: ("annotation", "workload, pod", "`false`: consolidation never moves the pods."),
}
WRITTEN_BY_KAI = {
    names.GPU_GROUP_LABEL: ("label", "pod, reservation pod", "The device group, that is, the shared GPU."),
    names.GPU_GROUP_LABEL_PREFIX: (
        "label",
        "pod",
        "Followed by the device group: one label per group, for pods that share several GPUs.",
    ),
    names.SELECTED_NODE_LABEL: ("label", "BindRequest", "The node."),
    names.APP_LABEL: ("label", "pods of KAI", "The component."),
    names.SHARED_GPU_CONFIGMAP: ("annotation", "pod", "The prefix of the names of its ConfigMaps."),
    names.RECEIVED_RESOURCE_TYPE: ("annotation", "pod", "`Regular`, `Fraction` or `MigInstance`."),
    names.RESERVED_GPU_INDEX: ("annotation", "reservation pod", "The device that it holds."),
    names.STALE_TIMESTAMP: ("annotation", "PodGroup", "When it fell below its minimum."),
    names.LAST_START_TIMESTAMP: ("annotation", "PodGroup", "When it last got resources."),
    names.LAST_EVICTION_TIMESTAMP: ("annotation", "PodGroup", "When it was last evicted."),
    names.NUMA_PREDICTED: ("annotation", "pod", "The NUMA zones that the scheduler expects it to use."),
    names.NUMA_OBSERVED: ("annotation", "pod", "The NUMA zones that it uses."),
    names.TOPOLOGY_SOURCE: ("annotation", "PodGroup", "`system`: the pod grouper keeps its topology constraint."),
    names.TOP_OWNER_METADATA: ("annotation", "PodGroup", "The topmost owner of its pods."),
}
KINDS = ("Queue", "PodGroup", "Topology", "BindRequest")


def page() -> str:
    """The text of the page."""
    kinds = [each for name in KINDS for each in DEFINITIONS if each.kind == name]
    heads = [f"## {each.kind}\n\n`{each.group}/{each.version}`. {each.doc}\n" for each in kinds]
    tables = [fields.described(each.spec) for each in kinds]
    return "\n".join([
        HEAD,
        "## What users write\n",
        _names(WRITTEN_BY_USERS),
        "## What the components write\n",
        _names(WRITTEN_BY_KAI),
        *(part for section in zip(heads, tables, strict=True) for part in section),
    ])  # fmt: skip


def _names(rows: dict[str, tuple[str, str, str]]) -> str:
    cells = [(f"`{name}`", *about) for name, about in rows.items()]
    return markdown.table(("name", "type", "on", "meaning"), cells)
