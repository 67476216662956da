"""§6.2.6, §11: host ports, and who must, must not or should be a neighbour of whom, as Kubernetes has it.

Read from the pods as they were written. Terms have one label in their selector; all pods are of one namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from pykai.model.status import Status
from tests.properties.small_world import Cluster, Fields
from tests.properties.twin.rules import Rule
from tests.properties.twin.world import ACTIVE_ALLOCATED, World

STAYING = ACTIVE_ALLOCATED | {Status.STUCK_IN_RELEASING}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Neighbours(Rule):
    """Our rule: who leaves is no neighbour any more, but a pod that must keep away from it, or wants its port, waits
    until it is gone."""

    def __init__(self, cluster: Cluster) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in cluster.pods}
        self.labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in cluster.nodes}

    def _here(self, world: World, staying: bool) -> Iterator[tuple[Fields, str]]:
        """Pods with the nodes they stay on, or leave."""
        wanted = STAYING if staying else {Status.RELEASING}
        for name, now in zip(world.snapshot.pods.names, world.pods, strict=True):
            for place in now.places():
                if place.status in wanted:
                    yield self.pods[name], world.snapshot.nodes.names[place.node]

    def _together(self, one: str, other: str, key: str) -> bool:
        """Whether two nodes are in one domain."""
        mine, theirs = self.labels[one].get(key), self.labels[other].get(key)
        return mine is not None and mine == theirs

    def closed(self, world: World, pod: int, node: int) -> bool:
        mine, at = self.pods[world.snapshot.pods.names[pod]], world.snapshot.nodes.names[node]
        here = list(self._here(world, staying=True))
        return self._repelled(mine, at, here) or not self._has_company(mine, at, here)

    def waits(self, world: World, pod: int, node: int) -> bool:
        mine, at = self.pods[world.snapshot.pods.names[pod]], world.snapshot.nodes.names[node]
        return self._repelled(mine, at, list(self._here(world, staying=False)))

    def _repelled(self, mine: Fields, at: str, others: Iterable[tuple[Fields, str]]) -> bool:
        for other, where in others:
            if where == at and collide(mine, other):
                return True
            for one, whom in ((mine, other), (other, mine)):
                apart = [term["topologyKey"] for term in terms(one, "podAntiAffinity") if speaks_of(term, whom)]
                if any(self._together(at, where, key) for key in apart):
                    return True
        return False

    def _has_company(self, mine: Fields, at: str, others: Sequence[tuple[Fields, str]]) -> bool:
        """Each term: somebody who matches all terms is in its domain; the first of its kind needs a domain only."""
        near = terms(mine, "podAffinity")
        if any(term["topologyKey"] not in self.labels[at] for term in near):
            return False
        friends = [where for other, where in others if all(speaks_of(term, other) for term in near)]
        if all(any(self._together(at, where, term["topologyKey"]) for where in friends) for term in near):
            return True
        anywhere = any(term["topologyKey"] in self.labels[where] for term in near for where in friends)
        return not anywhere and all(speaks_of(term, mine) for term in near)

    def score(self, world: World, pod: int, node: int) -> float:
        """1000000 * raw InterPodAffinity score"""
        mine, at = self.pods[world.snapshot.pods.names[pod]], world.snapshot.nodes.names[node]
        score = 0
        for other, where in self._here(world, staying=True):
            for one, whom in ((mine, other), (other, mine)):
                for weight, term in wishes(one):
                    if speaks_of(term, whom) and self._together(at, where, term["topologyKey"]):
                        score += weight
        return 1_000_000.0 * score


# ------------------------------------------------------------------------------------------------------------- reading
def terms(pod: Fields, kind: str) -> list[Fields]:
    found: list[Fields] = pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])
    return found


def wishes(pod: Fields) -> Iterator[tuple[int, Fields]]:
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for wish in pod["spec"].get("affinity", {}).get(kind, {}).get(PREFERRED, []):
            yield sign * wish["weight"], wish["podAffinityTerm"]


def speaks_of(term: Fields, pod: Fields) -> bool:
    ((key, value),) = term["labelSelector"]["matchLabels"].items()
    return bool(pod["metadata"]["labels"].get(key) == value)


def collide(one: Fields, other: Fields) -> bool:
    """Whether two pods want one port: of the same or of any address."""
    for mine, theirs in product(ports(one), ports(other)):
        addresses = {mine.get("hostIP", ""), theirs.get("hostIP", "")}
        same = mine["hostPort"] == theirs["hostPort"] and mine.get("protocol", "TCP") == theirs.get("protocol", "TCP")
        if same and ("" in addresses or len(addresses) == 1):
            return True
    return False


def ports(pod: Fields) -> list[Any]:
    found: list[Any] = pod["spec"]["containers"][0].get("ports", [])
    return found
