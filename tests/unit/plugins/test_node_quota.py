from __future__ import annotations

import pytest

from pykai.objects import kinds, names
from pykai.plugins.node_filters import NodeQuota
from pykai.plugins.proportion import Proportion
from tests import builders
from tests.builders import as_kind
from tests.unit.plugins.small_clusters import cycle, node, placed, pod, reason, row

GPU = {names.NVIDIA_GPU: "1"}
NODES = [
    node("large", {names.GPU_MEMORY_LABEL: "8000"}, GPU),
    node("small", {names.GPU_MEMORY_LABEL: "4000"}, GPU),
]


def queue(limit: float) -> kinds.Queue:
    return as_kind(kinds.Queue, builders.queue(gpu={"quota": 0, "limit": limit}))


@pytest.mark.parametrize(
    ("limit", "nodes", "where"), [(0.5, NODES, "large"), (0.5, NODES[1:], ""), (1, NODES[1:], "small")]
)
def test_gpu_memory_counts_as_the_part_of_the_device_it_is_there(
    limit: float, nodes: list[kinds.Node], where: str
) -> None:
    memory = pod("p", annotations={names.GPU_MEMORY: "4000"})
    other = node("other", {names.GPU_MEMORY_LABEL: "40000"})
    made = cycle([*nodes, other, queue(limit), memory], [Proportion(), NodeQuota()])
    assert placed(made) == {"p": where}
    if not where:
        assert "1 node does not have enough capacity. Reason: OverLimit, Details: q quota" in reason(made, "p")


def test_without_quota_policy_there_are_no_limits() -> None:
    made = cycle([NODES[1], queue(0.1), pod("p", annotations={names.GPU_MEMORY: "4000"})], [NodeQuota()])
    assert placed(made) == {"p": "small"}


@pytest.mark.parametrize(("limit", "preemptible", "bounded"), [(-1, True, False), (-1, False, True), (1, True, True)])
def test_only_pods_that_a_bound_may_stop_are_looked_at_node_by_node(
    limit: float, preemptible: bool, bounded: bool
) -> None:
    kind = "preemptible" if preemptible else "non-preemptible"
    memory = builders.decoded(builders.pod("p", "p", "", {"cpu": "1"}, annotations={names.GPU_MEMORY: "4000"}))
    group = builders.decoded(builders.pod_group("p", preemptibility=kind))
    made = cycle([*NODES, queue(limit), [memory, group]], [Proportion(), NodeQuota()])
    rules = made.rules(made.trial.of_class(row(made, "p")))
    assert bool(rules.resources.filtering) is bounded
