"""Random clusters through the whole engine: plans that the judge finds nothing wrong with, in any order of the input,
in every cycle until nothing happens any more.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from random import Random
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.plan import Plan
from pykai.model.resources import GPU
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.units import rfc3339
from pykai.verify.judge import verify
from tests.properties.clusters import ASKS, FREE, Ask, Lodging, clusters, pod_of
from tests.properties.small_world import (
    NOW,
    OURS,
    PACKING,
    POLICIES,
    STEP,
    Cluster,
    Fields,
    carried_out,
    running,
    snapshot_of,
)

CYCLES = 12
policies = st.sampled_from(sorted(POLICIES))


def judged(snapshot: Snapshot, policy: Policy, now: float = NOW) -> Plan:
    """The plan for a snapshot, which must be beyond reproach."""
    plan = decide(snapshot, policy, now)
    assert [str(violation) for violation in verify(snapshot, plan)] == []
    return plan


@given(clusters(), policies)
def test_the_judge_finds_nothing(cluster: Cluster, policy: str) -> None:
    judged(cluster.snapshot(), POLICIES[policy])


@given(clusters(), policies, st.randoms(use_true_random=False))
def test_the_judge_finds_the_same_where_it_looks_only_at_what_a_plan_touches(
    cluster: Cluster, policy: str, random: Random
) -> None:
    """Also in plans that are wrong: decisions sent to other nodes, evictions left out."""
    snapshot = cluster.snapshot()
    plan = decide(snapshot, POLICIES[policy], NOW)
    names = snapshot.nodes.names
    wrong = replace(
        plan,
        binds=tuple(structs.replace(bind, node=random.choice(names)) for bind in plan.binds),
        evictions=tuple(eviction for eviction in plan.evictions if random.random() < 0.7),
    )
    for each in (plan, wrong):
        assert verify(snapshot, each, everything=False) == verify(snapshot, each)


@given(clusters(), policies)
def test_a_cycle_is_gone_when_it_is_over(cluster: Cluster, policy: str) -> None:
    """Nothing in it refers back to what holds it: its memory is free at once, not when the collector comes by."""
    parts: list[weakref.ref[Any]] = []

    class Recorded(Cycle):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            parts.extend(map(weakref.ref, (self, self.trial, self.book, self.rankings, *self.resources.states)))

    gc.disable()
    try:
        snapshot = cluster.snapshot()
        parts += [weakref.ref(snapshot), weakref.ref(snapshot.gangs)]
        with mock.patch("pykai.engine.decide.Cycle", Recorded):
            decide(snapshot, POLICIES[policy], NOW)
        del snapshot
        assert len(parts) >= 6
        assert [part() for part in parts if part() is not None] == []
    finally:
        gc.enable()


def content(plan: Plan) -> tuple[Any, ...]:
    """A plan without what has no order: marks, and verdicts on gangs and their pods."""
    verdicts = sorted((v.gang, v.message, v.ready, sorted(v.pods.items())) for v in plan.verdicts)
    marks = sorted((mark.gang, mark.what, mark.at or 0.0) for mark in plan.timestamps)
    return plan.binds, plan.nominations, plan.evictions, verdicts, marks, plan.pending


@given(clusters(), policies, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(cluster: Cluster, policy: str, chance: Any) -> None:
    objects = cluster.objects()
    expected = content(decide(snapshot_of(objects), POLICIES[policy], NOW))
    chance.shuffle(objects)
    assert content(decide(snapshot_of(objects), POLICIES[policy], NOW)) == expected


def acts(plan: Plan) -> bool:
    return bool(plan.binds or plan.nominations or plan.evictions)


def rested(cluster: Cluster, policy: Policy, now: float, again: bool = True) -> tuple[Cluster, float]:
    """The cluster after cycle upon cycle was carried out until nothing happens any more, and when that was.

    Nothing arrives meanwhile, so it comes soon, and few pods are evicted for it.
    """
    evictions, pods = 0, len(cluster.pods)
    for _ in range(CYCLES):
        plan = judged(cluster.snapshot(now), policy, now)
        if not acts(plan):
            return cluster, now
        evictions += len(plan.evictions)
        assert evictions <= 2 * pods
        cluster, now = carried_out(cluster, plan, again), now + STEP
    raise AssertionError(f"still busy after {CYCLES} cycles: {plan}")


def gang_of(pod: Fields) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_ANNOTATION))


@given(clusters(), policies, st.booleans(), st.integers(0, 3))
def test_things_come_to_rest(cluster: Cluster, policy: str, again: bool, most: int) -> None:
    """Without some gangs that do not run yet, and after each of them has come."""
    run = {gang_of(pod) for pod in cluster.pods if pod["spec"].get("nodeName")}
    late = {group["metadata"]["name"]: group for group in cluster.groups if group["metadata"]["name"] not in run}
    late = dict(list(late.items())[:most])
    pods = {name: [pod for pod in cluster.pods if gang_of(pod) == name] for name in late}
    early = [group for group in cluster.groups if group["metadata"]["name"] not in late]
    first = replace(cluster, groups=early, pods=[pod for pod in cluster.pods if gang_of(pod) not in late])
    at, now = rested(first, POLICIES[policy], NOW, again)
    for name, group in late.items():
        came = {**group, "metadata": {**group["metadata"], "creationTimestamp": rfc3339(now)}}
        arrived = replace(at, groups=[*at.groups, came], pods=[*at.pods, *pods[name]])
        at, now = rested(arrived, POLICIES[policy], now, again)


@st.composite
def crowds(draw: st.DrawFn) -> Cluster:
    """Every node is used in part, by pods of all sizes; some wait for a whole one, which others would have to leave."""
    found = Cluster(queues=[_queue("d", "", FREE), _queue("q", "d", FREE)])
    for number in range(draw(st.integers(3, 6))):
        offer = {"cpu": "100", "memory": "100Gi", "pods": draw(st.sampled_from(["3", "6"])), names.NVIDIA_GPU: "4"}
        labels = {names.GPU_MEMORY_LABEL: "16384"}
        found.nodes.append({"metadata": {"name": f"n{number}", "labels": labels}, "status": {"allocatable": offer}})
    lodgings = [Lodging.of(item) for item in found.nodes]
    for number in range(draw(st.integers(6, 16))):
        pod = _single(found, "q", f"g{number}", ASKS[draw(st.sampled_from(["gpu", "two gpus", "memory", "most"]))])
        first = draw(st.integers(0, len(lodgings) - 1))
        any(lodging.take(found, pod) for lodging in lodgings[first:] + lodgings[:first])
        found.pods.append(pod)
    whole: Ask = ({names.NVIDIA_GPU: "4"}, {})
    found.pods.extend(_single(found, "q", f"large-{number}", whole) for number in range(draw(st.integers(1, 2))))
    return found


@given(crowds(), policies)
def test_nobody_is_moved_for_ever(cluster: Cluster, policy: str) -> None:
    """Those who move others either get their place that way, or give up soon."""
    rested(cluster, POLICIES[policy], NOW)


# ---------------------------------------------------------------------------------------------------------- fair shares
@st.composite
def contests(draw: st.DrawFn) -> Cluster:
    """Queues of one department compete with one-GPU pods; quotas can be had, and anybody may hold GPUs at first."""
    gpus = left = draw(st.integers(2, 8))
    node = {"cpu": "1000", "memory": "1000Gi", "pods": "1000", names.NVIDIA_GPU: str(gpus)}
    found = Cluster(nodes=[{"metadata": {"name": "n", "labels": {}}, "spec": {}, "status": {"allocatable": node}}])
    found.queues.append(_queue("d", "", FREE))
    pods = []
    for number in range(draw(st.integers(2, 4))):
        quota, weight = draw(st.integers(0, left)), draw(st.integers(1, 3))
        left -= quota
        found.queues.append(_queue(f"q{number}", "d", {"quota": quota, "limit": -1, "overQuotaWeight": weight}))
        for pod in range(draw(st.integers(0, gpus))):
            pods.append(_single(found, f"q{number}", f"q{number}-{pod}"))
    holders = draw(st.permutations(range(len(pods))))[:gpus]
    found.pods = [running(pod, "n", ()) if at in holders else pod for at, pod in enumerate(pods)]
    return found


def _queue(name: str, parent: str, gpu: Fields) -> Fields:
    resources = {"cpu": FREE, "memory": FREE, "gpu": gpu}
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}}


def _single(found: Cluster, queue: str, name: str, ask: Ask = ({names.NVIDIA_GPU: "1"}, {})) -> Fields:
    spec = {"queue": queue, "minMember": 1, "preemptibility": "preemptible"}
    found.groups.append({"metadata": {"name": name, "namespace": OURS}, "spec": spec})
    return pod_of(name, ("", 0), ask, {})


@given(contests())
def test_use_converges_to_fair_shares(cluster: Cluster) -> None:
    """At rest every queue is within one pod of its fair share."""
    cluster, _ = rested(cluster, PACKING, NOW)
    book = Cycle(cluster.snapshot(), PACKING, NOW).book
    for name, used, fair in zip(book.names, book.allocated, book.fair, strict=True):
        assert abs(used[GPU] - fair[GPU]) < 1 or name == "d", (name, used[GPU], fair[GPU])
