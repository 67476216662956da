"""A snapshot is frozen: a walk through all of its fields finds nothing that can be written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from dataclasses import FrozenInstanceError, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

from pykai.cache.cluster import Change, ClusterCache
from pykai.model.params import SchedulerParams
from pykai.model.resources import GPU, ResourceSpace
from pykai.model.snapshot import Snapshot
from tests.builders import NOW, bind_request, decoded, node, pod, pod_group, queue, snapshot

VALUES = (str, bytes, int, float, bool, type(None), Enum, np.generic)
SUB_GROUPS = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
STALE = {"kai.scheduler/stale-podgroup-timestamp": "2026-01-01T00:00:00Z"}


def writeable(value: Any, path: str) -> Iterator[str]:  # noqa: C901 - one branch per kind of container
    """Paths to what can be written to. Kubernetes objects are values: frozen structs, not walked further."""
    if isinstance(value, np.ndarray):
        yield from [path] if value.flags.writeable else []
    elif isinstance(value, memoryview):
        yield from [] if value.readonly else [path]
    elif isinstance(value, Struct):
        yield from [] if type(value).__struct_config__.frozen else [path]
    elif is_dataclass(value):
        for name in _read_of(value):
            yield from writeable(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, MutableMapping | MutableSequence | MutableSet):
        yield path
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from writeable(each, f"{path}[{key!r}]")
    elif isinstance(value, tuple | frozenset):
        for at, each in enumerate(value):
            yield from writeable(each, f"{path}[{at}]")
    elif not isinstance(value, VALUES):
        yield f"{path} is a {type(value).__name__}"


def _read_of(table: Any) -> Iterator[str]:
    """The fields of a table, without what it keeps for itself and what finds rows by name."""
    yield from (each.name for each in fields(table) if each.name != "lookup" and not each.name.startswith("_"))


def columns(table: Any) -> Iterator[str]:
    """Arrays that a table derives when they are first asked for."""
    for name, each in vars(type(table)).items():
        if isinstance(each, cached_property):
            yield from writeable(getattr(table, name), name)


def objects(waiting: int) -> list[Any]:
    """A little of everything: a shared device, a tree, a stray pod, a resource that no node has, a taint."""
    sharing = {"annotations": {"gpu-fraction": "0.5"}, "labels": {"runai-gpu-group": "g"}}
    return [
        node("m", 8, {"rack": "r"}),
        node("n", 8, {"rack": "r"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        queue("d"),
        queue("q", "d", preemptMinRuntime="5m"),
        queue("orphan", "nobody"),
        pod_group("g"),
        pod_group("old", metadata={"annotations": STALE}),
        pod_group("tree", subGroups=SUB_GROUPS, preemptionDelay="5m"),
        pod("a", "tree", labels={"kai.scheduler/subgroup-name": "a"}, requests={"example.com/nic": 1}),
        pod("stray", "tree", labels={"kai.scheduler/subgroup-name": "?"}),
        pod("shares", "old", "n", **sharing),
        pod("binds", "g", requests={"gpu": 1}),
        bind_request("binds", "n"),
        *(pod(f"p{number}", "g", "n", requests={"gpu": 1}, spec={"overhead": {"cpu": "1"}}) for number in range(99)),
        *(pod(f"w{number}", "g", requests={"gpu": 1}) for number in range(waiting)),
    ]


@pytest.fixture(params=[1, 50], ids=["few wait", "many wait"])
def found(request: pytest.FixtureRequest) -> Snapshot:
    """Columns are read one way where many pods wait, and another way where few do."""
    return snapshot(objects(request.param))


def test_nothing_in_a_snapshot_can_be_written_to(found: Snapshot) -> None:
    assert found.gangs.trees
    assert found.gangs.stray_pods
    assert found.pods.gpu_groups
    assert list(writeable(found, "snapshot")) == []


def test_nor_what_a_table_derives_as_columns(found: Snapshot) -> None:
    assert list(columns(found.gangs.columns)) == []


def test_a_snapshot_stays_as_it_was_when_events_follow() -> None:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load([decoded(item) for item in objects(1)])
    cache.apply(Change(decoded(pod("first", "g"))))
    before = cache.snapshot(NOW)
    copies = {name: getattr(before.pods, name).copy() for name in ("klass", "gang", "podset", "status", "node")}
    names = [each.metadata.name for each in before.pods.objects]
    cache.apply(Change(decoded(pod("p0", "g", "n")), gone=True))
    cache.apply(Change(decoded(pod("later", "g", "n", requests={"cpu": 1}))))
    assert len(cache.snapshot(NOW).pods) == len(before.pods)
    assert [each.metadata.name for each in before.pods.objects] == names
    assert all(np.array_equal(getattr(before.pods, name), copy) for name, copy in copies.items())


def test_writing_is_refused(found: Snapshot) -> None:
    with pytest.raises(ValueError, match="read-only"):
        found.pods.status[0] = 1
    with pytest.raises(TypeError):
        found.nodes.rows["m"] = 1  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        found.revision = 2  # type: ignore[misc]


def test_a_space_with_more_names_is_another_one() -> None:
    space = ResourceSpace()
    wider = space.with_names(["amd.com/gpu", "example.com/nic", "cpu", "example.com/nic"])
    assert (space.size, wider.size) == (4, 5)
    assert (wider.rows["amd.com/gpu"], wider.rows["example.com/nic"]) == (GPU, 4)
    assert wider.with_names(["example.com/nic"]) is wider
