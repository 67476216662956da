"""Study of time-based fair share: a few nodes, queues and jobs that never end, and their allocations over time.

The input is that of KAI's time-based fair-share simulator; `objects` converts it to objects for `kai simulate`. One
cycle is one second of virtual time: the scheduler decides once, with the usage of queues up to then, and the resulting
allocations are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from pykai.config.fields import FieldError, converted, path_prefix
from pykai.config.usage_db import read_usage_config
from pykai.hollow.kubelet_settings import FOREVER
from pykai.kube.api import Object
from pykai.model.resources import GPU
from pykai.objects import names
from pykai.simulate import generate, manifests
from pykai.simulate.history import SimulationResult
from pykai.simulate.manifests import Manifest
from pykai.simulate.simulation import Setting

CYCLE_SECONDS = 1.0
UNLIMITED = -1.0
Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]


def _spelled(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")).replace("Gpus", "GPUs")


class NodeKind(Struct, frozen=True, forbid_unknown_fields=True, rename=_spelled):
    """`count` identical nodes."""

    gpus: Annotated[int, Meta(ge=0)]
    count: Count = 1


class QueueSetup(Struct, frozen=True, forbid_unknown_fields=True, rename=_spelled):
    """A queue without limit. `deserved_gpus` -1: unlimited quota."""

    name: Annotated[str, Meta(min_length=1)]
    parent: str = ""
    priority: int = 100
    deserved_gpus: Annotated[float, Meta(ge=UNLIMITED)] = 0.0
    weight: Amount = 1.0


class JobSetup(Struct, frozen=True, forbid_unknown_fields=True, rename=_spelled):
    """`num_jobs` jobs of `num_pods` pods with `gpus` each; they never end, and their pods need no gang."""

    gpus: Count
    num_pods: Count = 1
    num_jobs: Count = 1


class Study(Struct, frozen=True, forbid_unknown_fields=True, rename=_spelled):
    """The input. `window_size` and `half_life_period` are in cycles; without a half-life, or with 0, usage does not
    decay."""

    cycles: Count = 100
    window_size: Count = 5
    half_life_period: Amount | None = None
    k_value: Amount = 1.0
    nodes: list[NodeKind] = []
    queues: list[QueueSetup] = []
    jobs: dict[str, JobSetup] = {}


class Figures(NamedTuple):
    """A queue after a cycle (counted from 0): its allocated GPUs and its fair share."""

    cycle: int
    queue: str
    allocation: float
    fair_share: float


# --------------------------------------------------------------------------------------------------------------- input
_NAMES = {
    name.lower(): name for struct in (NodeKind, QueueSetup, JobSetup, Study) for name in struct.__struct_encode_fields__
}


def read(text: str, file: str) -> Study:
    """Return the study in a YAML text with keys in any case; ManifestError or FieldError names the problem.

    `file` is its name in messages.
    """
    documents = manifests.parse(text, file)
    if len(documents) != 1:
        raise FieldError(file, f"expected one document, got {len(documents)}")
    with path_prefix(f"{file}: "):
        study = converted(_lower_camel_case(documents[0].obj), Study)
        _check(study)
        return study


def _lower_camel_case(document: Object) -> Object:
    """Return the document with keys in lower camel case, except the names of queues, which are keys below Jobs."""
    found = _renamed(document, "")
    for part in ("Nodes", "Queues"):
        if isinstance(rows := found.get(part), list):
            found[part] = [_renamed(row, f"{part}[{number}].") for number, row in enumerate(rows)]
    if isinstance(jobs := found.get("Jobs"), dict):
        found["Jobs"] = {queue: _renamed(setup, f"Jobs.{queue}.") for queue, setup in jobs.items()}
    return found


def _renamed(part: Object, below: str) -> Object:
    if not isinstance(part, dict):
        return part
    found: Object = {}
    for key, value in part.items():
        name = _NAMES.get(key.lower(), key)
        if name in found:
            raise FieldError(f"{below}{name}", "is written twice")
        found[name] = value
    return found


def _check(study: Study) -> None:
    """Raise an error for unknown or duplicate names."""
    queues = [queue.name for queue in study.queues]
    parents = {queue.parent for queue in study.queues}
    for number, queue in enumerate(study.queues):
        if queues.index(queue.name) < number:
            raise FieldError(f"Queues[{number}].Name", f"{queue.name!r} is written twice")
        if queue.parent and queue.parent not in queues:
            raise FieldError(f"Queues[{number}].Parent", f"there is no queue {queue.parent!r}")
    for name in study.jobs:
        if name not in queues or name in parents:
            wrong = "has queues below it, which hold the jobs" if name in parents else "there is no such queue"
            raise FieldError(f"Jobs.{name}", wrong)


# ----------------------------------------------------------------------------------------------------------------- run
def usage_document(study: Study) -> Object:
    """Return the study's `usageDBConfig`, which fetches usage in every cycle."""
    params = {"windowSize": f"{study.window_size * CYCLE_SECONDS:g}s", "fetchInterval": f"{CYCLE_SECONDS:g}s"}
    if study.half_life_period:
        params["halfLifePeriod"] = f"{study.half_life_period * CYCLE_SECONDS:g}s"
    return {"clientType": "fake-with-history", "usageParams": params}


def setting(study: Study) -> Setting:
    """Return a setting in which pods start and stop at once."""
    usage = read_usage_config(usage_document(study), Setting().start)
    return Setting(starting=0.0, stopping=0.0, usage=usage)


def duration(study: Study) -> float:
    """Return the seconds until the last cycle; the cluster starts in the first second."""
    return study.cycles * CYCLE_SECONDS


def figures(study: Study, outcome: SimulationResult) -> Iterator[Figures]:
    """Yield every queue after every cycle; cycles without pending pods repeat the previous figures."""
    *decided, _ = outcome.history.samples
    at = 0
    for cycle in range(study.cycles):
        while at + 1 < len(decided) and decided[at + 1].at <= (cycle + 1) * CYCLE_SECONDS:
            at += 1
        for queue in study.queues:
            found = decided[at].queues[queue.name]
            yield Figures(cycle, queue.name, found.allocated[GPU], found.fair_share[GPU])


def objects(study: Study, source: str) -> list[Manifest]:
    """Return nodes, queues and jobs; `source`: the origin of the study in messages."""
    return [generate.manifest(source, number, obj) for number, obj in enumerate(_objects(study))]


def _objects(study: Study) -> Iterator[Object]:
    gpus = [kind.gpus for kind in study.nodes for _ in range(kind.count)]
    digits = len(str(len(gpus)))
    yield from (generate.node(f"node-{number:0{digits}d}", each) for number, each in enumerate(gpus, 1))
    yield from (_queue(setup) for setup in study.queues)
    for owner, setup in study.jobs.items():
        yield from (_job(f"{owner}-job-{number}", owner, setup) for number in range(1, setup.num_jobs + 1))


def _queue(setup: QueueSetup) -> Object:
    made = generate.queue(setup.name, setup.parent, setup.deserved_gpus)
    resources = made["spec"]["resources"]
    weighted = {**resources, "gpu": {**resources["gpu"], "overQuotaWeight": setup.weight}}
    return {**made, "spec": {**made["spec"], "priority": setup.priority, "resources": weighted}}


def _job(name: str, owner: str, setup: JobSetup) -> Object:
    limits = {names.NVIDIA_GPU: str(setup.gpus)}
    template = {
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train", "resources": {"requests": limits, "limits": limits}}],
        }
    }
    meta = {
        "name": name,
        "labels": {names.QUEUE_LABEL: owner},
        "annotations": {names.RUN_SECONDS: FOREVER},
    }
    spec = {"parallelism": setup.num_pods, "completions": setup.num_pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
