"""What-if beside the product itself: the manifest applied to the same cluster, run in memory, leads to the same."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pykai.cache.cluster import ClusterCache
from pykai.cli.simulated_product import SimulatedProduct
from pykai.config.scheduler_config import SchedulerConfig
from pykai.explain.changes import AddNodes, ChangeError, Delete, Drain, SetQueue, parse_set
from pykai.explain.source import Decided, decided
from pykai.explain.what_if import Answer, RejectedError, WhatIfResult, what_if
from pykai.kube.api import Api
from pykai.model.params import SchedulerParams
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects.units import rfc3339
from pykai.simulate import generate, manifest_validation
from pykai.simulate.manifests import Manifest, Origin
from pykai.simulate.simulation import Hooks, Setting, Simulation
from tests import builders
from tests.builders import NOW, decoded
from tests.properties.small_world import PACKING

Object = dict[str, Any]
SEEDS = range(int(os.environ.get("PYKAI_WHAT_IF_CLUSTERS", "6")))
"""How many random clusters; 200 for a release."""
PRIORITIES = {"train": 50, "build": 100}


def known(obj: Object, age: float = 600.0) -> Object:
    """The object as a cluster shows it."""
    meta = {"uid": f"{obj['kind']}-{obj['metadata']['name']}", "creationTimestamp": rfc3339(NOW - age)}
    return {**obj, "metadata": {**obj["metadata"], **meta}}


def cluster(seed: int) -> list[Object]:
    """Two or three nodes, two queues, and gangs that hold some of the GPUs."""
    random = Random(seed)
    nodes = [known(builders.node(f"n{n}", 4)) for n in range(random.randint(2, 3))]
    queues = [known(builders.queue(name, gpu={"quota": random.choice([0, 4, 8])})) for name in "ab"]
    found = [*nodes, *queues, *(known(builders.priority_class(name, value)) for name, value in PRIORITIES.items())]
    for number in range(random.randint(2, 8)):
        name, gpus, home = f"run{number}", random.choice([1, 2, 4]), f"n{random.randrange(len(nodes))}"
        held = sum(_gpus(obj) for obj in found if obj["kind"] == "Pod" and obj["spec"].get("nodeName") == home)
        if held + gpus <= 4:
            spec: Object = {"priorityClassName": "train", "preemptibility": "preemptible"}
            found.append(known(builders.pod_group(name, random.choice("ab"), **spec), 600 - number))
            found.append(known(builders.pod(name, name, home, {"gpu": gpus}), 600 - number))
    return found


def _gpus(pod: Object) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"])


def job(queue: str, pods: int, gpus: int, priority: str = "train") -> Object:
    labels = {"kai.scheduler/queue": queue, "priorityClassName": priority}
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]}
    notes = {"kai.scheduler/batch-min-member": str(pods)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "new", "namespace": "ns", "labels": labels, "annotations": notes},
        "spec": {"parallelism": pods, "completions": pods, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def drawn(seed: int) -> Object:
    random = Random(seed + 1000)
    return job(random.choice("ab"), random.randint(1, 3), random.choice([1, 2, 4]), random.choice(["train", "build"]))


def state_of(objects: list[Object]) -> Decided:
    cache = ClusterCache(SchedulerParams())
    cache.load([decoded(obj) for obj in sorted(objects, key=lambda obj: str(obj["kind"]))])
    return decided(cache, PACKING, NOW)


def asked(objects: list[Object], *manifests: Object) -> WhatIfResult:
    return what_if(state_of(objects), [Manifest(Origin("test", n), obj) for n, obj in enumerate(manifests, 1)])


class Watched(SimulatedProduct):
    """The product, with what its scheduler decided."""

    def __init__(self) -> None:
        super().__init__(SchedulerConfig())
        self.plans: list[Plan] = []

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        """See `simulation.Product`."""

        def observe(snapshot: Snapshot, plan: Plan) -> None:
            self.plans.append(plan)
            hooks.observe(snapshot, plan)

        await super().run(api, replace(hooks, observe=observe), ready)


def applied(objects: list[Object], manifest: Object) -> tuple[set[str], set[str]]:
    """The pods of the manifest that got a node or were promised one, and the gangs that lost pods for it."""
    found = [Manifest(Origin("cluster", n), obj) for n, obj in enumerate([*objects, manifest], 1)]
    product = Watched()
    admitted = manifest_validation.admit(generate.with_defaults(found))
    Simulation(product, [one.arrival(0) for one in admitted], Setting(start=NOW)).play(4.0)
    placed = {bind.pod[1] for plan in product.plans for bind in plan.binds}
    placed |= {nomination.pod[1] for plan in product.plans for nomination in plan.nominations}
    lost = {each.gang[1] for plan in product.plans for each in plan.evictions}
    return {name for name in placed if name.startswith("new-")}, lost


@pytest.mark.parametrize("seed", SEEDS)
def test_what_if_is_what_applying_does(seed: int) -> None:
    objects, manifest = cluster(seed), drawn(seed)
    outcome = asked(objects, manifest)
    placed, lost = applied(objects, manifest)
    assert {pod.split("/")[1] for pod, _ in outcome.placements} == placed
    assert {each.workload.split("/")[1] for each in outcome.evictions} == lost
    assert outcome.answer in ((Answer.STARTS, Answer.EVICTS) if placed else (Answer.WAITS, Answer.NEVER))


EMPTY = [known(builders.node("n0", 4)), *(known(builders.queue(name)) for name in "ab")]
EMPTY += [known(builders.priority_class(name, value)) for name, value in PRIORITIES.items()]
HELD = [
    known(builders.pod_group("run", "a", preemptibility="preemptible")),
    known(builders.pod("run", "run", "n0", {"gpu": 4})),
]


@pytest.mark.parametrize(
    ("objects", "manifest", "answer", "code"),
    [
        (EMPTY, job("a", 2, 2), Answer.STARTS, 0),
        ([*EMPTY, *HELD], job("a", 1, 2), Answer.WAITS, 3),
        ([*EMPTY, *HELD], job("a", 1, 2, "build"), Answer.EVICTS, 0),
        (EMPTY, job("a", 1, 5), Answer.NEVER, 4),
        (EMPTY, job("a", 3, 2), Answer.NEVER, 4),
        (EMPTY, job("nowhere", 1, 1), Answer.NEVER, 4),
    ],
)
def test_answers_and_exit_codes(objects: list[Object], manifest: Object, answer: Answer, code: int) -> None:
    outcome = asked(objects, manifest)
    assert (outcome.answer, outcome.exit_code) == (answer, code)


def test_refused_manifests_name_what_is_wrong() -> None:
    bad = builders.pod("bad", annotations={"gpu-fraction": "1.5"})
    with pytest.raises((RejectedError, manifest_validation.ManifestsError), match="gpu-fraction"):
        asked(EMPTY, bad)
    with pytest.raises(RejectedError, match="exists"):
        asked([*EMPTY, *HELD], {key: value for key, value in builders.pod("run").items() if key != "status"})


@pytest.mark.parametrize(("mode", "refused"), [("Disabled", True), ("NonMemoryEnforced", False), ("", False)])
def test_shares_of_gpus_are_admitted_as_the_cluster_would(mode: str, refused: bool) -> None:
    half = builders.pod("half", annotations={"gpu-fraction": "0.5"}, labels={"kai.scheduler/queue": "a"})
    half["metadata"].pop("uid", None)
    manifest = Manifest(Origin("test", 1), {key: value for key, value in half.items() if key != "status"})
    state = replace(state_of(EMPTY), gpu_sharing_mode=mode)
    if refused:
        with pytest.raises(RejectedError, match="GPU sharing is disabled"):
            what_if(state, [manifest])
    else:
        assert bool([text for text in what_if(state, [manifest]).warnings if "not known" in text]) == (not mode)


def test_changes_without_manifests() -> None:
    waiting = [known(builders.pod_group("late", "a"), 1), known(builders.pod("late", "late", "", {"gpu": 2}), 1)]
    state = state_of([*EMPTY, *HELD, *waiting])
    assert [each.name for each in what_if(state, [], [AddNodes(1, "n0")]).gains] == ["late"]
    assert [each.name for each in what_if(state, [], [Delete((("ns", "run"),))]).gains] == ["late"]
    assert what_if(state, [], [SetQueue("a", "gpu", "limit", 8)]).gains == ()
    alone = state_of([*EMPTY, *waiting])
    assert [each.name for each in what_if(alone, [], [SetQueue("a", "gpu", "limit", 1)]).losses] == ["late"]
    assert [each.name for each in what_if(alone, [], [Drain("n0")]).losses] == ["late"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("queue/a.gpu.quota", "form"),
        ("node/a.gpu.quota=1", "form"),
        ("queue/a.gpus.quota=1", "gpus"),
        ("queue/a.gpu.quotas=1", "quotas"),
        ("queue/a.gpu.quota=many", "many"),
        ("queue/a.gpu.quota=-2", "-2"),
        ("queue/a.gpu.quota=nan", "nan"),
    ],
)
def test_a_wrong_change_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ChangeError, match=why):
        parse_set(text)


def test_a_change_of_a_queue_is_read() -> None:
    assert parse_set("queue/team.a.gpu.quota=16") == SetQueue("team.a", "gpu", "quota", 16.0)
    for edit in (AddNodes(1, "none"), SetQueue("none", "gpu", "quota", 1), Drain("none"), Delete((("ns", "none"),))):
        with pytest.raises(ChangeError, match="none"):
            list(edit.of(state_of(EMPTY)))
