"""The tables of a pod's life: what the trial does is what they say, and nothing else."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from pykai.engine.cycle import Cycle
from pykai.engine.pod_states import EFFECTS, Effect, Transition, TransitionError, target_of
from pykai.model.status import ACTIVE_USED, Status
from tests.unit.engine.test_pod_locations import STEPS, start, step


def recounted(of: Cycle) -> dict[str, list[float]]:
    """Figures of nodes (CPU) and podsets from the statuses of pods alone; a pod that moved leaves its old node."""
    trial, pods = of.trial, of.snapshot.pods
    figures: Counter[tuple[str, int]] = Counter()
    for pod in range(len(pods)):
        places = [(Status(trial.status[pod]), trial.node[pod])]
        if pod in trial.placed and pods.node[pod] >= 0:
            places.append((Status.RELEASING, int(pods.node[pod])))
        for at, (status, node) in enumerate(places):
            for name, by in EFFECTS[status]._asdict().items():
                if name not in ("idle", "releasing"):
                    figures[name, trial.podset[pod]] += by if at == 0 else 0
                elif node >= 0:
                    figures[name, node] += by * int(trial.of_class(pod).request[0])
    sizes = {
        name: len(of.snapshot.nodes) if name in ("idle", "releasing") else len(trial.pending) for name in Effect._fields
    }
    return {name: [figures[name, at] for at in range(size)] for name, size in sizes.items()}


@settings(max_examples=150)
@given(steps=STEPS)
def test_figures_are_those_of_the_table(steps: list[tuple[str, int]]) -> None:
    of, marks = start(), list[int]()
    for what, which in steps:
        step(of, marks, what, which)
        expected, trial = recounted(of), of.trial
        found = {name: np.asarray(getattr(trial, name)) for name in Effect._fields[2:]}
        assert {name: column.tolist() for name, column in found.items()} == {name: expected[name] for name in found}
        assert (trial.idle[0] - of.snapshot.nodes.allocatable[0]).tolist() == expected["idle"]
        assert trial.releasing[0].tolist() == expected["releasing"]


def test_only_pods_in_use_hold_something_of_a_node() -> None:
    assert {status for status, effect in EFFECTS.items() if effect.idle or effect.releasing} == ACTIVE_USED


@pytest.mark.parametrize("transition", Transition)
@pytest.mark.parametrize("status", Status)
def test_a_change_that_the_table_does_not_have_is_refused(transition: Transition, status: Status) -> None:
    if status in transition.value.sources:
        assert target_of(transition, status, Status.RUNNING) in (transition.value.target, Status.RUNNING)
        return
    with pytest.raises(TransitionError, match=f"a pod that is {status.title} cannot {transition.name}"):
        target_of(transition, status, Status.RUNNING)


def test_a_pod_that_was_not_supposed_to_leave_cannot_be_kept() -> None:
    with pytest.raises(TransitionError, match="cannot KEEP"):
        target_of(Transition.KEEP, Status.RELEASING)
