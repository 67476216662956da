"""An outcome as one document, for programs: what `-o json` and `-o yaml` print.

Amounts are cpu in cores, memory in bytes, gpu in devices; -1 is unlimited. Times are seconds since the start. Where
past use counts, `usage` is which part of the cluster a queue held in the window. `nextDeadline` is when time alone
may change a decision, such as the end of a minimum run time; null where nothing depends on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pykai.simulate.history import Outcome, QueueSample, Triple

NAMES = ("cpu", "memory", "gpu")


def document(outcome: Outcome, seed: int) -> dict[str, Any]:
    """Everything that happened."""
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


def _nodes(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {"name": name, "gpus": [{life.title: part for life, part in device} for device in devices]}
        for name, devices in outcome.devices.items()
    ]


def _queues(outcome: Outcome) -> list[dict[str, Any]]:
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


def _amounts(queue: QueueSample) -> dict[str, Any]:
    amounts: dict[str, Any] = {
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
