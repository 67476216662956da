"""One history with faults: the product runs under faults, comes to rest and is restarted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol, cast

from pykai.hollow.kubelet_settings import OnStart
from pykai.kube.api import Api, Object, Patch, Selection
from pykai.kube.api_resources import EVENT, LEASE, NODE_TOPOLOGY, POD
from pykai.kube.codec import decode
from pykai.kube.errors import ApiError
from pykai.kube.memory import Admission, MemoryApi
from pykai.kube.memory.object_store import LoggedChange
from pykai.objects import names
from pykai.simulate.faults.api import KILLED_WITHIN, LONGEST_FLIGHT, Fault, FaultPlan, FaultyApi
from pykai.simulate.faults.invariants import RunningChecks, Violation, at_rest, read_cluster
from pykai.simulate.faults.users import LONGEST_ABSENCE, Users
from pykai.simulate.faults.worlds import ALONE, APART, REPLICAS, World, world
from pykai.simulate.history import HistoryEvent
from pykai.simulate.loop import SKEW, Skew, StalledError
from pykai.simulate.simulation import BrokenError, Hooks, Product, Setting, Simulation
from pykai.simulate.workloads import open_definition

FAULTY_SECONDS, REST_SECONDS, QUIET_SECONDS, RESTARTED_SECONDS = 90.0, 400.0, 90.0, 70.0
"""The duration of the faults, the time limit for coming to rest, the time without changes that counts as rest, and the
time that a restart is observed."""
END_SECONDS = FAULTY_SECONDS + LONGEST_ABSENCE + REST_SECONDS + QUIET_SECONDS + RESTARTED_SECONDS + 20.0
RESTART_SECONDS = 1.0
WARM_UP = (4, 12, 35)
"""Seeds whose worlds together have most features and every layout."""
JUMPS = (("clock jumped", 0.02),)
LARGEST_JUMP = 120.0
_STEP = 10.0
_SHOWN_CHANGES = 3
_COUNTERS = ("metadata.generation", "metadata.resourceVersion")
_NOT_COUNTED = (LEASE.plural, EVENT.plural)
"""Resources whose writes do not count as changes: leases are renewed and events recorded at rest, too."""


class Deployment(Product, Protocol):
    """A product that can also run as several processes."""

    @property
    def components(self) -> Sequence[str]:
        """The names of the processes, one per component."""
        ...

    @property
    def beside(self) -> Sequence[str]:
        """The components that run in processes of their own even if the others share one."""
        ...

    async def run_process(self, name: str, api: Api, hooks: Hooks) -> None:
        """Run one process until cancelled; `name` is one of `components`, or `all`."""
        ...


@dataclass
class Outcome:
    """The result of a history."""

    seed: int
    title: str = ""
    violations: list[Violation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    events: list[HistoryEvent] = field(default_factory=list)
    pods: int = 0
    cpu: float = 0.0
    """CPU seconds, if measured."""
    fingerprint: str = ""
    """A digest of every change on the API server: equal for equal histories."""

    @property
    def counts(self) -> Counter[str]:
        return Counter(fault.kind for fault in self.faults)


@dataclass(frozen=True)
class Reduction:
    """The faults (by point) and objects to leave out of a seed's history."""

    without_faults: frozenset[str] = frozenset()
    without_work: frozenset[str] = frozenset()


Deployed = Callable[[World], Deployment]
"""Returns the product that a world deploys."""


def play(seed: int, deployed: Deployed, shape: Reduction | None = None) -> Outcome:
    """Run the history of a seed, without the faults and objects that `shape` leaves out."""
    chosen, left_out = world(seed), shape or Reduction()
    work = [arrival for arrival in chosen.work if arrival.source not in left_out.without_work]
    product = FaultyProduct(deployed(chosen), chosen, seed, left_out.without_faults)
    run = Simulation(product, [*chosen.cluster, *work], Setting(seed=seed))
    outcome = Outcome(seed, chosen.title)
    try:
        history = run.play(END_SECONDS).history
        outcome.events, outcome.pods = history.events, len(history.lives)
    except (BrokenError, StalledError) as error:
        product.report("the product failed", str(error))
    outcome.violations, outcome.fingerprint = product.violations, product.fingerprint
    outcome.faults = product.plan.happened if product.plan else []
    return outcome


def warm_up(deployed: Deployed) -> None:
    """Load and compile what all histories need, before processes are forked for them, by playing some."""
    for seed in WARM_UP:
        play(seed, deployed)


class ChangeLog:
    """The number and a digest of the changes on the API server."""

    def __init__(self, server: MemoryApi) -> None:
        self.count = 0
        """The number of changes since `reset`, without leases and events."""
        self._first: list[LoggedChange] = []
        self._last: LoggedChange | None = None
        self._digest = blake2b(digest_size=8)
        server.observe(self._changed)

    @property
    def fingerprint(self) -> str:
        """Return the digest of all changes so far."""
        return self._digest.hexdigest()

    @property
    def last(self) -> str:
        """Describe the last counted change."""
        return _described(self._last) if self._last else ""

    @property
    def first(self) -> str:
        """Describe the first counted changes since `reset`, of which the later ones are consequences."""
        return "; ".join(map(_described, self._first))

    def reset(self) -> None:
        """Count from 0."""
        self.count = 0
        self._first.clear()

    def _changed(self, entry: LoggedChange) -> None:
        record = entry.after or entry.before
        assert record is not None
        self._digest.update(entry.after.raw if entry.after else b"gone " + record.uid.encode())
        if entry.resource.plural not in _NOT_COUNTED:
            self.count += 1
            self._last = entry
            if len(self._first) < _SHOWN_CHANGES:
                self._first.append(entry)


def _described(entry: LoggedChange) -> str:
    """Return an object and what happened to it, such as `PodGroup default/a: spec.minMember 3 -> 1`."""
    record = entry.after or entry.before
    assert record is not None
    title = f"{entry.resource.kind} {'/'.join(filter(None, record.key))}"
    if not (entry.before and entry.after):
        return f"{title} {'made' if entry.after else 'deleted'}"
    before, after = (dict(_leaves(decode(each.raw, Object))) for each in (entry.before, entry.after))
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path) and path not in _COUNTERS]
    return f"{title}: {', '.join(f'{path} {before.get(path)} -> {after.get(path)}' for path in changed)}"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the scalars of an object with their paths."""
    if not isinstance(value, dict | list):
        yield path, value
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(part, f"{path}.{key}" if path else str(key))


class _Process:
    """One process of the product, restarted whenever it is killed."""

    def __init__(self, name: str, run: Callable[[FaultyApi], asyncio.Task[None]], api: Callable[[_Process], FaultyApi]):
        self.name = name
        self.skew = Skew()
        self.writes: Counter[str] = Counter()
        self._run = run
        self._make_api = api
        self._killed = asyncio.Event()
        self._api: FaultyApi | None = None

    def kill(self) -> None:
        """Kill the process without notice; its later requests fail."""
        if self._api is not None:
            self._api.dead = True
        self._killed.set()

    async def run(self) -> None:
        """Run the process, and restart it whenever it is killed or exits."""
        SKEW.set(self.skew)
        while True:
            self._killed.clear()
            self._api = self._make_api(self)
            running = self._run(self._api)
            killed = asyncio.create_task(self._killed.wait())
            try:
                await asyncio.wait([running, killed], return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._api.dead = True
                for task in (running, killed):
                    task.cancel()
                await asyncio.gather(running, killed, return_exceptions=True)
                self.writes += self._api.writes
            await asyncio.sleep(RESTART_SECONDS)

    def written(self) -> Counter[str]:
        """Return the writes so far by resource."""
        return self.writes + (self._api.writes if self._api else Counter())


class FaultyProduct:
    """A product that runs under faults."""

    def __init__(self, product: Deployment, chosen: World, seed: int, left_out: Collection[str] = ()) -> None:
        self.violations: list[Violation] = []
        self.plan: FaultPlan | None = None
        self.fingerprint = ""
        self._product = product
        self._world = chosen
        self._seed = seed
        self._left_out = left_out

    def admission(self, queues: Callable[[], Mapping[str, Object]], warn: Callable[[str], None]) -> Sequence[Admission]:
        """See `cluster.Product`."""
        return self._product.admission(queues, warn)

    def definitions(self) -> Sequence[Object]:
        """See `cluster.Product`."""
        return [*self._product.definitions(), *([open_definition(NODE_TOPOLOGY)] if self._world.numa else [])]

    def programs(self, api: Api) -> OnStart:
        """See `cluster.Product`."""
        return self._product.programs(api)

    def faults(self) -> Sequence[str]:
        """See `cluster.Product`."""
        return self._product.faults()

    def report(self, check: str, text: str) -> None:
        """Record a violation, once."""
        at = self._time() if self.plan else 0.0
        if not any((one.check, one.text) == (check, text) for one in self.violations):
            self.violations.append(Violation(at, check, text))

    def _time(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return END_SECONDS

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        """Run the product under faults, let it come to rest, and restart it; then the run is over."""
        server = cast(MemoryApi, api)
        changes = ChangeLog(server)
        self.plan = FaultPlan(self._seed, self._time, self._left_out)
        processes = [self._process(name, identity, api, hooks) for name, identity in self._identities()]
        tasks = [asyncio.create_task(process.run()) for process in processes]
        tasks.append(asyncio.create_task(RunningChecks(api, self.report, self._has_abandoned_writes).run()))
        tasks.append(asyncio.create_task(self._shift_clocks(processes)))
        if self._world.scaling:
            tasks.append(asyncio.create_task(_simulate_autoscaler(api)))
        users = asyncio.create_task(Users(server, self.plan, self._seed, FAULTY_SECONDS).run())
        try:
            await asyncio.sleep(FAULTY_SECONDS)
            await users
            self.plan.active = False
            for process in processes:
                process.skew.seconds = 0.0
            if await self._await_rest(changes):
                await self._check_at_rest(server, changes, processes)
            self.fingerprint = changes.fingerprint
            ready.set()
        finally:
            for task in (*tasks, users):
                task.cancel()
            await asyncio.gather(*tasks, users, return_exceptions=True)

    def _has_abandoned_writes(self) -> bool:
        """Whether a write of a process that was killed may have arrived since an attempt of the next one began."""
        assert self.plan is not None
        since = self._time() - 2 * LONGEST_FLIGHT
        return any(fault.kind == KILLED_WITHIN and fault.at > since for fault in self.plan.happened)

    def _identities(self) -> list[tuple[str, str]]:
        """Return the name and the identity in leader election (empty: none) of each process."""
        names_ = self._product.components if self._world.layout == APART else ("all", *self._product.beside)
        replicas = ("-a", "-b") if self._world.layout == REPLICAS else ("",)
        return [(name, name + replica if replica else "") for name in names_ for replica in replicas]

    def _process(self, name: str, identity: str, api: Api, hooks: Hooks) -> _Process:
        assert self.plan is not None
        plan, own = self.plan, Hooks(hooks.observe, hooks.past, identity)
        return _Process(
            identity or name,
            lambda faulty: asyncio.create_task(self._product.run_process(name, faulty, own)),
            lambda process: FaultyApi(api, plan, process.name, process.kill),
        )

    async def _shift_clocks(self, processes: Sequence[_Process]) -> None:
        """Occasionally shift the wall clock of a process, or reset it."""
        assert self.plan is not None
        while self.plan.active:
            await asyncio.sleep(_STEP / 2)
            for process in processes:
                if drawn := self.plan.draw(f"{process.name}: clock", JUMPS):
                    process.skew.seconds = drawn[1].choice((0.0, drawn[1].uniform(-LARGEST_JUMP, LARGEST_JUMP)))

    # ---------------------------------------------------------------------------------------------------------- rest
    async def _await_rest(self, changes: ChangeLog) -> bool:
        """Wait until only leases and events change; report a violation at the time limit."""
        quiet_since, last = self._time(), changes.count
        until = self._time() + REST_SECONDS
        while self._time() - quiet_since < QUIET_SECONDS:
            if self._time() > until:
                self.report("no rest", f"objects still change after {REST_SECONDS:g} s: {changes.last}")
                return False
            await asyncio.sleep(_STEP)
            if (now := changes.count) != last:
                quiet_since, last = self._time(), now
        return True

    async def _check_at_rest(self, server: MemoryApi, changes: ChangeLog, processes: Sequence[_Process]) -> None:
        """Check the invariants at rest, then that a restart of all processes changes nothing."""
        for check, text in at_rest(await read_cluster(server)):
            self.report(check, text)
        changes.reset()
        for process in processes:
            process.kill()
        await asyncio.sleep(RESTARTED_SECONDS)
        if changes.count:
            self.report("a restart changed something", changes.first)


async def _simulate_autoscaler(api: Api) -> None:
    """Stand in for cluster autoscaler and default scheduler: mark every scaling pod as scheduled after a while."""
    while True:
        await asyncio.sleep(_STEP)
        for pod in (await api.list(POD, Object, Selection(namespace=names.SCALING_NAMESPACE))).items:
            scheduled = {"type": names.POD_SCHEDULED, "status": "True"}
            if (status := {"conditions": [scheduled]}) != {"conditions": pod["status"].get("conditions")}:
                ref = POD.ref(pod["metadata"]["name"], names.SCALING_NAMESPACE).sub("status")
                with suppress(ApiError):
                    await api.patch(ref, Patch.merge({"status": status}))


__all__ = ["ALONE", "Deployment", "FaultyProduct", "Outcome", "Reduction", "play"]
