"""§6.2.6: the nodes that can use the volumes of a pod, and which claims get which volume, as Kubernetes has it."""

from __future__ import annotations

from tests.properties.twin.rules import Rule
from tests.properties.twin.storage import POOLED, WAIT, Storage, size
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

Gift = tuple[str, str, str]
"""A claim, the volume it gets ("": a new one), and the node that is for."""
Choices = dict[str, Gift]


class Volumes(Rule):
    """Our rules: a claim is served once per cycle; what pods on their way to a node are to get is theirs; a volume that
    was set aside for a claim, and would do, is the only one for it."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def closed(self, world: World, pod: int, node: int) -> bool:
        name, at = world.snapshot.pods.names[pod], world.snapshot.nodes.names[node]
        usable = all(self._usable(claim, at) for claim in self.storage.named_by(name))
        return not usable or self.gifts(world, pod, node) is None

    def _usable(self, claim: str, at: str) -> bool:
        """Whether a claim exists, and has a volume within reach or waits for a node."""
        found = self.storage.claims.get(claim)
        if found is None:
            return False
        if self.storage.bound(claim):
            return self.storage.reaches(found["spec"]["volumeName"], at)
        return bool(self.storage.class_of(found)["volumeBindingMode"] == WAIT)

    def gifts(self, world: World, pod: int, node: int) -> tuple[Gift, ...] | None:
        made = self._under_way(world)
        for now in world.pods:
            if now.status in ACTIVE_ALLOCATED:
                made |= {gift[0]: gift for gift in now.given}
        return self._choose(world.snapshot.pods.names[pod], world.snapshot.nodes.names[node], made)

    def _under_way(self, world: World) -> Choices:
        """What claims of pods are about to be given that had a node before this cycle."""
        made: Choices = {}
        for name, start in zip(world.snapshot.pods.names, world.start, strict=True):
            if start.status in ACTIVE_ALLOCATED:
                chosen = self._choose(name, world.snapshot.nodes.names[start.node], made)
                made |= {gift[0]: gift for gift in chosen or ()}
        return made

    def _choose(self, pod: str, at: str, made: Choices) -> tuple[Gift, ...] | None:
        """The smallest claim first, each with what the others have not got; None: one of them gets nothing."""
        found: list[Gift] = []
        for claim in self.storage.unbound(pod):
            gift = made.get(claim) or self._serve(claim, at, {gift[1] for gift in (*made.values(), *found)})
            if gift is None or not (self.storage.reaches(gift[1], at) if gift[1] else gift[2] == at):
                return None
            found.append(gift)
        return tuple(found)

    def _serve(self, claim: str, at: str, away: set[str]) -> Gift | None:
        """The smallest volume that would do, else a new one."""
        aside, suiting = self._aside(claim), self._suiting(claim)
        if self.storage.selected(claim) and not aside:
            suiting = []
        free = [name for name in aside or suiting if name not in away and self.storage.reaches(name, at)]
        if free:
            return claim, min(free, key=lambda name: (size(self.storage.volumes[name]), name)), at
        return (claim, "", at) if not aside and self._can_be_made(claim, at) else None

    def _suiting(self, claim: str) -> list[str]:
        """Volumes of its class, large enough, that nobody else has."""
        wanted, found = self.storage.claims[claim], self.storage.volumes
        return [
            name
            for name, volume in found.items()
            if volume["spec"]["storageClassName"] == wanted["spec"]["storageClassName"]
            and volume["spec"].get("claimRef", {}).get("name", claim) == claim
            and size(volume) >= size(wanted)
        ]

    def _aside(self, claim: str) -> list[str]:
        return [name for name in self._suiting(claim) if "claimRef" in self.storage.volumes[name]["spec"]]

    def _can_be_made(self, claim: str, at: str) -> bool:
        fields = self.storage.claims[claim]
        found = self.storage.class_of(fields)
        if found["provisioner"] == "kubernetes.io/no-provisioner" or self.storage.selected(claim) not in (None, at):
            return False
        for term in found.get("allowedTopologies", []):
            wanted = term["matchLabelExpressions"][0]
            if self.storage.labels(at).get(wanted["key"]) not in wanted["values"]:
                return False
        if self.storage.by_pools or found["provisioner"] != POOLED:
            return True
        pools = self.storage.pools_of(fields["spec"]["storageClassName"], at)
        return any(self.storage.largest(pool) >= size(fields) for pool in pools)
