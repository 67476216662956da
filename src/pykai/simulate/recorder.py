"""Records the history of a simulation by watching the API server and observing every scheduling decision.

Times and states come from the objects, as `kubectl get --watch` would show them; reasons of pending pods and evictors
come from the plans of the scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import ceil

from msgspec import convert, json

from pykai.cache.claims import claim_gpus, claim_names
from pykai.cache.requests import GpuRequest, gpu_request, pod_amounts
from pykai.kube.api import EventType, Object
from pykai.kube.api_resources import BIND_REQUEST, EVENT, JOB, NODE, POD, POD_GROUP, RESOURCE_CLAIM
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.model.plan import Key, Plan, Triple, Verdict
from pykai.model.pods import GpuKind
from pykai.model.resources import whole_gpus
from pykai.model.snapshot import Snapshot
from pykai.objects import kinds, names
from pykai.objects.pod_template import decode_claims, decode_template
from pykai.observe.wording import fairness, line, reason_line
from pykai.simulate.history import History, PodLife
from pykai.simulate.queue_samples import QueueSampler
from pykai.simulate.workload_controllers import controller_of

SYSTEM = (names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)
_NOT_CHANGES = ("Waits", "Pipelined", "Event")
"""Kinds of log lines that do not count as changes."""


class Wait:
    """The reasons why a pod was pending, and how long each lasted; of equal times the later reason wins."""

    def __init__(self, since: float) -> None:
        self.reason = ""
        self._since = since
        self._seconds: dict[str, float] = {}

    def change(self, reason: str, at: float) -> bool:
        """Start waiting for this reason; return False if it is the current one."""
        if reason == self.reason:
            return False
        self._end_current(at)
        self.reason = reason
        return True

    def longest(self, at: float) -> str:
        """Return the reason that lasted longest until `at`; empty without any."""
        self._end_current(at)
        return max(reversed(self._seconds), key=lambda reason: self._seconds[reason], default="")

    def _end_current(self, at: float) -> None:
        if self.reason:
            spent = self._seconds.pop(self.reason, 0.0)
            self._seconds[self.reason] = spent + at - self._since
        self._since = at


class Recorder:
    """Fills `history`; `last_change` is the time of the last change, in seconds since the start.

    `now` returns the seconds since the start, `start` is the start in seconds since the epoch.
    """

    def __init__(
        self, watches: InformerFactory, now: Callable[[], float], past_counts: bool, start: float = 0.0
    ) -> None:
        self.history = History()
        self.last_change = 0.0
        self.devices_of: Callable[[Object], tuple[int, ...]] = lambda _: ()
        self.reservations: dict[str, Object] = {}
        """Device group -> the pod that reserves the device."""
        self._now = now
        self._start = start
        self._lives: dict[str, PodLife] = {}
        """The existing pods by uid."""
        self._uids: dict[Key, str] = {}
        self._amounts: dict[str, Triple] = {}
        self._held: dict[str, Triple] = {}
        """Uid -> the amounts allocated to the pod."""
        self._waits: dict[str, Wait] = {}
        """Uid -> why the pod is pending."""
        self._grouped: set[str] = set()
        self._awaiting: dict[Key, list[str]] = {}
        """Key of a PodGroup that was not watched yet -> uids of the pods that name it."""
        self._own_groups: dict[str, Object] = {}
        """Uid of a pod -> the PodGroup that it owns."""
        self.queues = QueueSampler(watches, self.history, self._waits, past_counts)
        self._groups = watches.of(POD_GROUP, Object)
        self._nodes = watches.of(NODE, Object)
        self._pods = watches.of(POD, Object)
        self._jobs = watches.of(JOB, Object)
        self._events = watches.of(EVENT, Object)
        self._requests = watches.of(BIND_REQUEST, Object)
        self._claims = watches.of(RESOURCE_CLAIM, Object)
        self._claiming: set[str] = set()
        """Uids of pods whose claimed GPUs are counted."""

    async def run(self) -> None:
        """Record until cancelled; the caller runs the watches."""
        await self.queues.follow(self._now)
        for watch, handler in (
            (self._groups, self._group_changed),
            (self._pods, self._pod_changed),
            (self._requests, self._request_changed),
            (self._jobs, self._job_changed),
            (self._events, self._event_changed),
        ):
            await watch.synced()
            watch.subscribe(handler)
        await asyncio.Event().wait()

    def living(self) -> Collection[PodLife]:
        """Return the pods that exist."""
        return self._lives.values()

    # -------------------------------------------------------------------------------------------------- objects
    def log(self, kind: str, about: str, message: str = "") -> None:
        """Append an event at the current time."""
        self.history.log(self._at(), kind, about, " ".join(message.split()))
        if kind not in _NOT_CHANGES:
            self.last_change = self._now()

    def _at(self) -> float:
        return round(self._now(), 3)

    def _group_changed(self, change: WatchChange[Object]) -> None:
        group = change.object
        for owner in group["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Pod":
                self._own_groups[owner["uid"]] = group
                if owner["uid"] in self._lives:
                    self._set_group(owner["uid"], group)
        for uid in self._awaiting.pop(change.key, ()):
            if uid in self._lives:
                self._set_group(uid, group)

    def _event_changed(self, change: WatchChange[Object]) -> None:
        event = change.object
        if change.type is EventType.DELETED:
            return
        about = event.get("involvedObject") or {}
        key = (about.get("namespace", ""), about.get("name", ""))
        self.log(
            "Event", f"{about.get('kind')} {'/'.join(filter(None, key))}", f"{event['reason']}: {event['message']}"
        )
        life = self._lives.get(self._uids.get(key, "")) if about.get("kind") == "Pod" else None
        source = (event.get("source") or {}).get("component")
        if life and source == "pod-grouper" and event.get("type") == "Warning":
            self._wait_for(life, f"it cannot be grouped: {event['message']}")

    def _request_changed(self, change: WatchChange[Object]) -> None:
        if change.type is EventType.ADDED:
            spec = change.object["spec"]
            self.log("Requested", f"Pod {change.key[0]}/{spec.get('podName')}", f"bind to {spec.get('selectedNode')}")

    def _job_changed(self, change: WatchChange[Object]) -> None:
        done, before = ((obj.get("status") or {}).get("completionTime") for obj in (change.object, change.old or {}))
        if done and not before and change.type is not EventType.DELETED:
            self.log("Completed", f"Job {'/'.join(change.key)}")

    # ----------------------------------------------------------------------------------------------------- pods
    def _pod_changed(self, change: WatchChange[Object]) -> None:
        self.queues.before_change(self._now())
        pod, meta = change.object, change.object["metadata"]
        if meta["namespace"] in SYSTEM:
            self._system_pod_changed(change)
            return
        uid = meta["uid"]
        if change.type is EventType.DELETED:
            self._pod_deleted(uid, pod)
            return
        if uid not in self._lives:
            self._pod_added(pod)
        life = self._lives[uid]
        if pod["spec"].get("resourceClaims") and uid not in self._claiming:
            self._count_claims(life, pod)
        if uid not in self._grouped and (group := self._group_of(pod)) is not None:
            self._set_group(uid, group)
        self._record_progress(life, pod)

    def _system_pod_changed(self, change: WatchChange[Object]) -> None:
        group = (change.object["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL)
        if group and change.type is EventType.DELETED:
            self.reservations.pop(group, None)
        elif group:
            self.reservations[group] = change.object

    def _pod_added(self, pod: Object) -> None:
        meta = pod["metadata"]
        owner = controller_of(pod)
        request, amounts = _requested(pod)
        labels = meta.get("labels") or {}
        queue = labels.get(names.QUEUE_LABEL) or labels.get(names.LEGACY_QUEUE_LABEL) or ""
        life = PodLife(
            meta["namespace"],
            meta["name"],
            queue,
            meta["name"],
            workload_of(meta, owner),
            self._at(),
            requests=request_text(request),
        )
        self._lives[meta["uid"]] = life
        self._uids[life.key] = meta["uid"]
        self._amounts[meta["uid"]] = amounts
        self.queues.requested.add(queue, amounts)
        self._waits[meta["uid"]] = Wait(self._at())
        self.history.lives.append(life)
        scheduler = pod["spec"].get("schedulerName", "default-scheduler")
        if scheduler != names.SCHEDULER_NAME:
            why = f"spec.schedulerName is {scheduler!r}: only {names.SCHEDULER_NAME!r} runs here"
            self._wait_for(life, why)
        named = (meta.get("annotations") or {}).get(names.POD_GROUP_ANNOTATION)
        if named and self._groups.get(named, meta["namespace"]) is None:
            self._wait_for(life, f"there is no PodGroup {named!r}")
        self.log("Arrived", f"Pod {life.title}", f"queue {queue}" if queue else "")

    def _count_claims(self, life: PodLife, pod: Object) -> None:
        """Add the GPUs of a pod's claims to its request, once all of the claims exist."""
        decoded = kinds.decode(json.encode(pod), kinds.Pod)
        named = claim_names(decoded, decode_claims(decoded.spec))
        claims = [self._claims.get(name, life.namespace) for name in named]
        gpus = sum(claim_gpus(convert(claim, kinds.ResourceClaim)) for claim in claims if claim is not None)
        if None in claims or pod["metadata"]["uid"] not in self._amounts:
            return
        uid = pod["metadata"]["uid"]
        self._claiming.add(uid)
        cpu, memory, own = self._amounts[uid]
        self._amounts[uid] = cpu, memory, own + gpus
        self.queues.requested.add(life.queue, (0.0, 0.0, float(gpus)))
        if gpus and not life.requests:
            life.requests = f"{gpus} GPU"

    def _group_of(self, pod: Object) -> Object | None:
        meta = pod["metadata"]
        name = (meta.get("annotations") or {}).get(names.POD_GROUP_ANNOTATION)
        if not name:
            return self._own_groups.get(meta["uid"])
        found = self._groups.get(name, meta["namespace"])
        if found is None:
            self._awaiting.setdefault((meta["namespace"], name), []).append(meta["uid"])
        return found

    def _set_group(self, uid: str, group: Object) -> None:
        self.queues.before_change(self._now())
        life = self._lives[uid]
        self._grouped.add(uid)
        life.group = group["metadata"]["name"]
        queue = str((group.get("spec") or {}).get("queue", "")) or life.queue
        counted = (self.queues.requested, self._amounts.get(uid)), (self.queues.allocated, self._held.get(uid))
        for totals, amounts in counted:
            if amounts is not None and queue != life.queue:
                totals.add(life.queue, amounts, -1)
                totals.add(queue, amounts)
        life.queue = queue

    def _record_progress(self, life: PodLife, pod: Object) -> None:
        """Record the lifecycle times that a pod has reached."""
        at, uid = self._at(), pod["metadata"]["uid"]
        phase = (pod.get("status") or {}).get("phase")
        if pod["spec"].get("nodeName") and life.scheduled_at is None:
            life.scheduled_at, life.node, life.state = at, pod["spec"]["nodeName"], "Starting"
            self._stop_waiting(life, uid)
            self._held[uid] = self._allocation(pod, life)
            self.queues.allocated.add(life.queue, self._held[uid])
            self.log("Scheduled", f"Pod {life.title}", f"on {life.node}")
        if phase == "Running" and life.started_at is None:
            life.started_at, life.state, life.devices = at, "Running", self.devices_of(pod)
            self.log("Started", f"Pod {life.title}", place_text(life))
        if "deletionTimestamp" in pod["metadata"] and life.evicted_at is None and life.ended_at is None:
            life.evicted_at, life.state = at, "Leaving"
            self._release(life, uid)
            self.log("Evicted" if life.evicted_by else "Deleted", f"Pod {life.title}", life.reason)
        if phase in ("Succeeded", "Failed") and life.ended_at is None and life.evicted_at is None:
            life.state = "Finished" if phase == "Succeeded" else "Failed"
            status = pod.get("status") or {}
            self._end(life, uid, life.state, "" if phase == "Succeeded" else status.get("message", ""))

    def _pod_deleted(self, uid: str, pod: Object) -> None:
        life = self._lives.pop(uid, None)
        if life is None:
            return
        if self._uids.get(life.key) == uid:
            del self._uids[life.key]
        if life.ended_at is None:
            life.evicted_at = self._at() if life.evicted_at is None else life.evicted_at
            life.state = "Evicted" if life.evicted_by else "Deleted"
            self._stop_waiting(life, uid)
            self._end(life, uid, "Gone")
        self._grouped.discard(uid)
        self._claiming.discard(uid)
        self._own_groups.pop(uid, None)

    def _end(self, life: PodLife, uid: str, event: str, message: str = "") -> None:
        life.ended_at = self._at()
        self._release(life, uid)
        if (asked := self._amounts.pop(uid, None)) is not None:
            self.queues.requested.add(life.queue, asked, -1)
        self.history.ended += 1
        self.log(event, f"Pod {life.title}", message)

    def _release(self, life: PodLife, uid: str) -> None:
        """Release the pod's allocation when it is deleted, as the scheduler does."""
        if (held := self._held.pop(uid, None)) is not None:
            self.queues.allocated.add(life.queue, held, -1)

    def _wait_for(self, life: PodLife, reason: str) -> bool:
        """Record that the pod waits for this reason; return False if it is the current one."""
        wait = self._waits.get(self._uids[life.key])
        if wait is None or not wait.change(reason, self._at()):
            return False
        life.reason = reason
        return True

    def _stop_waiting(self, life: PodLife, uid: str) -> None:
        wait = self._waits.pop(uid, None)
        if wait is not None:
            life.waited_for = wait.longest(self._at())
            life.reason = life.reason if life.evicted_by else ""

    def _allocation(self, pod: Object, life: PodLife) -> Triple:
        """Return what a bound pod holds; a memory share is converted to a fraction of its node's devices."""
        (request, _), (cpu, memory, gpus) = _requested(pod), self._amounts[pod["metadata"]["uid"]]
        life.shared = request.kind in (GpuKind.FRACTION, GpuKind.MEMORY)
        life.portion = request.portion
        if request.kind is GpuKind.MEMORY:
            node = self._nodes.get(life.node) or {"metadata": {}}
            of_device = int((node["metadata"].get("labels") or {}).get(names.GPU_MEMORY_LABEL, "0") or 0)
            life.portion = ceil(request.memory_mib / of_device * 100) / 100 if of_device else 0.0
            gpus = whole_gpus(life.portion, request.devices)
        life.gpus = gpus
        return cpu, memory, gpus

    # ------------------------------------------------------------------------------------------------ decisions
    def observe(self, snapshot: Snapshot, plan: Plan) -> None:
        """Record the plan of a cycle, before its writes."""
        self.queues.before_change(self._now())
        self.history.cycles += 1
        self.history.deadline = None if plan.deadline is None else round(plan.deadline - self._start, 3)
        self.queues.observe(snapshot, plan)
        for evict in plan.evictions:
            if (life := self._life_of(evict.pod)) is not None:
                life.reason = line(evict.message)
                life.evicted_by, life.moves_to = evict.action, evict.moves_to
                life.evicted_for = "/".join(evict.evictor or ())
        rows = snapshot.gangs.rows_of(verdict.gang for verdict in plan.verdicts)
        for verdict in plan.verdicts:
            self._record_verdict(verdict, fairness(snapshot, rows[verdict.gang], verdict))
        leaving = {evict.pod for evict in plan.evictions}
        for nomination in plan.nominations:
            life = self._life_of(nomination.pod)
            if life is not None and nomination.pod not in leaving and life.scheduled_at is None:
                reason = f"waits for a place on {nomination.node} that is being freed"
                if self._wait_for(life, reason):
                    self.log("Pipelined", f"Pod {life.title}", reason)

    def _life_of(self, key: Key) -> PodLife | None:
        return self._lives.get(self._uids.get(key, ""))

    def _record_verdict(self, verdict: Verdict, of_queue: str) -> None:
        """Record why the pods of a gang are pending; `of_queue`: a sentence on the state of its queue, or empty."""
        written = False
        for pod, text in waiting_reasons(verdict, self._groups.get(verdict.gang[1], verdict.gang[0])).items():
            life, reason = self._life_of(pod), text + of_queue
            if life is None or life.scheduled_at is not None:
                continue
            if self._wait_for(life, reason) and not written:
                written = True
                self.log("Waits", f"PodGroup {'/'.join(verdict.gang)}", reason)

    def finish(self) -> None:
        """Handle the end of the run."""
        for uid, wait in self._waits.items():
            self._lives[uid].waited_for = wait.longest(self._at())
        self.queues.finish(self._now())
        self.history.ended_at = self._at()


# --------------------------------------------------------------------------------------------------------------- texts
def waiting_reasons(verdict: Verdict, group: Object | None) -> Mapping[Key, str]:
    """Return the reason of each pending pod, on one line; the reason of the gang applies to all its pods."""
    if not verdict.ready:
        needed = ((group or {}).get("spec") or {}).get("minMember")
        waits_for = f"{needed} pods" if needed else "more pods"
        return dict.fromkeys(verdict.pods, f"not ready: waiting for {waits_for}, {len(verdict.pods)} exist and wait")
    if len(verdict.pods) > 1 and verdict.reasons:
        return dict.fromkeys(verdict.pods, reason_line("; ".join(reason.message for reason in verdict.reasons)))
    return {pod: reason_line(message) for pod, message in verdict.pods.items()}


def place_text(life: PodLife) -> str:
    """Return the node and GPUs of a pod as text."""
    if not life.devices:
        return f"on {life.node}"
    numbers = ", ".join(map(str, life.devices))
    if life.shared:
        return f"on {life.node}, {life.portion:.0%} of GPU {numbers}"
    return f"on {life.node}, GPU{'s' if len(life.devices) > 1 else ''} {numbers}"


def workload_of(meta: Object, owner: Object | None) -> str:
    """Return the name of the workload that a pod is listed under; empty for a pod without owner."""
    labels = meta.get("labels") or {}
    for key in ("jobset.sigs.k8s.io/jobset-name", "ray.io/cluster", "training.kubeflow.org/job-name"):
        if key in labels:
            return str(labels[key])
    return str(owner["name"]) if owner else ""


def _requested(pod: Object) -> tuple[GpuRequest, Triple]:
    """Return the GPU request of a pod, and the amounts it requests."""
    template = decode_template(kinds.decode(json.encode(pod["spec"]), kinds.PodSpec))
    found = pod_amounts(template)
    request = gpu_request(found, pod["metadata"].get("annotations") or {})
    return request, (found.get("cpu", 0.0), found.get("memory", 0.0), request.gpus)


def request_text(request: GpuRequest) -> str:
    """Return the GPU request of a pod as text; empty if it has none."""
    each = f"{request.memory_mib} MiB" if request.kind is GpuKind.MEMORY else f"{request.portion:g} GPU"
    if request.kind is GpuKind.MIG or not request.devices:
        return "MIG" if request.kind is GpuKind.MIG else ""
    if request.kind is GpuKind.REGULAR:
        return f"{request.devices} GPU"
    return f"{request.devices} x {each}" if request.devices > 1 else each
