"""More kinds of clusters than the generator beside the project makes: most are full, and in each another rule counts.

A script with that generator's options, which builds on its cluster. There are no figures of KAI for these kinds; they
have to keep to the limits of seconds and of failed simulations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, Protocol

import click

Object = dict[str, Any]
"""A Kubernetes object."""
GPUS = 8
"""Of each node."""
ZONE, HOSTNAME, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "topology.example.com/rack"
POOL = "example.com/pool"


class Cluster(Protocol):
    """What the generator's cluster offers."""

    rng: Random
    nodes: list[Object]
    pods: list[Object]
    pgs: list[Object]
    queues: list[Object]
    free: list[int]
    pending: int
    pending_groups: int
    running: int

    def add_nodes(self, n: int, labels: Callable[[int], dict[str, str]] | None = None) -> None: ...

    def add_queue(self, name: str, parent: str | None = None, **spec: float) -> str: ...

    def add_hierarchy(self, leaves: int, depts: int, total: float) -> list[str]: ...

    def add_group(self, queue: str, size: int, gpus: int, prio: str = "train", **fields: object) -> str: ...

    def topo(self) -> None: ...

    def snapshot(self) -> Object: ...


Make = Callable[[Cluster, int], None]
KINDS: dict[str, Make] = {}


def kind(make: Make) -> Make:
    """Offer a function under its name."""
    KINDS[make.__name__.replace("_", "-")] = make
    return make


def skewed(c: Cluster, queues: Sequence[str]) -> str:
    """One of some queues, of which the first ones use most."""
    return queues[min(int(c.rng.expovariate(1) * len(queues) / 3), len(queues) - 1)]


def filled(c: Cluster, pick: Callable[[], str], sizes: Sequence[int] = (1, 1, 2, 4), prio: str = "train") -> None:
    """Fill what is free of every node with running pods."""
    for node in range(len(c.nodes)):
        while c.free[node] > 0:
            c.add_group(pick(), 1, min(c.free[node], c.rng.choice(sizes)), prio, nodes=[node])


def in_racks(node: int) -> dict[str, str]:
    return {"topology.example.com/block": f"block-{node // 256}", RACK: f"rack-{node // 16}", ZONE: f"zone-{node % 3}"}


def required_topology(level: str) -> dict[str, str]:
    return {"topology": "cluster-topology", "requiredTopologyLevel": level}


def node_rule(key: str, *values: str) -> Object:
    """A required node affinity."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def near(which: str, label: str, key: str) -> Object:
    """A required pod (anti-)affinity to the pods of a service."""
    term = {"labelSelector": {"matchLabels": {"svc": label}}, "topologyKey": key}
    return {which: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@kind
def pools(c: Cluster, n: int) -> None:
    """four pools of nodes, pods that select one of them, unequal use"""
    c.add_nodes(n, lambda i: {POOL: f"pool-{i % 4}"})
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        while c.free[node] > 0:
            c.add_group(skewed(c, queues), 1, min(c.free[node], c.rng.choice((1, 2, 4))), nodes=[node])
            c.pods[-1]["spec"]["nodeSelector"] = {POOL: f"pool-{node % 4}"}
    for i in range(400):
        c.add_group(queues[i % 16], 1, (1, 2, 4, 8)[i // 16 % 4])
        c.pods[-1]["spec"]["nodeSelector"] = {POOL: f"pool-{c.rng.randrange(4)}"}


@kind
def deep_trees(c: Cluster, n: int) -> None:
    """queues in a tree of four levels with 54 leaves, unequal use, pods pending in all"""
    c.add_nodes(n)
    total, leaves = n * GPUS, list[str]()
    for a in range(3):
        c.add_queue(f"a{a}", quota=total / 3)
        for b in range(3):
            c.add_queue(f"a{a}b{b}", f"a{a}", quota=total / 9)
            for d in range(2):
                c.add_queue(f"a{a}b{b}d{d}", f"a{a}b{b}", quota=total / 18)
                names = [f"a{a}b{b}d{d}e{e}" for e in range(3)]
                leaves += [c.add_queue(name, f"a{a}b{b}d{d}", quota=total / 54) for name in names]
    filled(c, lambda: skewed(c, leaves))
    for i in range(600):
        c.add_group(leaves[i % len(leaves)], 1, c.rng.choice((1, 2, 4)))


def _subgroups(c: Cluster, queue: str, sizes: Sequence[int], gpus: int) -> None:
    """A gang within a block, each of whose sub-groups is within a rack."""
    c.add_group(queue, sum(sizes), gpus, topology=required_topology("topology.example.com/block"))
    groups = [
        {"name": f"sg{at}", "minMember": size, "topologyConstraint": required_topology(RACK)}
        for at, size in enumerate(sizes)
    ]
    c.pgs[-1]["spec"]["subGroups"] = groups
    names = [name for group, size in zip(groups, sizes, strict=True) for name in [group["name"]] * size]
    for pod, name in zip(c.pods[-sum(sizes) :], names, strict=True):
        pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = name


@kind
def subgroups_full(c: Cluster, n: int) -> None:
    """gangs of sub-groups, each within a rack, reclaim on a full cluster"""
    c.add_nodes(n, in_racks)
    c.topo()
    queues = c.add_hierarchy(16, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues), (1, 2, 4, 8))
    for i in range(60):
        _subgroups(c, queues[15 - i % 12], c.rng.choice(((2, 2), (4, 2), (1, 3, 2), (4, 4))), c.rng.choice((4, 8)))


@kind
def subgroups_free(c: Cluster, n: int) -> None:
    """gangs of sub-groups, each within a rack, on a cluster that is free for the most part"""
    c.add_nodes(n, in_racks)
    c.topo()
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(0, n, 3):
        c.add_group(skewed(c, queues), 1, c.rng.choice((1, 4, 8)), nodes=[node])
    for i in range(n // 2):
        _subgroups(c, queues[i % 16], c.rng.choice(((2, 2), (4, 2), (1, 3, 2), (4, 4))), c.rng.choice((2, 4, 8)))


@kind
def topology_fractions(c: Cluster, n: int) -> None:
    """gangs of shares within a rack reclaim on a cluster of shares and whole GPUs"""
    c.add_nodes(n, in_racks)
    c.topo()
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        for device in range(GPUS):
            if c.rng.random() < 0.5:
                c.add_group(skewed(c, queues), 1, 1, nodes=[node])
            else:
                share(c, skewed(c, queues), c.rng.choice(("0.5", "0.7", "0.9")), node, device)
    for i in range(120):
        size, part = c.rng.choice((2, 4, 8, 16)), c.rng.choice(("0.3", "0.5", "0.8"))
        queue, within = queues[15 - i % 12], required_topology(RACK)
        c.add_group(queue, size, 0, fraction=part, cpu="1", mem="4Gi", topology=within)


def share(c: Cluster, queue: str, fraction: str, node: int, device: int) -> None:
    """A running pod with a part of a device; the caller sees to it that the rest of the device is shared, too."""
    c.add_group(queue, 1, 0, nodes=[node], fraction=fraction, cpu="1", mem="4Gi")
    c.pods[-1]["metadata"]["labels"]["runai-gpu-group"] = f"g-{node}-{device}"


@kind
def priorities(c: Cluster, n: int) -> None:
    """four priorities run and wait in the same queues, the highest cannot be preempted"""
    c.add_nodes(n)
    queues = c.add_hierarchy(8, 2, n * GPUS)
    classes = ("train", "train", "interactive-preemptible", "build", "inference")
    for node in range(n):
        while c.free[node] > 0:
            size = min(c.free[node], c.rng.choice((1, 2, 4)))
            c.add_group(skewed(c, queues), 1, size, c.rng.choice(classes), nodes=[node])
    for i in range(500):
        c.add_group(queues[i % 8], c.rng.choice((1, 1, 2)), c.rng.choice((1, 2, 4, 8)), classes[i // 8 % 5])


@kind
def gangs_preempt(c: Cluster, n: int) -> None:
    """gangs of higher priority preempt smaller gangs of their own queues"""
    c.add_nodes(n)
    queues = c.add_hierarchy(4, 2, n * GPUS)
    for first in range(0, n - 1, 2):
        while c.free[first] > 0:
            size = min(c.free[first], c.rng.choice((1, 2, 4)))
            c.add_group(c.rng.choice(queues), 2, size, nodes=[first, first + 1])
    for i in range(120):
        c.add_group(queues[i % 4], c.rng.choice((2, 3, 5, 8, 16)), c.rng.choice((2, 4, 8)), "build")


@kind
def mixed(c: Cluster, n: int) -> None:
    """whole GPUs, shares, memory of GPUs, gangs and pods without GPUs run and wait side by side"""
    c.add_nodes(n, in_racks)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        for device in range(GPUS):
            if c.rng.random() < 0.4 and c.free[node] > 0:
                share(c, skewed(c, queues), c.rng.choice(("0.25", "0.5", "0.75")), node, device)
                c.free[node] -= 1
        while c.free[node] > 0:
            c.add_group(skewed(c, queues), 1, min(c.free[node], c.rng.choice((1, 2, 4))), nodes=[node])
        c.add_group(skewed(c, queues), 1, 0, nodes=[node], cpu=str(c.rng.choice((8, 16, 32))))
    for i in range(500):
        queue, which = queues[i % 16], c.rng.randrange(5)
        if which == 0:
            c.add_group(queue, 1, 0, fraction=c.rng.choice(("0.3", "0.5", "0.6")), cpu="1", mem="4Gi")
        elif which == 1:
            c.add_group(queue, 1, 0, gpu_memory=str(c.rng.choice((9000, 30000, 50000))), cpu="1", mem="4Gi")
        elif which == 2:
            c.add_group(queue, c.rng.choice((2, 4, 8)), c.rng.choice((1, 4, 8)))
        elif which == 3:
            c.add_group(queue, 1, 0, cpu=str(c.rng.choice((8, 64))))
        else:
            c.add_group(queue, 1, c.rng.choice((1, 2, 4)))


@kind
def cpu_only(c: Cluster, n: int) -> None:
    """nodes full of pods without GPUs, more of which wait, in queues with quotas of cores"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for queue in c.queues:
        queue["spec"]["resources"]["cpu"]["quota"] = n * 128_000 / (16 if queue["spec"].get("parentQueue") else 4)
    for node in range(n):
        cores = 128
        while cores > 0:
            size = min(cores, c.rng.choice((4, 8, 16, 32)))
            c.add_group(skewed(c, queues), 1, 0, nodes=[node], cpu=str(size), mem="8Gi")
            cores -= size
    for i in range(400):
        c.add_group(queues[15 - i % 12], c.rng.choice((1, 1, 2, 4)), 0, cpu=str(c.rng.choice((4, 16, 48, 100))))


@kind
def node_affinity(c: Cluster, n: int) -> None:
    """pods that admit one or two of three zones reclaim on a full cluster"""
    c.add_nodes(n, in_racks)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues))
    for i in range(400):
        zones = [f"zone-{at}" for at in c.rng.sample(range(3), c.rng.choice((1, 2)))]
        c.add_group(queues[15 - i % 12], c.rng.choice((1, 1, 2)), c.rng.choice((1, 2, 4, 8)))
        for pod in c.pods[-1:]:
            pod["spec"]["affinity"] = node_rule(ZONE, *zones)


@kind
def spread(c: Cluster, n: int) -> None:
    """services spread over zones and nodes, on a cluster that is nearly full"""
    c.add_nodes(n, in_racks)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        while c.free[node] > 2:
            c.add_group(skewed(c, queues), 1, min(c.free[node] - 2, c.rng.choice((1, 2))), nodes=[node])
            c.pods[-1]["metadata"]["labels"]["svc"] = f"svc-{c.rng.randrange(20)}"
    for i in range(600):
        service = f"svc-{i % 20}"
        c.add_group(queues[i % 16], 1, 1)
        c.pods[-1]["metadata"]["labels"]["svc"] = service
        limit = {"maxSkew": 1 + i % 2, "topologyKey": (ZONE, HOSTNAME)[i % 2], "whenUnsatisfiable": "DoNotSchedule"}
        constraint = {**limit, "labelSelector": {"matchLabels": {"svc": service}}}
        c.pods[-1]["spec"]["topologySpreadConstraints"] = [constraint]


@kind
def pod_affinity(c: Cluster, n: int) -> None:
    """pods that must be in the rack of their service reclaim on a full cluster"""
    c.add_nodes(n, in_racks)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        while c.free[node] > 0:
            c.add_group(skewed(c, queues), 1, min(c.free[node], c.rng.choice((1, 2, 4))), nodes=[node])
            c.pods[-1]["metadata"]["labels"]["svc"] = f"svc-{node // 16 % 20}"
    for i in range(300):
        c.add_group(queues[15 - i % 12], 1, c.rng.choice((1, 2, 4)))
        c.pods[-1]["metadata"]["labels"]["svc"] = f"svc-{i % 24}"
        c.pods[-1]["spec"]["affinity"] = near("podAffinity", f"svc-{i % 24}", RACK)


@kind
def fractions_scattered(c: Cluster, n: int) -> None:
    """shares are scattered over all devices; pods with whole GPUs and gangs wait for them to be moved together"""
    c.add_nodes(n)
    queues = c.add_hierarchy(8, 2, n * GPUS)
    for node in range(n):
        for device in range(GPUS):
            if c.rng.random() < 0.75:
                share(c, c.rng.choice(queues), c.rng.choice(("0.2", "0.3", "0.5")), node, device)
    for i in range(200):
        c.add_group(queues[i % 8], c.rng.choice((1, 1, 2)), c.rng.choice((1, 2, 4, 8)))


@kind
def uneven_nodes(c: Cluster, n: int) -> None:
    """nodes with 1 to 8 GPUs of two sizes of memory, pods by fraction and by memory among them"""
    c.add_nodes(n)
    total = 0
    for at, node in enumerate(c.nodes):
        gpus = (1, 2, 4, 8)[at % 4]
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts["nvidia.com/gpu"] = str(gpus)
        node["metadata"]["labels"]["nvidia.com/gpu.count"] = str(gpus)
        node["metadata"]["labels"]["nvidia.com/gpu.memory"] = ("81920", "24576")[at % 3 == 0]
        c.free[at] = gpus
        total += gpus
    queues = c.add_hierarchy(16, 4, total)
    filled(c, lambda: skewed(c, queues))
    for i in range(400):
        queue = queues[15 - i % 12]
        if i % 3 == 0:
            c.add_group(queue, 1, 0, gpu_memory=str(c.rng.choice((6000, 20000, 40000))), cpu="1", mem="4Gi")
        else:
            c.add_group(queue, 1 + i % 2, c.rng.choice((1, 2, 4)))


@kind
def distinct_gangs(c: Cluster, n: int) -> None:
    """gangs of whom no two request the same reclaim on a full cluster"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues))
    for i in range(200):
        c.add_group(queues[15 - i % 12], c.rng.choice((2, 4, 8)), c.rng.choice((1, 2, 4, 8)), cpu=f"{900 + i}m")


@kind
def distinct_labels(c: Cluster, n: int) -> None:
    """pods of whom no two have the same labels and selectors reclaim on a full cluster"""
    c.add_nodes(n, lambda i: {POOL: f"pool-{i % 8}", ZONE: f"zone-{i % 3}"})
    queues = c.add_hierarchy(16, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues))
    for i in range(400):
        c.add_group(queues[15 - i % 12], 1, c.rng.choice((1, 2, 4)))
        c.pods[-1]["metadata"]["labels"]["run"] = f"run-{i}"
        c.pods[-1]["spec"]["affinity"] = node_rule(HOSTNAME, *(f"node-{c.rng.randrange(n):05d}" for _ in range(5)))


@kind
def many_limits(c: Cluster, n: int) -> None:
    """200 queues with limits in 20 departments with limits, most of them reached"""
    c.add_nodes(n)
    total = n * GPUS
    for number in range(20):
        c.add_queue(f"dept-{number}", quota=total / 20, limit=total / 15)
    queues = [c.add_queue(f"q{i}", f"dept-{i % 20}", quota=total / 200, limit=total / 100) for i in range(200)]
    filled(c, lambda: skewed(c, queues))
    for i in range(800):
        c.add_group(queues[199 - i % 150], 1, c.rng.choice((1, 2, 4)))


@kind
def semi_preemptible(c: Cluster, n: int) -> None:
    """semi-preemptible gangs above their minimum run, others wait"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        c.add_group(skewed(c, queues), 8, 1, nodes=[node] * 8, min_member=c.rng.choice((2, 4, 6)))
        c.pgs[-1]["spec"]["preemptibility"] = c.rng.choice(("semi-preemptible", "preemptible"))
    for i in range(300):
        c.add_group(queues[15 - i % 12], c.rng.choice((1, 4, 8)), c.rng.choice((1, 2)), min_member=1)


@kind
def several_devices(c: Cluster, n: int) -> None:
    """pods that take a part of each of several devices reclaim on a cluster of shares"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        for device in range(GPUS):
            for part in c.rng.choice((("0.5", "0.5"), ("0.6", "0.4"), ("0.3", "0.3", "0.3"))):
                share(c, skewed(c, queues), part, node, device)
    for i in range(300):
        c.add_group(queues[15 - i % 12], 1 + i % 2, 0, fraction=c.rng.choice(("0.3", "0.5", "0.6")), cpu="1", mem="4Gi")
        for pod in c.pods[-1 - i % 2 :]:
            pod["metadata"]["annotations"]["gpu-fraction-num-devices"] = str(1 + i % 4)


@kind
def tainted(c: Cluster, n: int) -> None:
    """a third of the nodes is tainted, half of the pods tolerate that; some nodes are cordoned"""
    c.add_nodes(n)
    for at, each in enumerate(c.nodes):
        if at % 3 == 0:
            each["spec"]["taints"] = [{"key": "dedicated", "value": "research", "effect": "NoSchedule"}]
        elif at % 17 == 0:
            each["spec"]["unschedulable"] = True
    toleration = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        while c.free[node] > node % 2:
            c.add_group(skewed(c, queues), 1, min(c.free[node] - node % 2, c.rng.choice((1, 2, 4))), nodes=[node])
            if node % 3 == 0 or c.rng.random() < 0.3:
                c.pods[-1]["spec"]["tolerations"].append(toleration)
    for i in range(400):
        size = c.rng.choice((1, 1, 2))
        c.add_group(queues[15 - i % 12], size, c.rng.choice((1, 2, 4, 8)))
        if i % 2:
            for pod in c.pods[-size:]:
                pod["spec"]["tolerations"].append(toleration)


@kind
def host_ports(c: Cluster, n: int) -> None:
    """pods with host ports, of which each node has one, reclaim on a full cluster"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues))
    for i, pod in enumerate(c.pods):
        if i % 3 == 0:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + i % 6}]
    for i in range(300):
        c.add_group(queues[15 - i % 12], 1 + i % 2, c.rng.choice((1, 2, 4)))
        for pod in c.pods[-1 - i % 2 :]:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + i % 6}]


@kind
def big_gangs(c: Cluster, n: int) -> None:
    """gangs of up to a third of the cluster wait in queues that use little, small pods fill it"""
    c.add_nodes(n)
    queues = c.add_hierarchy(8, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues), (1, 1, 1, 2))
    for i in range(40):
        c.add_group(queues[7 - i % 6], max(2, int(n * c.rng.choice((0.02, 0.05, 0.1, 0.3)))), c.rng.choice((1, 4, 8)))


@kind
def subgroups_partly(c: Cluster, n: int) -> None:
    """gangs of sub-groups of which every other one is within a rack, reclaim on a full cluster"""
    c.add_nodes(n, in_racks)
    c.topo()
    queues = c.add_hierarchy(16, 4, n * GPUS)
    filled(c, lambda: skewed(c, queues))
    for i in range(80):
        _subgroups(
            c, queues[15 - i % 12], c.rng.choice(((1, 2), (1, 4), (2, 4, 2), (4, 4, 4, 4))), c.rng.choice((1, 4))
        )
        del c.pgs[-1]["spec"]["topologyConstraint"]
        for group in c.pgs[-1]["spec"]["subGroups"][::2]:
            del group["topologyConstraint"]


@kind
def gangs_of_shares(c: Cluster, n: int) -> None:
    """gangs of shares, anywhere, reclaim on a cluster of shares and whole GPUs"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        for device in range(GPUS):
            if c.rng.random() < 0.5:
                c.add_group(skewed(c, queues), 1, 1, nodes=[node])
            else:
                share(c, skewed(c, queues), c.rng.choice(("0.5", "0.7", "0.9")), node, device)
    for i in range(120):
        size, part = c.rng.choice((2, 4, 8, 16, 40)), c.rng.choice(("0.3", "0.5", "0.8"))
        c.add_group(queues[15 - i % 12], size, 0, fraction=part, cpu="1", mem="4Gi")


@kind
def gangs_apart(c: Cluster, n: int) -> None:
    """gangs whose pods keep off each other's node or rack, and off pods that run, reclaim on a full cluster"""
    c.add_nodes(n, in_racks)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        while c.free[node] > 0:
            c.add_group(skewed(c, queues), 1, min(c.free[node], c.rng.choice((1, 2, 4))), nodes=[node])
            c.pods[-1]["metadata"]["labels"]["svc"] = f"svc-{c.rng.randrange(20)}"
    for i in range(200):
        size, service = c.rng.choice((2, 3, 4, 6)), f"svc-{i % 20}"
        c.add_group(queues[15 - i % 12], size, c.rng.choice((1, 2, 4)))
        for pod in c.pods[-size:]:
            pod["metadata"]["labels"]["svc"] = service
            pod["spec"]["affinity"] = near("podAntiAffinity", service, RACK if i % 2 else HOSTNAME)


@kind
def elastic_over_nodes(c: Cluster, n: int) -> None:
    """elastic gangs run on four nodes each, gangs of half and whole nodes reclaim"""
    c.add_nodes(n)
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for first in range(0, n - 3, 4):
        nodes = [first + pod % 4 for pod in range(4 * GPUS)]
        c.add_group(skewed(c, queues), len(nodes), 1, nodes=nodes, min_member=c.rng.choice((4, 16, 28)))
    for i in range(200):
        c.add_group(queues[15 - i % 12], c.rng.choice((2, 4, 8)), c.rng.choice((4, 8)))


@kind
def memories(c: Cluster, n: int) -> None:
    """GPUs of three sizes of memory, full of shares, of parts by memory and of whole GPUs; all of these wait"""
    c.add_nodes(n)
    for at, each in enumerate(c.nodes):
        each["metadata"]["labels"]["nvidia.com/gpu.memory"] = ("81920", "40960", "24576")[at % 3]
    queues = c.add_hierarchy(16, 4, n * GPUS)
    for node in range(n):
        for device in range(GPUS):
            which = c.rng.randrange(3)
            if which == 0:
                c.add_group(skewed(c, queues), 1, 1, nodes=[node])
            elif which == 1:
                share(c, skewed(c, queues), c.rng.choice(("0.3", "0.5", "0.7")), node, device)
            else:
                size = c.rng.choice((8000, 16000, 20000))
                c.add_group(skewed(c, queues), 1, 0, nodes=[node], gpu_memory=str(size), cpu="1", mem="4Gi")
                c.pods[-1]["metadata"]["labels"]["runai-gpu-group"] = f"g-{node}-{device}"
    for i in range(400):
        queue, pods = queues[15 - i % 12], c.rng.choice((1, 2))
        if i % 4 == 0:
            c.add_group(queue, pods, 0, fraction=c.rng.choice(("0.4", "0.6", "0.9")), cpu="1", mem="4Gi")
        elif i % 4 == 1:
            c.add_group(queue, pods, 0, gpu_memory=str(c.rng.choice((10000, 22000, 60000))), cpu="1", mem="4Gi")
        else:
            c.add_group(queue, c.rng.choice((1, 2, 4)), c.rng.choice((1, 2, 4, 8)))


@click.command()
@click.argument("name", default="")
@click.option("--perf", required=True, type=click.Path(path_type=Path), help="Folder with that generator.")
@click.option("--nodes", default=96, show_default=True)
@click.option("--seed", default=7, show_default=True)
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--list", "listed", is_flag=True)
def main(  # noqa: PLR0913 - one parameter for each option
    name: str, perf: Path, nodes: int, seed: int, out: Path | None, listed: bool
) -> None:
    """Make the snapshot file of one kind of cluster."""
    if listed or not name:
        for each, make in KINDS.items():
            click.echo(f"{each:20s} {(make.__doc__ or '').strip()}")
        return
    variants = _module(perf / "variants.py")
    cluster: Cluster = variants.V("operator", 16, seed)
    KINDS[name](cluster, nodes)
    counts = {"running_pods": cluster.running, "pending_pods": cluster.pending}
    described = {"scenario": name, "nodes": len(cluster.nodes), **counts, "pending_groups": cluster.pending_groups}
    variants.gen.write(cluster.snapshot(), described, str(out or f"{name}-{nodes}.zip"))
    click.echo(json.dumps(described))


def _module(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
