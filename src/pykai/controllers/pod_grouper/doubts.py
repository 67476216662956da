"""Pods that were grouped by what had been read before they came: their workload may have another shape by now.

An owner is read once for all pods that come together, and remembered for a few seconds. A workload that grows within
that time gets pods its owner, as remembered, knows nothing of, and nothing else may happen to them afterwards. So such
a group is looked at once more, through one of its pods and a new read of its owners; if that pod would be grouped
otherwise, so may all of them.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from pykai.controllers.grouping import GroupSpec
from pykai.controllers.pod_grouper.lookup import Answers, Question
from pykai.kube.replica import Key


@dataclass(slots=True)
class Doubt:
    """One group: `spec` is how `pod` was grouped, `since` when the last of the `pods` was looked at."""

    pod: Key
    spec: GroupSpec
    since: float
    questions: set[Question] = field(default_factory=set)
    pods: set[Key] = field(default_factory=set)


class Doubts:
    """The groups to look at once more, by (namespace, name)."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._groups: dict[Key, Doubt] = {}

    def note(self, pod: Key, spec: GroupSpec, asked: Set[Question], began: float) -> bool:
        """A look at a pod that began at this moment ended so: whether its group is worth another one."""
        older = self._answers.older(asked, began)
        if not older:
            return False
        doubt = self._groups.setdefault((spec.namespace, spec.name), Doubt(pod, spec, began))
        doubt.since = began
        doubt.questions |= older
        doubt.pods.add(pod)
        return True

    def take(self, group: Key) -> Doubt | None:
        """The doubt about a group, to be cleared now: what was read before its last pod came is forgotten."""
        doubt = self._groups.pop(group, None)
        if doubt is not None:
            self._answers.forget(self._answers.older(doubt.questions, doubt.since))
        return doubt
