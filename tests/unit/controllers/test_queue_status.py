"""The queue controller on a server in memory, its counting, and the metrics of queues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.controllers.queue_status import GroupTally, QueueLabels, QueueMetrics, QueueStatusSettings, run, times
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import POD_GROUP, QUEUE
from pykai.objects import kinds
from tests.unit.controllers.live import DiaryApi, eventually, make_queue, running

QUICK = QueueStatusSettings(gather_seconds=0.02)


@pytest.fixture
def api() -> DiaryApi:
    return DiaryApi()


async def make_group(api: DiaryApi, name: str, queue: str, **lists: Any) -> None:
    metadata = {"name": name, "namespace": "default"}
    await api.create(POD_GROUP, {"metadata": metadata, "spec": {"queue": queue, "minMember": 1}})
    if lists:
        await set_resources(api, name, **lists)


async def set_resources(api: DiaryApi, name: str, **lists: Any) -> None:
    status = {"status": {"resourcesStatus": lists}}
    await api.patch(POD_GROUP.ref(name, "default").sub("status"), Patch.merge(status))


async def becomes(api: DiaryApi, queue: str, expected: Object) -> None:
    async def status() -> Object:
        return (await api.get(QUEUE.ref(queue), Object)).get("status") or {}

    async def same() -> bool:
        return await status() == expected

    try:
        await eventually(same)
    except AssertionError:
        assert await status() == expected


@pytest.mark.virtual_time
async def test_sums_and_children_climb_the_tree(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_queue(api, "root")
        await make_queue(api, "team", parent="root")
        for name in ("a", "b"):
            await make_group(api, name, "team", requested={"cpu": "500m"}, allocated={"nvidia.com/gpu": "1"})
        await becomes(api, "team", {"requested": {"cpu": "1"}, "allocated": {"nvidia.com/gpu": "2"}})
        await becomes(
            api, "root", {"requested": {"cpu": "1"}, "allocated": {"nvidia.com/gpu": "2"}, "childQueues": ["team"]}
        )


@pytest.mark.virtual_time
async def test_many_changes_at_once_are_one_write_per_queue(api: DiaryApi) -> None:
    await make_queue(api, "team")
    async with running(api, run, QueueStatusSettings(gather_seconds=0.1)):
        for number in range(30):
            await make_group(api, f"g{number}", "team", requested={"cpu": "1"})
        await becomes(api, "team", {"requested": {"cpu": "30"}})
        await asyncio.sleep(0.25)
        assert api.count("patch", "Queue/status") == 1


@pytest.mark.virtual_time
async def test_a_group_that_moves_or_goes_is_taken_off(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        await make_queue(api, "one")
        await make_queue(api, "two")
        await make_group(api, "g", "one", requested={"cpu": "1"})
        await becomes(api, "one", {"requested": {"cpu": "1"}})
        await api.patch(POD_GROUP.ref("g", "default"), Patch.merge({"spec": {"queue": "two"}}))
        await becomes(api, "one", {})
        await becomes(api, "two", {"requested": {"cpu": "1"}})
        await api.delete(POD_GROUP.ref("g", "default"))
        await becomes(api, "two", {})


@pytest.mark.virtual_time
async def test_a_queue_that_moves_or_goes_is_taken_off(api: DiaryApi) -> None:
    async with running(api, run, QUICK):
        for name in ("one", "two"):
            await make_queue(api, name)
        await make_queue(api, "child", parent="one")
        await becomes(api, "one", {"childQueues": ["child"]})
        await api.patch(QUEUE.ref("child"), Patch.merge({"spec": {"parentQueue": "two"}}))
        await becomes(api, "one", {})
        await becomes(api, "two", {"childQueues": ["child"]})
        await api.delete(QUEUE.ref("child"))
        await becomes(api, "two", {})


@pytest.mark.virtual_time
async def test_sums_do_not_go_round_in_a_circle_of_parents(api: DiaryApi) -> None:
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a")):
        await make_queue(api, name, parent=parent)
    await make_group(api, "g", "a", requested={"cpu": "1"})
    async with running(api, run, QUICK):
        await becomes(api, "a", {"requested": {"cpu": "1"}, "childQueues": ["c"]})
        await becomes(api, "b", {"childQueues": ["a"]})
        await asyncio.sleep(60)
        assert api.count("patch", "Queue/status") == 3
        await api.patch(QUEUE.ref("c"), Patch.merge({"spec": {"parentQueue": None}}))
        await becomes(api, "a", {"requested": {"cpu": "1"}})
        await becomes(api, "b", {"requested": {"cpu": "1"}, "childQueues": ["a"]})
        await becomes(api, "c", {"requested": {"cpu": "1"}, "childQueues": ["b"]})


@pytest.mark.virtual_time
async def test_conditions_of_others_survive_and_nothing_is_written_without_need(api: DiaryApi) -> None:
    await make_queue(api, "q")
    conditions = [{"type": "Paused", "status": "True"}]
    await api.patch(QUEUE.ref("q").sub("status"), Patch.merge({"status": {"conditions": conditions}}))
    async with running(api, run, QUICK):
        await make_group(api, "g", "q", requested={"cpu": "1"})
        await becomes(api, "q", {"conditions": conditions, "requested": {"cpu": "1"}})
        await asyncio.sleep(0.1)
        api.writes.clear()
        await api.patch(QUEUE.ref("q"), Patch.merge({"metadata": {"labels": {"a": "b"}}}))
        await asyncio.sleep(0.1)
        assert api.count("patch", "Queue/status") == 0


def group(queue: str, **lists: Any) -> kinds.PodGroup:
    status = kinds.PodGroupStatus(resources_status=kinds.ResourcesStatus(**lists))
    return kinds.PodGroup(metadata=kinds.ObjectMeta(), spec=kinds.PodGroupSpec(queue=queue), status=status)


def test_equal_groups_are_counted_not_kept() -> None:
    tally = GroupTally()
    small, large = group("q", requested={"cpu": "500m"}), group("q", requested={"cpu": "4"})
    for _ in range(3):
        assert tally.change(None, small) == {"q"}
    assert tally.change(small, large) == {"q"}
    assert tally.change(large, large) == set()
    sums = [each["status"]["resourcesStatus"]["requested"] for each in tally.groups("q")]
    assert sums == [{"cpu": "1000m"}, {"cpu": "4"}]
    tally.change(large, None)
    tally.change(small, None)
    tally.change(small, group("r"))
    assert tally.groups("q") == []


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("500m", "1500m"), ("1.5Gi", "4.5Gi"), (2, "6"), ("2e3", "6e3"), ("0", "0"), ("-1", "-3"), (".5", "1.5")],
)
def test_a_quantity_three_times(quantity: str | int, expected: str) -> None:
    assert times(quantity, 3) == expected


# ---------------------------------------------------------------------------------------------------- metrics
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
