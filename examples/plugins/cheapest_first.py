"""Pods go to the node with the lowest price (node label example.com/price); nodes without one come last."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CheapestFirst:
    weight: float = 1000.0

    def score(self, look):
        labels = look.trial.snapshot.nodes.labels
        return np.array([-self.weight * float(labels[node].get("example.com/price", "1000")) for node in look.nodes])
