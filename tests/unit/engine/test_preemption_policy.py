"""A priority class with `preemptionPolicy: Never`: its workloads preempt nobody, and are told so."""

from __future__ import annotations

import pytest

from pykai.engine.decide import decide
from pykai.engine.policy import Policy
from pykai.model.plan import Plan
from pykai.plugins.registry import BUILT_IN, make_all
from tests import builders
from tests.builders import GPU, NOW, decoded


def planned(policy: str, named: bool = True, queues: tuple[str, str] = ("q", "q")) -> Plan:
    """A node of one GPU that is taken, and an urgent pod that wants it."""
    priority = {**builders.priority_class("urgent", 75), "preemptionPolicy": policy, "globalDefault": not named}
    low = builders.priority_class("low", 10)
    running = builders.pod_group("running", queues[0], priorityClassName="low")
    waiting = builders.pod_group("waiting", queues[1], priorityClassName="urgent" if named else "")
    pods = [builders.pod("r", "running", "a", {GPU: "1"}), builders.pod("w", "waiting", "", {GPU: "1"})]
    shares = [builders.queue(name, gpu={"quota": 1 if name == "rich" else 0}) for name in dict.fromkeys(queues)]
    objects = [builders.node("a", 1), *shares, priority, low, running, waiting, *pods]
    return decide(builders.snapshot(map(decoded, objects)), Policy(make_all((n, {}) for n in BUILT_IN)), now=NOW)


@pytest.mark.parametrize("named", [True, False])
def test_never_as_preemptor(named: bool) -> None:
    assert [each.pod[1] for each in planned("PreemptLowerPriority", named).evictions] == ["r"]
    plan = planned("Never", named)
    assert not plan.evictions
    (verdict,) = plan.verdicts
    assert "its priority class says preemptionPolicy: Never" in [each.message for each in verdict.actions]


def test_reclaim_is_not_preemption() -> None:
    assert [each.pod[1] for each in planned("Never", queues=("poor", "rich")).evictions] == ["r"]
