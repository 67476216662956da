"""The world: objects, hollow kubelets and a Job controller. Plans act on it, changes come out of it.

It is one end of the product path; the scheduler in the middle is the real one. What it does is what a cluster does:
a bound pod starts after a moment and runs its time, an evicted one leaves after its grace, a Job replaces what it lost.
"""

from __future__ import annotations

from functools import partial

from pykai.model.plan import Bind, Evict, GangMark, Pipeline, Plan, Verdict
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.quantity import amount
from pykai.objects.timestamps import rfc3339
from pykai.sim import pods
from pykai.sim.admission import Admitted
from pykai.sim.agenda import Agenda
from pykai.sim.devices import DeviceLedger
from pykai.sim.history import History, PodLife
from pykai.sim.jobs import Jobs, JobState
from pykai.sim.manifests import Object
from pykai.sim.setting import Setting
from pykai.sim.store import Key, Store, key_of
from pykai.sim.waits import reasons

MARKS = {
    "last-start": names.LAST_START_TIMESTAMP,
    "last-eviction": names.LAST_EVICTION_TIMESTAMP,
    "stale": names.STALE_TIMESTAMP,
}


class PlanRefusedError(RuntimeError):
    """The judge found fault with a plan: the scheduler has a bug."""


class World:
    """Owns everything of the simulated cluster that changes."""

    def __init__(self, agenda: Agenda, setting: Setting) -> None:
        self.agenda = agenda
        self.setting = setting
        self.store = Store()
        self.history = History()
        self.devices = DeviceLedger()
        self._jobs = Jobs(self._create_pod, setting.seed)
        self._members: dict[Key, list[Key]] = {}
        """PodGroup -> its pods, those that are gone included."""
        self._uids = 0
        self._groups_made: set[Key] = set()
        self._gpu_groups: dict[str, int] = {}
        self._said: dict[Key, str] = {}
        """What a gang was last told, so that it is told only once."""
        self.waiting: set[Key] = set()
        self.ended = 0

    @property
    def _at(self) -> float:
        """Seconds since the start, in whole milliseconds."""
        return round(self.agenda.now - self.agenda.start, 3)

    def _log(self, kind: str, about: str, message: str = "") -> None:
        self.history.log(self._at, kind, about, " ".join(message.split()))

    # ------------------------------------------------------------------------------------------------------ arrivals
    def expect(self, admitted: Admitted) -> None:
        """Let an object arrive when its time comes."""
        seconds = admitted.arrives.draw(f"{self.setting.seed}/{'/'.join(admitted.key)}/arrives")
        self.agenda.after(seconds, partial(self._arrive, admitted.obj))

    def _arrive(self, obj: Object) -> None:
        kind, known = obj["kind"], self.store.find(obj["kind"], key_of(obj))
        obj = self._born(obj, known)
        if kind == "Pod":
            self._create_pod(obj, None)
            return
        self.store.put(obj)
        if kind != "Namespace":
            self._log("Changed" if known else "Arrived", f"{kind} {_title(obj)}")
        if kind == "Node":
            offered = (obj.get("status") or {}).get("allocatable") or {}
            self.devices.add_node(obj["metadata"]["name"], int(amount(offered.get(names.NVIDIA_GPU, 0))))
        if kind == "Job":
            self._jobs.add(obj)

    def _born(self, obj: Object, known: Object | None) -> Object:
        """The object with what an API server adds; one that is applied again keeps what it had."""
        if known is not None:
            kept = {key: known["metadata"][key] for key in ("uid", "creationTimestamp")}
            return {**obj, "metadata": {**obj["metadata"], **kept}}
        self._uids += 1
        own = {"uid": f"{self._uids:04d}", "creationTimestamp": rfc3339(self.agenda.now)}
        return {**obj, "metadata": {**own, **obj["metadata"]}}

    def _create_pod(self, obj: Object, job: JobState | None) -> None:
        obj = self._born(obj, None)
        grouped = self.setting.group({**obj, "status": obj.get("status") or {"phase": "Pending"}}, self.store)
        pod = grouped.pod
        if grouped.group is not None:
            self._write_group(grouped.group)
        for remark in grouped.remarks:
            self.history.remark(remark)
        life = pods.life(pod, self._at, job.key[1] if job else "", self._queue(pod))
        life.reason = grouped.problem or life.reason
        self.history.lives[life.key] = life
        self.waiting.add(life.key)
        self._members.setdefault((life.namespace, life.group), []).append(life.key)
        self.store.put(pod)
        self._log("Arrived", f"Pod {life.title}", f"queue {life.queue}" if life.queue else "")
        if pod["spec"].get("nodeName"):
            self._place(pods.as_bind(pod, self._node(pod["spec"]["nodeName"])))

    def _write_group(self, group: Object) -> None:
        known = self.store.find("PodGroup", key_of(group))
        if known is None:
            self._groups_made.add(key_of(group))
        self.store.put(self._born(group, known))

    def _queue(self, pod: Object) -> str:
        group = self.store.find("PodGroup", pods.group_key(pod))
        return str(((group or {}).get("spec") or {}).get("queue", ""))

    def _node(self, name: str) -> Object:
        return self.store.find("Node", ("", name)) or {"metadata": {"name": name}}

    # --------------------------------------------------------------------------------------------------------- plans
    def execute(self, snapshot: Snapshot, plan: Plan) -> None:
        """Do what a plan says, after it was judged."""
        faults = self.setting.judge(snapshot, plan)
        if faults:
            raise PlanRefusedError(f"at {self._at:g} s: " + "; ".join(faults))
        for eviction in plan.evictions:
            self._evict(eviction)
        shared = {group: group for groups in snapshot.pods.gpu_groups.values() for group in groups}
        for bind in plan.binds:
            self._place(pods.with_groups(bind, [self._known(bind.node, g, shared) for g in bind.gpu_groups]))
        for mark in plan.marks:
            self._mark(mark)
        for verdict in plan.verdicts:
            self._tell(verdict)
        leaving = {eviction.pod for eviction in plan.evictions}
        for pipeline in plan.pipelines:
            if pipeline.pod not in leaving:
                self._promise(pipeline)

    def _known(self, node: str, group: str, shared: dict[str, str]) -> str:
        """The name of a device; one nobody shared before gets its own: the engine's is unique within a cycle only."""
        if group not in shared:
            self._gpu_groups[node] = self._gpu_groups.get(node, 0) + 1
            shared[group] = f"{node}-gpu-group-{self._gpu_groups[node]}"
        return shared[group]

    def _place(self, bind: Bind) -> None:
        life = self.history.lives[bind.pod]
        life.devices, life.node = self.devices.take(bind), bind.node
        life.gpus, life.shared = pods.gpus(bind), bool(bind.gpu_groups)
        life.scheduled_at, life.state = self._at, "Starting"
        life.waited_for, life.reason = life.reason, ""
        self.waiting.discard(bind.pod)
        self.store.put(pods.bound(self._pod(bind.pod), bind))
        self._said.pop((life.namespace, life.group), None)
        self._log("Scheduled", f"Pod {life.title}", pods.place_text(life))
        self.agenda.after(self.setting.starting, partial(self._start, bind.pod))

    def _evict(self, eviction: Evict) -> None:
        life = self.history.lives[eviction.pod]
        pod = self._pod(eviction.pod)
        life.evicted_at, life.state, life.reason = self._at, "Leaving", " ".join(eviction.message.split())
        life.evicted_by, life.moves_to = eviction.action, eviction.moves_to
        life.evicted_for = "/".join(eviction.evictor or ())
        seconds = pods.stop_seconds(pod, self.setting)
        self.store.put(pods.deleted(pod, self.agenda.now + seconds))
        self._log("Evicted", f"Pod {life.title}", f"{eviction.action}: {eviction.message}")
        self.agenda.after(seconds, partial(self._leave, eviction.pod))
        job = self._jobs.of((life.namespace, life.job))
        if job is not None:
            self._jobs.lost(job, eviction.pod)

    def _mark(self, mark: GangMark) -> None:
        group = self.store.find("PodGroup", mark.gang)
        if group is None:
            return
        notes = {**(group["metadata"].get("annotations") or {})}
        notes.pop(MARKS[mark.what], None)
        if mark.at is not None:
            notes[MARKS[mark.what]] = rfc3339(mark.at)
        self.store.put({**group, "metadata": {**group["metadata"], "annotations": notes}})

    def _tell(self, verdict: Verdict) -> None:
        for pod, reason in reasons(verdict, self.store.find("PodGroup", verdict.gang)).items():
            self.history.lives[pod].reason = reason
            if self._said.get(verdict.gang) != reason:
                self._said[verdict.gang] = reason
                self._log("Waits", f"PodGroup {'/'.join(verdict.gang)}", reason)

    def _promise(self, pipeline: Pipeline) -> None:
        life = self.history.lives[pipeline.pod]
        reason = f"waits for a place on {pipeline.node} that is being freed"
        if life.reason != reason:
            life.reason = reason
            self._log("Pipelined", f"Pod {life.title}", reason)

    # -------------------------------------------------------------------------------------------------------- kubelets
    def _pod(self, key: Key) -> Object:
        found = self.store.find("Pod", key)
        assert found is not None, f"no pod {key}"
        return found

    def _start(self, key: Key) -> None:
        life = self.history.lives[key]
        if life.state != "Starting":
            return
        pod = self._pod(key)
        life.started_at, life.state = self._at, "Running"
        self.store.put(pods.in_phase(pod, "Running"))
        self._log("Started", f"Pod {life.title}")
        seconds = pods.run_seconds(pod, self.setting)
        if seconds is not None:
            self.agenda.after(seconds, partial(self._finish, key))

    def _finish(self, key: Key) -> None:
        life = self.history.lives[key]
        if life.state != "Running":
            return
        self._end(life, "Finished")
        self.store.put(pods.in_phase(self._pod(key), "Succeeded"))
        job = self._jobs.of((life.namespace, life.job))
        if job is not None:
            self._jobs.finished(job, key)
            if job.complete:
                self._log("Completed", f"Job {'/'.join(job.key)}")
        self._sweep(life)

    def _leave(self, key: Key) -> None:
        life = self.history.lives[key]
        self._end(life, "Gone")
        self.store.remove("Pod", key)
        self._sweep(life)

    def _end(self, life: PodLife, how: str) -> None:
        life.ended_at = self._at
        self.ended += 1
        life.state = "Finished" if how == "Finished" else "Evicted"
        self.devices.release(life.node, life.key)
        self._log(how, f"Pod {life.title}")

    def _sweep(self, life: PodLife) -> None:
        """Take away finished pods and the group made for them, once nothing of the group is left or to come."""
        group = (life.namespace, life.group)
        members = self._members[group]
        if any(self.history.lives[pod].ended_at is None for pod in members):
            return
        job = self._jobs.of((life.namespace, life.job))
        if job is not None and not job.complete:
            return
        for pod in members:
            self.store.remove("Pod", pod)
        if group in self._groups_made:
            self.store.remove("PodGroup", group)
        self._members[group] = []


def _title(obj: Object) -> str:
    return "/".join(part for part in key_of(obj) if part)
