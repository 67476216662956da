"""The lifecycle of pods on hollow nodes: rejected or started, run, restarted, ended, deleted.

    bound ─► admitted ─► Running ─► Succeeded | Failed        deleted ─► (stop seconds) ─► containers ended ─► gone
         └─► Failed (OutOf...)      └─► restarted, by restartPolicy

Invariants: one function admits pods, in the order of the events; a pod holds its devices from admission until it ends
or is deleted; only the pod with the watched uid is written to or deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from pykai.hollow import pod_status
from pykai.hollow.hollow_node import HollowDevice, NodeLedger, RefusalError, node_requests
from pykai.hollow.kubelet_settings import NEVER, ContainerLog, KubeletSettings, PodLog, Runtime, RuntimePod
from pykai.hollow.visible_devices import visible_devices
from pykai.kube.api import Api, Deletion, Object, Patch
from pykai.kube.api_resources import POD
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError, Conflict, Invalid, NotFound
from pykai.objects import names, units

_logger = structlog.get_logger(__name__)
_WRITES_AT_ONCE = 64
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_DEFAULT_GRACE = 30
_LONGEST_BACKOFF = 64


@dataclass(slots=True)
class PodLifecycle:
    """A pod that this kubelet has admitted or rejected.

    `simulated`: no runtime runs it. `runs_program`: simulated, and one of our programs runs in its first container.
    """

    pod: Object
    simulated: bool
    logs: dict[str, ContainerLog]
    devices: tuple[HollowDevice, ...] = ()
    task: asyncio.Task[None] | None = None
    started: str = ""
    runs_program: bool = False
    stopping: bool = False
    endless: bool = False
    """The pod runs, or restarts, until it is deleted."""

    @property
    def log(self) -> ContainerLog:
        """Return the log of its first container."""
        return next(iter(self.logs.values()))


class PodLifecycles:
    """All pods of all hollow nodes; the watch calls `seen` and `gone`."""

    def __init__(
        self, api: Api, ledgers: Mapping[str, NodeLedger], settings: KubeletSettings, runtime: Runtime | None = None
    ) -> None:
        self._api = api
        self._ledgers = ledgers
        self._settings = settings
        self._runtime = runtime
        self._lives: dict[str, PodLifecycle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks of deleted pods that have not ended yet."""
        self._uids: dict[tuple[str, str], str] = {}
        self._reserved: dict[str, HollowDevice] = {}
        """The devices of reservation pods, by GPU group."""
        self._writing = asyncio.Semaphore(_WRITES_AT_ONCE)

    @property
    def will_change(self) -> bool:
        """Whether a timer will start, end or delete a pod."""
        return any(life.stopping or not (life.endless or pod_status.is_over(life.pod)) for life in self._lives.values())

    def log_of(self, namespace: str, name: str, container: str = "", previous: bool = False) -> PodLog | None:
        """Return the log of a container (by default the first) or of its previous run; None if there is none."""
        life = self._lives.get(self._uids.get((namespace, name), ""))
        if life is None:
            return None
        log = life.logs.get(container) if container else life.log
        if log is None:
            return None
        return log.previous if previous else log.current

    def seen(self, pod: Object) -> None:
        """Handle a watched pod: start, restart or stop it."""
        ledger = self._ledgers.get(pod["spec"].get("nodeName") or "")
        if ledger is None:
            return
        uid = pod["metadata"]["uid"]
        if pod_status.is_over(pod):
            ledger.release(uid)
        life = self._lives.get(uid)
        if "deletionTimestamp" in pod["metadata"]:
            life = life or self._add(pod)
            life.pod = pod
            if not life.stopping:
                life.stopping = True
                life.task = asyncio.create_task(self._stop(life, life.task))
        elif life is None and not pod_status.is_over(pod):
            self._admit(self._add(pod), ledger)
        elif life is not None:
            life.pod = pod

    def gone(self, pod: Object) -> None:
        """Handle a deleted pod: containers that still run, as after a forced deletion, end without grace period."""
        metadata = pod["metadata"]
        life = self._lives.pop(metadata["uid"], None)
        if life is None:
            return
        life.pod = {**life.pod, "metadata": {**life.pod["metadata"], "deletionGracePeriodSeconds": 0}}
        if life.task and life.task is not asyncio.current_task():
            life.task.cancel()
            self._ending.add(life.task)
            life.task.add_done_callback(self._ending.discard)
        _close_logs(life)
        self._release(life)
        if (group := _reserved_group(life)) and self._reserved.get(group) is life.devices[0]:
            del self._reserved[group]
        if self._uids.get((metadata["namespace"], metadata["name"])) == metadata["uid"]:
            del self._uids[metadata["namespace"], metadata["name"]]

    async def close(self) -> None:
        """Stop managing pods; their objects stay unchanged."""
        tasks = [life.task for life in self._lives.values() if life.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._ending, return_exceptions=True)

    def _add(self, pod: Object) -> PodLifecycle:
        metadata = pod["metadata"]
        simulated = self._runtime is None or not self._runtime.takes(pod)
        life = PodLifecycle(pod, simulated, _logs(pod))
        self._lives[metadata["uid"]] = life
        self._uids[metadata["namespace"], metadata["name"]] = metadata["uid"]
        return life

    def _release(self, life: PodLifecycle) -> None:
        ledger = self._ledgers.get(life.pod["spec"]["nodeName"])
        if ledger is not None:
            ledger.release(life.pod["metadata"]["uid"])

    def _admit(self, life: PodLifecycle, ledger: NodeLedger) -> None:
        metadata = life.pod["metadata"]
        had = (metadata.get("annotations") or {}).get(names.RESERVED_GPU_INDEX, "")
        try:
            life.devices = ledger.admit(metadata["uid"], node_requests(life.pod), had)
            self._note_reservation(life)
            seconds = _run_seconds(life.pod, self._settings)
        except RefusalError as refusal:
            life.task = asyncio.create_task(self._patch(life, pod_status.refused(refusal.reason, str(refusal))))
        except ValueError as error:
            life.task = asyncio.create_task(self._patch(life, pod_status.refused("InvalidAnnotation", str(error))))
        else:
            life.task = asyncio.create_task(self._run(life, seconds) if life.simulated else self._run_in_runtime(life))

    def _note_reservation(self, life: PodLifecycle) -> None:
        if group := _reserved_group(life):
            self._reserved[group] = life.devices[0]

    async def _run_in_runtime(self, life: PodLifecycle) -> None:
        assert self._runtime is not None
        life.started = _now()
        await self._runtime.run(RuntimePod(lambda: life.pod, life.logs, partial(self._patch, life)))

    async def _run(self, life: PodLifecycle, seconds: float | None) -> None:
        """Start the pod and run it until it ends; resume a pod that is already running."""
        policy = life.pod["spec"].get("restartPolicy", "Always")
        life.endless = policy == "Always"
        restarts, since = _resumed(life.pod)
        if since is None:
            await asyncio.sleep(self._settings.start_seconds)
        while True:
            if since is None:
                since = wall()
                life.started = units.rfc3339(since)
                await self._patch(life, pod_status.running(life.pod, life.started, restarts))
            life.started = units.rfc3339(since)
            code = await self._run_containers(life, since, seconds)
            if code is None:
                return
            _close_logs(life)
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                await self._patch(life, pod_status.ended(life.pod, code, life.started, _now()))
                return
            restarts, since = restarts + 1, None
            await self._patch(life, pod_status.waiting_to_restart(life.pod, code, _now(), restarts))
            await asyncio.sleep(self._settings.restart_seconds * min(2 ** (restarts - 1), _LONGEST_BACKOFF))
            for log in life.logs.values():
                log.begin()

    async def _run_containers(self, life: PodLifecycle, since: float, seconds: float | None) -> int | None:
        """Return the exit code after the containers have ended; None if they run until the pod is deleted."""
        write = life.log.current.write
        try:
            program = self._settings.on_start(life.pod, life.pod["spec"]["nodeName"], life.devices, write)
            life.runs_program = program is not None
            if program is not None:
                life.endless = True
                await program
                return 0
        except Exception:  # noqa: BLE001 - a program in a pod may fail in any way
            write(traceback.format_exc())
            return 1
        for container, devices in visible_devices(life.pod, life.devices, self._reserved):
            text = f"hollow node {life.pod['spec']['nodeName']}: no process runs here; container {container} would see"
            life.logs[container].current.write(f"{text} {devices}")
        if seconds is None:
            life.endless = True
            return None
        await asyncio.sleep(max(0.0, since + seconds - wall()))
        return pod_status.exit_code(life.pod)

    async def _stop(self, life: PodLifecycle, running: asyncio.Task[None] | None) -> None:
        """End the containers within the pod's grace period, then delete the pod from the API server."""
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        if life.started and not pod_status.is_over(life.pod):
            if life.simulated:
                await asyncio.sleep(_stop_seconds(life.pod, 0.0 if life.runs_program else self._settings.stop_seconds))
            await self._patch(life, pod_status.stopped(life.pod, life.started, _now()))
        _close_logs(life)
        self._release(life)
        metadata = life.pod["metadata"]
        ref = POD.ref(metadata["name"], metadata["namespace"])
        await self._write(lambda: self._api.delete(ref, Deletion(grace_seconds=0, uid=metadata["uid"])))

    async def _patch(self, life: PodLifecycle, status: Object) -> None:
        metadata = life.pod["metadata"]
        ref = POD.ref(metadata["name"], metadata["namespace"]).sub("status")
        body = {"metadata": {"uid": metadata["uid"]}, **status}
        await self._write(lambda: self._api.patch(ref, Patch.strategic(body)))

    async def _write(self, write: Callable[[], Awaitable[object]]) -> None:
        """Retry the write until it succeeds or is rejected, or the pod is deleted or replaced."""
        attempt = 0
        while True:
            try:
                async with self._writing:
                    await write()
                return
            except (NotFound, Conflict):
                return
            except Invalid as error:
                _logger.error("write of a hollow kubelet rejected", error=error.message)
                return
            except ApiError:
                await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
                attempt += 1


def _reserved_group(life: PodLifecycle) -> str:
    """Return the GPU group that a reservation pod holds a device for; empty for other pods."""
    metadata = life.pod["metadata"]
    if not life.devices or metadata["namespace"] != names.RESERVATION_NAMESPACE:
        return ""
    return str((metadata.get("labels") or {}).get(names.GPU_GROUP_LABEL, ""))


def _logs(pod: Object) -> dict[str, ContainerLog]:
    """Return a log for every container."""
    containers = (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ()))
    return {container["name"]: ContainerLog() for container in containers}


def _close_logs(life: PodLifecycle) -> None:
    for log in life.logs.values():
        log.current.close()


def _now() -> str:
    return units.rfc3339(wall())


def _resumed(pod: Object) -> tuple[int, float | None]:
    """Return (restarts, running since) of a pod that an earlier kubelet process started; (0, None) for a new one."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    for status in statuses:
        started = ((status.get("state") or {}).get("running") or {}).get("startedAt")
        return int(status.get("restartCount", 0)), units.parse_timestamp(started)
    return 0, None


def _run_seconds(pod: Object, settings: KubeletSettings) -> float | None:
    """Return the run time of the containers, as annotated or the setting for Jobs; None: until deleted."""
    pod_status.exit_code(pod)
    annotated = pod_status.annotated_seconds(pod, names.RUN_SECONDS)
    if annotated is not None:
        return None if annotated == NEVER else annotated
    return settings.job_seconds if pod_status.is_job_pod(pod) else None


def _stop_seconds(pod: Object, usual: float) -> float:
    """Return how long the containers take to stop, as annotated or `usual`; at most the grace period of the pod."""
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds", _DEFAULT_GRACE))
    annotated = None
    with contextlib.suppress(ValueError):
        annotated = pod_status.annotated_seconds(pod, names.STOP_SECONDS)
    return min(grace, usual if annotated is None else annotated)
