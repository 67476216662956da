"""Pods go to the node with the lowest price (label example.com/price); nodes without one come last."""

import numpy as np


class CheapestFirst:
    def __init__(self, arguments):
        self.weight = float(arguments.get("weight", "1000"))

    def score(self, look):
        labels = look.trial.snapshot.nodes.labels
        return -self.weight * np.array([float(labels[node].get("example.com/price", "1000")) for node in look.nodes])
