"""A study of time-based fair share as objects of a cluster: what could be written by hand for `kai simulate`."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.hollow.kubelet_settings import FOREVER
from pykai.objects import names
from pykai.simulate import generate
from pykai.simulate.manifests import Manifest, Object
from pykai.simulate.time_based import JobSetup, QueueSetup, Study


def objects(study: Study, source: str) -> list[Manifest]:
    """Nodes, queues and jobs; `source`: where the study comes from, for messages."""
    return [generate.manifest(source, number, obj) for number, obj in enumerate(_all(study))]


def _all(study: Study) -> Iterator[Object]:
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
