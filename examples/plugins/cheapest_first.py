"""Pods go to the node with the lowest price (label example.com/price); nodes without one come last."""

from collections.abc import Mapping

import numpy as np

from pykai.plugin_api import Column, NodeLook


class CheapestFirst:
    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.weight = float(arguments.get("weight", "1000"))

    def score(self, look: NodeLook) -> Column:
        labels = look.trial.snapshot.nodes.labels
        return -self.weight * np.array([float(labels[node].get("example.com/price", "1000")) for node in look.nodes])
