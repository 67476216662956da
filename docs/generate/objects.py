"""reference/objects.md: the labels and annotations users write or meet, and the fields of the kinds they create."""

from __future__ import annotations

from docs.generate import fields, markdown
from pykai.objects import names
from pykai.objects.crds import DEFINITIONS

HEAD = """# Labels, annotations, custom resources

Generated from the code by `make docs`. "Workload" is a pod or whatever owns it: a Job, a Deployment, a RayCluster.
"""
WRITTEN_BY_USERS = {
    names.QUEUE_LABEL: (
        "label",
        "workload, shared ResourceClaim",
        "The queue. Another key: chart value `podgrouper.queueLabelKey`.",
    ),
    names.LEGACY_QUEUE_LABEL: ("label", "workload", "The same, as it was called before; read if the other is absent."),
    names.PROJECT_LABEL: ("label", "workload", "Names the queue where neither of them does."),
    names.PRIORITY_CLASS_LABEL: ("label", "workload", "The PriorityClass of the gang; goes before that of the pods."),
    names.PREEMPTIBILITY_LABEL: (
        "label",
        "workload",
        "`preemptible`, `semi-preemptible` or `non-preemptible`; by default priorities below 100 are preemptible.",
    ),
    names.NODE_POOL_LABEL: ("label", "node, queue, workload", "The shard it belongs to; none: the default one."),
    names.SUBGROUP_LABEL: ("label", "pod", "The sub-group of its PodGroup that the pod belongs to."),
    names.TASK_PRIORITY_LABEL: ("label", "pod", "A number; within a gang larger ones go first."),
    names.USER_LABEL: ("label", "workload", "Who it is for; copied to the PodGroup."),
    names.GPU_FRACTION: ("annotation", "pod", "The part of a GPU, such as `0.5`."),
    names.GPU_MEMORY: ("annotation", "pod", "Instead of it: MiB of GPU memory."),
    names.GPU_FRACTION_DEVICES: ("annotation", "pod", "That part of so many GPUs; 1 if absent."),
    names.GPU_FRACTION_LIMIT: (
        "annotation",
        "pod",
        "The most of a GPU it may use, beside `gpu-fraction` (NvFractions).",
    ),
    names.GPU_MEMORY_LIMIT: ("annotation", "pod", "The same as a quantity, beside `gpu-memory` (NvFractions)."),
    names.NVFRACTIONS_PREFIX: (
        "annotation",
        "pod",
        "Followed by `<container>.gpu-memory.request`, `.gpu-memory.limit` or `.gpu-compute.mode`: the share of one "
        "container ([NvFractions](../concepts/gpu-sharing.md#nvfractions)); `.gpus.devices` is the binder's.",
    ),
    names.PORTION_LIMIT_PREFIX: (
        "annotation",
        "pod",
        "Followed by `<container>.gpu-memory.portion.limit`: `gpu-fraction.limit` for a container by name.",
    ),
    names.GPU_FRACTION_CONTAINER: ("annotation", "pod", "The container that gets it; the first if absent."),
    names.GPU_FRACTION_CONTAINER_TYPE: ("annotation", "pod", "`InitContainer`: it is an init container."),
    names.GPU_FRACTION_LIMIT: ("annotation", "pod", "In mode NvFractions: up to which part of a GPU it may grow."),
    names.GPU_MEMORY_LIMIT: ("annotation", "pod", "The same for `gpu-memory`, as a quantity such as `8Gi`."),
    names.NVFRACTIONS_PREFIX: (
        "annotation",
        "pod",
        "Followed by the container and `.gpu-memory.request`, `.gpu-memory.limit` (quantities) or `.gpu-compute.mode` "
        "(`time-slicing`, `sm-sharing`): its share in mode NvFractions. `.gpus.devices` is written by the binder.",
    ),
    names.PORTION_LIMIT_PREFIX: (
        "annotation",
        "pod",
        "Followed by the container and `.gpu-memory.portion.limit`: up to which part of a GPU it may grow.",
    ),
    names.POD_GROUP_ANNOTATION: (
        "annotation",
        "pod",
        "Its PodGroup; the pod grouper writes it, too.",
    ),
    names.SKIP_PODGROUPER: ("annotation", "workload", "`true`: its pods are not grouped."),
    names.BATCH_MIN_MEMBER: ("annotation", "workload", "How many pods start together; one by default."),
    names.TOPOLOGY: ("annotation", "workload", "The Topology that the next two speak of."),
    names.TOPOLOGY_REQUIRED: ("annotation", "workload", "All pods within one domain of this level, or none."),
    names.TOPOLOGY_PREFERRED: ("annotation", "workload", "Within as few domains of this level as possible."),
    names.SEGMENT_SIZE: ("annotation", "workload", "Pods per segment: gangs that are cut into equal parts."),
    names.SEGMENT_TOPOLOGY_REQUIRED: ("annotation", "workload", "Each segment within one domain of this level."),
    names.SEGMENT_TOPOLOGY_PREFERRED: ("annotation", "workload", "Each within as few as possible."),
    names.PREEMPTION_DELAY: ("annotation", "workload", "How long it waits before others are evicted for it."),
    names.STALENESS_GRACE_PERIOD: ("annotation", "workload", "How long it may run below its minimum."),
    names.BACKGROUND_LABEL: ("label", "pod", "`true`: it leaves as soon as a workload can use its place."),
    names.IGNORE_WORKLOAD_API: ("annotation", "workload, pod", "`true`: grouped by kind, not by its Workload."),
    names.EVICTION_STRATEGY: (
        "annotation",
        "workload, PodGroup",
        "`suspend`: evictions set `spec.suspend` of the workload, which deletes its pods; else they are deleted.",
    ),
    names.SAFE_TO_CONSOLIDATE: ("annotation", "workload, pod", "`false`: consolidation never moves its pods."),
}
WRITTEN_BY_KAI = {
    names.GPU_GROUP_LABEL: ("label", "pod, reservation pod", "The shared GPU."),
    names.GPU_GROUP_LABEL_PREFIX: (
        "label",
        "pod",
        "The same, followed by the group, for several GPUs.",
    ),
    names.SELECTED_NODE_LABEL: ("label", "BindRequest", "The node."),
    names.APP_LABEL: ("label", "pods of KAI", "The component."),
    names.SHARED_GPU_CONFIGMAP: ("annotation", "pod", "How the names of its config maps begin."),
    names.RECEIVED_RESOURCE_TYPE: ("annotation", "pod", "What it got: `Regular`, `Fraction` or `MigInstance`."),
    names.RESERVED_GPU_INDEX: ("annotation", "reservation pod", "The device it holds."),
    names.STALE_TIMESTAMP: ("annotation", "PodGroup", "Since when it runs below its minimum."),
    names.LAST_START_TIMESTAMP: ("annotation", "PodGroup", "When it last got its place."),
    names.LAST_EVICTION_TIMESTAMP: ("annotation", "PodGroup", "When it last lost it."),
    names.NUMA_PREDICTED: ("annotation", "pod", "The NUMA zones it is expected to use."),
    names.NUMA_OBSERVED: ("annotation", "pod", "Those it uses."),
    names.TOPOLOGY_SOURCE: ("annotation", "PodGroup", "`system`: its topology was chosen for it and stays."),
    names.TOP_OWNER_METADATA: ("annotation", "PodGroup", "The workload it was made for."),
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
    return markdown.table(("name", "is a", "on", "meaning"), cells)
