"""Small clusters for plugin tests: objects as dicts -> the cache -> a cycle, the way the product goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykai.cache.cluster import ClusterCache
from pykai.engine.allocate import allocate
from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import NodeResource, NodeResourceState, Rejection
from pykai.engine.policy import Policy
from pykai.model.params import SchedulerParams
from pykai.objects import kinds
from tests import builders
from tests.builders import as_kind

Fields = dict[str, Any]


def node(name: str, labels: Fields | None = None, allocatable: Fields | None = None, **rest: Any) -> kinds.Node:
    """A node of 8 cores without GPUs; `rest` are its spec fields and conditions."""
    return as_kind(kinds.Node, builders.node(name, 0, labels, allocatable, **rest))


def pod(name: str, spec: Fields | None = None, **meta: Any) -> list[Any]:
    """A pod of one core with a PodGroup of its own; it runs where its spec has a nodeName."""
    on = (spec or {}).get("nodeName", "")
    namespace = {"namespace": meta.get("namespace", "ns")}
    return [
        builders.decoded(builders.pod(name, name, on, {"cpu": "1"}, spec, **meta)),
        builders.decoded(builders.pod_group(name, metadata=namespace)),
    ]


def cycle(objects: Iterable[Any], plugins: Iterable[object], **params: Any) -> Cycle:
    """A cycle over the objects (pods as lists with their groups) and a queue without bounds."""
    cache = ClusterCache(SchedulerParams(**params))
    cache.load([builders.decoded(builders.queue())])
    for item in objects:
        cache.load(item if isinstance(item, list) else [item])
    return Cycle(cache.snapshot(now=10.0), Policy(tuple(plugins)), now=10.0)


def row(of: Cycle, pod_name: str) -> int:
    return of.snapshot.pods.names.index(pod_name)


def placed(of: Cycle) -> dict[str, str]:
    """Where an allocate pass puts the pending pods; `~node` where it has to wait there, empty where nowhere."""
    waiting = [name for name, node in zip(of.snapshot.pods.names, of.trial.node, strict=True) if node < 0]
    allocate(of)
    found = {}
    for name in waiting:
        where = of.trial.node[row(of, name)]
        text = of.snapshot.nodes.names[where] if where >= 0 else ""
        found[name] = ("~" if of.trial.placed.get(row(of, name)) else "") + text
    return found


def reason(of: Cycle, pod_name: str) -> str:
    return of.reasons.pods[row(of, pod_name)]


def rejected(of: Cycle, plugin: Any, pod_name: str) -> dict[str, str]:
    """Node name -> the first reason a node filter has against it."""
    return _first_reasons(of, plugin.rejections(of.snapshot, of.trial.of_class(row(of, pod_name))))


def closed(of: Cycle, plugin: Any, pod_name: str) -> dict[str, str]:
    """Node name -> the first reason for which it is closed to a pod at the moment."""
    return _first_reasons(of, resource(of, plugin).infeasible(row(of, pod_name)))


def resource(of: Cycle, plugin: NodeResource) -> NodeResourceState:
    """What a plugin opened in a cycle."""
    kind = type(plugin.open(of))
    return next(state for state in of.resources.states if type(state) is kind)


def _first_reasons(of: Cycle, rejections: Iterable[Rejection]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text, mask in rejections:
        for name, hit in zip(of.snapshot.nodes.names, mask.tolist(), strict=True):
            if hit:
                found.setdefault(name, text)
    return found
