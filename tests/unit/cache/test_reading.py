"""A cache that has seen many events shows the same as one that is given the objects they left behind."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from pykai.cache.cluster import Change, ClusterCache
from pykai.cache.pods import PodReader
from pykai.cache.readings import NamedRows, NumberedNames, Numbers
from pykai.engine.trial import Trial
from pykai.model.params import SchedulerParams
from pykai.model.pods import PodClass
from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import kinds
from tests import builders

NOW = 1e9
NAMES = [*(f"p{number}" for number in range(20)), *(f"g{number}" for number in range(5))]


@pytest.mark.parametrize("first", [["a", "b"], ["a", "b", "a"], []], ids=["different", "twice", "none"])
@pytest.mark.parametrize("second", [["b", "a"], ["b", "c", "d", "c"]], ids=["known", "new"])
def test_a_name_has_one_number(first: list[str], second: list[str]) -> None:
    """Whether many names of a namespace come at once or a few later, and whatever other namespaces have."""
    numbers, known = NumberedNames(), dict[tuple[str, str], int]()
    for namespace, given in (("x", first), ("y", ["a"]), ("x", second), ("y", second)):
        named = NamedRows()
        rows, own = named.of(namespace)
        rows.extend(range(1, 1 + len(given)))
        own.extend(given)
        column = numbers.column(len(given) + 2, named).tolist()
        assert column[0] == column[-1] == -1
        for name, number in zip(given, column[1:], strict=False):
            assert known.setdefault((namespace, name), number) == number
        assert numbers.column(len(given), _from_the_top(namespace, given)).tolist() == column[1:-1]
    assert len(set(known.values())) == len(known)


def _from_the_top(namespace: str, given: list[str]) -> NamedRows:
    """Names at every row."""
    named = NamedRows()
    rows, own = named.of(namespace)
    rows.extend(range(len(given)))
    own.extend(given)
    return named


def test_what_is_known_keeps_its_number() -> None:
    numbers = Numbers[str]()
    assert numbers["b"] == 0
    numbers.learn(["a", "b", "c", "a"])
    assert numbers == {"b": 0, "a": 1, "c": 2}


def made(kind: type[Any], name: str, metadata: dict[str, Any], **parts: Any) -> Any:
    namespace = {} if kind is kinds.Node else {"namespace": f"ns-{len(metadata.get('annotations', {})) % 2}"}
    return kinds.decode(json.dumps({"metadata": {"name": name, **namespace, **metadata}, **parts}), kind)


def node(random: Random) -> Any:
    offered = {"cpu": "8", "nvidia.com/gpu": random.choice("48"), "pods": "110"}
    labels = {"nvidia.com/gpu.memory": random.choice(("40000", "80000", "?")), "rack": random.choice("aab")}
    ready = {"type": "Ready", "status": random.choice(("True", "True", "False"))}
    status = {"allocatable": offered, "conditions": [ready]}
    spec = {"taints": [{"key": "k", "effect": "NoSchedule"}]} if random.random() < 0.2 else {}
    return made(kinds.Node, f"n{random.randrange(6)}", {"labels": labels}, spec=spec, status=status)


def group(random: Random) -> Any:
    notes = random.choice(({}, {"kai.scheduler/stale-podgroup-timestamp": "2026-01-01T00:00:00Z"}))
    spec: dict[str, Any] = {"queue": random.choice("ab"), "minMember": random.choice((1, 2))}
    if random.random() < 0.3:
        spec["subGroups"] = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": random.choice((1, 2))}]
    return made(kinds.PodGroup, f"g{random.randrange(5)}", {"annotations": notes}, spec=spec)


def pod(random: Random) -> Any:
    notes = random.choice(({}, {"gpu-fraction": "0.5"}, {"gpu-fraction": "0.5", "other": "1"}))
    labels = random.choice(({}, {"app": "kai-resource-reservation"}, {"kai.scheduler/subgroup-name": "x"}))
    metadata: dict[str, Any] = {"annotations": {"pod-group-name": f"g{random.randrange(5)}", **notes}, "labels": labels}
    if random.random() < 0.2:
        metadata["deletionTimestamp"] = "2001-09-09T01:46:00Z"
    spec: dict[str, Any] = {
        "schedulerName": random.choice(("kai-scheduler", "kai-scheduler", "default-scheduler")),
        "nodeName": random.choice(("", "n1", "n2", "gone")),
        "containers": [{"name": "c", "resources": {"requests": {"cpu": random.choice("12")}}}],
        "schedulingGates": random.choice(([], [{"name": "gate"}])),
    }
    if random.random() < 0.1:
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    phase = random.choice(("Running", "Running", "Pending", "Succeeded", "Failed"))
    return made(kinds.Pod, f"p{random.randrange(20)}", metadata, spec=spec, status={"phase": phase})


def shown(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that was read, in a form that compares."""
    pods, gangs, nodes = snapshot.pods, snapshot.gangs, snapshot.nodes
    classes = [{**vars(c), "request": c.request.tolist(), "dims": c.dims.tolist()} for c in pods.classes]
    tables = {
        f"{type(table).__name__}.{name}": value
        for table in (pods, gangs, nodes)
        for name, value in vars(table).items()
        if name not in ("lookup", "_by_name", "_class_facts", "_facts")
    }
    columns = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in tables.items()}
    keys = [(f"ns-{space}", name) for space in (0, 1) for name in NAMES]
    found = {"rows of pods": pods.rows_of(keys), "rows of gangs": gangs.rows_of(keys)}
    return {**columns, **found, "PodTable.classes": classes, "names": snapshot.space.names}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_never_shows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    if seed % 4 == 0:
        monkeypatch.setattr("pykai.cache.cluster.MOST_GONE", -20)
    cache = ClusterCache(SchedulerParams())
    for _ in range(30):
        for _ in range(random.randrange(6)):
            obj = random.choice((node, group, pod, pod))(random)
            cache.apply(Change(obj, gone=random.random() < 0.2))
        fresh = ClusterCache(SchedulerParams())
        fresh.load(obj for kind in (kinds.Node, kinds.PodGroup, kinds.Pod) for obj in cache.of(kind).values())
        assert shown(cache.copy().snapshot(NOW)) == shown(fresh.snapshot(NOW))


KINDS = (kinds.Queue, kinds.Node, kinds.PodGroup, kinds.Pod)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_follows_copies_that_differ(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cycle decides on a copy with what is assumed laid over it, which the next copy does not have; now and then
    on none. What a cycle opens with is the same, too."""
    random = Random(1000 + seed)
    monkeypatch.setattr("pykai.cache.store.FEW", seed % 5)
    monkeypatch.setattr("pykai.cache.store.MOST_EVENTS", 5 + 40 * (seed % 2))
    cache, earlier = ClusterCache(SchedulerParams()), list[tuple[Snapshot, dict[str, Any]]]()
    for name in "ab":
        cache.apply(Change(kinds.Queue(metadata=kinds.ObjectMeta(name=name))))
    for _ in range(30):
        for _ in range(random.randrange(6)):
            obj = random.choice((node, group, pod, pod))(random)
            cache.apply(Change(obj, gone=random.random() < 0.2))
        view = cache.copy()
        for _ in range(random.choice((0, 0, 1, 2))):
            present = view.of(random.choice(KINDS))
            key = random.choice([None, *present])
            if key is not None:
                view.apply(Change(structs.replace(present[key]), gone=random.random() < 0.1))
        if random.random() < 0.2:
            continue
        fresh = ClusterCache(SchedulerParams())
        fresh.load(obj for kind in KINDS for obj in view.of(kind).values())
        found, wanted = view.snapshot(NOW), fresh.snapshot(NOW)
        assert shown(found) == shown(wanted)
        assert opened(found) == opened(wanted)
        earlier.append((found, shown(found)))
    assert all(shown(snapshot) == then for snapshot, then in earlier), "a snapshot never changes"


def opened(snapshot: Snapshot) -> dict[str, Any]:
    """What a cycle begins with."""
    trial = Trial(snapshot)
    counts = (trial.active_allocated, trial.active_used, trial.pending, trial.gated, trial.succeeded)
    return {
        "idle": trial.idle.tolist(),
        "releasing": trial.releasing.tolist(),
        "podsets": [list(count) for count in counts],
        "queues": (trial.queue_allocated, trial.queue_held, trial.queue_requested),
        "pods": [list(column) for column in (trial.status, trial.node, trial.klass, trial.gang, trial.podset)],
    }


def test_an_object_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    looked_at: list[kinds.Pod] = []
    cache = ClusterCache(SchedulerParams())
    cache.load([pod(random) for _ in range(10)])
    cache.snapshot(NOW)

    def status(_: PodReader, of: kinds.Pod, __: int) -> Status:
        looked_at.append(of)
        return Status.PENDING

    monkeypatch.setattr(PodReader, "_status", status)
    new = kinds.Pod(metadata=kinds.ObjectMeta(name="new"))
    cache.apply(Change(new))
    cache.snapshot(NOW)
    cache.snapshot(NOW)
    assert looked_at == [new]


def requesting(name: str, cpu: str) -> Any:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return made(kinds.Pod, name, {}, spec={"containers": containers})


def test_classes_and_what_is_derived_from_them_stay_while_pods_of_other_classes_come_and_go() -> None:
    cache = ClusterCache(SchedulerParams())
    for name, cpu in (("a", "1"), ("b", "2"), ("c", "3")):
        cache.apply(Change(requesting(name, cpu)))
    first = cache.snapshot(NOW).pods
    facts: list[PodClass] = first.derived(list)
    cache.apply(Change(requesting("d", "3")))
    same = cache.snapshot(NOW).pods
    assert same.classes is first.classes
    assert same.derived(list) is facts
    cache.apply(Change(requesting("a", "1"), gone=True))
    fewer = cache.snapshot(NOW).pods
    assert [c.row for c in fewer.classes] == [0, 1]
    assert [c.request is old.request for c, old in zip(fewer.classes, first.classes[1:], strict=True)] == [True, True]
    assert fewer.klass.tolist() == [0, 1, 1]
    assert fewer.derived(list) == list(fewer.classes)
    assert [c.row for c in first.classes] == [0, 1, 2]


@pytest.mark.parametrize(("text", "since"), [("2001-09-09T01:46:40Z", {0: NOW}), ("lately", {}), ("", {})])
def test_a_mark_that_cannot_be_read_is_none(text: str, since: dict[int, float]) -> None:
    cache = ClusterCache(SchedulerParams())
    notes = {"annotations": {"kai.scheduler/stale-podgroup-timestamp": text}}
    cache.load([made(kinds.PodGroup, "g", notes, spec={"queue": "q"})])
    assert cache.snapshot(NOW).gangs.stale_since == since


@pytest.mark.parametrize(
    ("phase", "on", "terminating", "status"),
    [
        ("Pending", "", False, Status.GATED),
        ("Pending", "", True, Status.RELEASING),
        ("Pending", "n", False, Status.BOUND),
        ("Running", "n", False, Status.RUNNING),
        ("Running", "n", True, Status.RELEASING),
        ("Succeeded", "n", False, Status.SUCCEEDED),
    ],
)
def test_scheduling_gates_hold_back_pods_that_wait_and_no_others(
    phase: str, on: str, terminating: bool, status: Status
) -> None:
    spec = {"schedulingGates": [{"name": "gate"}]}
    pod = {**builders.pod("p", "", on, spec=spec, terminating=terminating), "status": {"phase": phase}}
    assert builders.snapshot([builders.node("n"), pod]).pods.status.tolist() == [status]
