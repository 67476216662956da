"""With MIG instances, too, the engine decides what its twin decides, and has the same nodes for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.cycle import Cycle
from tests.properties.small_world import NOW, OURS, PACKING, Cluster
from tests.properties.test_twin import ACTIONS, MOVES, decided, examples, policy_of, snapshot_of
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.partitions import is_legacy, partitioned, suits


@given(partitioned(), st.sampled_from([*ACTIONS, *MOVES]))
@examples(0.7)
def test_the_twin_gives_out_the_same_instances(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions)


@given(partitioned())
@examples(0.5)
def test_the_twin_has_the_same_nodes_for_instances(cluster: Cluster) -> None:
    cycle = Cycle(cluster.snapshot(), PACKING, NOW)
    pods, nodes = cycle.snapshot.pods, cycle.snapshot.nodes
    legacy = {pod["spec"].get("nodeName") for pod in cluster.pods if is_legacy(pod)}
    for pod in cluster.pods:
        if pod["metadata"]["namespace"] == OURS:
            allowed = cycle.node_facts.allowed(pods.of_class(pods.names.index(pod["metadata"]["name"])))
            for node in cluster.nodes:
                name = node["metadata"]["name"]
                assert bool(allowed[nodes.rows[name]]) == suits(node, pod, name in legacy)
