"""Build the plan of a cycle: decisions in the order in which they were made, and a verdict on each pending gang."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from pykai.engine.cycle import Cycle
from pykai.engine.deadlines import next_deadline, start_times_to_write
from pykai.engine.explain import matches_nowhere, mismatch_text
from pykai.engine.gang import alive, core_pods, pods_to_place, ready
from pykai.engine.plugin_api import PodGate
from pykai.engine.queues import OVER_LIMIT, ZERO, OverCapacity
from pykai.engine.reasons import (
    CATEGORIES,
    GROUP_BASE,
    POD_ERRORS,
    QUEUE_MISSING,
    GangError,
    Token,
    about_pod,
    gang_text,
    rank,
)
from pykai.model.gangs import PodSet
from pykai.model.plan import (
    ActionVerdict,
    Bind,
    Category,
    Dominant,
    Evict,
    Key,
    Nomination,
    Plan,
    QueueDetails,
    QueueFigures,
    Reason,
    Timestamp,
    Verdict,
)
from pykai.model.pods import PodClass
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status
from pykai.objects import names
from pykai.objects.units import rfc3339

_BEING_PLACED = (Status.ALLOCATED, Status.PIPELINED, Status.BINDING)
_UNKNOWN = GangError(Token.UNKNOWN, GROUP_BASE)
_REST = GangError(Token.REST, "The workload got a place in this cycle; its other pods are tried in the next")
_NOT_REACHED = GangError(
    Token.NOT_REACHED,
    "Only the first workloads of each queue are considered (queueDepthPerAction)",
)


def plan_of(cycle: Cycle) -> Plan:
    """Return everything the cycle decided."""
    trial = cycle.trial
    status, leaving = np.asarray(trial.status, dtype=np.int64), int(Status.RELEASING)
    placed = [(pod, wait) for pod, wait in trial.placed.items() if trial.status[pod] != leaving]
    waiting = (status == Status.PENDING) | (status == Status.GATED)
    gangs = cycle.snapshot.pods.gang
    turned = gangs >= 0 if cycle.only is None else gangs == cycle.only
    by_gang = _by_gang(cycle, np.flatnonzero(waiting & turned).tolist())
    nominated = [pod for pod, wait in placed if wait]
    return Plan(
        binds=tuple(_binds(cycle, [pod for pod, wait in placed if not wait])),
        nominations=tuple([_nomination(cycle, pod) for pod in nominated]),
        evictions=tuple(_evictions(cycle)),
        verdicts=tuple(_verdicts(cycle, by_gang)),
        timestamps=tuple(_timestamps(cycle)),
        pending=sum(map(len, by_gang.values())),
        stale={_gang_key(cycle, gang): _stale_text(cycle, gang) for gang in sorted(_stale(cycle))},
        core_pods={
            _gang_key(cycle, gang): _core(cycle, gang) for gang in sorted(cycle.snapshot.gangs.semi_preemptible)
        },
        cleared=tuple(_cleared(cycle, by_gang)),
        deadline=next_deadline(cycle, bool(by_gang or nominated)),
        queues=tuple(_queues(cycle)),
        searches=tuple(cycle.searches),
    )


def _by_gang(cycle: Cycle, waiting: list[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pod in waiting:
        found.setdefault(cycle.trial.gang[pod], []).append(pod)
    return found


def _key(cycle: Cycle, pod: int) -> Key:
    meta = cycle.snapshot.pods.objects[pod].metadata
    return meta.namespace, meta.name


def _gang_key(cycle: Cycle, gang: int) -> Key:
    meta = cycle.snapshot.gangs.objects[gang].metadata
    return meta.namespace, meta.name


def _node(cycle: Cycle, pod: int) -> str:
    return cycle.snapshot.nodes.names[cycle.trial.node[pod]]


# ----------------------------------------------------------------------------------------------------------- placements
def _binds(cycle: Cycle, pods: list[int]) -> Iterator[Bind]:
    trial, objects, nodes = cycle.trial, cycle.snapshot.pods.objects, cycle.snapshot.nodes.names
    klass, node_of, row = trial.klass, trial.node, -1
    for pod in pods:
        if klass[pod] != row:
            row, c = klass[pod], trial.of_class(pod)
            make, kind = _maker(cycle, c), trial.amounts.resource_types[row]
        meta = objects[pod].metadata
        key, node = (meta.namespace, meta.name), nodes[node_of[pod]]
        yield Bind(key, node, kind, c.devices, c.portion) if make is None else make(pod, key, node)


def _maker(cycle: Cycle, c: PodClass) -> Callable[[int, Key, str], Bind] | None:
    """Return the function that makes the binds of a class; None: they need only the node, as those of most classes."""
    trial, kind = cycle.trial, cycle.trial.amounts.resource_types[c.row]
    detailing = cycle.resources.of_class(c).detailing
    if not detailing and not trial.amounts.shared[c.row]:
        return None

    def make(pod: int, key: Key, node: str) -> Bind:
        if trial.amounts.shared[c.row]:
            groups = trial.gpu_groups.get(pod, ())
            bind = Bind(key, node, kind, c.devices, trial.share_portion(c, trial.node[pod]), groups)
        else:
            bind = Bind(key, node, kind, c.devices, c.portion)
        found = cycle.resources.details(pod) if detailing else None
        if found is None:
            return bind
        return replace(bind, claims=found.claims, extended_claim=found.extended_claim, numa_zones=found.zones)

    return make


def _nomination(cycle: Cycle, pod: int) -> Nomination:
    groups = cycle.trial.gpu_groups.get(pod, ()) if cycle.trial.of_class(pod).shared else ()
    return Nomination(_key(cycle, pod), _node(cycle, pod), groups)


def _evictions(cycle: Cycle) -> Iterator[Evict]:
    trial = cycle.trial
    for pod, why in trial.evicted.items():
        moved = trial.status[pod] == Status.PIPELINED
        yield Evict(
            pod=_key(cycle, pod),
            gang=_gang_key(cycle, trial.gang[pod]),
            action=why.action,
            message=why.message,
            evictor=None if why.evictor is None else _gang_key(cycle, why.evictor),
            victims=why.victims,
            moves_to=_node(cycle, pod) if moved else "",
            heir=None if why.heir is None else _gang_key(cycle, why.heir),
        )


def _core(cycle: Cycle, gang: int) -> tuple[str, ...]:
    objects, status = cycle.snapshot.pods.objects, cycle.trial.status
    pods = [pod for pod in core_pods(cycle.trial, cycle.orders, gang) if status[pod] != Status.PIPELINED]
    return tuple(sorted([objects[pod].metadata.name for pod in pods]))


# ------------------------------------------------------------------------------------------------------------- verdicts
def _verdicts(cycle: Cycle, by_gang: Mapping[int, list[int]]) -> Iterator[Verdict]:
    """Yield a verdict per gang with waiting pods. There may be thousands, so lookups common to all are done once."""
    searches, gangs, objects = SearchVerdicts(cycle), cycle.snapshot.gangs, cycle.snapshot.pods.objects
    known, strays = cycle.reasons.gangs, gangs.stray_pods
    for gang, waiting in by_gang.items():
        tried = known.get(gang)
        errors = tried or _wrong_queue(cycle, gang)
        has_place = _has_place(cycle, gang)
        causes = errors or [_without_errors(cycle, has_place)]
        first = causes[0] if len(causes) == 1 else min(causes, key=lambda error: rank(error.token or error.reason))
        not_ready = "" if ready(cycle.trial, gang) else _not_ready_text(cycle, gang)
        actions = searches.with_allocate(gang, first) if not not_ready and (tried or not errors) else ()
        text = gang_text(errors) if errors else ""
        usual = _missing_text(cycle, gang) if not_ready else text or "Unable to schedule pod"
        texts, messages = {} if not_ready else cycle.reasons.pods, {}
        for pod in waiting:
            meta = objects[pod].metadata
            messages[meta.namespace, meta.name] = texts.get(pod, usual)
        for pod in strays.get(gang, ()):
            if (key := _key(cycle, pod)) in messages:
                messages[key] = _stray_text(cycle, gang, pod)
        if first.capacity is None and not not_ready and gang not in strays:
            dominant = searches.dominant(gang, first)
        else:
            dominant = _dominant(cycle, gang, first, not_ready)
        yield Verdict(
            gang=_gang_key(cycle, gang),
            reasons=tuple([_reason(cycle, gang, error) for error in errors]),
            message=text or GROUP_BASE,
            pods=messages,
            not_ready=not_ready,
            has_place=has_place,
            actions=actions,
            dominant=dominant or _of_search(actions),
        )


def _has_place(cycle: Cycle, gang: int) -> bool:
    gangs, active, status = cycle.snapshot.gangs, cycle.trial.active_allocated, cycle.trial.status
    if any(active[gangs.first_podset[gang] : gangs.first_podset[gang + 1]]):
        return True
    return any(IS_ACTIVE_ALLOCATED[status[pod]] for pod in gangs.stray_pods.get(gang, ()))


class SearchVerdicts:
    """What the actions that search for victims found; gangs with the same outcomes share their verdicts."""

    def __init__(self, cycle: Cycle) -> None:
        reasons, actions = cycle.reasons, cycle.policy.actions
        searches = [action for action in actions if action != "allocate"]
        self.place = actions.index("allocate") if "allocate" in actions else None
        """Position of allocate among the actions; None: it does not run."""
        self.of_reclaim = reasons.outcomes.get("reclaim", {})
        self._outcomes = [(reasons.outcomes.get(name, {}), reasons.passed_over.get(name)) for name in searches]
        self._actions = searches
        self._known: dict[tuple[int, ...], tuple[ActionVerdict, ...]] = {}
        """By the identities of outcomes, which live as long as the cycle."""
        self._dominant: dict[tuple[str, int], Category | Dominant | None] = {}
        """By token and identity of reclaim's outcome: the category of the token, or the reason that dominates it."""

    def of(self, gang: int) -> tuple[ActionVerdict, ...]:
        """Return the verdicts of searches on a gang, in the order of the actions."""
        found = [outcomes.get(gang, usual) for outcomes, usual in self._outcomes]
        key = tuple([id(outcome) for outcome in found])
        known = self._known.get(key)
        if known is None:
            pairs = [(action, one) for action, one in zip(self._actions, found, strict=True) if one and one.token]
            known = self._known[key] = tuple([ActionVerdict(action, *one[:2]) for action, one in pairs])
        return known

    def with_allocate(self, gang: int, first: GangError) -> tuple[ActionVerdict, ...]:
        """Return the verdicts of all actions on a gang; `first`: the error of allocate."""
        found, at = self.of(gang), self.place
        if at is None:
            return found
        allocate = ActionVerdict("allocate", first.token or first.reason, first.message, *first.fit)
        return (*found[:at], allocate, *found[at:])

    def dominant(self, gang: int, first: GangError) -> Dominant | None:
        """Return the dominant reason of a gang that was tried, is not over capacity and has no stray pods."""
        reclaim, token = self.of_reclaim.get(gang), first.token or first.reason
        key = (token, id(reclaim))
        if key in self._dominant:
            known = self._dominant[key]
        elif reclaim is not None and reclaim.dominates and rank(reclaim.token) < rank(token):
            known = self._dominant[key] = _categorized(reclaim.token, reclaim.message)
        else:
            known = self._dominant[key] = CATEGORIES.get(token)
        return Dominant(token, known, first.gist or first.message) if isinstance(known, Category) else known


def _without_errors(cycle: Cycle, has_place: bool) -> GangError:
    """Return why a gang without errors is pending."""
    if has_place:
        return _REST
    return _NOT_REACHED if cycle.policy.queue_depth.get("allocate") is not None else _UNKNOWN


def _dominant(cycle: Cycle, gang: int, first: GangError, not_ready: str) -> Dominant | None:
    """Return the dominant reason of a gang that is not ready, is over capacity or has stray pods: reasons before which
    no result of a search comes."""
    token, message = first.token or first.reason, first.gist or first.message
    if first.capacity is not None:
        token, message = min([(token, message), *_pod_reasons(cycle, gang)], key=lambda reason: rank(reason[0]))
    strays = cycle.snapshot.gangs.stray_pods.get(gang)
    if not_ready:
        other = (Token.GATED if _gated(cycle, gang) else Token.PODS_MISSING, not_ready)
        token, message = min(other, (token, message), key=lambda reason: rank(reason[0]))
    if strays and rank(token) > rank(Token.NO_SUB_GROUP):
        token, message = Token.NO_SUB_GROUP, _stray_text(cycle, gang, strays[0])
    return _categorized(token, message)


def _categorized(token: str, message: str) -> Dominant | None:
    category = CATEGORIES.get(token)
    return None if category is None else Dominant(token, category, message)


def _of_search(actions: Sequence[ActionVerdict]) -> Dominant:
    """Return the result of the last search for victims, for a gang without another categorized reason."""
    for verdict in reversed(actions):
        if verdict.action != "allocate":
            return Dominant(verdict.code, Category.VICTIMS, verdict.message)
    return Dominant(Token.UNKNOWN, Category.SHORTAGE, GROUP_BASE)


def _pod_reasons(cycle: Cycle, gang: int) -> Iterator[tuple[str, str]]:
    """Yield (token, message) of gates and filters that reject a pod of a gang that failed on queue capacity before."""
    for pod in pods_to_place(cycle.trial, cycle.orders, gang)[:1]:
        title = cycle.snapshot.pods.title(pod)
        refusals = [gate.refuse(cycle, pod) for gate in cycle.policy.of(PodGate)]
        yield from ((refusal.token, about_pod(title, refusal.message)) for refusal in refusals if refusal is not None)
        c = cycle.trial.of_class(pod)
        if matches_nowhere(cycle, c):
            yield Token.NO_MATCH, mismatch_text(cycle, c)


def _gated(cycle: Cycle, gang: int) -> bool:
    """Whether the gang has pods with scheduling gates."""
    return any(cycle.trial.gated[row] for row in cycle.snapshot.gangs.podsets(gang))


def _reason(cycle: Cycle, gang: int, error: GangError) -> Reason:
    details = None if error.capacity is None else _queue_details(cycle, gang, error.capacity)
    return Reason(error.reason, error.message, details, error.node_group)


def _queue_details(cycle: Cycle, gang: int, over: OverCapacity) -> QueueDetails:
    book, queue, limited = cycle.book, over.queue, over.reason == OVER_LIMIT
    return QueueDetails(
        name=book.names[queue],
        requested=cycle.trial.queue_requested[queue],
        deserved=book.deserved[queue],
        allocated_non_preemptible=book.allocated_non_preemptible[queue] if limited else over.used,
        gang_requested=over.request,
        gang_requested_non_preemptible=ZERO if cycle.trial.adds_preemptible(gang) else over.request,
        allocated=over.used if limited else book.allocated[queue],
        limit=book.limit[queue],
    )


def _wrong_queue(cycle: Cycle, gang: int) -> list[GangError]:
    """Return why the queue of a gang cannot be used: it does not exist, or has child queues; empty where it can."""
    queues, gangs = cycle.snapshot.queues, cycle.snapshot.gangs
    row, name = gangs.queue[gang], gangs.queue_name(gang)
    if row >= 0:
        text = f"Queue '{name}' has child queues: workloads belong to a queue without children"
        return [GangError(POD_ERRORS, text, token=Token.QUEUE_HAS_CHILDREN)] if queues.children[row] else []
    if name not in queues.left_out:
        return [GangError(QUEUE_MISSING, f"Queue '{name}' does not exist")]
    missing = queues.left_out[name]
    why = f"parent queue '{missing}' does not exist" if missing else "its parent queues form a circle"
    return [GangError(QUEUE_MISSING, f"Queue '{name}' cannot be used: {why}")]


def _stray_text(cycle: Cycle, gang: int, pod: int) -> str:
    labels = cycle.snapshot.pods.objects[pod].metadata.labels or {}
    named, title = labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_PODSET, cycle.snapshot.gangs.title(gang)
    return f'Pod references subgroup "{named}", which does not exist in PodGroup {title}'


def _not_ready_text(cycle: Cycle, gang: int) -> str:
    trial, podsets = cycle.trial, list(cycle.snapshot.gangs.tree(gang).podsets())
    start = "Job is not ready for scheduling."

    def counts(podset: PodSet, of: str) -> str:
        gated = trial.gated[podset.row]
        exist = alive(trial, podset.row) + gated
        return f" Waiting for {podset.min_available} pods{of}, currently {exist} exist, {gated} are gated"

    if [podset.name for podset in podsets] == [names.DEFAULT_PODSET]:
        return start + counts(podsets[0], "")
    short = [podset for podset in podsets if alive(trial, podset.row) < podset.min_available]
    return start + "".join(counts(podset, f" for SubGroup {podset.name}") + "." for podset in short)


def _missing_text(cycle: Cycle, gang: int) -> str:
    """Return which pods a gang that is not ready lacks."""
    trial, found = cycle.trial, []
    for podset in cycle.snapshot.gangs.tree(gang).podsets():
        exist, gated = alive(trial, podset.row), trial.gated[podset.row]
        if exist < podset.min_available:
            of = "" if podset.name == names.DEFAULT_PODSET else f" of SubGroup {podset.name}"
            held = f", {gated} of them gated" if gated else ""
            found.append(f"{exist + gated} of {podset.min_available} pods{of} exist{held}")
    return "; ".join(found)


# ---------------------------------------------------------------------------------------------- stale and cleared gangs
def _stale(cycle: Cycle) -> set[int]:
    """Return the gangs that run with less than their minimum, known before this cycle or found in it."""
    known = {gang for gang in cycle.snapshot.gangs.stale_since if cycle.stale_since.get(gang, 0.0) is not None}
    return known | {gang for gang, since in cycle.stale_since.items() if since is not None}


def _stale_text(cycle: Cycle, gang: int) -> str:
    active, podsets = cycle.trial.active_used, list(cycle.snapshot.gangs.tree(gang).podsets())
    least = sum(podset.min_available for podset in podsets)
    text = f"Job is stale. {sum(active[podset.row] for podset in podsets)} pods are active, minMember is {least}"
    for podset in podsets:
        if podset.name != names.DEFAULT_PODSET and active[podset.row] < podset.min_available:
            text += f", subGroup {podset.name} minMember is {podset.min_available}"
            text += f" and {active[podset.row]} pods are active"
    end = _staleness_ends(cycle, gang)
    return text if end is None else f"{text}. The others are evicted at {rfc3339(end)} unless enough pods start"


def _staleness_ends(cycle: Cycle, gang: int) -> float | None:
    """Return when the remaining pods of a stale gang are evicted (seconds since the epoch); None: never."""
    gangs = cycle.snapshot.gangs
    since = cycle.stale_since.get(gang, gangs.stale_since.get(gang))
    grace = gangs.staleness_grace.get(gang, cycle.snapshot.params.staleness_grace)
    return None if since is None or grace < 0 else since + grace


def _cleared(cycle: Cycle, waiting: Container[int]) -> Iterator[Key]:
    gangs, status = cycle.snapshot.gangs, cycle.trial.status
    for gang in gangs.with_conditions:
        if gang not in waiting and not any(status[pod] in _BEING_PLACED for pod in gangs.pods(gang)):
            yield _gang_key(cycle, gang)


# ----------------------------------------------------------------------------------------------- timestamps and figures
def _timestamps(cycle: Cycle) -> Iterator[Timestamp]:
    for gang, at in start_times_to_write(cycle).items():
        yield Timestamp(_gang_key(cycle, gang), "last-start", at)
    for gang in sorted({cycle.trial.gang[pod] for pod in cycle.trial.evicted}):
        yield Timestamp(_gang_key(cycle, gang), "last-eviction", cycle.now)
    for gang, since in cycle.stale_since.items():
        yield Timestamp(_gang_key(cycle, gang), "stale", since)


def _queues(cycle: Cycle) -> Iterator[QueueFigures]:
    queues, book, requested = cycle.snapshot.queues, cycle.book, cycle.trial.queue_requested
    for row, (name, usage) in enumerate(zip(queues.names, queues.usage.T.tolist(), strict=True)):
        title = queues.titles[row]
        yield QueueFigures(name, title, book.fair[row], book.allocated[row], requested[row], tuple(usage))
