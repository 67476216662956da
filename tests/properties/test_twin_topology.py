"""With topologies, too, the engine decides what its twin decides, and says the same about gangs that find no domain."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.engine.decide import decide
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from tests.properties.small_world import NOW, Cluster, Fields
from tests.properties.test_twin import CONTESTS, decided, examples, policy_of
from tests.properties.twin.decide import after_cycle
from tests.properties.twin.decide import decide as decide_slowly
from tests.properties.twin.sites import ALIASES, crowded_sites, sites, sites_of_lookalikes, snapshot_with_topologies

ACTIONS = (("allocate",), ("allocate", "consolidation"), ("allocate", "preempt"))
ABOUT_TOPOLOGY = ("topology ", "node-group", "Requested topology", "no topology constraints")


def snapshot_of(cluster: Cluster) -> Snapshot:
    """Every gang has its search: what failed for others says nothing."""
    snapshot = snapshot_with_topologies(cluster)
    return replace(snapshot, params=replace(snapshot.params, use_signatures=False))


def said(plan: Plan) -> dict[str, set[str]]:
    """What gangs that wait are told about topologies."""
    texts = {v.gang[1]: {r.message for r in v.reasons if r.message.startswith(ABOUT_TOPOLOGY)} for v in plan.verdicts}
    return {gang: about for gang, about in texts.items() if about}


@given(sites(), st.sampled_from(ACTIONS))
@examples(1.0)
def test_the_twin_chooses_the_same_domains(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions)


@given(crowded_sites(), st.sampled_from(CONTESTS))
@examples(0.5)
def test_the_twin_takes_domains_from_the_same(cluster: Cluster, actions: tuple[str, ...]) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(actions)
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions)


@given(sites_of_lookalikes())
@examples(1.0)
def test_the_twin_has_the_same_reasons(cluster: Cluster) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(("allocate",))
    assert decided(snapshot, policy) == decide_slowly(snapshot, policy.actions)
    plan, world = decide(snapshot, policy, NOW), after_cycle(snapshot, policy.actions)
    waiting = {verdict.gang[1] for verdict in plan.verdicts}
    told = {world.gangs.names[gang]: about for gang, about in world.notes.items() if about}
    assert said(plan) == {gang: about for gang, about in told.items() if gang in waiting}


@given(sites())
@settings(max_examples=50)
def test_a_level_may_be_called_by_its_alias(cluster: Cluster) -> None:
    snapshot, policy = snapshot_of(cluster), policy_of(("allocate",))
    plan = decide(snapshot, policy, NOW)
    for group in cluster.groups:
        for part in (group["spec"], *group["spec"].get("subGroups", ())):
            _call_by_alias(part.get("topologyConstraint", {}))
    assert decide(snapshot_of(cluster), policy, NOW) == plan


def _call_by_alias(wish: Fields) -> None:
    for level in ("requiredTopologyLevel", "preferredTopologyLevel"):
        if level in wish:
            wish[level] = ALIASES.get((wish["topology"], wish[level]), wish[level])
