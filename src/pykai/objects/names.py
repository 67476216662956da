"""The names of labels, annotations, resources, conditions and objects that are part of the API.

Also validates object names (RFC 1123) and converts other text to them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

# Scheduler and namespaces
SCHEDULER_NAME: Final = "kai-scheduler"
SYSTEM_NAMESPACE: Final = "kai-scheduler"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
SCALING_NAMESPACE: Final = "kai-scale-adjust"
SCALING_APP: Final = "scaling-pod"

# Labels
QUEUE_LABEL: Final = "kai.scheduler/queue"
LEGACY_QUEUE_LABEL: Final = "runai/queue"
NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"
SUBGROUP_LABEL: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
PRIORITY_CLASS_LABEL: Final = "priorityClassName"
BACKGROUND_LABEL: Final = "kai.scheduler/background"
PREEMPTIBILITY_LABEL: Final = "kai.scheduler/preemptibility"
PROJECT_LABEL: Final = "project"
USER_LABEL: Final = "user"
APP_LABEL: Final = "app"
GPU_GROUP_LABEL: Final = "runai-gpu-group"
GPU_GROUP_LABEL_PREFIX: Final = "runai-gpu-group/"
SELECTED_NODE_LABEL: Final = "selected-node"
KUBEFLOW_ROLE_LABEL: Final = "training.kubeflow.org/job-role"
RAY_NODE_TYPE_LABEL: Final = "ray.io/node-type"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

# Node labels
GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
GPU_COUNT_LABEL: Final = "nvidia.com/gpu.count"
MIG_STRATEGY_LABEL: Final = "nvidia.com/mig.strategy"
CPU_WORKER_LABEL: Final = "node-role.kubernetes.io/cpu-worker"
GPU_WORKER_LABEL: Final = "node-role.kubernetes.io/gpu-worker"
MIG_WORKER_LABEL: Final = "node-role.kubernetes.io/mig-enabled"

# Annotations
POD_GROUP_ANNOTATION: Final = "pod-group-name"
GPU_FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
GPU_FRACTION_DEVICES: Final = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
GPU_FRACTION_CONTAINER_TYPE: Final = "gpu-fraction-container-type"
GPU_FRACTION_LIMIT: Final = "gpu-fraction.limit"
GPU_MEMORY_LIMIT: Final = "gpu-memory.limit"
NVFRACTIONS_PREFIX: Final = "nvidia.com/container."
PORTION_LIMIT_PREFIX: Final = "kai.scheduler/container."
SHARED_GPU_CONFIGMAP: Final = "runai/shared-gpu-configmap"
RECEIVED_RESOURCE_TYPE: Final = "received-resource-type"
RESERVED_GPU_INDEX: Final = "run.ai/reserve_for_gpu_index"
STALE_TIMESTAMP: Final = "kai.scheduler/stale-podgroup-timestamp"
LAST_START_TIMESTAMP: Final = "kai.scheduler/last-start-timestamp"
LAST_EVICTION_TIMESTAMP: Final = "kai.scheduler/last-eviction-timestamp"
NUMA_PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
NUMA_OBSERVED: Final = "kai.scheduler/numa-placement-observed"

# Resources
NVIDIA_GPU: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"

# Gang structure
DEFAULT_PODSET: Final = "default"

# GPU sharing
MPS: Final = "mps"
SHARING_DISABLED: Final = "Disabled"
NON_MEMORY_ENFORCED: Final = "NonMemoryEnforced"
HAMI_CORE: Final = "HamiCore"
NVFRACTIONS: Final = "NvFractions"
SHARING_MODES: Final = (NON_MEMORY_ENFORCED, HAMI_CORE, NVFRACTIONS, SHARING_DISABLED)
TIME_SLICING: Final = "time-slicing"
SM_SHARING: Final = "sm-sharing"
COMPUTE_MODES: Final = (TIME_SLICING, SM_SHARING)
"""How pods that share a device share its multiprocessors; the index of a mode is its number in columns."""
FRACTIONS_READY: Final = ("gpu-fractioning.nvidia.com/Ready", "gpu-sharing.nvidia.com/Ready")
"""Conditions of nodes that accept fractional GPUs (NvFractions), the older name last."""

# Status roll-ups and scaling pods
GPU_MEMORY_RESOURCE: Final = "run.ai/gpu.memory"
AMD_GPU_MEMORY_LABEL_PREFIX: Final = "beta.amd.com/gpu.vram"
RECEIVED_FRACTION: Final = "Fraction"
SCALED_POD_NAME: Final = "shared-gpu-pod-name"
SCALED_POD_NAMESPACE: Final = "shared-gpu-pod-namespace"

# Pod grouping
DEFAULT_QUEUE: Final = "default-queue"
PARENT_QUEUE: Final = "default-parent-queue"
SKIP_PODGROUPER: Final = "kai.scheduler/skip-podgrouper"
TOP_OWNER_METADATA: Final = "kai.scheduler/top-owner-metadata"
PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
STALENESS_GRACE_PERIOD: Final = "kai.scheduler/staleness-grace-period"
SAFE_TO_CONSOLIDATE: Final = "kai.scheduler/safe-to-consolidate"
TOPOLOGY_SOURCE: Final = "topology.kai/source"
EVICTION_STRATEGY: Final = "kai.scheduler/eviction-strategy"
IGNORE_WORKLOAD_API: Final = "kai.scheduler/ignore-workload-api"
BATCH_MIN_MEMBER: Final = "kai.scheduler/batch-min-member"
TOPOLOGY: Final = "kai.scheduler/topology"
TOPOLOGY_REQUIRED: Final = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
SEGMENT_TOPOLOGY_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
SEGMENT_TOPOLOGY_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"

# Behaviour of pods on hollow nodes
ARRIVES: Final = "pykai.io/arrives"
RUN_SECONDS: Final = "pykai.io/run-seconds"
STOP_SECONDS: Final = "pykai.io/stop-seconds"

# Dynamic resource allocation
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"

# Binding
POD_BOUND: Final = "PodBound"
KARPENTER_DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
LEGACY_VISIBLE_DEVICES: Final = "RUNAI-VISIBLE-DEVICES"
CDI_DEVICE_PREFIX: Final = "k8s.device-plugin.nvidia.com/gpu="
DRA_FINALIZER: Final = "resource.kubernetes.io/delete-protection"

# Annotations of eviction events
EVICTED_PODS: Final = "num-evicted-pods"
EVICTOR_ACTION: Final = "evictor-action-type"
EVICTOR_NAME: Final = "evictor-pod-group-name"
EVICTOR_NAMESPACE: Final = "evictor-pod-group-namespace"
EVICTED_QUEUE: Final = "pykai.io/evicted-queue"
EVICTED_NODE: Final = "pykai.io/evicted-node"
EVICTED_GPUS: Final = "pykai.io/evicted-gpus"
EVICTED_STARTED: Final = "pykai.io/evicted-started"

# Conditions the scheduler writes
POD_SCHEDULED: Final = "PodScheduled"
DISRUPTION_TARGET: Final = "DisruptionTarget"
UNSCHEDULABLE_ON_POOL: Final = "UnschedulableOnNodePool"
UNSCHEDULABLE: Final = "Unschedulable"

# Installation
CONFIG_NAME: Final = "kai-config"
OPERATOR: Final = "kai-operator"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
SCHEDULER_APP: Final = "kai-scheduler"
SHARD_LABEL: Final = "kai.scheduler/shard"
FAKE_GPU_LABEL: Final = "run.ai/fake.gpu"

# Leader election leases; those of schedulers are named after scheduler and node pool
OPERATOR_LEASE: Final = "41fce092.run.ai"
BINDER_LEASE: Final = "2ad35f9c.kai.scheduler"
POD_GROUPER_LEASE: Final = "54dff599.kai.scheduler"
POD_GROUP_CONTROLLER_LEASE: Final = "o1x22tjj.kai.scheduler"
QUEUE_CONTROLLER_LEASE: Final = "ov3xj497.kai.scheduler"
NODE_SCALE_ADJUSTER_LEASE: Final = "7n7h49uc.kai.scheduler"

# Labels and annotations that users set on pods and workloads, and those that only components write
USER_LABELS: Final = (
    *(QUEUE_LABEL, LEGACY_QUEUE_LABEL, NODE_POOL_LABEL, SUBGROUP_LABEL, TASK_PRIORITY_LABEL, PREEMPTIBILITY_LABEL),
    *(PRIORITY_CLASS_LABEL, PROJECT_LABEL, USER_LABEL, BACKGROUND_LABEL),
)
USER_ANNOTATIONS: Final = (
    *(GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES, GPU_FRACTION_CONTAINER, GPU_FRACTION_CONTAINER_TYPE, MPS),
    *(GPU_FRACTION_LIMIT, GPU_MEMORY_LIMIT),
    *(POD_GROUP_ANNOTATION, SKIP_PODGROUPER, PREEMPTION_DELAY, STALENESS_GRACE_PERIOD, BATCH_MIN_MEMBER),
    *(SAFE_TO_CONSOLIDATE, IGNORE_WORKLOAD_API, EVICTION_STRATEGY),
    *(TOPOLOGY, TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED),
    *(SEGMENT_SIZE, SEGMENT_TOPOLOGY_REQUIRED, SEGMENT_TOPOLOGY_PREFERRED),
)
WRITTEN_NAMES: Final = frozenset(
    {SHARED_GPU_CONFIGMAP, GPU_GROUP_LABEL, NUMA_PREDICTED, NUMA_OBSERVED, TOP_OWNER_METADATA, RESERVED_GPU_INDEX}
)
PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The priority classes that the chart creates."""
OWN_PREFIXES: Final = ("kai", "runai", "run.ai", "gpu-", "gpu_", "pod-group", "priorityClass", "priority-class")
"""Prefixes of labels and annotations that may be misspelled ones of ours."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LENGTH = 253


def is_subdomain(text: str) -> bool:
    return len(text) <= _LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def object_name(text: str) -> str:
    """Return the text if it is a valid object name, else its valid part and a hash, which keeps names distinct."""
    if is_subdomain(text):
        return text
    readable = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:200].strip("-")
    return "-".join(filter(None, (readable, hashlib.sha256(text.encode()).hexdigest()[:8])))
