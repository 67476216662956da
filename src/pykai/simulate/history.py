"""The history of a run: lifecycles of pods, events, and amounts of queues over time, in seconds since its start.

All output is derived from it. `document` is the machine-readable result that `-o json` and `-o yaml` print: cpu in
cores, memory in bytes, gpu in devices; -1 is unlimited. If past usage counts, `usage` is the fraction of the cluster
that a queue used in the window. `nextDeadline` is when time alone may change a decision, such as the end of a minimum
runtime; null if nothing depends on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pykai.kube.api import Object
from pykai.model.plan import Key, Triple
from pykai.model.resources import GPU
from pykai.model.snapshot import QueueTable


class HistoryEvent(msgspec.Struct, frozen=True):
    """One log line. `kind` is a key of KINDS, `about` kind and name of an object."""

    at: float
    kind: str
    about: str
    message: str = ""


KINDS: dict[str, str] = {
    "Arrived": "an object was created",
    "Changed": "an object was updated",
    "Waits": "a workload is pending; the message states why",
    "Pipelined": "a pod was nominated to a node whose capacity terminating pods still hold",
    "Scheduled": "a pod was bound to a node",
    "Started": "a pod runs",
    "Evicted": "a pod is being evicted; the message names the evictor",
    "Gone": "an evicted pod has terminated",
    "Finished": "a pod succeeded",
    "Completed": "a Job completed",
    "Failed": "a pod failed, or its kubelet rejected it",
    "Deleted": "a pod is being deleted, not by the scheduler",
    "Requested": "the scheduler asked the binder to bind a pod",
    "Refused": "the API server or admission rejected an object; the message states why",
    "Event": "a component recorded a Kubernetes Event",
}


class PodLife(msgspec.Struct, rename="camel"):
    """One pod from arrival to end. A time is None until it is reached.

    `reason`: why it is pending, or why it was evicted; `waited_for`: why it was pending, after it was scheduled. An
    evicted pod has the action, the evictor (empty: none), and the node of its replacement (empty: none).
    """

    namespace: str
    name: str
    queue: str
    group: str
    job: str
    arrived_at: float
    requests: str = ""
    scheduled_at: float | None = None
    started_at: float | None = None
    evicted_at: float | None = None
    ended_at: float | None = None
    node: str = ""
    devices: tuple[int, ...] = ()
    gpus: float = 0.0
    shared: bool = False
    portion: float = 0.0
    state: str = "Waiting"
    reason: str = ""
    waited_for: str = ""
    evicted_by: str = ""
    evicted_for: str = ""
    moves_to: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


class QueueSample(msgspec.Struct, frozen=True, rename="camel"):
    """A queue at one time: cpu (millicores), memory (bytes), gpu (devices); -1 is unlimited.

    `usage`: fractions (0..1) of the cluster that it held in the window; None if past usage does not count.
    """

    fair_share: Triple
    allocated: Triple
    requested: Triple
    usage: Triple | None = None


@dataclass(frozen=True)
class Sample:
    """The cluster at one time, after the cycle at that time."""

    at: float
    queues: dict[str, QueueSample]
    gpus_used: float
    capacity: Triple
    waiting: int

    @property
    def gpus_total(self) -> float:
        return self.capacity[GPU]

    @property
    def past_counts(self) -> bool:
        """Whether fair shares depend on past usage."""
        return any(queue.usage is not None for queue in self.queues.values())


@dataclass
class History:
    """The history of a run, appended to while it runs."""

    events: list[HistoryEvent] = field(default_factory=list)
    lives: list[PodLife] = field(default_factory=list)
    ended: int = 0
    samples: list[Sample] = field(default_factory=list)
    cycles: int = 0
    ended_at: float = 0.0
    deadline: float | None = None
    """When time alone may change a decision, as of the last cycle; None: never."""
    remarks: list[str] = field(default_factory=list)
    """Warnings about the manifests, without duplicates."""

    def remark(self, text: str) -> None:
        """Add a warning, unless it is a duplicate."""
        if text not in self.remarks:
            self.remarks.append(text)

    def log(self, at: float, kind: str, about: str, message: str = "") -> None:
        """Append an event."""
        assert kind in KINDS
        self.events.append(HistoryEvent(at, kind, about, message))


@dataclass(frozen=True)
class SimulationResult:
    """A finished run: its history, and the final queues and devices."""

    history: History
    queues: QueueTable
    devices: Mapping[str, Sequence[Sequence[tuple[PodLife, float]]]]
    """By node and device index: the pods that hold the device, each with its fraction."""
    left_pods: int = 0
    """Pods that exist at the end."""

    @property
    def leaves(self) -> list[str]:
        """The names of the leaf queues."""
        return [name for row, name in enumerate(self.queues.names) if not self.queues.children[row]]


NAMES = ("cpu", "memory", "gpu")


def document(outcome: SimulationResult, seed: int) -> Object:
    """Return the machine-readable result."""
    history = outcome.history
    return {
        "seed": seed,
        "simulatedSeconds": history.ended_at,
        "cycles": history.cycles,
        "nextDeadline": history.deadline,
        "nodes": _nodes(outcome),
        "queues": _queues(outcome),
        "pods": [msgspec.to_builtins(life) for life in history.lives],
        "samples": [
            {
                "at": sample.at,
                "waitingPods": sample.waiting,
                "gpusUsed": sample.gpus_used,
                "gpus": sample.gpus_total,
                "queues": {name: _amounts(queue) for name, queue in sample.queues.items()},
            }
            for sample in history.samples
        ],
        "events": [msgspec.to_builtins(event) for event in history.events],
    }


def _nodes(outcome: SimulationResult) -> list[Object]:
    return [
        {"name": name, "gpus": [{life.title: part for life, part in device} for device in devices]}
        for name, devices in outcome.devices.items()
    ]


def _queues(outcome: SimulationResult) -> list[Object]:
    queues, last = outcome.queues, outcome.history.samples[-1].queues
    return [
        {
            "name": name,
            "parent": queues.names[queues.parent[row]] if queues.parent[row] >= 0 else "",
            "priority": queues.priority[row],
            "quota": _by_name(queues.deserved[:, row].tolist()),
            "limit": _by_name(queues.limit[:, row].tolist()),
            "overQuotaWeight": dict(zip(NAMES, queues.weight[:, row].tolist(), strict=True)),
            **_amounts(last[name]),
        }
        for row, name in enumerate(queues.names)
    ]


def _amounts(queue: QueueSample) -> Object:
    amounts: Object = {
        "fairShare": _by_name(queue.fair_share),
        "allocated": _by_name(queue.allocated),
        "requested": _by_name(queue.requested),
    }
    if queue.usage is not None:
        amounts["usage"] = {name: round(part, 4) for name, part in zip(NAMES, queue.usage, strict=True)}
    return amounts


def _by_name(amount: Triple | Sequence[float]) -> dict[str, float]:
    cpu, memory, gpu = amount
    return {"cpu": cpu if cpu < 0 else round(cpu / 1000, 3), "memory": memory, "gpu": round(gpu, 4)}
