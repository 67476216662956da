"""The snapshot file is complete, in KAI's format, and our own replay decides on it what the scheduler decided."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from pykai.cli.replay import Replay
from pykai.config import snapshot_file as snapshots
from pykai.config.scheduler_config import PluginChoice, SchedulerConfig, policy, read
from pykai.config.snapshot_file import RawObjects
from pykai.engine.budgets import SearchBudgets
from pykai.kube.api_resources import CONFIG_MAP, NODE
from pykai.model.params import SchedulerParams
from pykai.observe.http import listening
from pykai.plugins import registry
from pykai.scheduler.debug_server import (
    SnapshotContext,
    config_document,
    debug_routes,
    discovery_document,
    job_order,
    write_snapshot,
)
from pykai.scheduler.informers import SOURCES

from .rig import RecordingApi, furnish, node, pod, rig, submit

ABOUT = SnapshotContext(SchedulerConfig(queue_depth={"allocate": 10}), registry.BUILT_IN)


@pytest.fixture
async def api() -> RecordingApi:
    made = RecordingApi()
    await furnish(made, nodes=2, gpus=1)
    await submit(made, pod("a"), pod("b"), pod("c"))
    await made.create(CONFIG_MAP, {"metadata": {"name": "secret", "namespace": "team"}, "data": {"key": "hush"}})
    elsewhere = node("elsewhere")
    elsewhere["metadata"]["labels"]["kai.scheduler/node-pool"] = "other"
    await made.create(NODE, elsewhere)
    return made


async def written(api: RecordingApi, path: Path) -> Path:
    with await write_snapshot(api, SchedulerParams(), ABOUT) as file:
        path.write_bytes(file.read())
    return path


async def test_objects_are_whole(api: RecordingApi, tmp_path: Path) -> None:
    path = await written(api, tmp_path / "snapshot.zip")
    with zipfile.ZipFile(path) as archive:
        document: dict[str, Any] = msgspec.json.decode(archive.read("snapshot.json"))
    assert list(document) == ["config", "schedulerParams", "rawObjects", "discovery"]
    raw = document["rawObjects"]
    assert [item["metadata"]["name"] for item in raw["nodes"]] == ["node-0", "node-1"]
    assert raw["pods"][0]["spec"]["containers"][0]["image"] == "x"
    assert raw["nodeResourceTopologies"] == []
    (config_map,) = [item for item in raw["configMaps"] if item["metadata"]["name"] == "secret"]
    assert config_map["kind"] == "ConfigMap"
    assert "data" not in config_map
    assert document["schedulerParams"]["globalDefaultStalenessGracePeriod"] == 60_000_000_000
    assert document["schedulerParams"]["schedulePeriod"] == 1_000_000_000
    assert "detailedFitErrors" not in document["schedulerParams"]
    assert document["config"]["actions"] == "allocate, consolidation, reclaim, preempt, stalegangeviction"


async def test_replay_reads_it_and_decides_the_same(api: RecordingApi, tmp_path: Path) -> None:
    file = snapshots.load(await written(api, tmp_path / "snapshot.zip"))
    assert snapshots.params(file) == SchedulerParams()
    plan, _ = Replay(file, 0.0).cycle()
    assert sorted(bind.node for bind in plan.binds) == ["node-0", "node-1"]
    assert Replay(file, 0.0).policy.queue_depth == {"allocate": 10}


def test_sections_are_those_of_the_format() -> None:
    known = {field.encode_name for field in msgspec.structs.fields(RawObjects)}
    assert {source.section for source in SOURCES} == known


def test_a_configuration_is_written_as_it_was_read() -> None:
    chosen = (PluginChoice("", "nodeplacement", {"gpu": "spread"}), PluginChoice("", "topology"))
    document = config_document(replace(ABOUT, config=SchedulerConfig(plugins=chosen)))
    plugins = [{"name": "nodeplacement", "arguments": {"gpu": "spread"}}, {"name": "topology"}]
    assert document["tiers"] == [{"plugins": plugins}]
    assert "scenarioSearchBudgets" not in document
    config = SchedulerConfig(budgets=SearchBudgets({"preempt": 1.5}, job=0.0))
    assert read(config_document(replace(ABOUT, config=config))).budgets == config.budgets


def test_a_cluster_without_claims_is_told_apart() -> None:
    everything = list(SOURCES)
    assert discovery_document(everything) is None
    lacking = [source for source in everything if not source.resource.group.startswith("resource.k8s.io")]
    document = discovery_document(lacking)
    assert document is not None
    versions = [entry["groupVersion"] for entry in document["resources"]]
    assert "v1" in versions
    assert not any(version.startswith("resource.k8s.io") for version in versions)


async def test_the_order_of_jobs() -> None:
    async with rig() as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("b"), pod("a"))
        await it.until(lambda: it.scheduler.last is not None and it.scheduler.last.plan.pending == 2)
        assert it.scheduler.last is not None
        chosen = policy(SchedulerConfig(), registry.make, registry.BUILT_IN)
        found = job_order(it.scheduler.last.snapshot, chosen, 0.0)
        entries = [{"id": "team/a", "priority": 50}, {"id": "team/b", "priority": 50}]
        assert sorted(found["global_order"], key=lambda entry: entry["id"]) == entries
        assert list(found["queue_order"]) == ["test"]


async def test_doors(api: RecordingApi, tmp_path: Path) -> None:
    orders: list[dict[str, object] | None] = [None, {"global_order": []}]
    app = debug_routes(lambda env: write_snapshot(api, SchedulerParams(), ABOUT), lambda: orders.pop(0))
    async with listening(app, 0) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        answer = await session.get("/get-snapshot")
        assert answer.headers["Content-Disposition"] == "attachment; filename=snapshot.zip"
        (tmp_path / "got.zip").write_bytes(await answer.read())
        assert len(snapshots.load(tmp_path / "got.zip").raw_objects.pods or ()) == 3
        early = await session.get("/get-job-order")
        assert (early.status, await early.text()) == (503, "Job order data not ready")
        assert await (await session.post("/get-job-order")).json() == {"global_order": []}
        unknown = await session.get("/else")
        assert (unknown.status, await unknown.text()) == (404, "plugin not found")


async def test_a_door_without_its_plugin_is_not_there() -> None:
    async with listening(debug_routes(None, None), 0) as port, aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{port}/get-snapshot")
        assert (answer.status, await answer.text()) == (404, "plugin not found")
