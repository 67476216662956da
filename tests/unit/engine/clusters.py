"""Small clusters in a short notation, the plans for them, and what a plan says about each pod."""

from __future__ import annotations

from typing import Any

from pykai.engine.decide import decide
from pykai.model.plan import Plan
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.units import rfc3339
from pykai.verify.judge import verify
from tests import builders
from tests.builders import NOW, decoded
from tests.properties import small_world
from tests.properties.small_world import PACKING

Fields = dict[str, Any]
PRIORITIES = [decoded(builders.priority_class(name, value)) for name, value in (("low", 10), ("high", 90))]
LABELS = {"device": names.GPU_GROUP_LABEL, "part": names.SUBGROUP_LABEL}


def node(name: str, gpus: int = 0, pods: int = 10, labels: Fields | None = None, **more: str) -> Any:
    """A node of 8 cores, or of what `more` says, with devices of 16 GB."""
    labels = {"name": name, names.GPU_MEMORY_LABEL: "16000", **(labels or {})}
    return decoded(builders.node(name, gpus, labels, {"pods": str(pods), names.NVIDIA_GPU: str(gpus), **more}))


def gang(name: str, rank: str = "high", age: int = 0, evicted: int | None = None, **spec: Any) -> Any:
    """A preemptible gang of priority `rank`, created `age` seconds ago and last evicted `evicted` seconds ago."""
    metadata: Fields = {"creationTimestamp": rfc3339(NOW - age)}
    if evicted is not None:
        metadata["annotations"] = {names.LAST_EVICTION_TIMESTAMP: rfc3339(NOW - evicted)}
    spec = {"preemptibility": "preemptible", "priorityClassName": rank, **spec}
    made = builders.pod_group(name, spec.pop("queue", "q"), metadata=metadata, **spec)
    if "minMember" not in spec:
        del made["spec"]["minMember"]
    return decoded(made)


def pod(name: str, on: str = "", spec: Fields | None = None, **asks: Any) -> Any:
    """A pod of the gang before the dash; it runs `on` a node, and is terminating there after an exclamation mark."""
    annotations = {names.GPU_FRACTION: asks["share"]} if "share" in asks else {}
    annotations |= {names.GPU_MEMORY: asks["memory"]} if "memory" in asks else {}
    annotations |= {names.GPU_FRACTION_DEVICES: str(asks["devices"])} if "devices" in asks else {}
    metadata: Fields = {"labels": {key: asks[field] for field, key in LABELS.items() if field in asks}}
    requests = {"cpu": asks.get("cpu", "0"), "gpu": asks.get("gpus", 0)}
    made = builders.pod(
        name,
        name.split("-")[0],
        on.strip("!"),
        requests,
        spec,
        annotations=annotations,
        terminating=on.endswith("!"),
        **metadata,
    )
    return decoded(made)


def reservation(on: str, device: str) -> Any:
    """The pod that holds the shared `device`."""
    return decoded({"kind": "Pod", **small_world.reservation(on, device)})


def seen(*objects: Any) -> Snapshot:
    """The snapshot of a cluster with one queue, `q`, without bounds."""
    return builders.snapshot([builders.queue(), *PRIORITIES, *objects])


def plan(*objects: Any) -> Plan:
    """A plan that the judge accepts."""
    snapshot = seen(*objects)
    found = decide(snapshot, PACKING, NOW)
    assert [str(violation) for violation in verify(snapshot, found)] == []
    return found


def bound(found: Plan) -> dict[str, str]:
    return {bind.pod[1]: bind.node for bind in found.binds}


def promised(found: Plan) -> dict[str, str]:
    return {each.pod[1]: each.node for each in found.nominations}


def evicted(found: Plan) -> set[str]:
    return {eviction.pod[1] for eviction in found.evictions}
