"""Four replicas with `minAvailable: 3`: whatever comes, the scheduler never leaves fewer than three of them healthy.

A history is a few cycles in which urgent pods arrive, evicted replicas take their time to leave, replacements start and
become ready when they like, and the budget's status lags behind. `HISTORIES=10000` runs so many of them.
"""

from __future__ import annotations

from os import environ
from random import Random
from typing import Any

import pytest

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.plugins.registry import BUILT_IN, make_all
from tests import builders
from tests.builders import GPU, decoded

POLICY = Policy(make_all([*((name, {}) for name in BUILT_IN), ("disruptionbudgets", {"mode": "respect"})]))
HISTORIES = int(environ.get("HISTORIES", "120"))
PARTS = 8
DESIRED = 3
WEB = {"app": "web"}
Manifest = dict[str, Any]


class History:
    """The cluster between cycles: manifests of pods by name."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = [builders.node(name, self.random.randint(1, 3)) for name in "abc"]
        self.together = self.random.random() < 0.5
        self.replicas: dict[str, Manifest] = {}
        self.urgent: dict[str, Manifest] = {}
        self.made = 0
        for _ in range(4):
            self._replicate()
        self.status = {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": DESIRED}
        self.evicted = 0

    def _replicate(self) -> None:
        self.made += 1
        name = f"w{self.made}"
        pod = builders.pod(name, self._group(name), "", {GPU: "1"}, labels=WEB)
        pod["status"] = {"phase": "Pending", "conditions": []}
        self.replicas[name] = pod

    def _group(self, name: str) -> str:
        return "web" if self.together else name

    @property
    def healthy(self) -> int:
        return sum(
            1
            for pod in self.replicas.values()
            if pod["status"]["conditions"] and "deletionTimestamp" not in pod["metadata"]
        )

    def happen(self) -> None:
        """What goes on between two cycles."""
        for name, pod in list(self.replicas.items()):
            if "deletionTimestamp" in pod["metadata"]:
                if self.random.random() < 0.5:
                    del self.replicas[name]
                    self._replicate()
            elif pod["spec"].get("nodeName") and self.random.random() < 0.7:
                pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for name in list(self.urgent):
            if self.random.random() < 0.3:
                del self.urgent[name]
        for _ in range(self.random.choice([0, 1, 1, 2])):
            self.made += 1
            name = f"u{self.made}"
            self.urgent[name] = builders.pod(name, name, "", {GPU: str(self.random.randint(1, 2))})
        if self.random.random() < 0.5:
            self.status = {**self.status, "disruptionsAllowed": max(0, self.healthy - DESIRED)}

    def _objects(self) -> list[Any]:
        groups = {self._group(name) for name in self.replicas}
        made = [builders.pod_group(name, metadata={"namespace": "ns"}) for name in groups]
        for name in self.urgent:
            group = builders.pod_group(name, metadata={"namespace": "ns"})
            group["spec"]["priorityClassName"] = "urgent"
            made.append(group)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "ns", "generation": 1},
            "spec": {"minAvailable": DESIRED, "selector": {"matchLabels": WEB}},
            "status": self.status,
        }
        fixed = [builders.queue(), builders.priority_class("urgent", 75), budget]
        pods = [*self.replicas.values(), *self.urgent.values()]
        return [decoded(each) for each in (*self.nodes, *fixed, *made, *pods)]

    def cycle(self) -> None:
        plan = decide(builders.snapshot(self._objects()), POLICY, now=builders.NOW)
        pods = {**self.replicas, **self.urgent}
        before = self.healthy
        for eviction in plan.evictions:
            pods[eviction.pod[1]]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
            self.evicted += eviction.pod[1] in self.replicas
        assert self.healthy >= min(before, DESIRED)
        for bind in plan.binds:
            pods[bind.pod[1]]["spec"]["nodeName"] = bind.node
            if bind.pod[1] in self.urgent:
                pods[bind.pod[1]]["status"] = {"phase": "Running", "conditions": []}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_the_budget(part: int) -> None:
    evicted = 0
    for seed in range(part, HISTORIES, PARTS):
        history = History(seed)
        for _ in range(10):
            history.cycle()
            history.happen()
        evicted += history.evicted
    assert evicted > 0
