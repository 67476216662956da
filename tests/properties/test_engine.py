"""Random clusters through the whole engine: plans that the judge finds nothing wrong with, in any order of the input,
in every cycle until nothing happens any more.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykai.engine.cycle import Cycle
from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.engine.verify import verify
from pykai.model.plan import Plan
from pykai.model.resources import GPU
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from tests.properties.clusters import FREE, clusters, pod_of
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


def content(plan: Plan) -> tuple[Any, ...]:
    """A plan without what has no order: marks, and verdicts on gangs and their pods."""
    verdicts = sorted((v.gang, v.message, v.ready, sorted(v.pods.items())) for v in plan.verdicts)
    marks = sorted((mark.gang, mark.what, mark.at or 0.0) for mark in plan.marks)
    return plan.binds, plan.pipelines, plan.evictions, verdicts, marks, plan.pending


@given(clusters(), policies, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(cluster: Cluster, policy: str, chance: Any) -> None:
    objects = cluster.objects()
    expected = content(decide(snapshot_of(objects), POLICIES[policy], NOW))
    chance.shuffle(objects)
    assert content(decide(snapshot_of(objects), POLICIES[policy], NOW)) == expected


def acts(plan: Plan) -> bool:
    return bool(plan.binds or plan.pipelines or plan.evictions)


@given(clusters(), policies, st.booleans())
def test_things_come_to_rest(cluster: Cluster, policy: str, again: bool) -> None:
    """Cycle after cycle the plan is carried out; nothing arrives; soon there is nothing left to do."""
    evictions, pods = 0, len(cluster.pods)
    for number in range(CYCLES):
        now = NOW + number * STEP
        plan = judged(cluster.snapshot(now), POLICIES[policy], now)
        evictions += len(plan.evictions)
        if not acts(plan):
            break
        cluster = carried_out(cluster, plan, again)
    assert not acts(plan), f"still busy in cycle {CYCLES}: {plan}"
    assert evictions <= 2 * pods


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


def _single(found: Cluster, queue: str, name: str) -> Fields:
    spec = {"queue": queue, "minMember": 1, "preemptibility": "preemptible"}
    found.groups.append({"metadata": {"name": name, "namespace": OURS}, "spec": spec})
    return pod_of(name, ("", 0), ({names.NVIDIA_GPU: "1"}, {}), {})


@given(contests())
def test_use_converges_to_fair_shares(cluster: Cluster) -> None:
    """At rest every queue is within one pod of its fair share."""
    for number in range(CYCLES):
        now = NOW + number * STEP
        plan = judged(cluster.snapshot(now), PACKING, now)
        if not acts(plan):
            break
        cluster = carried_out(cluster, plan)
    assert not acts(plan)
    book = Cycle(cluster.snapshot(), PACKING, NOW).book
    for name, used, fair in zip(book.names, book.allocated, book.fair, strict=True):
        assert abs(used[GPU] - fair[GPU]) < 1 or name == "d", (name, used[GPU], fair[GPU])
