"""The node resources of a cycle: which of them concern which pods, and what every placement does to them.

A resource outside the node columns (ports, pod affinity, volumes, devices, NUMA zones) is opened once per cycle. Only
the resources that concern the class of a pod are called for it, and only the methods that they override: most pods use
no node resource.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from pykai.engine.plugin_api import BindDetails, NodeResource, NodeResourceState
from pykai.engine.plugin_times import PluginTimes
from pykai.engine.trial import Trial
from pykai.model.pods import PodClass
from pykai.model.resources import Column, Rows

Kind = TypeVar("Kind", bound=NodeResourceState)
States = tuple[NodeResourceState, ...]


@dataclass(frozen=True)
class ClassResources:
    """The resources that concern a class, and those of them that override the method of each step."""

    all: States
    filtering: States
    rejecting: States
    waiting: States
    reserving: States
    detailing: States

    @classmethod
    def of(cls, states: States) -> ClassResources:
        steps = ("infeasible", "reject", "must_wait", "reserve", "details")
        return cls(states, *(tuple(state for state in states if _overrides(state, step)) for step in steps))


def _overrides(state: NodeResourceState, method: str) -> bool:
    return getattr(type(state), method) is not getattr(NodeResourceState, method)


class NodeResources:
    """The opened resources of a cycle, in plugin order."""

    def __init__(self, trial: Trial, times: PluginTimes) -> None:
        self.states: States = ()
        self._trial = trial
        self._times = times
        self._plugins: dict[int, NodeResource] = {}
        """By identity of the state."""
        self._of_class: dict[int, ClassResources] = {}
        self._selections: dict[tuple[bool, ...], ClassResources] = {}

    def add(self, plugin: NodeResource, state: NodeResourceState | None) -> None:
        """Add an opened resource; None: nothing in the cluster uses it."""
        if state is not None:
            self.states = (*self.states, state)
            self._plugins[id(state)] = plugin

    def get(self, kind: type[Kind]) -> Kind | None:
        """The opened resource of a kind."""
        return next((state for state in self.states if isinstance(state, kind)), None)

    def of_class(self, pod_class: PodClass) -> ClassResources:
        """The resources that concern a class; one object for all classes with the same ones."""
        found = self._of_class.get(pod_class.row)
        if found is None:
            concerned = tuple([state.concerns(pod_class) for state in self.states])
            found = self._selections.get(concerned)
            if found is None:
                chosen = tuple(state for state, yes in zip(self.states, concerned, strict=True) if yes)
                found = self._selections[concerned] = ClassResources.of(chosen)
            self._of_class[pod_class.row] = found
        return found

    def of(self, pod: int) -> ClassResources:
        """The resources that concern a pod."""
        return self.of_class(self._trial.of_class(pod))

    def reliefs(self) -> tuple[Callable[[PodClass, Rows], Column | None], ...]:
        """Return the functions for what classes do not take from the node columns (`NodeResourceState.spared`)."""
        return tuple(state.spared for state in self.states if state.relieves)

    def must_wait(self, pod: int, node: int) -> bool:
        """Whether a pod on a node waits until some resource is released."""
        for state in self.of(pod).waiting:
            if not state.may_wait():
                continue
            mask = state.must_wait(pod, np.array([node]))
            if mask is not None and mask[0]:
                return True
        return False

    def reserve(self, pod: int) -> None:
        """Notify the resources of a placement, or of its change (`NodeResourceState.reserve`)."""
        for state in self.of(pod).reserving:
            state.reserve(pod, self._trial.node[pod])

    def release(self, pod: int) -> None:
        """Notify the resources of an eviction, tentative or final."""
        for state in self.of(pod).all:
            state.release(pod)

    def unchanged(self, pod: int, node: int) -> bool:
        """Whether an evicted pod that gets its node back has all its resources as before."""
        return all(state.unchanged(pod, node) for state in self.of(pod).all)

    def details(self, pod: int) -> BindDetails | None:
        """Return what the bind of a pod carries for all its resources together; None: nothing."""
        asked = [(self._plugins[id(state)], partial(state.details, pod)) for state in self.of(pod).detailing]
        found = [one for plugin, ask in asked if (one := self._times.of(plugin, ask)) is not None]
        if len(found) < 2:
            return found[0] if found else None
        extended = [one.extended_claim for one in found if one.extended_claim is not None]
        return BindDetails(
            claims=tuple(claim for one in found for claim in one.claims),
            zones=tuple(zone for one in found for zone in one.zones),
            extended_claim=extended[0] if extended else None,
        )
