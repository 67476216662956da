"""Boards of small clusters for tests of the dashboard."""

from __future__ import annotations

from typing import Any

from pykai.cache.cluster import ClusterCache
from pykai.config import scheduler_config
from pykai.config.scheduler_config import SchedulerConfig
from pykai.dashboard.board import Board, DecidedMoment, Title
from pykai.explain.source import decided
from pykai.model.params import SchedulerParams
from pykai.objects.units import rfc3339
from pykai.plugins import registry
from tests.builders import NOW, Manifest, decoded, node, pod, pod_group, queue

TEAMS = ("red", "blue")


def cluster() -> list[Manifest]:
    """Two teams, each with a namespace and a queue of its name, on two nodes of four GPUs. Red holds all of them; of
    blue two workloads wait: one takes what red has above its quota, one is too large for any node."""
    objects = [node("n1", 4), node("n2", 4), queue("dept", gpu={"quota": 8})]
    objects += [queue(f"q-{team}", "dept", gpu={"quota": 4}) for team in TEAMS]
    for number, place in enumerate(("n1", "n1", "n2", "n2")):
        objects += workload(f"red-train-{number}", "red", 2, place)
    objects += workload("blue-small", "blue", 2)
    group, waits = workload("blue-huge", "blue", 16)
    group["spec"]["queue"] = "q-late"
    objects += [queue("q-late", "dept", gpu={"quota": 0}), group, waits]
    return objects


def workload(name: str, team: str, gpus: int, place: str = "") -> list[Manifest]:
    """A pod group of one pod in the namespace and the queue of its team."""
    meta: dict[str, Any] = {"namespace": team, "creationTimestamp": rfc3339(NOW - 600)}
    if place:
        meta["annotations"] = {"kai.scheduler/last-start-timestamp": rfc3339(NOW - 300)}
    requests = {"gpu": gpus, "cpu": "1"}
    return [pod_group(name, f"q-{team}", metadata=meta), pod(f"{name}-0", name, place, requests, namespace=team)]


def moment(objects: list[Manifest], revision: int = 1) -> DecidedMoment:
    """The decided state of a cluster with these objects."""
    cache = ClusterCache(SchedulerParams(partitioned=False))
    cache.load(sorted(map(decoded, objects), key=lambda obj: type(obj).__name__))
    policy = scheduler_config.policy(SchedulerConfig(), registry.make, registry.BUILT_IN)
    return DecidedMoment(decided(cache, policy, NOW), revision)


def board(objects: list[Manifest] | None = None, kind: str = "snapshot") -> Board:
    """A board of one moment."""
    return Board(Title(kind, "test"), moment(cluster() if objects is None else objects))
