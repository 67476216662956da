"""`python -m bench.live_cycle`: CPU of a live scheduler's cycle after a change, in a full cluster, step by step.

Everything is the scheduler's own, in this process: raw watch events go through the local copies and the feed into the
cache, a copy of it is decided on and judged, and what follows is assumed, told and counted. Only the API server is not
there: nothing is written. The cluster is full of pods with one GPU, each a PodGroup of its own. In the first half every
queue has its quota, so no search for victims begins; in the second half queues stand above and below it, and pending
pods of many sizes are searched victims for in every cycle, in vain.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec
import numpy.ma  # noqa: F401  numpy imports it in the middle of the first `unique`: start-up, not a cycle

from bench import machine
from bench.page import markdown, with_section
from pykai.cache.assumed import Assumptions
from pykai.cache.cluster import ClusterCache
from pykai.config import scheduler_config as configuration
from pykai.config.scheduler_config import SchedulerConfig
from pykai.kube import api_resources
from pykai.kube.api import EventType, Object, Resource, Selection
from pykai.kube.informer import SharedInformer
from pykai.model.params import SchedulerParams
from pykai.objects import names
from pykai.observe import tables
from pykai.observe.metrics import SCHEDULER, Metrics
from pykai.plugins import registry
from pykai.scheduler.cycle_metrics import record
from pykai.scheduler.decision import Decision, make_decision
from pykai.scheduler.informers import Informers
from pykai.scheduler.process_memory import keep_freed_memory
from pykai.scheduler.status_updater import StatusUpdater, WriteAccess, WriteQueue
from pykai.verify.judge import verify

GPUS = 8
QUEUES, DEPARTMENTS = 16, 4
MANY = 1000
SPACE = "team"
NOW = 1767229200.0
_SINCE = "2026-01-01T00:00:00Z"
_OFFERED = {"cpu": "128", "memory": "1024Gi", names.NVIDIA_GPU: str(GPUS), "pods": "110"}
_ASKED = {"cpu": "4", "memory": "16Gi", names.NVIDIA_GPU: "1"}
DRIFT = 3
"""GPUs that every second queue has above its quota, and every other below, where queues are unequal."""
SIZES = 5
"""Pods that wait there in vain ask for more GPUs than that, in so many sizes, and each for another amount of CPU."""
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
TEXT = """## Live cycles

{heading}, from the watch events to what is to be written, in a cluster that is full. Asked: 20 ms for one pod that
arrives, 100 ms for one that ends while 1,000 wait, 1 s for 1,000 that arrive; at 10,000 nodes at most twice that.
*Unequal*: half of the queues are above their quota and half below; all pending pods are different, ask for more than
the difference, and are refused anew in every cycle.

{table}
{words}
"""
STEPS = ("events", "copy", "snapshot", "open", "allocate", "victims", "judge", "rest")
"""`victims`: consolidation, reclaim, preempt and stale gangs. `rest`: the plan, orders, notices, metrics."""


def node(number: int) -> Object:
    labels = {names.GPU_MEMORY_LABEL: "81920", names.GPU_COUNT_LABEL: str(GPUS)}
    status = {"allocatable": _OFFERED, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": node_name(number), "labels": labels}, "spec": {}, "status": status}


def node_name(number: int) -> str:
    return f"node-{number:05}"


def queue(name: str, parent: str, quota: float) -> Object:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    amounts = {"cpu": free, "memory": free, "gpu": {**free, "quota": quota}}
    return {"metadata": {"name": name}, "spec": {"resources": amounts, **({"parentQueue": parent} if parent else {})}}


def group(number: int, of: int) -> Object:
    """A PodGroup as the pod grouper writes it for a pod without a topology."""
    meta = {"name": f"group-{number:06}", "namespace": SPACE, "creationTimestamp": _SINCE}
    return {"metadata": meta, "spec": {"minMember": 1, "queue": f"queue-{of}", "topologyConstraint": {}}}


def pod(number: int, on: str = "", asked: Mapping[str, str] = _ASKED) -> Object:
    """A pod that runs on a node, or waits for one."""
    notes = {names.POD_GROUP_ANNOTATION: f"group-{number:06}"}
    meta = {"name": f"pod-{number:06}", "namespace": SPACE, "creationTimestamp": _SINCE, "annotations": notes}
    containers = [{"name": "main", "resources": {"requests": asked}}]
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": containers, **({"nodeName": on} if on else {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running" if on else "Pending"}}


class Told(SharedInformer[Any]):
    """A watch that is told its events."""

    def tell(self, event: EventType, raw: msgspec.Raw) -> None:
        for change in self._store.event(event, raw):
            for handler in self._handlers:
                handler(change)


class ToldWatches:
    """Informers by resource, without a server."""

    def __init__(self) -> None:
        self.by_resource: dict[Resource, Told] = {}

    def of(self, resource: Resource, into: type[Any], where: Selection, *, optional: bool = False) -> Told:
        return self.by_resource.setdefault(resource, Told(None, resource, into, where, optional=optional))  # type: ignore[arg-type]


class Nobody:
    """Takes work and does none: what is to be written waits."""

    def add(self, key: object) -> None: ...

    def add_after(self, key: object, seconds: float) -> None: ...

    async def run(self, reconcile: object) -> None: ...


class Shell:
    """A scheduler without its server."""

    def __init__(self) -> None:
        self.cache, self.assumptions = ClusterCache(SchedulerParams()), Assumptions()
        self.watches = ToldWatches()
        self.urgent = 0
        Informers(self.watches, self.cache, self.assumptions, self._heed)  # type: ignore[arg-type]
        access = WriteAccess(None, None, WriteQueue(Nobody()))  # type: ignore[arg-type]
        self.status = StatusUpdater(access, self.cache, self.assumptions)
        self.metrics = Metrics(SCHEDULER)
        config = SchedulerConfig()
        self.policy = configuration.policy(config, registry.make, registry.BUILT_IN)
        plugins = configuration.plugin_names(config, registry.BUILT_IN)
        self.judge = partial(verify, plugins=plugins, everything=False)
        self._version = 0

    def _heed(self, _: object) -> None:
        self.urgent += 1

    def event(self, event: EventType, resource: Resource, body: Object) -> Callable[[], None]:
        """An event as it comes from the wire, to be told later."""
        self._version += 1
        meta = {"uid": f"{resource.plural}-{body['metadata']['name']}", **body["metadata"]}
        raw = msgspec.json.encode({**body, "metadata": {**meta, "resourceVersion": str(self._version)}})
        return partial(self.watches.by_resource[resource].tell, event, msgspec.Raw(raw))

    def added(self, resource: Resource, *bodies: Object) -> Iterator[Callable[[], None]]:
        return (self.event(EventType.ADDED, resource, body) for body in bodies)

    def cycle(self, events: Sequence[Callable[[], None]] = ()) -> tuple[Decision, dict[str, float]]:
        """Events, and the cycle that follows; CPU of each step in milliseconds."""
        gc.collect()
        clock, began = time.process_time, time.process_time()
        for event in events:
            event()
        told = clock()
        view = self.cache.copy()
        self.assumptions.lay_over(view)
        copied = clock()
        decision = make_decision(view, self.policy, self.judge, NOW, clock=clock)
        for binding in decision.bindings:
            self.assumptions.bind(binding.request, binding.pod.metadata.uid)
        self.status.write_timestamps(decision.plan.timestamps)
        self.status.update(decision.conditions)
        record(decision, self.metrics)
        return decision, _steps(decision, 1000 * (told - began), 1000 * (copied - told), 1000 * (clock() - began))


def _steps(decision: Decision, events: float, copy: float, whole: float) -> dict[str, float]:
    timings = decision.timings
    actions = {name: 1000 * action.seconds for name, action in decision.plan.actions.items()}
    known = {
        "events": events,
        "copy": copy,
        "snapshot": timings.snapshot,
        "open": timings.opening - timings.snapshot,
        "allocate": actions["allocate"],
        "victims": sum(took for action, took in actions.items() if action != "allocate"),
        "judge": timings.judging,
    }
    return {**known, "rest": whole - sum(known.values()), "all": whole}


Events = list[Callable[[], None]]


@dataclass
class Scene:
    """A full cluster in which something happens. `unequal`: queues stand above and below their quota, and what arrives
    asks for more than the difference. `next`: the number of the next pod."""

    shell: Shell
    nodes: int
    unequal: bool = False
    next: int = 0
    measured: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def fill(self) -> None:
        """Nodes, queues and a pod for every GPU."""
        shell, gpus = self.shell, self.nodes * GPUS
        departments = (queue(f"department-{number}", "", gpus / DEPARTMENTS) for number in range(DEPARTMENTS))
        leaves = (queue(f"queue-{n}", f"department-{n % DEPARTMENTS}", gpus / QUEUES) for n in range(QUEUES))
        for event in shell.added(api_resources.QUEUE, *departments, *leaves):
            event()
        for event in shell.added(api_resources.NODE, *map(node, range(self.nodes))):
            event()
        for number in range(gpus):
            for event in self._arrival(number, node_name(number // GPUS)):
                event()
        self.next = gpus
        shell.cycle()
        shell.cycle()

    def _queue(self, number: int) -> int:
        drifts = self.unequal and number < QUEUES * DRIFT and number % 2
        return (number - 1 if drifts else number) % QUEUES

    def _pod(self, number: int, on: str = "") -> Object:
        if not self.unequal or number < self.nodes * GPUS:
            return pod(number, on)
        gpus, cpus = DRIFT + 1 + number % SIZES, 4000 + number % MANY
        return pod(number, on, {**_ASKED, "cpu": f"{cpus}m", names.NVIDIA_GPU: str(gpus)})

    def _arrival(self, number: int, on: str = "") -> Events:
        groups = self.shell.added(api_resources.POD_GROUP, group(number, self._queue(number)))
        return [*groups, *self.shell.added(api_resources.POD, self._pod(number, on))]

    def ending(self, number: int) -> Events:
        """The events of a pod of the beginning that ends and is cleared away."""
        body = self._pod(number, node_name(number // GPUS))
        events = ((api_resources.POD, body), (api_resources.POD_GROUP, group(number, self._queue(number))))
        return [self.shell.event(EventType.DELETED, resource, body) for resource, body in events]

    def arrivals(self, count: int) -> Events:
        """The events of pods that come, each with its PodGroup."""
        numbers = range(self.next, self.next + count)
        self.next += count
        return [event for number in numbers for event in self._arrival(number)]

    def measure(self, title: str, events: Events) -> None:
        """One cycle after the events; what it decides comes true before the next."""
        decision, steps = self.shell.cycle(events)
        evicted = f", {len(decision.evictions):,} evicted" if decision.evictions else ""
        self.measured.setdefault(f"{title}: {len(decision.bindings):,} bound{evicted}", []).append(steps)
        for binding in decision.bindings:
            body = self._pod(_number(binding.bind.pod[1]), binding.bind.node)
            self.shell.event(EventType.MODIFIED, api_resources.POD, body)()
        for eviction in decision.evictions:
            for event in self.ending(_number(eviction.evict.pod[1])):
                event()
        self.shell.cycle()


def _number(name: str) -> int:
    return int(name.removeprefix("pod-"))


def play(nodes: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """What happens in a cluster of so many nodes, and what each step cost each time."""
    scene = Scene(Shell(), nodes)
    scene.fill()
    for _ in range(rounds):
        scene.measure("nothing", [])
    for number in range(rounds):
        for event in scene.ending(number):
            event()
        scene.shell.cycle()
        scene.measure("1 arrives, 1 place", scene.arrivals(1))
    scene.measure("1 arrives, full", scene.arrivals(1))
    scene.measure(f"{MANY:,} arrive, full", scene.arrivals(MANY - 1))
    for number in range(rounds, 2 * rounds):
        scene.measure(f"1 ends, {MANY:,} wait", scene.ending(number))
    return scene.measured


def play_unequal(nodes: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """The same where queues are unequal, so that victims are searched for in every cycle and none are found."""
    scene = Scene(Shell(), nodes, unequal=True)
    scene.fill()
    scene.measure(f"unequal: {MANY:,} arrive", scene.arrivals(MANY))
    for _ in range(rounds):
        scene.measure(f"unequal: 1 arrives, {MANY:,} wait", scene.arrivals(1))
    for number in range(rounds):
        scene.measure(f"unequal: 1 ends, {MANY:,} wait", scene.ending(GPUS * (number + 1)))
    return scene.measured


@click.command()
@click.option("--nodes", default=5000, show_default=True, type=click.IntRange(1), help="Nodes with eight GPUs each.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often each thing happens.")
@click.option("--docs", is_flag=True, help="Write the section of docs/performance.md.")
def main(nodes: int, rounds: int, docs: bool) -> None:
    """Measure cycles of a live scheduler after a change, in a cluster full of pods with one GPU."""
    began = machine.now()
    keep_freed_memory()
    measured = play(nodes, rounds) | play_unequal(nodes, rounds)
    columns = [tables.Column("what"), *(tables.Column(step, right=True) for step in (*STEPS, "all", "least"))]
    rows = [[title, *_figures(found)] for title, found in measured.items()]
    heading = f"CPU of a cycle in milliseconds: {nodes:,} nodes, {nodes * GPUS:,} pods"
    words = f"{machine.title()}; load {began.load:.1f} at the start, {machine.now().load:.1f} at the end."
    tables.show([tables.table(heading, columns, rows), f"{words}\nMedians of {rounds} times, and the least of all."])
    if docs:
        text = TEXT.format(table=markdown([column.title for column in columns], rows), heading=heading, words=words)
        PAGE.write_text(with_section(PAGE.read_text(), "bench-live", text))


def _figures(found: Sequence[dict[str, float]]) -> list[str]:
    medians = [median(steps[step] for steps in found) for step in (*STEPS, "all")]
    return [f"{value:.1f}" for value in (*medians, min(steps["all"] for steps in found))]


if __name__ == "__main__":
    main()
