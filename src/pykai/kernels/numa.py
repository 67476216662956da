"""Arithmetic of NUMA zones: which zones of many nodes hold a request, and what it takes from each.

Blocks are [zone, resource, node], requests [resource, node], masks [zone, node]; zones a node does not have are zero.
Available amounts are never below 0 here: `align` treats an overcommitted zone as full. A policy returns the zones it
uses on each node: no zone means that the request cannot be aligned there. An empty request gets the first zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from pykai.model.resources import Column, Mask

Choose = Callable[[Column, Column, Column], Mask]
"""(available, allocatable, request) -> zones."""


def one_zone(available: Column, allocatable: Column, request: Column) -> Mask:
    """The lowest zone that holds the whole request."""
    fits = (available >= request[None]).all(axis=1)
    first: Mask = np.cumsum(fits, axis=0) == 1
    return fits & first


def fewest_zones(available: Column, allocatable: Column, request: Column) -> Mask:
    """As many zones as the request needs on an empty node, the same number for each resource: the lowest that do."""
    width = _width(allocatable, request)
    chosen = np.zeros((available.shape[0], available.shape[2]), dtype=bool)
    for size in range(1, available.shape[0] + 1):
        waiting = width == size
        for zones in combinations(range(available.shape[0]), size):
            if not waiting.any():
                break
            holds = waiting & (available[list(zones)].sum(axis=0) >= request).all(axis=0)
            chosen[np.ix_(zones, holds)] = True
            waiting = waiting & ~holds
    return chosen


def _width(allocatable: Column, request: Column) -> Column:
    """Zones needed, the largest first; 0 where resources disagree or the node is too small."""
    held = np.cumsum(-np.sort(-allocatable, axis=0), axis=0)
    asked = request > 0
    needed = np.where(asked, 1 + (held < request[None]).sum(axis=0), 0)
    widest = needed.max(axis=0, initial=1)
    agree = np.where(asked, needed, widest[None]) == widest[None]
    return np.where(agree.all(axis=0) & (widest <= allocatable.shape[0]), widest, 0)


def covering_zones(available: Column, allocatable: Column, request: Column) -> Mask:
    """Zones added one by one, each the one that covers most of what is missing; empty where all are not enough."""
    zones, _, nodes = available.shape
    chosen = np.zeros((zones, nodes), dtype=bool)
    missing = request.copy()
    every = np.arange(nodes)
    for step in range(zones):
        unserved = (missing > 0).any(axis=0) | (step == 0)
        scale = np.where(request > 0, request, 1.0)
        covered = (np.minimum(available, missing[None]) / scale[None]).sum(axis=1)
        best = np.where(chosen, -1.0, covered).argmax(axis=0)
        chosen[best[unserved], every[unserved]] = True
        missing = np.where(unserved, missing - np.minimum(available[best, :, every].T, missing), missing)
    return chosen & ~(missing > 0).any(axis=0)


def shares(available: Column, request: Column, zones: Mask) -> Column:
    """What a request takes from each of its zones: the lowest are used up first."""
    usable = np.where(zones[:, None, :], available, 0.0)
    before = np.cumsum(usable, axis=0) - usable
    share: Column = np.clip(request[None] - before, 0.0, usable)
    return share


def align(
    choose: Choose, available: Column, allocatable: Column, together: Sequence[Column], alone: Sequence[Column] = ()
) -> tuple[Column, Mask]:
    """What requests that hold at the same time take from the zones, and where all of them can be aligned.

    Requests that hold `alone`, before the others, must be alignable too, but take nothing.
    """
    available = np.maximum(available, 0.0)
    left = available.copy()
    taken = np.zeros_like(available)
    possible = np.ones(available.shape[2], dtype=bool)
    for request in together:
        zones = choose(left, allocatable, request)
        possible &= zones.any(axis=0)
        share = shares(left, request, zones)
        taken += share
        left -= share
    for request in alone:
        possible &= choose(available, allocatable, request).any(axis=0)
    return np.where(possible, taken, 0.0), possible
