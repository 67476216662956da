"""The Job controller of the simulated cluster: keeps as many pods as a Job wants, until enough have finished.

A pod that is evicted is replaced at once, while it is still leaving, as Kubernetes does. Its work starts anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pykai.hollow import spans
from pykai.objects import names
from pykai.sim.history import PodLife
from pykai.sim.manifests import Object
from pykai.sim.store import Key, key_of

MakePod = Callable[[Object, "JobState"], None]


@dataclass
class JobState:
    """One Job: its object, the names of pods that still count, and how many have finished."""

    obj: Object
    active: set[Key] = field(default_factory=set)
    finished: int = 0
    made: int = 0

    @property
    def key(self) -> Key:
        return key_of(self.obj)

    @property
    def completions(self) -> int:
        spec = self.obj["spec"]
        return int(spec.get("completions", spec.get("parallelism", 1)))

    @property
    def wanted(self) -> int:
        """How many pods should exist now."""
        spec = self.obj["spec"]
        return 0 if spec.get("suspend") else min(int(spec.get("parallelism", 1)), self.completions - self.finished)

    @property
    def complete(self) -> bool:
        return self.finished >= self.completions


class Jobs:
    """Every Job. `make_pod` puts a pod into the cluster."""

    def __init__(self, make_pod: MakePod, seed: int) -> None:
        self._make_pod = make_pod
        self._seed = seed
        self._jobs: dict[Key, JobState] = {}

    def add(self, obj: Object) -> None:
        """A Job arrived: its first pods come with it."""
        job = self._jobs[key_of(obj)] = JobState(obj)
        self._fill(job)

    def lost(self, life: PodLife) -> None:
        """A pod was evicted: its Job, if it has one, makes another."""
        job = self._jobs.get((life.namespace, life.job))
        if job is not None:
            job.active.discard(life.key)
            self._fill(job)

    def finished(self, life: PodLife) -> JobState | None:
        """A pod did its work; returns its Job, None where it has none."""
        job = self._jobs.get((life.namespace, life.job))
        if job is not None:
            job.active.discard(life.key)
            job.finished += 1
            self._fill(job)
        return job

    def _fill(self, job: JobState) -> None:
        while len(job.active) < job.wanted:
            pod = self._pod(job)
            job.made += 1
            job.active.add(key_of(pod))
            self._make_pod(pod, job)

    def _pod(self, job: JobState) -> Object:
        """The next pod of a Job: its template, owned by it."""
        meta, template = job.obj["metadata"], job.obj["spec"]["template"]
        own = template.get("metadata") or {}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{job.made}",
                "namespace": meta["namespace"],
                "labels": {**(own.get("labels") or {}), "job-name": meta["name"]},
                "annotations": {**self._story(job), **(own.get("annotations") or {})},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }

    def _story(self, job: JobState) -> dict[str, str]:
        """How long its pods run, where the Job and not its template says so: all of them equally long."""
        annotations = job.obj["metadata"].get("annotations") or {}
        if names.RUN_SECONDS not in annotations:
            return {}
        drawn = spans.seconds(annotations[names.RUN_SECONDS]).draw(f"{self._seed}/{'/'.join(job.key)}/run")
        return {names.RUN_SECONDS: spans.written(drawn)}
