from __future__ import annotations

import numpy as np
import pytest

from pykai.cache.cluster import ClusterCache
from pykai.engine.plugin_api import GangOrder, MemberOrder, PodOrder
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.objects.kinds import (
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    PriorityClass,
    SubGroup,
)
from pykai.plugins.ordering import (
    ABOVE,
    BELOW,
    EXACT,
    Elastic,
    Kubeflow,
    Priority,
    Ray,
    SubGroupOrder,
    TaskPriority,
    standing,
)
from pykai.plugins.registry import make
from tests.unit.engine.clusters import gang, node, pod, seen


def running(name: str, group: str, podset: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            annotations={names.POD_GROUP_ANNOTATION: group},
            labels={names.SUBGROUP_LABEL: podset} if podset else None,
        ),
        spec=PodSpec(scheduler_name=names.SCHEDULER_NAME),
        status=PodStatus(phase="Running"),
    )


@pytest.fixture
def trial() -> Trial:
    cache = ClusterCache(SchedulerParams())
    members = [SubGroup(name="a", min_member=1), SubGroup(name="b", min_member=1)]
    groups = {
        "plain": PodGroupSpec(min_member=2, priority_class_name="high"),
        "tree": PodGroupSpec(sub_groups=members),
        "rich": PodGroupSpec(min_member=2),
        "poor": PodGroupSpec(min_member=2),
    }
    cache.load(PodGroup(metadata=ObjectMeta(name=name), spec=spec) for name, spec in groups.items())
    cache.load([PriorityClass(metadata=ObjectMeta(name="high"), value=125)])
    cache.load([running("p0", "plain"), running("p1", "plain")])
    cache.load([running("t0", "tree", "a"), running("t1", "tree", "a")])
    cache.load([running("r0", "rich"), running("r1", "rich"), running("r2", "rich"), running("q0", "poor")])
    return Trial(cache.snapshot(now=0.0))


def test_gangs_by_priority(trial: Trial) -> None:
    assert [Priority().gang_key(trial, gang) for gang in (0, 1)] == [-125, -50]


def test_gangs_by_what_they_miss(trial: Trial) -> None:
    """Two of two; two in one podset and none in the other; three of two; one of two."""
    assert [Elastic().gang_key(trial, gang) for gang in range(4)] == [EXACT, BELOW, ABOVE, BELOW]


@pytest.mark.parametrize("mode", [{}, {"mode": "prefer-larger"}])
def test_gangs_by_gpus_among_equal_priority(mode: dict[str, str]) -> None:
    sizes = {"small": 1, "big": 4, "older": 2}
    groups = [*(gang(name, "low") for name in sizes), gang("high")]
    pods = [pod(f"{name}-0", gpus=gpus) for name, gpus in {**sizes, "high": 1}.items()]
    snapshot = seen(node("n", 8), *groups, *pods)

    def ordered(mode: dict[str, str]) -> list[str]:
        (plugin,) = make("gpujoborder", mode)
        trial = Trial(snapshot)
        table = snapshot.gangs
        keys = plugin.gang_column(trial, np.arange(len(table)))  # type: ignore[attr-defined]
        assert [plugin.gang_key(trial, row) for row in range(len(table))] == keys.tolist()  # type: ignore[attr-defined]
        return [table.names[row] for row in np.argsort(keys)]

    assert ordered(mode) == ["high", "big", "older", "small"]
    assert ordered({"mode": "prefer-smaller"}) == ["high", "small", "older", "big"]
    with pytest.raises(ValueError, match=r"arguments.mode: 'largest' is not one of prefer-larger, prefer-smaller"):
        make("gpujoborder", {"mode": "largest"})


@pytest.mark.parametrize(
    ("surpluses", "expected"),
    [([], EXACT), ([0, 0], EXACT), ([0, 1], ABOVE), ([1, -1], BELOW), ([-1], BELOW), ([2], ABOVE)],
)
def test_standing(surpluses: list[int], expected: int) -> None:
    assert standing(surpluses) == expected
    assert BELOW < EXACT < ABOVE


POD_ORDERS = [
    (Kubeflow(), names.KUBEFLOW_ROLE_LABEL, [["launcher", "master"], ["worker", None]]),
    (Ray(), names.RAY_NODE_TYPE_LABEL, [["head"], ["worker", None]]),
    (TaskPriority(), names.TASK_PRIORITY_LABEL, [["10"], ["2"], ["-3"], ["soon", "1_0", ""], [None]]),
]


@pytest.mark.parametrize(("plugin", "label", "levels"), POD_ORDERS, ids=[type(p).__name__ for p, *_ in POD_ORDERS])
def test_pod_orders(plugin: PodOrder, label: str, levels: list[list[str | None]]) -> None:
    """Values of one level tie, levels come in the order given."""
    assert plugin.pod_label == label
    keys = [{plugin.pod_key(text) for text in level} for level in levels]
    assert all(len(level) == 1 for level in keys)
    flat = [key for level in keys for key in level]
    assert flat == sorted(flat)
    assert len(set(flat)) == len(levels)


def test_sub_groups_by_how_well_they_are_served() -> None:
    key = SubGroupOrder().member_key
    assert key(0, 3) == key(2, 4)
    ordered = [key(2, 3), key(3, 3), key(4, 3), key(8, 4), key(0, 0), key(1, 0)]
    assert ordered == sorted(set(ordered))
    assert key(2, 1) == key(8, 4)


def test_plugins_are_recognised_by_their_points() -> None:
    assert all(isinstance(plugin, GangOrder) for plugin in (Priority(), Elastic()))
    assert isinstance(SubGroupOrder(), MemberOrder)
