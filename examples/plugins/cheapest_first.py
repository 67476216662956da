"""Pods go to the node with the lowest price (label example.com/price); nodes without one come last."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CheapestFirst:
    arguments: dict

    def score(self, look):
        weight = float(self.arguments.get("weight", "1000"))
        labels = look.trial.snapshot.nodes.labels
        return -weight * np.array([float(labels[node].get("example.com/price", "1000")) for node in look.nodes])
