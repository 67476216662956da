"""§15 with --schedule-csi-storage: claims draw on pools of storage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pykai.model.status import Status
from tests.properties.twin.rules import Rule
from tests.properties.twin.storage import POOLED, WAIT, Storage, places, size
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

STAYING = ACTIVE_ALLOCATED | {Status.STUCK_IN_RELEASING}


@dataclass
class Use:
    """Claims without a volume that are served, with their pools; by pool what else is taken, or comes back."""

    drawn: dict[str, str | None] = field(default_factory=dict)
    more: Counter[str] = field(default_factory=Counter)


class Pools(Rule):
    """Pending claims of a pod must fit into capacity - pending provisioned ones; claims that only the evicted pod owns
    count as releasing."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def closed(self, world: World, pod: int, node: int) -> bool:
        return not self._fits(world, pod, node, releasing=True)

    def waits(self, world: World, pod: int, node: int) -> bool:
        return not self._fits(world, pod, node, releasing=False)

    def _fits(self, world: World, pod: int, node: int, releasing: bool) -> bool:
        use, needs = self._use(world, releasing), dict[str, list[int]]()
        for claim in filter(self._managed, self.storage.unbound(world.snapshot.pods.names[pod])):
            pool = self._pool(claim, world.snapshot.nodes.names[node])
            if pool is None:
                return False
            if claim not in use.drawn:
                needs.setdefault(pool, []).append(size(self.storage.claims[claim]))
        return all(
            max(sizes) <= self.storage.largest(pool) and sum(sizes) <= self._left(pool, use)
            for pool, sizes in needs.items()
        )

    def _left(self, pool: str, use: Use) -> int:
        drawn = [size(self.storage.claims[claim]) for claim, where in use.drawn.items() if where == pool]
        return int(self.storage.pools[pool]["capacity"]) - sum(drawn) - use.more[pool]

    def _use(self, world: World, releasing: bool) -> Use:
        use = Use()
        for _, name, at in places(world, STAYING):
            for claim in filter(self._managed, self.storage.unbound(name)):
                use.drawn.setdefault(claim, self._pool(claim, at))
        for row, name, at in places(world, {Status.RELEASING}):
            for claim in self.storage.named_by(name) if world.had_place(row) else ():
                self._note_leaving(use, claim, (name, at), releasing)
        return use

    def _note_leaving(self, use: Use, claim: str, left: tuple[str, str], releasing: bool) -> None:
        """What a pod leaves behind on a node."""
        pool = self._pool(claim, left[1]) if claim in self.storage.claims and self._managed(claim) else None
        if pool is None or claim in use.drawn:
            return
        bound, owned = self.storage.bound(claim), self._owns(left[0], claim)
        if owned and bound == releasing:
            use.more[pool] += size(self.storage.claims[claim]) * (-1 if bound else 1)
        elif not owned and not bound:
            use.drawn.setdefault(claim, pool)

    def _owns(self, pod: str, claim: str) -> bool:
        owners = self.storage.claims[claim]["metadata"].get("ownerReferences", [])
        return [owner["uid"] for owner in owners] == [pod]

    def _managed(self, claim: str) -> bool:
        found = self.storage.class_of(self.storage.claims[claim])
        return bool(found["provisioner"] == POOLED and found["volumeBindingMode"] == WAIT)

    def _pool(self, claim: str, at: str) -> str | None:
        """The pool a claim draws on at a node; more than one are ignored."""
        found = self.storage.pools_of(self.storage.claims[claim]["spec"]["storageClassName"], at)
        return found[0] if len(found) == 1 else None
