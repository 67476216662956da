"""Hollow kubelets: a bound pod starts after a moment, runs its time and ends; an evicted one leaves after its grace.

They also give out device numbers. A Job is told of pods it lost and of pods that finished.
"""

from __future__ import annotations

from functools import partial

from pykai.model.plan import Bind
from pykai.sim import pods
from pykai.sim.devices import DeviceLedger
from pykai.sim.history import PodLife
from pykai.sim.jobs import Jobs
from pykai.sim.leftovers import Leftovers
from pykai.sim.stage import Stage
from pykai.sim.store import Key


class Kubelets:
    """All of them; `ended` counts the pods that are over."""

    def __init__(self, stage: Stage, jobs: Jobs, leftovers: Leftovers) -> None:
        self._stage = stage
        self._jobs = jobs
        self._leftovers = leftovers
        self.devices = DeviceLedger()
        self.ended = 0

    def place(self, bind: Bind) -> None:
        """A pod was given a node: it starts in a moment."""
        stage = self._stage
        life = stage.history.lives[bind.pod]
        life.devices, life.node = self.devices.take(bind), bind.node
        life.gpus, life.shared = pods.gpus(bind), bool(bind.gpu_groups)
        life.scheduled_at, life.state = stage.at, "Starting"
        life.waited_for, life.reason = life.reason, ""
        stage.store.put(pods.bound(stage.pod(bind.pod), bind))
        stage.log("Scheduled", f"Pod {life.title}", pods.place_text(life))
        stage.agenda.after(stage.setting.starting, partial(self._start, bind.pod))

    def stop(self, life: PodLife) -> None:
        """A pod has to leave; its Job replaces it at once."""
        stage = self._stage
        pod = stage.pod(life.key)
        life.evicted_at, life.state = stage.at, "Leaving"
        seconds = pods.stop_seconds(pod, stage.setting)
        stage.store.put(pods.deleted(pod, stage.agenda.now + seconds))
        stage.agenda.after(seconds, partial(self._leave, life.key))
        self._jobs.lost(life)

    def _start(self, key: Key) -> None:
        stage, life = self._stage, self._stage.history.lives[key]
        if life.state != "Starting":
            return
        pod = stage.pod(key)
        life.started_at, life.state = stage.at, "Running"
        stage.store.put(pods.in_phase(pod, "Running"))
        stage.log("Started", f"Pod {life.title}")
        seconds = pods.run_seconds(pod, stage.setting)
        if seconds is not None:
            stage.agenda.after(seconds, partial(self._finish, key))

    def _finish(self, key: Key) -> None:
        life = self._stage.history.lives[key]
        if life.state != "Running":
            return
        self._end(life, "Finished", "Finished")
        self._stage.store.put(pods.in_phase(self._stage.pod(key), "Succeeded"))
        job = self._jobs.finished(life)
        if job is not None and job.complete:
            self._stage.log("Completed", f"Job {'/'.join(job.key)}")
        if job is None or job.complete:
            self._leftovers.sweep(life)

    def _leave(self, key: Key) -> None:
        life = self._stage.history.lives[key]
        self._end(life, "Gone", "Evicted")
        self._stage.store.remove("Pod", key)
        if not life.job:
            self._leftovers.sweep(life)

    def _end(self, life: PodLife, event: str, state: str) -> None:
        life.ended_at, life.state = self._stage.at, state
        self.ended += 1
        self.devices.release(life.node, life.key)
        self._stage.log(event, f"Pod {life.title}")
