"""Metrics of queues: names, units and labels."""

from __future__ import annotations

from typing import Any

from pykai.controllers.queue_status import QueueLabels, QueueMetrics
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
    asked, fixed = {"cpu": "3", "memory": "2Gi", "nvidia.com/gpu": "4"}, {"cpu": "1", "nvidia.com/gpu": "500m"}
    given: dict[str, Any] = {"allocated": held, "requested": asked, "allocated_non_preemptible": fixed}
    metrics = QueueMetrics(lambda: [queue(quota={"cpu": 2000, "memory": 5, "gpu": -1}, **given)])
    assert shown(metrics) == {
        f"kai_queue_limit_gpus{LABELS}": 0,
        f"kai_queue_limit_cpu_cores{LABELS}": 0,
        f"kai_queue_limit_memory_bytes{LABELS}": 0,
        f"kai_queue_requested_gpus{LABELS}": 4,
        f"kai_queue_requested_cpu_cores{LABELS}": 3,
        f"kai_queue_requested_memory_bytes{LABELS}": 2 * 1024**3,
        f"kai_queue_allocated_non_preemptible_gpus{LABELS}": 0.5,
        f"kai_queue_allocated_non_preemptible_cpu_cores{LABELS}": 1,
        f"kai_queue_allocated_non_preemptible_memory_bytes{LABELS}": 0,
        f"kai_queue_info{LABELS}": 1,
        f"kai_queue_deserved_gpus{LABELS}": -1,
        f"kai_queue_quota_cpu_cores{LABELS}": 2,
        f"kai_queue_quota_memory_bytes{LABELS}": 5_000_000,
        f"kai_queue_allocated_gpus{LABELS}": 2.5,
        f"kai_queue_allocated_cpu_cores{LABELS}": 1.5,
        f"kai_queue_allocated_memory_bytes{LABELS}": 1024**3,
    }


def test_limits_in_cores_bytes_and_devices() -> None:
    limits = {"cpu": 2500.0, "memory": 5.0, "gpu": -1.0}
    bounds = kinds.QueueResources(**{key: kinds.QueueResource(limit=value) for key, value in limits.items()})
    item = kinds.Queue(metadata=kinds.ObjectMeta(name="q"), spec=kinds.QueueSpec(resources=bounds))
    found = shown(QueueMetrics(lambda: [item]))
    names = ("gpus", "cpu_cores", "memory_bytes")
    assert [found[f"kai_queue_limit_{name}{LABELS}"] for name in names] == [-1, 2.5, 5_000_000]


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
