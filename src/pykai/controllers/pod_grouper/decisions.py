"""Which group each pod is to be put in, from the moment that is known until it is written.

A write may fail and be tried again long after; meanwhile the pod may have gone, come back under its name, or changed
its owner. Invariant: there is one decision per pod, the newest; an older one is never carried out.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykai.controllers.grouping import GroupSpec
from pykai.kube.replica import Key


class Decisions:
    """Decisions that wait to be written, by pod and by group, both as (namespace, name)."""

    def __init__(self) -> None:
        self._newest: dict[Key, GroupSpec] = {}
        self._pods: dict[Key, dict[Key, None]] = {}

    def decide(self, pod: Key, spec: GroupSpec) -> Key:
        """The pod belongs in this group, whatever was decided before; answers the group."""
        group = _group(spec)
        self._newest[pod] = spec
        waiting = self._pods.setdefault(group, {})
        waiting.pop(pod, None)
        waiting[pod] = None
        return group

    def withdraw(self, pod: Key) -> None:
        """Nothing is to be written about this pod: it has gone, or is not ours to group."""
        self._newest.pop(pod, None)

    def holds(self, pod: Key, spec: GroupSpec) -> bool:
        """Whether this is still what is to be written about the pod."""
        return self._newest.get(pod) is spec

    def take(self, group: Key) -> dict[Key, GroupSpec]:
        """The pods to put in a group now, the newest decision last; they no longer wait."""
        found = {pod: self._newest.get(pod) for pod in self._pods.pop(group, {})}
        return {pod: spec for pod, spec in found.items() if spec is not None and _group(spec) == group}

    def put_back(self, group: Key, pods: Iterable[Key]) -> None:
        """These pods were not written to: they wait again, behind what was decided meanwhile."""
        self._pods[group] = dict.fromkeys(pods) | self._pods.get(group, {})

    def done(self, pod: Key, spec: GroupSpec) -> None:
        """This was written."""
        if self.holds(pod, spec):
            del self._newest[pod]


def _group(spec: GroupSpec) -> Key:
    return spec.namespace, spec.name
