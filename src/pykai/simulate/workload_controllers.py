"""The reconcile loop of the simulated workload controllers: watches workloads and pods, creates missing children."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from pykai.config.usage_db import parse_cron
from pykai.hollow.kubelet_settings import FOREVER, seconds_span, span_number
from pykai.kube.api import Api, Deletion, EventType, Object, Patch, Propagation, Ref, Resource
from pykai.kube.api_resources import CRON_JOB, JOB, NAMESPACE, NODE, POD
from pykai.kube.clock import wall
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykai.kube.informer import InformerFactory, SharedInformer
from pykai.kube.informer_store import WatchChange
from pykai.objects import names
from pykai.simulate.workloads import WORKLOADS, Child, templated

KEPT_SECONDS = 60.0
"""Default seconds that a finished Job, or a finished pod without a controller, is kept."""
FAILED_SECONDS, LONGEST_SECONDS, BACKOFF_LIMIT = 10.0, 360.0, 6
"""First and longest backoff before a failed pod is replaced, and the failures after which a Job fails."""
MINUTE = 60.0
_FINISHED = ("Succeeded", "Failed")
_DEVICE_LABEL, _RECEIVED = names.GPU_GROUP_LABEL, names.RECEIVED_RESOURCE_TYPE
_BACKGROUND = Deletion(propagation=Propagation.BACKGROUND)
Item = tuple[str, str, str]
"""Kind, namespace and name of a workload."""
log = structlog.get_logger("workloads")


@dataclass
class JobCount:
    """The pods of a Job: active ones, and the numbers of pods that succeeded, were created, and failed."""

    active: set[str] = field(default_factory=set)
    finished: int = 0
    made: int = 0
    failed: int = 0


class WorkloadControllers:
    """All simulated controllers on one API server. `seed` draws times that are given as ranges."""

    def __init__(self, api: Api, watches: InformerFactory, seed: int) -> None:
        self._api = api
        self._seed = seed
        self._pods = watches.of(POD, Object)
        self._rows = {row.resource.kind: row for row in WORKLOADS}
        self._resources = {JOB.kind: JOB, CRON_JOB.kind: CRON_JOB} | {
            kind: row.resource for kind, row in self._rows.items()
        }
        self._informers: dict[str, SharedInformer[Object]] = {
            kind: watches.of(resource, Object) for kind, resource in self._resources.items()
        }
        self._counts: dict[str, JobCount] = {}
        self._completed: set[tuple[str, str]] = set()
        """(uid of the workload, name of the child) of completed children, which are not re-created."""
        self._adopted: set[str] = set()
        """Uids of pods whose controller exists only in the cluster that they were read from."""
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._queued: set[Item] = set()
        self._tasks: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Reconcile until cancelled; the caller runs the watches."""
        for kind, watch in self._informers.items():
            await watch.synced()
            watch.subscribe(partial(self._workload_changed, kind))
        await self._pods.synced()
        self._pods.subscribe(self._pod_changed)
        while True:
            item = await self._queue.get()
            self._queued.discard(item)
            try:
                await self._reconcile(*item)
            except ApiError as error:
                log.warning("workload refused", kind=item[0], name="/".join(item[1:]), error=error.message)

    @property
    def has_schedules(self) -> bool:
        """Whether a CronJob exists: such a run never comes to rest."""
        return len(self._informers[CRON_JOB.kind]) > 0

    def adopt(self, pod: Object) -> None:
        """Register a pod that was read from a cluster: if it has a controller there, it is re-created when evicted."""
        if controller_of(pod) is not None:
            self._adopted.add(pod["metadata"]["uid"])

    # ----------------------------------------------------------------------------------------------------- changes
    def _workload_changed(self, kind: str, change: WatchChange[Object]) -> None:
        if change.type is EventType.DELETED:
            self._counts.pop(change.object["metadata"]["uid"], None)
            return
        if kind == CRON_JOB.kind and change.type is EventType.ADDED:
            self._schedule_next((kind, *change.key))
        elif kind != CRON_JOB.kind:
            self._enqueue((kind, *change.key))

    def _pod_changed(self, change: WatchChange[Object]) -> None:
        pod = change.object
        owner = controller_of(pod)
        if pod["metadata"]["uid"] in self._adopted:
            self._replace_adopted(change)
            return
        over = (pod.get("status") or {}).get("phase") in _FINISHED
        if owner is None:
            if over and change.type is not EventType.DELETED:
                asyncio.get_running_loop().call_later(KEPT_SECONDS, self._delete_finished, pod)
            return
        leaving = change.type is EventType.DELETED or "deletionTimestamp" in pod["metadata"]
        if owner["kind"] == JOB.kind:
            self._count(owner["uid"], pod, over, leaving)
        elif over and pod["status"]["phase"] == "Succeeded" and not leaving:
            self._completed.add((owner["uid"], change.key[1]))
        if over and not leaving and pod["status"]["phase"] == "Failed":
            failures = self._counts.get(owner["uid"], JobCount(failed=1)).failed
            wait = min(FAILED_SECONDS * 2.0 ** max(failures - 1, 0), LONGEST_SECONDS)
            asyncio.get_running_loop().call_later(wait, self._enqueue_owners, change.key[0], owner)
        elif over or leaving:
            self._enqueue_owners(change.key[0], owner)

    def _replace_adopted(self, change: WatchChange[Object]) -> None:
        pod = change.object
        over = (pod.get("status") or {}).get("phase") in _FINISHED
        if over or change.type is EventType.DELETED or "deletionTimestamp" in pod["metadata"]:
            self._adopted.discard(pod["metadata"]["uid"])
            if not over:
                self._start(self._recreate(pod))

    async def _recreate(self, pod: Object) -> None:
        made = await self._api.create(POD, successor(pod), pod["metadata"]["namespace"])
        self._adopted.add(made["metadata"]["uid"])

    def _count(self, uid: str, pod: Object, over: bool, leaving: bool) -> None:
        """Remove a pod from the count of its Job; a succeeded one counts as a completion."""
        count, name = self._counts.get(uid), pod["metadata"]["name"]
        if count is None or name not in count.active or not (over or leaving):
            return
        count.active.discard(name)
        if over and pod["status"]["phase"] == "Succeeded":
            count.finished += 1
        elif over and not leaving:
            count.failed += 1

    def _enqueue_owners(self, namespace: str, owner: Object) -> None:
        """Enqueue the workload of a pod, and its owners."""
        kind, name = owner["kind"], owner["name"]
        while kind in self._informers:
            self._enqueue((kind, namespace, name))
            found = self._informers[kind].get(name, namespace)
            above = controller_of(found) if found else None
            if above is None:
                return
            kind, name = above["kind"], above["name"]

    def _enqueue(self, item: Item) -> None:
        if item not in self._queued:
            self._queued.add(item)
            self._queue.put_nowait(item)

    def _delete_finished(self, pod: Object) -> None:
        """Delete a finished pod without a controller, as the pod garbage collector eventually does."""
        meta = pod["metadata"]
        self._start(self._delete(POD.ref(meta["name"], meta["namespace"]), Deletion(uid=meta["uid"])))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------------------- reconciling
    async def _reconcile(self, kind: str, namespace: str, name: str) -> None:
        found = self._informers[kind].get(name, namespace)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        obj = {"apiVersion": self._resources[kind].api_version, "kind": kind, **found}
        if kind == JOB.kind:
            await self._create_job_pods(obj)
        elif kind != CRON_JOB.kind:
            await self._create_children(obj)

    async def _create_children(self, obj: Object) -> None:
        row, meta = self._rows[obj["kind"]], obj["metadata"]
        made: dict[str, Object] = {}
        for child in row.children(obj):
            owner = made.get(child.owner, obj)
            if (owner["metadata"]["uid"], child.name) not in self._completed:
                made[child.name] = await self._create_child(child, owner, meta["namespace"], obj)
        if row.status and (wanted := row.status(obj)) != {key: (obj.get("status") or {}).get(key) for key in wanted}:
            ref = row.resource.ref(meta["name"], meta["namespace"]).sub("status")
            await self._api.patch(ref, Patch.merge({"status": wanted}))

    async def _create_child(self, child: Child, owner: Object, namespace: str, workload: Object) -> Object:
        """Return the child, created if it does not exist."""
        body = timed(child.body, workload, self._seed)
        body = {**body, "metadata": {**body["metadata"], "ownerReferences": [reference(owner)]}}
        whole = {"apiVersion": child.resource.api_version, "kind": child.resource.kind}
        try:
            if child.resource == POD:
                body = settled(body, namespace, self._seed)
            return whole | await self._api.create(child.resource, body, namespace)
        except AlreadyExists:
            return whole | await self._api.get(child.resource.ref(child.name, namespace), Object)

    # -------------------------------------------------------------------------------------------------------- jobs
    async def _create_job_pods(self, job: Object) -> None:
        meta, spec = job["metadata"], job["spec"]
        count = self._counts.setdefault(meta["uid"], JobCount())
        parallel = int(spec.get("parallelism", 1))
        completions = int(spec.get("completions", parallel))
        if count.finished >= completions:
            await self._complete(job)
            return
        ended = spec.get("suspend") or count.failed > int(spec.get("backoffLimit", BACKOFF_LIMIT))
        wanted = 0 if ended else min(parallel, completions - count.finished)
        while len(count.active) < wanted:
            name = f"{meta['name']}-{count.made}"
            count.made += 1
            count.active.add(name)
            pod = templated(spec["template"], name, {"job-name": meta["name"]})
            await self._create_child(Child(POD, pod), job, meta["namespace"], job)

    async def _complete(self, job: Object) -> None:
        """Report the completion of the Job, and delete it after its TTL."""
        meta, status = job["metadata"], job.get("status") or {}
        if status.get("completionTime"):
            return
        ref = JOB.ref(meta["name"], meta["namespace"])
        done = {"type": "Complete", "status": "True"}
        await self._api.patch(
            ref.sub("status"), Patch.merge({"status": {"completionTime": "now", "conditions": [done]}})
        )
        if controller_of(job) is None or "ttlSecondsAfterFinished" in job["spec"]:
            kept = float(job["spec"].get("ttlSecondsAfterFinished", KEPT_SECONDS))
            asyncio.get_running_loop().call_later(kept, lambda: self._start(self._delete(ref, _BACKGROUND)))

    async def _delete(self, ref: Ref, how: Deletion) -> None:
        with suppress(NotFound, Conflict):  # deleted, or replaced by another object of this name
            await self._api.delete(ref, how)

    # --------------------------------------------------------------------------------------------------- cron jobs
    def _schedule_next(self, item: Item) -> None:
        now = wall()
        next_minute = (math.floor(now / MINUTE) + 1) * MINUTE
        loop = asyncio.get_running_loop()
        loop.call_later(next_minute - now, lambda: self._start(self._run_schedule(item)))

    async def _run_schedule(self, item: Item) -> None:
        """Create a Job if the schedule matches this minute."""
        kind, namespace, name = item
        found = self._informers[kind].get(name, namespace)
        if found is None:
            return
        self._schedule_next(item)
        minute = math.floor(wall() / MINUTE) * MINUTE
        if found["spec"].get("suspend") or parse_cron(found["spec"]["schedule"]).last_before(minute + 1) != minute:
            return
        cron_job = {"apiVersion": CRON_JOB.api_version, "kind": kind, **found}
        job = templated(found["spec"]["jobTemplate"], f"{name}-{int(minute // MINUTE)}")
        await self._create_child(Child(JOB, job), cron_job, namespace, cron_job)


# --------------------------------------------------------------------------------------------------------------- parts
def controller_of(obj: Object) -> Object | None:
    """Return the controller of an object; None if it has none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def reference(owner: Object) -> Object:
    """Return the owner reference of a child."""
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


def timed(child: Object, workload: Object, seed: int) -> Object:
    """Return the child with the run time annotated on its workload, so that all its pods run equally long."""
    meta = workload["metadata"]
    text = (meta.get("annotations") or {}).get(names.RUN_SECONDS)
    own = child["metadata"].get("annotations") or {}
    if text is None or names.RUN_SECONDS in own:
        return child
    drawn = span_number(seconds_span(text).draw(f"{seed}/{meta['namespace']}/{meta['name']}/run"))
    return {**child, "metadata": {**child["metadata"], "annotations": {names.RUN_SECONDS: drawn, **own}}}


def settled(pod: Object, namespace: str, seed: int) -> Object:
    """Return the pod with the ranges in its annotations replaced by values drawn from seed and name.

    A pod with a run time is not restarted after it, unless its restartPolicy is set.
    """
    notes = dict(pod["metadata"].get("annotations") or {})
    for key in (names.RUN_SECONDS, names.STOP_SECONDS):
        if text := notes.get(key):
            notes[key] = span_number(seconds_span(text).draw(f"{seed}/{namespace}/{pod['metadata']['name']}/{text}"))
    spec = pod["spec"]
    if notes.get(names.RUN_SECONDS, FOREVER) != FOREVER:
        spec = {"restartPolicy": "Never", **spec}
    return {**pod, "metadata": {**pod["metadata"], "annotations": notes}, "spec": spec} if notes else pod


async def apply(api: Api, resource: Resource, obj: Object, seed: int) -> bool:
    """Create an object, with its namespace, or update the existing one; return whether it existed."""
    meta = obj["metadata"]
    namespace = meta.get("namespace", "")
    if resource == POD:
        obj = settled(obj, namespace, seed)
    if namespace:
        with suppress(AlreadyExists):
            await api.create(NAMESPACE, {"metadata": {"name": namespace}})
    try:
        await api.create(resource, obj)
        return False
    except AlreadyExists:
        ref = resource.ref(meta["name"], namespace)
        present = await api.get(ref, Object)
        version = {"resourceVersion": present["metadata"]["resourceVersion"]}
        await api.update(ref, {**obj, "metadata": {**meta, **version}})
        if resource == NODE:
            await api.patch(ref.sub("status"), Patch.merge({"status": obj.get("status") or {}}))
        return True


def continued(pod: Object) -> Object:
    """Return a pod that was read from a cluster: it keeps its group, and runs for ever unless annotated."""
    meta = pod["metadata"]
    notes = {names.RUN_SECONDS: FOREVER, **(meta.get("annotations") or {})}
    if names.POD_GROUP_ANNOTATION in notes:
        notes[names.SKIP_PODGROUPER] = "true"
    return {**pod, "metadata": {**meta, "annotations": notes}}


def successor(pod: Object) -> Object:
    """Return the replacement of an evicted pod: its state before it was bound."""
    meta = pod["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if not key.startswith(_DEVICE_LABEL)}
    notes = {key: value for key, value in (meta.get("annotations") or {}).items() if key != _RECEIVED}
    stem, _, number = meta["name"].rpartition("-again-")
    name = f"{stem or meta['name']}-again-{int(number) + 1 if stem else 1}"
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "priority")}
    return {"metadata": {"name": name, "labels": labels, "annotations": notes}, "spec": spec}
