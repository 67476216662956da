"""The state of a live cluster: listed with the caller's rights, decided as a snapshot of it is, and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykai.explain.live_cluster import UnreadableError, live, setting_of
from pykai.explain.source import from_file
from pykai.explain.why import explain
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import CONFIG, NAMESPACE, NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE, SHARD
from pykai.kube.errors import Forbidden
from pykai.kube.memory import MemoryApi
from pykai.objects import crds
from pykai.plugins import registry
from pykai.scheduler.debug_server import SnapshotContext, write_snapshot
from tests import builders
from tests.builders import NOW

OBJECTS = (
    (NODE, builders.node("n0", 4)),
    (QUEUE, builders.queue("a")),
    (PRIORITY_CLASS, builders.priority_class("train", 50)),
    (POD_GROUP, builders.pod_group("run", "a")),
    (POD_GROUP, builders.pod_group("late", "a")),
    (POD, builders.pod("run", "run", "n0", {"gpu": 4})),
    (POD, builders.pod("late", "late", "", {"gpu": 1})),
)


class ReadOnly(MemoryApi):
    """An API server that refuses to list some kinds, and fails at every write once it is `closed`."""

    forbidden: tuple[str, ...] = ()
    closed = False

    async def list(self, resource: Any, *more: Any, **named: Any) -> Any:
        """See `Api.list`."""
        if resource.plural in self.forbidden:
            raise Forbidden(f"you may not list {resource.plural}")
        return await super().list(resource, *more, **named)

    async def create(self, *arguments: Any, **named: Any) -> Object:
        """See `Api.create`."""
        assert not self.closed, f"a write: {arguments}"
        return await super().create(*arguments, **named)


async def filled() -> ReadOnly:
    api = ReadOnly(lambda: NOW, crds.manifests())
    await api.create(NAMESPACE, {"metadata": {"name": "ns"}})
    for resource, obj in OBJECTS:
        await api.create(resource, obj)
    status = {"metadata": {"name": "n0"}, "status": builders.node("n0", 4)["status"]}
    await api.patch(NODE.ref("n0").sub("status"), Patch.merge({"status": status["status"]}))
    await api.patch(POD.ref("run", "ns").sub("status"), Patch.merge({"status": {"phase": "Running"}}))
    api.closed = True
    return api


async def test_live_and_snapshot_answers_agree(tmp_path: Path) -> None:
    api = await filled()
    state = await live(api, now=NOW)
    setting = await setting_of(api, "default")
    file = tmp_path / "snapshot.zip"
    with await write_snapshot(api, setting.params, SnapshotContext(setting.config, registry.BUILT_IN)) as taken:
        file.write_bytes(taken.read())
    again = from_file(file, NOW)
    for name in ("run", "late"):
        assert explain(state, ("ns", name)) == explain(again, ("ns", name))
    late = explain(state, ("ns", "late"))
    assert late.reason is not None
    assert late.reason.token == "InsufficientResources"
    assert [pod["metadata"]["name"] for pod in state.objects()["pods"]] == ["late", "run"]


async def test_the_sharing_mode_is_that_of_the_config(tmp_path: Path) -> None:
    api = await filled()
    assert (await live(api, now=NOW)).gpu_sharing_mode == ""
    api.closed = False
    await api.create(CONFIG, {"metadata": {"name": "kai-config"}, "spec": {"admission": {"gpuSharing": True}}})
    setting = await setting_of(api, "default")
    assert (await live(api, now=NOW)).gpu_sharing_mode == setting.gpu_sharing_mode == "NonMemoryEnforced"
    context = SnapshotContext(setting.config, registry.BUILT_IN, gpu_sharing_mode=setting.gpu_sharing_mode)
    with await write_snapshot(api, setting.params, context) as taken:
        (tmp_path / "snapshot.zip").write_bytes(taken.read())
    assert from_file(tmp_path / "snapshot.zip", NOW).gpu_sharing_mode == "NonMemoryEnforced"


async def test_what_may_not_be_read_is_told() -> None:
    api = await filled()
    api.forbidden = ("configmaps", "schedulingshards")
    state = await live(api, now=NOW)
    assert [note for note in state.notes if "SchedulingShards: you may not read them" in note]
    assert [note for note in state.notes if "configmaps" in note]
    api.forbidden = ("pods",)
    with pytest.raises(UnreadableError, match="pods"):
        await live(api, now=NOW)


async def test_the_setting_is_that_of_the_shard() -> None:
    api = await filled()
    api.closed = False
    await api.create(CONFIG, {"metadata": {"name": "kai-config"}, "spec": {}})
    args = {"max-consolidation-preemptees": "3", "full-hierarchy-fairness": "false"}
    spec = {"partitionLabelValue": "blue", "args": args, "placementStrategy": {"gpu": "spread"}}
    await api.create(SHARD, {"metadata": {"name": "blue"}, "spec": spec})
    found = await setting_of(api, "blue")
    assert found.gpu_sharing_mode == "Disabled"
    assert found.params.node_pool == "blue"
    assert found.params.max_consolidation_victims == 3
    assert found.params.full_hierarchy_fairness is False
    assert "consolidation" not in found.config.actions
    with pytest.raises(UnreadableError, match="no SchedulingShard default, but blue"):
        await setting_of(api, "default")
