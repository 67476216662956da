"""Remedies on random clusters: what is stated gives the gang a place in the next cycle, and one unit less does not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.cache.cluster import Change, ClusterCache
from pykai.engine.decide import decide
from pykai.explain.changes import AddNodes, ClusterChange
from pykai.explain.remedies import families, remedies
from pykai.explain.source import Decided, decided
from pykai.explain.why import STARTS, VICTIMS, explain
from pykai.model.params import SchedulerParams
from pykai.model.plan import Key
from pykai.verify.judge import verify
from tests.properties.contended import contended
from tests.properties.small_world import NOW, PACKING, Cluster


def state_of(cluster: Cluster) -> Decided:
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(cluster.objects())
    return decided(cache, PACKING, NOW)


def has_place(state: Decided, gang: Key, edits: list[ClusterChange]) -> bool:
    """Whether a cluster that is built anew with the edits gives the gang a place; the judge agrees with the plan."""
    cache = ClusterCache(SchedulerParams(partitioned=False))
    for kind, store in state.cache._stores.items():
        for obj in list(store.by_key.values()):
            assert isinstance(obj, kind)
            cache.apply(Change(obj))
    for edit in edits:
        for change in edit.of(state):
            cache.apply(change)
    snapshot = cache.snapshot(NOW)
    plan = decide(snapshot, state.policy, NOW)
    assert [str(fault) for fault in verify(snapshot, plan)] == []
    return all(verdict.gang != gang or verdict.has_place for verdict in plan.verdicts)


@settings(max_examples=8)
@given(contended(6))
def test_a_remedy_starts_the_gang_and_one_unit_less_does_not(cluster: Cluster) -> None:
    """Of the first workload in the order of service, and of the last, which others go before."""
    state = state_of(cluster)
    waiting = [key for key in state.order if key in state.waiting and not state.waiting[key].has_place]
    for gang in dict.fromkeys([*waiting[:1], *waiting[-1:]]):
        known = families(state, gang)
        for remedy in remedies(state, gang):
            size = int(remedy.amount)
            family = next(each for each in known if each.kind == remedy.kind and each.text(size) == remedy.text)
            assert has_place(state, gang, list(family.edits(size))), remedy
            assert size == 1 or not has_place(state, gang, list(family.edits(size - 1))), remedy


@settings(max_examples=12)
@given(contended(6), st.integers(1, 4))
def test_where_nobody_is_evicted_others_that_wait_only_take_away(cluster: Cluster, gpus: int) -> None:
    """What a search for remedies rules out by giving a gang the only turn is no remedy with a turn for all."""
    state = state_of(cluster)
    for gang in () if state.plan.evictions else state.waiting:
        alone = state.again(AddNodes(1, gpus=gpus).of(state), gang)
        assert {each.gang for each in alone.plan.verdicts} <= {gang}
        started = explain(alone.for_all(), gang).state in (STARTS, VICTIMS)
        assert not started or explain(alone, gang).state in (STARTS, VICTIMS)


@settings(max_examples=8)
@given(contended(8))
def test_every_gang_that_waits_has_a_dominant_reason(cluster: Cluster) -> None:
    for verdict in state_of(cluster).plan.verdicts:
        assert verdict.dominant is not None
        assert verdict.dominant.token != "Unschedulable", verdict
        assert verdict.not_ready or [each.action for each in verdict.actions][:1] == ["allocate"]
