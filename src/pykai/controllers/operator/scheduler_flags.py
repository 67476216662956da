"""The flags a shard may pass to its scheduler, by name: all that the scheduler takes, also those without effect."""

from __future__ import annotations

from typing import Final

FLAGS: Final = frozenset(
    {
        "allow-consolidating-reclaim",
        "burst",
        "cpu-worker-node-label-key",
        "default-staleness-grace-period",
        "detailed-fit-errors",
        "enable-profiler",
        "feature-gates",
        "full-hierarchy-fairness",
        "gpu-worker-node-label-key",
        "leader-elect",
        "listen-address",
        "log-flush-frequency",
        "log-json",
        "max-consolidation-preemptees",
        "metrics-namespace",
        "mig-worker-node-label-key",
        "namespace",
        "nodepool-label-key",
        "num-of-status-recording-workers",
        "partition-label-value",
        "plugin-server-port",
        "profiler-port",
        "pyroscope-address",
        "pyroscope-block-profiler-rate",
        "pyroscope-mutex-profiler-rate",
        "qps",
        "queue-label-key",
        "resource-reservation-app-label",
        "restrict-node-scheduling",
        "schedule-csi-storage",
        "schedule-period",
        "scheduler-conf",
        "scheduler-name",
        "stuck-in-releasing-threshold",
        "update-pod-eviction-condition",
        "use-scheduling-signatures",
        "v",
        "version",
    }
)
