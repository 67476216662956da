"""A simulation: the components of the product on the in-memory API server, with hollow kubelets and controllers.

This module makes no decisions. It connects the components with the API server, hollow kubelets for the nodes of the
manifests, arriving objects, the recorder and the past usage of queues, and detects the end of the run.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pykai.config.usage_db import UsageConfig, window_seconds
from pykai.hollow.hollow_node import HollowDevice, NodeLedger
from pykai.hollow.kubelet_settings import KubeletSettings, OnStart
from pykai.hollow.pod_lifecycle import PodLifecycles
from pykai.kernels.fairshare import UsageRecord, normalised_use
from pykai.kube.api import Api, EventType, Object
from pykai.kube.api_resources import NAMESPACE, NODE, POD
from pykai.kube.errors import ApiError
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.kube.memory import Admission, MemoryApi
from pykai.model.plan import Plan, Triple
from pykai.model.snapshot import Snapshot
from pykai.objects import names
from pykai.objects.units import amount
from pykai.simulate import checks, loop
from pykai.simulate.claim_controllers import ClaimControllers
from pykai.simulate.generate import SOURCE as INSTALLED
from pykai.simulate.history import PodLife, Sample, SimulationResult
from pykai.simulate.manifests import Arrival
from pykai.simulate.recorder import Recorder
from pykai.simulate.workload_controllers import WorkloadControllers, apply, continued
from pykai.simulate.workloads import definitions, templated

Progress = Callable[[float, int, int], object]
"""Receives (simulated seconds, finished pods, created pods); a run ends where it returns True."""
NEVER = float("inf")
_STEP_SECONDS = 10.0
SETTLED_SECONDS = 120.0
"""A run without a fixed end stops after this time without changes."""
_DEVICE_IDS = uuid.UUID("0f6a3c8e-8a53-5d0c-9a7e-3f1f0a5b7c11")
_NAMESPACES = (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)


@dataclass(frozen=True)
class Setting:
    """The settings of a run, times in seconds. The same setting and manifests give the same history."""

    seed: int = 0
    start: float = 1_767_225_600.0
    """The start of the run: 2026-01-01T00:00:00Z."""
    starting: float = 2.0
    """From the bind of a pod until it runs."""
    stopping: float = 5.0
    """From the deletion of a pod until it is removed, unless annotated."""
    job_runs: float = 60.0
    """The run time of a Job's pod, unless annotated; other pods run for ever."""
    usage: UsageConfig | None = None
    """How past usage affects fair shares; None: not at all. The database in it is not queried."""


@dataclass(frozen=True)
class Hooks:
    """Connections of the components: an observer of decisions, and the source of past usage if it counts."""

    observe: Callable[[Snapshot, Plan], None]
    past: PastUsage | None
    replica: str = ""
    """The identity of this process in leader elections; empty: no election, because it is the only process."""


class Product(Protocol):
    """The components of the product, as a simulation runs them."""

    def admission(self, queues: Callable[[], Mapping[str, Object]], warn: Callable[[str], None]) -> Sequence[Admission]:
        """Return the webhooks; `queues` returns the current queues, `warn` receives admission warnings."""
        ...

    def definitions(self) -> Sequence[Object]:
        """Return the custom resource definitions to serve."""
        ...

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        """Run all components until cancelled or the end of the run; set `ready` when they are ready."""
        ...

    def programs(self, api: Api) -> OnStart:
        """Return the programs of pods that run a component."""
        ...

    def faults(self) -> Sequence[str]:
        """Return the violated invariants, such as plans that verification rejected."""
        ...


class BrokenError(RuntimeError):
    """A component failed during the run, which is a bug."""


@dataclass(frozen=True)
class Simulation:
    """One run; `play` returns its result."""

    product: Product
    arrivals: Sequence[Arrival]
    setting: Setting = field(default_factory=Setting)

    def play(self, until: float | None = None, progress: Progress = lambda *_: None) -> SimulationResult:
        """Run until `until` seconds, or until nothing changes any more; ValueError if that may never happen."""
        if until is None and self.setting.usage is not None:
            raise ValueError("where past use counts, a run has no end of its own")

        async def playing() -> SimulationResult:
            return await _Run(self.product, self.arrivals, self.setting).play(until, progress)

        return loop.run(playing(), self.setting.start, self.setting.seed)

    def refusals(self) -> list[str]:
        """Return the arrivals that API server or admission reject, each with its source; no component runs."""

        async def trying() -> list[str]:
            return await _Run(self.product, self.arrivals, self.setting).refusals()

        return loop.run(trying(), self.setting.start, self.setting.seed)


class _Run:
    """The parts of a run, created on its event loop."""

    def __init__(self, product: Product, arrivals: Sequence[Arrival], setting: Setting) -> None:
        self._product, self._setting = product, setting
        self._arrivals = deque(sorted(arrivals, key=lambda arrival: arrival.at))
        self._time = asyncio.get_running_loop().time
        admission = product.admission(lambda: self._recorder.queues.current(), self._warn)
        kinds = [*product.definitions(), *definitions()]
        self._api = MemoryApi(lambda: setting.start + self._time(), kinds, admission, setting.seed)
        self._watches = InformerFactory(self._api)
        self._recorder = Recorder(self._watches, self._time, setting.usage is not None, setting.start)
        self._recorder.devices_of = self._devices_of
        self._controllers = WorkloadControllers(self._api, self._watches, setting.seed)
        self._claims = ClaimControllers(self._api, self._watches)
        times = (setting.starting, setting.stopping, setting.job_runs)
        settings = KubeletSettings(*times, on_start=product.programs(self._api))
        self._kubelets = Kubelets(self._api, self._watches, settings)

    async def play(self, until: float | None, progress: Progress) -> SimulationResult:
        """Run, and return the result."""
        past = PastUsage(self._setting.usage) if self._setting.usage else None
        if past is not None:
            self._recorder.queues.on_sample = lambda sample: past.record(self._setting.start + sample.at, sample)
        for name in _NAMESPACES:
            await self._api.create(NAMESPACE, {"metadata": {"name": name}})
        self._load_existing()
        await self._create_arrivals(0.0)
        ready = asyncio.Event()
        parts = [
            self._watches.run(),
            self._recorder.run(),
            self._kubelets.run(),
            self._controllers.run(),
            self._claims.run(),
            self._product.run(self._api, Hooks(self._recorder.observe, past), ready),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await self._drive(tasks, until, progress)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._recorder.finish()
        return self._outcome()

    async def refusals(self) -> list[str]:
        """Create all objects, and pods of their templates, on an API server without components; return the errors."""
        self._load_existing()
        found: list[str] = []
        for arrival in self._arrivals:
            try:
                await apply(self._api, arrival.resource, arrival.obj, self._setting.seed)
                for number, (below, template) in enumerate(checks.pods_in(arrival.obj)):
                    if below and not arrival.exists:
                        meta = arrival.obj["metadata"]
                        pod = templated(template, f"{meta['name']}-template-{number}")
                        pod["metadata"]["namespace"] = meta["namespace"]
                        await apply(self._api, POD, pod, self._setting.seed)
            except ApiError as error:
                found.append(f"{arrival.source}: {error.message}")
        return found

    def _load_existing(self) -> None:
        """Store the objects that were read from a cluster."""
        existing = [arrival for arrival in self._arrivals if arrival.exists]
        self._arrivals = deque(arrival for arrival in self._arrivals if not arrival.exists)
        for arrival in existing:
            obj = continued(arrival.obj) if arrival.resource == POD else arrival.obj
            namespace = arrival.key[0]
            if namespace:
                self._api.load(NAMESPACE, _namespace(namespace))
            self._api.load(arrival.resource, obj)
            if arrival.resource == POD:
                self._controllers.adopt(obj)

    async def _drive(self, tasks: Sequence[asyncio.Task[None]], until: float | None, progress: Progress) -> None:
        """Create the arrivals; return at the end of the run or when a component (the last task) ends."""
        history = self._recorder.history
        while True:
            now = self._time()
            await self._create_arrivals(now)
            stops = progress(now, history.ended, len(history.lives)) is True
            for task in tasks:
                if task.done():
                    task.result()
            if faults := self._product.faults():
                raise BrokenError(f"at {now:g} s the product failed: {faults[0]}")
            if stops or tasks[-1].done() or (until is None and self._is_idle()):
                return
            following = self._arrivals[0].at if self._arrivals else NEVER
            step = min(following, now + _STEP_SECONDS, NEVER if until is None else until)
            await asyncio.sleep(step - now)
            if until is not None and self._time() >= until:
                return

    def _is_idle(self) -> bool:
        """Whether no timer is pending and nothing has changed for a while."""
        planned = self._arrivals or self._controllers.has_schedules or self._kubelets.will_change
        return not planned and self._time() - self._recorder.last_change >= SETTLED_SECONDS

    # ---------------------------------------------------------------------------------------------------- arrivals
    async def _create_arrivals(self, now: float) -> None:
        while self._arrivals and self._arrivals[0].at <= now:
            arrival = self._arrivals.popleft()
            title = f"{arrival.obj['kind']} {'/'.join(filter(None, arrival.key))}"
            try:
                changed = await apply(self._api, arrival.resource, arrival.obj, self._setting.seed)
            except ApiError as error:
                self._recorder.log("Refused", title, error.message)
                self._warn(f"{arrival.source}: refused: {error.message}")
                continue
            if arrival.resource != POD and not arrival.source.startswith(INSTALLED):
                self._recorder.log("Changed" if changed else "Arrived", title)

    def _warn(self, text: str) -> None:
        self._recorder.history.remark(text)

    # ----------------------------------------------------------------------------------------------------- outcome
    def _devices_of(self, pod: Object) -> tuple[int, ...]:
        """Return the indices of the GPUs of a pod: its own, or those of its reservation pods."""
        node, labels = pod["spec"].get("nodeName") or "", pod["metadata"].get("labels") or {}
        groups = sorted({value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL)})
        if not groups:
            return self._kubelets.held(node, pod["metadata"]["uid"])
        found = [self._recorder.reservations[group] for group in groups if group in self._recorder.reservations]
        return tuple(sorted(n for each in found for n in self._kubelets.held(node, each["metadata"]["uid"])))

    def _outcome(self) -> SimulationResult:
        holders: dict[str, list[list[tuple[PodLife, float]]]] = {
            node: [[] for _ in devices] for node, devices in self._kubelets.devices.items()
        }
        for life in self._recorder.living():
            for number in life.devices if life.ended_at is None else ():
                holders[life.node][number].append((life, life.portion if life.shared else 1.0))
        queues = self._recorder.queues.table
        assert queues is not None, "the scheduler never ran"
        return SimulationResult(self._recorder.history, queues, holders, len(self._recorder.living()))


def _namespace(name: str) -> Object:
    meta = {"name": name, "uid": f"namespace-{name}", "labels": {"kubernetes.io/metadata.name": name}}
    return {"metadata": meta, "status": {"phase": "Active"}}


class PastUsage:
    """The usage of queues since the start of the run, as a usage source of the scheduler."""

    def __init__(self, config: UsageConfig) -> None:
        self._config = config
        self._records: list[UsageRecord] = []

    def record(self, now: float, sample: Sample) -> None:
        """Record the allocations of queues from `now` (seconds since 1970) on."""
        held = {name: queue.allocated for name, queue in sample.queues.items()}
        last = self._records[-1] if self._records else None
        if last is None or (last.capacity, last.allocated) != (sample.capacity, held):
            self._records.append(UsageRecord(now, sample.capacity, held))

    async def usage(self, now: float) -> Mapping[str, Triple]:
        """Return the usage of each queue in the window that ends at `now`; 1.0 is the whole cluster all the time."""
        since = now - window_seconds(self._config.window, now)
        passed = sum(record.at <= since for record in self._records)
        del self._records[: max(passed - 1, 0)]
        return normalised_use(self._records, since, now, self._config.half_life)


class Kubelets:
    """The hollow kubelets: they watch nodes and simulate the pods that are bound to them.

    A node has as many devices as allocatable GPUs; `devices` are the GPUs of every node by index. Node leases are not
    renewed: no controller of a simulation reads them.
    """

    def __init__(self, api: Api, watches: InformerFactory, settings: KubeletSettings) -> None:
        self.devices: dict[str, tuple[HollowDevice, ...]] = {}
        self._ledgers: dict[str, NodeLedger] = {}
        self._lives = PodLifecycles(api, self._ledgers, settings)
        self._nodes = watches.of(NODE, Object)
        self._pods = watches.of(POD, Object)

    async def run(self) -> None:
        """Run until cancelled; the caller runs the watches."""
        await self._nodes.synced()
        self._nodes.subscribe(self._node_changed)
        await self._pods.synced()
        self._pods.subscribe(self._pod_changed)
        try:
            await asyncio.Event().wait()
        finally:
            await self._lives.close()

    @property
    def will_change(self) -> bool:
        """Whether a timer will start, end or delete a pod."""
        return self._lives.will_change

    def held(self, node: str, uid: str) -> tuple[int, ...]:
        """Return the indices of the devices that a pod's kubelet assigned."""
        ledger = self._ledgers.get(node)
        return tuple(device.index for device in ledger.devices_of(uid)) if ledger else ()

    def _node_changed(self, change: WatchChange[Object]) -> None:
        name = change.key[1]
        if change.type is EventType.DELETED:
            self._ledgers.pop(name, None)
            return
        offered = (change.object.get("status") or {}).get("allocatable") or {}
        if name not in self._ledgers:
            self.devices[name] = _devices(change.object, int(amount(offered.get(names.NVIDIA_GPU, 0))))
            self._ledgers[name] = NodeLedger(self.devices[name], offered)
        self._ledgers[name].resize(offered)

    def _pod_changed(self, change: WatchChange[Object]) -> None:
        if change.type is EventType.DELETED:
            self._lives.gone(change.object)
        elif change.object["spec"].get("nodeName"):
            self._lives.seen(change.object)


def _devices(node: Object, count: int) -> tuple[HollowDevice, ...]:
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    memory = labels.get(names.GPU_MEMORY_LABEL, "")
    product = labels.get("nvidia.com/gpu.product", "")
    return tuple(
        HollowDevice(number, f"GPU-{uuid.uuid5(_DEVICE_IDS, f'{name}/{number}')}", product, int(memory or 0))
        for number in range(count)
    )
