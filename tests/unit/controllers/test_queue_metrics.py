"""Metrics of queues: names, units and labels."""

from __future__ import annotations

from typing import Any

from pykai.controllers.status.queue_metrics import QueueLabels, QueueMetrics
from pykai.objects import kinds


def queue(name: str = "q", **parts: Any) -> kinds.Queue:
    quotas = {key: kinds.QueueResource(quota=value) for key, value in parts.pop("quota", {}).items()}
    return kinds.Queue(
        metadata=kinds.ObjectMeta(name=name, labels=parts.pop("labels", None)),
        spec=kinds.QueueSpec(resources=kinds.QueueResources(**quotas), **parts.pop("spec", {})),
        status=kinds.QueueStatus(**parts),
    )


def shown(metrics: QueueMetrics) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


LABELS = '{queue_display_name="",queue_metadata_name="q",queue_name="q"}'


def test_quotas_and_allocations_in_cores_bytes_and_devices() -> None:
    held = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2500m", "nvidia.com/mig-1g.5gb": "1"}
    metrics = QueueMetrics(lambda: [queue(quota={"cpu": 2000, "memory": 5, "gpu": -1}, allocated=held)])
    assert shown(metrics) == {
        f"kai_queue_info{LABELS}": 1,
        f"kai_queue_deserved_gpus{LABELS}": -1,
        f"kai_queue_quota_cpu_cores{LABELS}": 2,
        f"kai_queue_quota_memory_bytes{LABELS}": 5_000_000,
        f"kai_queue_allocated_gpus{LABELS}": 2.5,
        f"kai_queue_allocated_cpu_cores{LABELS}": 1.5,
        f"kai_queue_allocated_memory_bytes{LABELS}": 1024**3,
    }


def test_a_quota_in_thousandths_is_shown_without_dust() -> None:
    metrics = QueueMetrics(lambda: [queue(quota={"cpu": 4350})])
    assert shown(metrics)[f"kai_queue_quota_cpu_cores{LABELS}"] == 4.35


def test_unlimited_stays_unlimited_and_no_resources_are_none() -> None:
    unlimited = QueueMetrics(lambda: [queue(quota={"cpu": -1, "memory": -1})], namespace="x")
    assert shown(unlimited)[f"x_queue_quota_cpu_cores{LABELS}"] == -1
    assert shown(unlimited)[f"x_queue_quota_memory_bytes{LABELS}"] == -1
    bare = kinds.Queue(metadata=kinds.ObjectMeta(name="q"))
    assert shown(QueueMetrics(lambda: [bare]))[f"kai_queue_quota_cpu_cores{LABELS}"] == 0


def test_series_of_queues_that_are_gone_or_relabelled_are_gone() -> None:
    present = [queue("a", labels={"tier": "gold"}), queue("b")]
    labels = QueueLabels({"tier": "priority", "cost": "centre"}, {"cost": "none"})
    metrics = QueueMetrics(lambda: present, labels)
    first = [line for line in shown(metrics) if line.startswith("kai_queue_info")]
    assert len(first) == 2
    assert 'centre="none",priority="gold"' in first[0]
    assert 'priority=""' in first[1]
    present[:] = [queue("a", labels={"tier": "iron"})]
    assert [line for line in shown(metrics) if "gold" in line or 'queue_name="b"' in line] == []
