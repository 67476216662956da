"""With pods of other schedulers that are nominated to nodes, too, the engine decides what its twin decides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykai.model.status import Status
from tests import builders
from tests.properties.contended import contended, lookalikes, rivals, scattered
from tests.properties.small_world import Cluster
from tests.properties.test_twin import CONTESTS, EVERYTHING, decided, examples, policy_of, snapshot_of
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.places import fits
from tests.properties.twin.rules import Rule
from tests.properties.twin.world import World


class Nominated(Rule):
    """What a waiting pod of another scheduler asks for on its nominated node is not for pods of its priority or a lower
    one."""

    def closed(self, world: World, pod: int, node: int) -> bool:
        pods, gangs = world.snapshot.pods, world.snapshot.gangs
        left = [world.nodes[node].free(resource) for resource in range(len(world.nodes[node].idle))]
        kept = False
        for row, other in enumerate(pods.objects):
            if other.spec.scheduler_name == world.snapshot.params.scheduler_name or pods.status[row] != Status.PENDING:
                continue
            if other.status.nominated_node_name != world.snapshot.nodes.names[node]:
                continue
            if (other.spec.priority or 0) >= gangs.priority[world.gang[pod]]:
                kept = True
                left = [have - ask for have, ask in zip(left, pods.of_class(row).request, strict=True)]
        return kept and not fits(world, pod, node, left)


@st.composite
def visited(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """One to three waiting pods of another scheduler, most of them nominated to a node."""
    found = draw(clusters)
    names = [node["metadata"]["name"] for node in found.nodes]
    for number in range(draw(st.integers(1, 3))):
        amounts = {"gpu": draw(st.sampled_from(["0", "1", "2"])), "cpu": draw(st.sampled_from(["1", "4"]))}
        spec = {"schedulerName": "default-scheduler", "priority": draw(st.sampled_from([0, 50, 1000]))}
        pod = builders.pod(f"visitor-{number}", "", "", amounts, spec)
        nominated = draw(st.sampled_from([*names, *names, "", "gone"]))
        found.pods.append({**pod, "status": {"phase": "Pending", "nominatedNodeName": nominated}})
    return found


def compare(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions, [Nominated()])


@given(visited(st.one_of(contended(7), lookalikes())))
@examples(0.5)
def test_the_twin_leaves_the_same_room(cluster: Cluster) -> None:
    compare(cluster, ("allocate",))


@given(visited(rivals()), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_takes_the_same_room(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(visited(st.one_of(contended(7), scattered())))
@examples(0.5)
def test_the_twin_moves_to_the_same_room(cluster: Cluster) -> None:
    compare(cluster, EVERYTHING)
