"""§6.2: a rule about nodes that depends on where other pods are, or on what they were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.properties.twin.world import Place, World

Gifts = tuple[Any, ...]
"""What a pod gets on a node beside its place: volumes for claims, devices for claims, parts of zones."""


class Rule:
    """It has nothing to say where it does not say so."""

    def closed(self, world: World, pod: int, node: int) -> bool:
        """Whether the pod cannot have the node, also when everybody is gone who leaves."""
        return False

    def waits(self, world: World, pod: int, node: int) -> bool:
        """Whether it can have the node only when somebody is gone who leaves."""
        return False

    def score(self, world: World, pod: int, node: int) -> float:
        """§11"""
        return 0.0

    def gifts(self, world: World, pod: int, node: int) -> Gifts | None:
        """None: what the pod needs is not to be had there."""
        return ()

    def gifts_at(self, world: World, pod: int, place: Place) -> Gifts:
        """What it gets with a place that it can have, to start or to wait there."""
        return self.gifts(world, pod, place.node) or ()

    def gifts_after_all(self, world: World, pod: int, given: Gifts) -> Gifts:
        """What it has where it starts, or waits, after all."""
        return given

    def same(self, world: World, pod: int, given: Gifts) -> bool:
        """Whether a pod that was to be evicted gets back just what it had."""
        return True
