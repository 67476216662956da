"""The table of the nodes is the same one for as long as the nodes say the same."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.cache.cluster import Change, ClusterCache
from pykai.model.params import SchedulerParams
from pykai.model.snapshot import NodeTable
from tests import builders
from tests.builders import decoded


def node(*, seen: str = "00:00", ready: str = "True", offered: Any = None, labels: Any = None, spec: Any = None) -> Any:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": f"2026-01-01T{seen}:00Z"}
    made = builders.node("n1", 4, labels or {"rack": "a"}, offered, conditions=[condition], **(spec or {}))
    made["metadata"]["annotations"] = {"seen": seen}
    return decoded(made)


def device_slice() -> Any:
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "devices": [{"name": "gpu-0"}]}
    return decoded({"kind": "ResourceSlice", "metadata": {"name": "s1"}, "spec": spec})


def tables(*states: Any) -> list[NodeTable]:
    """The table after each change."""
    cache, found = ClusterCache(SchedulerParams()), []
    for state in states:
        cache.apply(Change(state))
        found.append(cache.snapshot(0.0).nodes)
    return found


def test_a_heartbeat_makes_no_new_table() -> None:
    first, second = tables(node(), node(seen="00:05"))
    assert second is first


@pytest.mark.parametrize(
    "changed",
    [
        node(ready="False"),
        node(offered={"cpu": "4"}),
        node(labels={"rack": "b"}),
        node(spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        node(spec={"unschedulable": True}),
        device_slice(),
    ],
    ids=["condition", "amount", "label", "taint", "cordon", "devices of a driver"],
)
def test_a_node_that_says_something_else_does(changed: Any) -> None:
    first, second, third = tables(node(), changed, changed)
    assert second is not first
    assert third is second


def test_what_was_derived_from_a_table_stays_with_it() -> None:
    asked = []

    def values(nodes: NodeTable, key: str) -> list[str | None]:
        asked.append(key)
        return [labels.get(key) for labels in nodes.labels]

    for table in tables(node(), node(seen="00:05")):
        assert table.derived(values, "rack") == ["a"]
        assert table.derived(values, "zone") == [None]
    assert asked == ["rack", "zone"]


UNREADY = "node is not ready for fractional GPU scheduling. Condition {} is {}. Reason: {}. Message: {}"
NEW, OLD = "gpu-fractioning.nvidia.com/Ready", "gpu-sharing.nvidia.com/Ready"


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([], UNREADY.format(NEW, "Unknown", "ConditionNotFound", "")),
        ([{"type": NEW, "status": "True"}], ""),
        ([{"type": OLD, "status": "True"}], ""),
        ([{"type": NEW, "status": "False"}, {"type": OLD, "status": "True"}], ""),
        ([{"type": NEW, "status": "False", "reason": "R", "message": "m"}], UNREADY.format(NEW, "False", "R", "m")),
        ([{"type": OLD, "status": "Unknown"}], UNREADY.format(OLD, "Unknown", "", "")),
    ],
)
def test_whether_a_node_takes_shares_in_the_mode_nvfractions(conditions: list[dict[str, str]], reason: str) -> None:
    made = builders.node("n", 1)
    made["status"]["conditions"] = conditions
    for mode in (False, True):
        cache = ClusterCache(SchedulerParams(nvfractions=mode))
        cache.load([builders.decoded(made)])
        assert list(cache.snapshot(1e9).nodes.fractions) == ([reason] if mode and reason else [])
