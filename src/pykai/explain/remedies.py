"""Remedies for a pending workload: the smallest change of each kind that starts it, found by deciding again.

A kind of change is a `Family`: edits of every size, such that a larger size helps if a smaller one does. The search for
the smallest size with which the next cycle places the workload starts at an estimate; estimates affect only where it
starts and when it stops. Each size is first decided as if only this workload had a turn, which costs a fraction of a
cycle and rules out most sizes. Every returned remedy was decided with a turn for all gangs. Changes larger than `MOST`
of their unit are not proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from math import ceil, inf
from typing import Any

import msgspec
import numpy as np

from pykai.explain.changes import (
    ADDED,
    AddNodes,
    AddPods,
    ClusterChange,
    Delete,
    EditGroup,
    EditPods,
    SetQueue,
    placed_alone,
    started,
)
from pykai.explain.running_workloads import FreedCapacity, running
from pykai.explain.source import Decided
from pykai.explain.why import Explanation, Remedy, waits
from pykai.model.plan import Dominant, Key
from pykai.model.pods import PodClass
from pykai.model.resources import GPU
from pykai.objects import kinds
from pykai.observe.wording import many, short_name

MOST = 4096
MODELS = 4
"""The number of node shapes tried as the model of a new node."""
SPARE_GPUS = 64
"""The number of GPUs tried in addition to a multiple of the gang's own: gangs earlier in the order take some."""
MOST_ENDING = 8
"""The number of running workloads tried as the one that ends, and the most that end together."""
SHORTAGE_REASONS = ("InsufficientResources", "GangDoesNotFit", "ReclaimQueueAtFairShare")
"""Reasons of pending gangs that would take freed capacity."""
_SCALE = {"gpu": 1.0, "cpu": 1000.0, "memory": 1000.0}
"""One unit of a remedy (a GPU, a core, a gigabyte) in the units of a Queue's spec."""
_UNITS = {"gpu": "GPU", "cpu": "core"}


@dataclass(frozen=True)
class Family:
    """A kind of change in all sizes up to `most`; `text` describes a size."""

    kind: str
    most: int
    edits: Callable[[int], Sequence[ClusterChange]]
    text: Callable[[int], str]
    guess: int = 1
    """The size at which the search starts."""
    unless: str = ""
    """Skipped once a family of this kind has helped. If it is the own kind: also once one was enough for the gang
    alone, but not with other gangs first."""
    used: Callable[[Decided], int] | None = None
    """Return how much of a size that helped was used until the gang was placed: the next size to try."""
    offers: float = inf
    """GPUs that the largest size offers: if gangs earlier in the order request more, the search is skipped."""


def remedies(decided: Decided, gang: Key) -> tuple[Remedy, ...]:
    """Return the smallest change of each kind that starts a pending gang; none if it is not pending."""
    found: list[Remedy] = []
    taken: set[str] = set()
    for family in families(decided, gang):
        if family.unless in {each.kind for each in found} or (family.unless == family.kind and family.kind in taken):
            continue
        if taken and _gpus_ahead(decided, gang, family.offers) > family.offers:
            continue
        search = _Search(decided, gang, family)
        if (remedy := search.smallest()) is not None:
            found.append(remedy)
        elif search.taken:
            taken.add(family.kind)
    return tuple(found)


class _Search:
    """The search for the smallest size of a family that places a gang."""

    def __init__(self, decided: Decided, gang: Key, family: Family) -> None:
        self._decided, self._gang, self._family = decided, gang, family
        self._used = 0
        """The used part of the last size that helped."""
        self.taken = False
        """Whether a size was enough for the gang alone, but not with other gangs first."""

    def smallest(self) -> Remedy | None:
        """Return the smallest change that helps; None if no size does."""
        most, size = self._family.most, min(self._family.guess, self._family.most)
        if size < most and self._alone(most) is None:
            return None
        found = self._helps(size)
        if found is not None:
            return self._bisect(*self._step_down(size, found))
        failed = size
        if self.taken and size < most:
            if _gpus_ahead(self._decided, self._gang, self._family.offers) > self._family.offers:
                return None
            size, found = most, self._helps(most)
            if found is not None and failed < self._used < most and (fewer := self._helps(self._used)) is not None:
                return self._bisect(*self._step_down(self._used, fewer, failed))
        while found is None:
            if size >= most:
                return None
            failed, size = size, min(size * 2, most)
            found = self._helps(size)
        return self._bisect(failed, size, found)

    def _step_down(self, size: int, found: Explanation, failed: int = 0) -> tuple[int, int, Explanation]:
        """Step down from a size that helps, doubling the step; return (a failing size, the last helping one, its
        result)."""
        step = 1
        while size - failed > 1:
            smaller = max(size - step, failed + 1)
            better = self._helps(smaller)
            if better is None:
                return smaller, size, found
            size, found, step = smaller, better, 2 * step
        return failed, size, found

    def _bisect(self, failed: int, size: int, found: Explanation) -> Remedy:
        """Bisect between a size that does not help and one that does."""
        while size - failed > 1:
            middle = (failed + size) // 2
            better = self._helps(middle)
            failed, size, found = (failed, middle, better) if better is not None else (middle, size, found)
        return Remedy(self._family.kind, self._family.text(size), float(size), len(found.waits_for))

    def _alone(self, size: int) -> Decided | None:
        return placed_alone(self._decided, self._gang, self._family.edits(size))

    def _helps(self, size: int) -> Explanation | None:
        alone = self._alone(size)
        if alone is None:
            return None
        together = alone.for_all()
        found = started(together, self._gang)
        if found is None:
            self.taken = True
        elif self._family.used is not None:
            self._used = self._family.used(together)
        return found


def families(decided: Decided, gang: Key) -> list[Family]:
    """Return the families that may help a gang, chosen by its dominant reason."""
    verdict = decided.waiting.get(gang)
    if verdict is None or verdict.dominant is None or verdict.has_place:
        return []
    makers: list[Callable[[Decided, Key, Dominant], Iterator[Family]]] = [
        _other_queue,
        _missing_pods,
        _fewer_constraints,
        _queue_figures,
        _smaller_gang,
        _more_devices,
        _end_others,
    ]
    return [family for make in makers for family in make(decided, gang, verdict.dominant)]


# ------------------------------------------------------------------------------------------------- queues and the gang
def _other_queue(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    """If the gang's queue does not exist or is not a leaf, propose a queue with a similar name, or a leaf below it."""
    if reason.token not in ("QueueDoesNotExist", "QueueHasChildren"):
        return
    queues, row = decided.snapshot.queues, _row(decided, gang)
    name = decided.snapshot.gangs.queue_name(row)
    leaves = [each for at, each in enumerate(queues.names) if not queues.children[at]]
    below = [each for each in leaves if name in queues.rows and queues.rows[name] in queues.paths[queues.rows[each]]]
    for choice in [*below[:3], *get_close_matches(name, leaves, n=1)]:
        yield _single("queue", EditGroup(gang, (("queue", choice),)), f"use queue {choice} instead of {name}")


def _missing_pods(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    if reason.token == "SchedulingGated":
        yield _single("gates", EditPods(gang, (("scheduling_gates", None),)), "remove the scheduling gates of its pods")
    elif reason.token == "PodsMissing" and decided.snapshot.gangs.pods(_row(decided, gang)):
        missing = max(_min_member(decided, gang) - len(decided.snapshot.gangs.pods(_row(decided, gang))), 1)
        yield Family(
            "pods", MOST, lambda n: [AddPods(gang, n)], lambda n: f"{many(n, 'more pod')} of the workload", missing
        )


def _queue_figures(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    """Raise quota or limit of the queue or, if that is not enough, of all queues up to the root."""
    wanted = {"OverLimit": "limit", "NonPreemptibleOverQuota": "quota", "ReclaimQueueAtFairShare": "quota"}
    field = wanted.get(reason.token)
    queue = decided.snapshot.gangs.queue[_row(decided, gang)]
    if field is None or queue < 0:
        return
    queues = decided.snapshot.queues
    path = [queues.names[each] for each in queues.paths[queue]]
    gpus = any(c.wants_gpu or c.request[GPU] > 0 for c in _needed(decided, gang))
    for resource in (*(["gpu"] if gpus else []), "cpu", "memory"):
        for some in [path[:1]] if len(path) == 1 else [path[:1], path]:
            yield from _raised(decided, gang, some, (resource, field))


def _raised(decided: Decided, gang: Key, queues: Sequence[str], figure: tuple[str, str]) -> Iterator[Family]:
    """Raise one bound of those of these queues that have it."""
    (resource, field), figures = figure, decided.snapshot.queues
    column = figures.limit if field == "limit" else figures.deserved
    at = {"cpu": 0, "memory": 1, "gpu": 2}[resource]
    scale = 1e6 if resource == "memory" else 1.0  # Queues state memory in megabytes.
    bounded = {name: float(column[at, figures.rows[name]]) / scale for name in queues}
    bounded = {name: amount for name, amount in bounded.items() if amount >= 0}
    if not bounded:
        return
    request = sum(float(c.request[at]) for c in _needed(decided, gang))
    used = {name: decided.plan.queues[figures.rows[name]].allocated[at] for name in bounded}
    short = max((used[name] + request) / scale - amount for name, amount in bounded.items())

    def edits(size: int) -> list[ClusterChange]:
        return [SetQueue(name, resource, field, now + size * _SCALE[resource]) for name, now in bounded.items()]

    def text(size: int) -> str:
        amount = many(size, _UNITS[resource]) if resource in _UNITS else f"{size} GB"
        return f"{field} of {' and '.join(bounded)} +{amount}"

    yield Family(field, MOST, edits, text, min(max(ceil(short / _SCALE[resource]), 1), MOST), unless=field)


def _smaller_gang(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    least = _min_member(decided, gang)
    sub_groups = decided.cache.of(kinds.PodGroup)[gang].spec.sub_groups
    if reason.token in ("GangDoesNotFit", "PodsMissing") and least > 1 and not sub_groups:
        fit = next((each for each in decided.waiting[gang].actions if each.needed), None)
        yield Family(
            "minMember",
            least - 1,
            lambda n: [EditGroup(gang, (("min_member", least - n),))],
            lambda n: f"minMember {least - n} instead of {least}",
            1 if fit is None else max(fit.needed - fit.found, 1),
        )


# --------------------------------------------------------------------------------------------------------------- nodes
def _fewer_constraints(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    """Remove one entry of the node selector, or the affinity, or tolerate every taint."""
    if reason.token not in ("NoMatchingNodes", "InsufficientResources", "GangDoesNotFit", "PodRefused"):
        return
    spec = decided.cache.of(kinds.Pod)[next(iter(decided.waiting[gang].pods))].spec
    selector: dict[str, str] = msgspec.json.decode(spec.node_selector) if spec.node_selector else {}
    for key in selector:
        rest = {name: value for name, value in selector.items() if name != key} or None
        edit = EditPods(gang, (("node_selector", rest),))
        yield _single("nodeSelector", edit, f"remove nodeSelector {key}={selector[key]}")
    if spec.affinity and bytes(spec.affinity) not in (b"{}", b"null"):
        yield _single("affinity", EditPods(gang, (("affinity", None),)), "remove its affinity")
    if reason.token == "NoMatchingNodes":
        known: list[Any] = msgspec.json.decode(spec.tolerations) if spec.tolerations else []
        every = EditPods(gang, (("tolerations", [*known, {"operator": "Exists"}]),))
        yield _single("tolerations", every, "tolerate the taints of the nodes")


def _more_devices(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    """Add GPUs on a new node or, for workloads without GPUs, nodes like existing ones."""
    if reason.token not in (*SHORTAGE_REASONS, "TopologyTooNarrow", "TooLargeForEveryNode"):
        return
    classes = _needed(decided, gang)
    gpus = sum(ceil(float(c.request[GPU]) or c.devices) for c in classes)
    for model, place in _node_models(decided):
        yield _more_gpus(gang, gpus, model, place) if gpus else _more_nodes(len(classes), model, place)


def _more_gpus(gang: Key, gpus: int, model: str, place: str) -> Family:
    most = min(4 * gpus + SPARE_GPUS, MOST)
    return Family(
        "gpus",
        most,
        lambda n: [AddNodes(1, model, n)],
        lambda n: f"{many(n, 'more GPU')} on a node {place}",
        gpus,
        unless="gpus",
        used=partial(_gpus_on_added, gang=gang),
        offers=most,
    )


def _more_nodes(most: int, model: str, place: str) -> Family:
    return Family(
        "nodes",
        most,
        lambda n: [AddNodes(n, model)],
        lambda n: f"{many(n, 'more node')} {place}",
        unless="nodes",
    )


def _gpus_on_added(decided: Decided, gang: Key) -> int:
    """Return the GPUs of added nodes that the plan binds, up to the last pod of the gang."""
    pods, row = decided.snapshot.pods, _row(decided, gang)
    placed = [each.pod for each in decided.plan.binds if ADDED in each.node]
    rows = pods.rows_of(placed)
    mine = [at for at, pod in enumerate(placed) if pods.gang[rows[pod]] == row]
    until = placed[: mine[-1] + 1] if mine else placed
    return ceil(sum(float(pods.of_class(rows[pod]).request[GPU]) for pod in until))


def _gpus_ahead(decided: Decided, gang: Key, enough: float) -> float:
    """Return the GPUs that gangs earlier in the order of service would take, counted up to `enough`."""
    wanted = 0.0
    for key in decided.order:
        if key == gang or wanted > enough:
            break
        verdict = decided.waiting.get(key)
        if verdict is not None and verdict.dominant is not None and verdict.dominant.token in SHORTAGE_REASONS:
            wanted += waits(decided, key).gpus
    return wanted


def _node_models(decided: Decided) -> Iterator[tuple[str, str]]:
    """Return nodes of different shapes, each with a description, as models of a new node; most devices first."""
    nodes = decided.snapshot.nodes
    levels = [key for keys in decided.snapshot.topologies.values() for key in keys if "hostname" not in key]
    seen: dict[tuple[Any, ...], int] = {}
    for row in np.argsort(-nodes.allocatable[GPU], kind="stable").tolist():
        labels = nodes.labels[row]
        shape = (nodes.allocatable[:, row].tobytes(), *(labels.get(key, "") for key in levels))
        if bool(nodes.ready[row]) and shape not in seen:
            seen[shape] = row
        if len(seen) == MODELS:
            break
    for row in seen.values():
        domain = next((nodes.labels[row][key] for key in reversed(levels) if key in nodes.labels[row]), "")
        yield nodes.names[row], f"like {nodes.names[row]}" + (f" in {domain}" if domain else "")


def _end_others(decided: Decided, gang: Key, reason: Dominant) -> Iterator[Family]:
    """End one running workload, the smallest that leaves enough capacity first; or end the oldest ones."""
    if reason.category not in ("shortage", "queue policy"):
        return
    estimate = FreedCapacity(decided.snapshot, _row(decided, gang), _needed(decided, gang))
    for key, gpus in estimate.most_promising()[:MOST_ENDING]:
        yield _single("end", Delete((key,)), _end_text(key, gpus), unless="end", offers=gpus or inf)
    in_order = estimate.running
    if len(in_order) > 1 and estimate.ends_needed() <= MOST_ENDING:
        yield Family(
            "ends",
            min(len(in_order), MOST_ENDING),
            lambda n: [Delete(tuple(key for key, _ in in_order[:n]))],
            lambda n: f"the {n} workloads that started first end" if n > 1 else _end_text(*in_order[0]),
            estimate.ends_needed(),
            unless="end",
            offers=sum(gpus for _, gpus in in_order[:MOST_ENDING]) or inf,
        )


def _end_text(key: Key, gpus: float) -> str:
    return f"{short_name('/'.join(key))} ({many(gpus, 'GPU')}) ends"


# --------------------------------------------------------------------------------------------------------------- parts
def _row(decided: Decided, gang: Key) -> int:
    return decided.snapshot.gangs.rows_of([gang])[gang]


def _min_member(decided: Decided, gang: Key) -> int:
    return decided.cache.of(kinds.PodGroup)[gang].spec.min_member or 1


def _needed(decided: Decided, gang: Key) -> list[PodClass]:
    """Return the classes of the pending pods that the gang needs to start; the smallest ones if it is elastic."""
    pods, row = decided.snapshot.pods, _row(decided, gang)
    waiting = [pods.of_class(each) for each in pods.rows_of(decided.waiting[gang].pods).values()]
    placed = int(np.count_nonzero(pods.node[decided.snapshot.gangs.pods(row)] >= 0))
    if decided.cache.of(kinds.PodGroup)[gang].spec.sub_groups:
        return waiting
    waiting.sort(key=lambda c: float(c.request[GPU]))
    return waiting[: max(_min_member(decided, gang) - placed, 1)]


def _single(kind: str, edit: ClusterChange, text: str, unless: str = "", offers: float = inf) -> Family:
    return Family(kind, 1, lambda _: [edit], lambda _: text, unless=unless, offers=offers)


def never(decided: Decided, gang: Key) -> bool:
    """Whether a pending gang could not start even alone in the cluster, with the present queues."""
    others = tuple(key for key, _ in running(decided.snapshot, _row(decided, gang)))
    empty = decided.again(Delete(others).of(decided), gang)
    return started(empty, gang) is None
