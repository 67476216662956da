"""The scheduler's own parameters (flags): facts about how to read a cluster and how far to search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SchedulerParams:
    """Durations are seconds. Defaults are those of the command line."""

    scheduler_name: str = "kai-scheduler"
    node_pool_key: str = "kai.scheduler/node-pool"
    node_pool: str = ""
    """Partition value; empty means objects without the node-pool label."""
    partitioned: bool = True
    """False: no node-pool label is configured, everything belongs to this scheduler."""
    restrict_nodes: bool = False
    cpu_worker_key: str = "node-role.kubernetes.io/cpu-worker"
    gpu_worker_key: str = "node-role.kubernetes.io/gpu-worker"
    mig_worker_key: str = "node-role.kubernetes.io/mig-enabled"
    reservation_app: str = "kai-resource-reservation"
    scaling_app: str = "scaling-pod"
    queue_label_key: str = "kai.scheduler/queue"
    max_consolidation_victims: int = 16
    """-1: no bound; 0: consolidation is off."""
    schedule_csi_storage: bool = False
    use_signatures: bool = True
    full_hierarchy_fairness: bool = True
    allow_consolidating_reclaim: bool = True
    staleness_grace: float = 60.0
    stuck_in_releasing: float = 120.0
    detailed_fit_errors: bool = False
    update_eviction_condition: bool = True
    workload_eviction_metrics: bool = False
    """Metrics of evictions name the workload that owns the PodGroup."""
    image_locality: bool = False
    """Snapshots contain the images of nodes, for the plugin `imagelocality`."""
    dra_enabled: bool = True
    nvfractions: bool = False
    """The GPU sharing mode NvFractions: shared requests go only to nodes that report that they are ready for them."""

    @property
    def pool_label(self) -> tuple[str, str | None]:
        """The node-pool label and its value on objects of this scheduler (None: absent); without pools ("", None)."""
        return (self.node_pool_key, self.node_pool or None) if self.partitioned else ("", None)

    @property
    def pool_title(self) -> str:
        return self.node_pool or "default"
