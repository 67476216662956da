"""The world: one end of the product path. Objects arrive in it, plans act on it, changes come out of it.

The scheduler in the middle is the real one. The judge of every plan is plugged in here, and only here.
"""

from __future__ import annotations

from functools import partial

from pykai.model.plan import Evict, Nomination, Plan, Timestamp, Verdict
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.units import amount, rfc3339
from pykai.sim import pods
from pykai.sim.admission import Admitted
from pykai.sim.jobs import Jobs, JobState
from pykai.sim.kubelets import Kubelets
from pykai.sim.leftovers import Leftovers
from pykai.sim.manifests import Object
from pykai.sim.stage import Stage
from pykai.sim.store import Key, key_of
from pykai.sim.waits import reasons

MARKS = {
    "last-start": names.LAST_START_TIMESTAMP,
    "last-eviction": names.LAST_EVICTION_TIMESTAMP,
    "stale": names.STALE_TIMESTAMP,
}


class PlanRefusedError(RuntimeError):
    """The judge found fault with a plan: the scheduler has a bug."""


class World:
    """`waiting`: the pods that have no node."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._jobs = Jobs(self._create_pod, stage.setting.seed)
        self._leftovers = Leftovers(stage)
        self.kubelets = Kubelets(stage, self._jobs, self._leftovers)
        self.waiting: set[Key] = set()
        self._uids = 0
        self._gpu_groups: dict[str, int] = {}
        self._said: dict[Key, str] = {}
        """What a gang was last told, so that it is told only once."""

    # ------------------------------------------------------------------------------------------------------ arrivals
    def expect(self, admitted: Admitted) -> None:
        """Let an object arrive when its time comes."""
        seconds = admitted.arrives.draw(f"{self._stage.setting.seed}/{'/'.join(admitted.key)}/arrives")
        self._stage.agenda.after(seconds, partial(self._arrive, admitted.obj))

    def _arrive(self, obj: Object) -> None:
        kind, stage = obj["kind"], self._stage
        if kind == "Pod":
            self._create_pod(obj, None)
            return
        known = stage.store.find(kind, key_of(obj))
        obj = self._born(obj, known)
        stage.store.put(obj)
        stage.log("Changed" if known else "Arrived", f"{kind} {'/'.join(filter(None, key_of(obj)))}")
        if kind == "Node":
            offered = obj["status"]["allocatable"].get(names.NVIDIA_GPU, 0)
            self.kubelets.devices.add_node(obj["metadata"]["name"], int(amount(offered)))
        if kind == "Job":
            self._jobs.add(obj)

    def _born(self, obj: Object, known: Object | None = None) -> Object:
        """The object with what an API server adds; one that is applied again keeps what it had."""
        if known is not None:
            kept = {key: known["metadata"][key] for key in ("uid", "creationTimestamp")}
            return {**obj, "metadata": {**obj["metadata"], **kept}}
        self._uids += 1
        own = {"uid": f"{self._uids:04d}", "creationTimestamp": rfc3339(self._stage.agenda.now)}
        return {**obj, "metadata": {**own, **obj["metadata"]}}

    def _create_pod(self, obj: Object, job: JobState | None) -> None:
        stage = self._stage
        obj = self._born({**obj, "status": obj.get("status") or {"phase": "Pending"}})
        grouped = stage.setting.group(obj, stage.store)
        if grouped.group is not None:
            self._write_group(grouped.group)
        for remark in grouped.remarks:
            stage.history.remark(remark)
        life = pods.life(grouped.pod, stage.at, job.key[1] if job else "", self._queue(grouped.pod))
        life.reason = grouped.problem or life.reason
        stage.history.lives[life.key] = life
        self._leftovers.joined(life)
        stage.store.put(grouped.pod)
        stage.log("Arrived", f"Pod {life.title}", f"queue {life.queue}" if life.queue else "")
        home = grouped.pod["spec"].get("nodeName")
        if home:
            self.kubelets.place(pods.as_bind(grouped.pod, stage.store.find("Node", ("", home)), home))
        else:
            self.waiting.add(life.key)

    def _write_group(self, group: Object) -> None:
        known = self._stage.store.find("PodGroup", key_of(group))
        if known is None:
            self._leftovers.made(key_of(group))
        self._stage.store.put(self._born(group, known))

    def _queue(self, pod: Object) -> str:
        group = self._stage.store.find("PodGroup", pods.group_key(pod))
        return str(((group or {}).get("spec") or {}).get("queue", ""))

    # --------------------------------------------------------------------------------------------------------- plans
    def execute(self, snapshot: Snapshot, plan: Plan) -> None:
        """Do what a plan says, after it was judged."""
        faults = self._stage.setting.judge(snapshot, plan)
        if faults:
            raise PlanRefusedError(f"at {self._stage.at:g} s: " + "; ".join(faults))
        for eviction in plan.evictions:
            self._evict(eviction)
        shared = {group: group for groups in snapshot.pods.gpu_groups.values() for group in groups}
        for bind in plan.binds:
            life = self._stage.history.lives[bind.pod]
            self.waiting.discard(bind.pod)
            self._said.pop((life.namespace, life.group), None)
            groups = [self._known(bind.node, group, shared) for group in bind.gpu_groups]
            self.kubelets.place(pods.with_groups(bind, groups))
        for mark in plan.timestamps:
            self._mark(mark)
        for verdict in plan.verdicts:
            self._tell(verdict)
        leaving = {eviction.pod for eviction in plan.evictions}
        for pipeline in plan.nominations:
            if pipeline.pod not in leaving:
                self._promise(pipeline)

    def _known(self, node: str, group: str, shared: dict[str, str]) -> str:
        """The name of a device; one nobody shared before gets its own: the engine's is unique within a cycle only."""
        if group not in shared:
            self._gpu_groups[node] = self._gpu_groups.get(node, 0) + 1
            shared[group] = f"{node}-gpu-group-{self._gpu_groups[node]}"
        return shared[group]

    def _evict(self, eviction: Evict) -> None:
        life = self._stage.history.lives[eviction.pod]
        life.reason = " ".join(eviction.message.split())
        life.evicted_by, life.moves_to = eviction.action, eviction.moves_to
        life.evicted_for = "/".join(eviction.evictor or ())
        self._stage.log("Evicted", f"Pod {life.title}", f"{eviction.action}: {eviction.message}")
        self.kubelets.stop(life)

    def _mark(self, mark: Timestamp) -> None:
        group = self._stage.store.find("PodGroup", mark.gang)
        if group is None:
            return
        notes = {**(group["metadata"].get("annotations") or {})}
        notes.pop(MARKS[mark.what], None)
        if mark.at is not None:
            notes[MARKS[mark.what]] = rfc3339(mark.at)
        self._stage.store.put({**group, "metadata": {**group["metadata"], "annotations": notes}})

    def _tell(self, verdict: Verdict) -> None:
        group = self._stage.store.find("PodGroup", verdict.gang)
        for pod, reason in reasons(verdict, group).items():
            self._stage.history.lives[pod].reason = reason
            if self._said.get(verdict.gang) != reason:
                self._said[verdict.gang] = reason
                self._stage.log("Waits", f"PodGroup {'/'.join(verdict.gang)}", reason)

    def _promise(self, pipeline: Nomination) -> None:
        life = self._stage.history.lives[pipeline.pod]
        reason = f"waits for a place on {pipeline.node} that is being freed"
        if life.reason != reason:
            life.reason = reason
            self._stage.log("Pipelined", f"Pod {life.title}", reason)
