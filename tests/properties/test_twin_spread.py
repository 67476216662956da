"""With topology spread and preferences about nodes, too, the engine decides what its twin decides."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import PodScore
from pykai.engine.policy import Policy
from pykai.plugins.registry import make
from tests.properties.contended import contended, lookalikes, rivals, scattered
from tests.properties.small_world import Cluster, Fields
from tests.properties.test_twin import CONTESTS, EVERYTHING, decided, examples, snapshot_of
from tests.properties.test_twin_neighbours import FRIENDLY
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.neighbours import PREFERRED
from tests.properties.twin.spread import EvenSpread
from tests.properties.twin.towns import KIND, pods_of
from tests.properties.twin.world import World

POLICIES = ("Honor", "Ignore")


@st.composite
def constraints(draw: st.DrawFn) -> Fields:
    found: Fields = {
        "topologyKey": draw(st.sampled_from(["host", "host", "rack", "rack", "none"])),
        "maxSkew": draw(st.sampled_from([1, 1, 2])),
        "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"])),
        "labelSelector": {"matchLabels": {KIND: draw(st.sampled_from("ab"))}},
    }
    if draw(st.integers(0, 3)) == 0:
        found["matchLabelKeys"] = [draw(st.sampled_from(["version", "missing"]))]
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw(st.booleans()):
            found[policy] = draw(st.sampled_from(POLICIES))
    if found["whenUnsatisfiable"] == "DoNotSchedule" and draw(st.integers(0, 2)) == 0:
        found["minDomains"] = draw(st.integers(1, 3))
    return found


@st.composite
def wishes(draw: st.DrawFn) -> Fields:
    expression = {"key": "rack", "operator": "In", "values": [draw(st.sampled_from("xy"))]}
    return {"weight": draw(st.integers(1, 3)), "preference": {"matchExpressions": [expression]}}


@st.composite
def plains(draw: st.DrawFn, clusters: st.SearchStrategy[Cluster]) -> Cluster:
    """Hosts in racks, few in none, some discouraged; the pods of a gang are of one kind and spread, or some of them."""
    found = draw(clusters)
    for node in found.nodes:
        node["metadata"]["labels"].update(host=node["metadata"]["name"])
        if draw(st.integers(0, 5)):
            node["metadata"]["labels"].update(rack=draw(st.sampled_from("xy")))
        keys = draw(st.lists(st.sampled_from("uv"), max_size=2, unique=True)) if draw(st.integers(0, 3)) == 0 else []
        taints = [{"key": key, "effect": "PreferNoSchedule"} for key in keys]
        if taints:
            node["spec"]["taints"] = [*(node["spec"].get("taints") or []), *taints]
    for group in found.groups:
        kind, alike = draw(st.sampled_from("ab")), draw(st.integers(0, 3))
        rules = draw(
            st.lists(constraints(), max_size=2, unique_by=lambda c: (c["topologyKey"], c["whenUnsatisfiable"]))
        )
        preferred = draw(st.lists(wishes(), max_size=2)) if draw(st.integers(0, 2)) == 0 else []
        for pod in pods_of(found, group):
            pod["metadata"]["labels"].update({KIND: kind, "version": draw(st.sampled_from("12"))})
            if alike or draw(st.booleans()):
                pod["spec"]["topologySpreadConstraints"] = rules
                if preferred:
                    affinity = pod["spec"].get("affinity") or {}
                    near = {**affinity.get("nodeAffinity", {}), PREFERRED: preferred}
                    pod["spec"]["affinity"] = {**affinity, "nodeAffinity": near}
    return found


def compare(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), replace(FRIENDLY, actions=actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions, [EvenSpread(cluster)])


@given(plains(contended(7)))
@examples(0.5)
def test_the_twin_scores_nodes_alike(cluster: Cluster) -> None:
    snapshot, slow = snapshot_of(cluster), EvenSpread(cluster)
    plugins = make("preferences")
    cycle, world = Cycle(snapshot, Policy(plugins), now=0.0), World(snapshot)
    for pod, c in enumerate(map(snapshot.pods.of_class, range(len(snapshot.pods.objects)))):
        found = cycle.node_facts.steady_scores(c).column(True, False)
        for plugin in cycle.policy.of(PodScore):
            if plugin.concerns(cycle, c) and (score := plugin.pod_score(cycle, pod)) is not None:
                found = found + score
        assert found.tolist() == [slow.score(world, pod, node) for node in range(len(snapshot.nodes))]


@given(plains(st.one_of(contended(7), lookalikes())))
@examples(0.5)
def test_the_twin_spreads_pods_alike(cluster: Cluster) -> None:
    compare(cluster, ("allocate",))


@given(plains(rivals()), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_takes_places_that_keep_pods_spread(cluster: Cluster, actions: tuple[str, ...]) -> None:
    compare(cluster, actions)


@given(plains(st.one_of(contended(7), scattered())))
@examples(0.5)
def test_the_twin_moves_pods_that_stay_spread(cluster: Cluster) -> None:
    compare(cluster, EVERYTHING)
