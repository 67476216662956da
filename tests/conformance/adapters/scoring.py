"""Scores of nodes and devices for one pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pykai.cache.nodes import gpu_memory
from pykai.engine.node_facts import NodeFacts
from pykai.engine.node_states import NormalizedScore
from pykai.engine.plugin_api import DeviceScore, NodeLook
from pykai.engine.policy import Policy
from pykai.engine.ranking import Rankings
from pykai.engine.trial import Trial
from pykai.plugins.scoring import GpuPack, GpuSpread, NodeAvailability, Pack, node_placement
from tests.conformance.adapters import clusters
from tests.conformance.cases import choose

Case = dict[str, Any]
TOLERANCE = 1e-6
WHOLE_DEVICE = "-2"
INVALID = {"error": "node <node> has invalid GPU memory"}


def look(nodes: Sequence[Case], task: Case) -> NodeLook:
    """The nodes as the pod sees them, with the idle and releasing figures of the case."""
    trial = Trial(clusters.snapshot([*map(clusters.node, nodes), clusters.pod("pod", task)]))
    space, rows = trial.snapshot.space, trial.snapshot.nodes.rows
    for given in nodes:
        for block, key in ((trial.idle, "idle"), (trial.releasing, "releasing")):
            for resource in ("cpu", "memory", "gpu"):
                block[space.rows[resource], rows[given["name"] or "unnamed"]] = given[key].get(resource, 0)
    every = np.arange(len(nodes))
    ranking = Rankings(NodeFacts(trial, Policy(()))).of(trial.of_class(0))
    free = trial.idle + trial.releasing
    return NodeLook(trial, trial.of_class(0), every, trial.idle, free, ranking.fits_now, np.zeros(len(nodes)))


def placement(given: Case) -> Case:
    seen = look(given["fitting_nodes"], given["task"])
    total = np.zeros(len(seen.nodes))
    for plugin in node_placement(**given["plugin_arguments"]):
        if isinstance(plugin, Pack):
            resource = plugin.measured(seen.pod_class)
            if resource is not None:
                offered = seen.trial.snapshot.nodes.allocatable[resource] > 0
                total += NormalizedScore(plugin, offered, seen.free[resource]).scores(seen.free[resource])
        else:
            total += plugin.score(seen)
    by_name = dict(zip(seen.trial.snapshot.nodes.names, total.tolist(), strict=True))
    return {n["name"]: by_name[n["name"] or "unnamed"] for n in given["fitting_nodes"]}


def availability(given: Case) -> Case:
    return {"score": float(np.sum(NodeAvailability().score(look([given["node"]], given["task"]))))}


def device(plugin: DeviceScore) -> Callable[[Case], Case]:
    def check(given: Case) -> Case:
        node = given["node"]
        if not gpu_memory(str(node.get("gpu_memory_mib", 0))):
            return INVALID
        whole = given["gpu_idx"] == WHOLE_DEVICE
        used = 0 if whole else node["used_shared_gpus_memory"].get(given["gpu_idx"], 0)
        return {"score": plugin.device_score(used / node["gpu_memory_mib"])}

    return check


OPERATIONS: dict[str, Callable[[Case], Case]] = {
    "gpupack.gpuOrderFn": device(GpuPack()),
    "gpuspread.gpuOrderFn": device(GpuSpread()),
    "nodeavailability.nodeAvailabilityPlugin.nodeOrderFn": availability,
}


def differences(expected: Case, got: Case) -> list[str]:
    if expected.keys() != got.keys():
        return [f"expected {expected}, got {got}"]
    far = [k for k in got if k != "error" and abs(expected[k] - got[k]) > TOLERANCE]
    return [f"{k}: expected {expected[k]}, got {got[k]}" for k in far]


SUITES = {
    "ordering/scores": lambda case, _: differences(
        case["expected"], choose(OPERATIONS, case["input"]["operation"])(case["input"])
    ),
    "ordering/node_placement": lambda case, _: differences(case["expected"]["scores"], placement(case["input"])),
}
