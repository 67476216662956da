"""Topology spread as Kubernetes documents it, and preferences: preferred node affinity, PreferNoSchedule.

Read from the pods as they were written, pod by pod and node by node. All pods are of one namespace.
"""

from __future__ import annotations

from math import log

import msgspec

from tests.properties.small_world import Cluster, Fields
from tests.properties.twin.neighbours import PREFERRED, Neighbours
from tests.properties.twin.predicates import allowed, matches_node_affinity, tolerates
from tests.properties.twin.rules import Rule
from tests.properties.twin.world import World


class EvenSpread(Rule):
    """With the pod, a domain may hold at most maxSkew selected pods more than the one that holds fewest."""

    def __init__(self, cluster: Cluster) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in cluster.pods}
        self.nodes = {node["metadata"]["name"]: node for node in cluster.nodes}
        self._neighbours = Neighbours(cluster)

    def _rules(self, world: World, pod: int, hard: bool) -> list[Fields]:
        spec = self.pods[world.snapshot.pods.names[pod]]["spec"]
        when = "DoNotSchedule" if hard else "ScheduleAnyway"
        return [rule for rule in spec.get("topologySpreadConstraints", []) if rule["whenUnsatisfiable"] == when]

    def _labels(self, world: World, node: int) -> dict[str, str]:
        labels: dict[str, str] = self.nodes[world.snapshot.nodes.names[node]]["metadata"]["labels"]
        return labels

    def _counts(self, world: World, pod: int, rule: Fields, rules: list[Fields]) -> dict[str, int]:
        """Domain -> selected pods on its eligible nodes."""
        here = list(self._neighbours._here(world, staying=True))
        found: dict[str, int] = {}
        for node, name in enumerate(world.snapshot.nodes.names):
            labels = self._labels(world, node)
            if any(each["topologyKey"] not in labels for each in rules):
                continue
            if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and not matches_node_affinity(
                world.snapshot, pod, node
            ):
                continue
            if rule.get("nodeTaintsPolicy", "Ignore") == "Honor" and not tolerates(world.snapshot, pod, node):
                continue
            domain = labels[rule["topologyKey"]]
            found.setdefault(domain, 0)
            found[domain] += sum(1 for other, where in here if where == name and self._selects(world, pod, rule, other))
        return found

    def _selects(self, world: World, pod: int, rule: Fields, other: Fields) -> bool:
        mine, theirs = self.pods[world.snapshot.pods.names[pod]]["metadata"]["labels"], other["metadata"]["labels"]
        wanted = dict(rule["labelSelector"]["matchLabels"])
        wanted.update({key: mine[key] for key in rule.get("matchLabelKeys", []) if key in mine})
        return all(theirs.get(key) == value for key, value in wanted.items())

    def closed(self, world: World, pod: int, node: int) -> bool:
        rules, labels = self._rules(world, pod, hard=True), self._labels(world, node)
        for rule in rules:
            if rule["topologyKey"] not in labels:
                return True
            counts = self._counts(world, pod, rule, rules)
            if not counts:
                continue
            fewest = min(counts.values()) if len(counts) >= rule.get("minDomains", 1) else 0
            own = self._selects(world, pod, rule, self.pods[world.snapshot.pods.names[pod]])
            if counts.get(labels[rule["topologyKey"]], 0) + own - fewest > rule["maxSkew"]:
                return True
        return False

    def score(self, world: World, pod: int, node: int) -> float:
        return self._evenness(world, pod, node) + self._affinity(world, pod, node) + self._taints(world, pod, node)

    def _evenness(self, world: World, pod: int, node: int) -> float:
        """200 for the emptiest domains"""
        rules = self._rules(world, pod, hard=False)
        if not rules:
            return 0.0
        nodes = [
            each
            for each in range(len(world.snapshot.nodes))
            if allowed(world.snapshot, pod, each)
            and all(rule["topologyKey"] in self._labels(world, each) for rule in rules)
        ]
        if node not in nodes:
            return 0.0
        crowded = dict.fromkeys(nodes, 0.0)
        for rule in rules:
            key, counts = rule["topologyKey"], self._counts(world, pod, rule, rules)
            weight = log(len({self._labels(world, each)[key] for each in nodes}) + 2)
            for each in nodes:
                crowded[each] += counts.get(self._labels(world, each)[key], 0) * weight + rule["maxSkew"] - 1
        rounded = {each: round(value) for each, value in crowded.items()}
        most, least = max(rounded.values()), min(rounded.values())
        return 2.0 * (100 * (most + least - rounded[node]) // most) if most else 200.0

    def _affinity(self, world: World, pod: int, node: int) -> float:
        """200 for the nodes with the greatest weight"""
        spec = self.pods[world.snapshot.pods.names[pod]]["spec"]
        wishes = spec.get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, [])
        sums = [
            sum(wish["weight"] for wish in wishes if self._meets(world, each, wish))
            for each in range(len(world.snapshot.nodes))
        ]
        return 2.0 * (100 * sums[node] // max(sums)) if max(sums) else 0.0

    def _meets(self, world: World, node: int, wish: Fields) -> bool:
        labels = self._labels(world, node)
        return all(labels.get(each["key"]) in each["values"] for each in wish["preference"]["matchExpressions"])

    def _taints(self, world: World, pod: int, node: int) -> float:
        """300 less what taints that are not tolerated take away"""
        raw = world.snapshot.pods.objects[pod].spec.tolerations
        tolerations = msgspec.json.decode(raw) if bytes(raw) else []
        keys = {each["key"] for each in tolerations if each.get("effect", "PreferNoSchedule") == "PreferNoSchedule"}
        against = [
            sum(1 for taint in taints if taint.effect == "PreferNoSchedule" and taint.key not in keys)
            for taints in world.snapshot.nodes.taints
        ]
        return 3.0 * (100 - 100 * against[node] // max(against)) if max(against, default=0) else 0.0
