"""What-if: the effects of a manifest or of a cluster change, decided by the engine without writing to the cluster.

Manifests are applied to an in-memory API server in virtual time, where pykai's webhooks admit them, simulated workload
controllers create their pods and the pod grouper groups them. The resulting objects are added to those of the decided
state, which is then decided again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from pykai.admission.pod_rules import PodSettings
from pykai.admission.review import AdmissionRules, webhooks
from pykai.cache.cluster import Change
from pykai.controllers.podgrouper import grouper
from pykai.controllers.podgrouper.grouper import PodGrouperSettings
from pykai.controllers.podgrouper.rules.workload import GroupingSettings
from pykai.explain.changes import ClusterChange
from pykai.explain.remedies import never
from pykai.explain.source import Decided, joined
from pykai.explain.why import EVICTED, NOT_READY, STARTS, VICTIMS, Explanation, explain
from pykai.kube.api import Api, Object, Resource
from pykai.kube.api_resources import NAMESPACE, PRIORITY_CLASS, QUEUE
from pykai.kube.clock import wall
from pykai.kube.errors import ApiError
from pykai.kube.informer import InformerFactory
from pykai.kube.memory import MemoryApi
from pykai.model.plan import Category
from pykai.objects import crds, kinds, names
from pykai.objects.gpu_request import shares_gpu
from pykai.objects.units import rfc3339
from pykai.scheduler.informers import SOURCES
from pykai.simulate import loop, manifest_validation
from pykai.simulate.manifest_validation import Admitted
from pykai.simulate.manifests import Manifest
from pykai.simulate.workload_controllers import WorkloadControllers, apply
from pykai.simulate.workloads import definitions

SETTLED_SECONDS = 30.0
"""Virtual time after which every pod has been created and grouped."""


class RejectedError(ValueError):
    """Admission or the API server rejects manifests; the message has a line for each."""


class Answer(StrEnum):
    """The outcome for the workloads of the manifests; with several, the last in this order."""

    NOTHING = "nothing to start"
    STARTS = "starts now"
    EVICTS = "starts after evictions"
    WAITS = "waits"
    NEVER = "never starts"


class WorkloadEffect(Struct, frozen=True, rename="camel"):
    """A workload whose outcome the change affects."""

    namespace: str
    name: str
    before: str
    after: str
    reason: str = ""


class Loss(Struct, frozen=True, rename="camel"):
    """A pod that would be evicted. `moves_to`: the node on which it is placed again at once."""

    pod: str
    workload: str
    queue: str
    action: str
    evictor: str
    moves_to: str = ""


class WhatIfResult(Struct, frozen=True, rename="camel"):
    """The effects of the change."""

    answer: Answer
    workloads: tuple[Explanation, ...]
    """The workloads of the manifests."""
    placements: tuple[tuple[str, str], ...]
    """The pods of the manifests that get a node, and the node."""
    evictions: tuple[Loss, ...] = ()
    gains: tuple[WorkloadEffect, ...] = ()
    losses: tuple[WorkloadEffect, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 0 if it starts, 3 if it waits, 4 if it never starts."""
        return {Answer.WAITS: 3, Answer.NEVER: 4}.get(self.answer, 0)


def what_if(decided: Decided, manifests: Sequence[Manifest], changes: Sequence[ClusterChange] = ()) -> WhatIfResult:
    """Decide with these objects and changes; must not be called from a thread with a running event loop.

    Raises ManifestsError or RejectedError for invalid manifests and ChangeError for an invalid change.
    """
    made, warnings = objects_of(decided, manifests)
    applied = [change for edit in changes for change in edit.of(decided)]
    after = decided.again([*applied, *map(Change, made)])
    return compared(decided, after, made, warnings)


def compared(before: Decided, after: Decided, made: Sequence[Any], warnings: Sequence[str] = ()) -> WhatIfResult:
    """Return the differences of `after`, in which the objects `made` exist, from `before`."""
    groups = [each.metadata.key for each in made if isinstance(each, kinds.PodGroup)]
    found = tuple(explain(after, key) for key in groups)
    pods = {each.metadata.key for each in made if isinstance(each, kinds.Pod)}
    placed = [(each.pod, each.node) for each in after.plan.binds]
    placed += [(each.pod, each.node) for each in after.plan.nominations]
    answers = [_answer(after, each) for each in found]
    return WhatIfResult(
        answer=max(answers, key=list(Answer).index, default=Answer.NOTHING),
        workloads=found,
        placements=tuple(("/".join(pod), node) for pod, node in placed if pod in pods),
        evictions=tuple(_losses(before, after)),
        gains=tuple(_effects(before, after, gained=True)),
        losses=tuple(_effects(before, after, gained=False)),
        warnings=tuple(warnings),
    )


def _answer(after: Decided, found: Explanation) -> Answer:
    if found.state == STARTS:
        return Answer.STARTS
    if found.state == VICTIMS:
        return Answer.EVICTS
    misconfigured = found.reason is not None and found.reason.category is Category.MISCONFIGURED
    if misconfigured or (found.state != NOT_READY and never(after, (found.namespace, found.name))):
        return Answer.NEVER
    return Answer.WAITS


def _losses(before: Decided, after: Decided) -> Iterator[Loss]:
    """Yield pods that are evicted only with the change."""
    known = {each.pod for each in before.plan.evictions}
    gangs = after.snapshot.gangs
    for each in after.plan.evictions:
        if each.pod not in known:
            row = gangs.rows_of([each.gang])[each.gang]
            evictor = "" if each.evictor is None else "/".join(each.evictor)
            pod, gang, queue = "/".join(each.pod), "/".join(each.gang), gangs.queue_name(row)
            yield Loss(pod, gang, queue, each.action, evictor, each.moves_to)


def _effects(before: Decided, after: Decided, gained: bool) -> Iterator[WorkloadEffect]:
    """Yield workloads of both states that are pending, or evicted, in only one of them."""
    worse, better = (before, after) if gained else (after, before)
    suffering = worse.waiting.keys() | {each.gang for each in worse.plan.evictions}
    known = better.snapshot.gangs.rows_of(suffering).keys()
    well = known - better.waiting.keys() - {each.gang for each in better.plan.evictions}
    for gang in sorted(well):
        verdict = worse.waiting.get(gang)
        bad = EVICTED if verdict is None else "Waits"
        good = explain(better, gang, with_position=False).state
        states = (bad, good) if gained else (good, bad)
        reason = "" if verdict is None or verdict.dominant is None else verdict.dominant.message
        yield WorkloadEffect(*gang, *states, reason)


# ------------------------------------------------------------------------------------------- from manifests to objects
def objects_of(decided: Decided, manifests: Sequence[Manifest]) -> tuple[list[Any], list[str]]:
    """Return the objects that result from applying the manifests, and the warnings of admission."""
    if not manifests:
        return [], []
    known = list(_existing(decided))
    there = {(resource.kind, obj["metadata"]["name"]) for resource, obj in known}
    there |= {("Node", name) for name in decided.snapshot.nodes.names}
    admitted = manifest_validation.admit(manifests, there)
    pods = decided.cache.of(kinds.Pod)
    if twice := [one for one in admitted if one.obj["kind"] == "Pod" and (one.key[1], one.key[2]) in pods]:
        raise RejectedError("\n".join(f"{one.manifest.origin}: pod {'/'.join(one.key[1:])} exists" for one in twice))
    return loop.run(_apply_in_memory(decided, admitted, known), decided.now)


def _existing(decided: Decided) -> Iterator[tuple[Resource, Object]]:
    """Yield the cluster objects that admission and the grouper read: queues and priority classes."""
    by_kind: tuple[tuple[Resource, type[Any]], ...] = ((QUEUE, kinds.Queue), (PRIORITY_CLASS, kinds.PriorityClass))
    for resource, kind in by_kind:
        for obj in decided.cache.of(kind).values():
            whole: Object = msgspec.json.decode(msgspec.json.encode(obj))
            stated = {key: value for key, value in whole["metadata"].items() if value not in (None, "", {}, [])}
            meta = {"uid": f"known-{obj.metadata.name}", "creationTimestamp": rfc3339(decided.now), **stated}
            whole.pop("status", None)
            yield resource, {**whole, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


async def _apply_in_memory(
    decided: Decided, admitted: Sequence[Admitted], known: Sequence[tuple[Resource, Object]]
) -> tuple[list[Any], list[str]]:
    """Apply the manifests to an API server on which only workload controllers and the pod grouper run."""
    warnings: list[str] = []
    mode = decided.gpu_sharing_mode or names.NON_MEMORY_ENFORCED
    objects = [*known, *((one.row.resource, one.obj) for one in admitted)]
    queues = {obj["metadata"]["name"]: obj for resource, obj in objects if resource == QUEUE}
    rules = AdmissionRules(PodSettings(fraction_runtime_class="").in_mode(mode), lambda: queues)
    api = MemoryApi(wall, [*crds.manifests(), *definitions()], [webhooks(rules, warnings.append)])
    for name in (names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE):
        await api.create(NAMESPACE, {"metadata": {"name": name}})
    for resource, obj in known:
        api.load(resource, obj)
    await _apply_all(api, admitted)
    whole, watches = InformerFactory(api), InformerFactory(api)
    params = decided.snapshot.params
    settings = PodGrouperSettings(GroupingSettings(params.scheduler_name, params.queue_label_key, params.node_pool_key))
    workloads, grouping = WorkloadControllers(api, whole, 0), grouper.run(api, watches, settings, asyncio.Event())
    await _run_until_settled(whole.run(), watches.run(), workloads.run(), grouping)
    written = {(one.row.resource, one.key[2]) for one in admitted}
    made = await _objects(api, {(resource, obj["metadata"]["name"]) for resource, obj in known} - written)
    if not decided.gpu_sharing_mode and any(
        isinstance(each, kinds.Pod) and shares_gpu(each.metadata.annotations or {}) for each in made
    ):
        warnings.append("whether the cluster admits pods that share GPUs is not known: it is assumed that it does")
    return made, warnings


async def _run_until_settled(*parts: Coroutine[Any, Any, object]) -> None:
    """Run these for SETTLED_SECONDS, then cancel them; the error of one that has ended is raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.sleep(SETTLED_SECONDS)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _apply_all(api: Api, admitted: Sequence[Admitted]) -> None:
    refused: list[str] = []
    for one in admitted:
        try:
            await apply(api, one.row.resource, one.obj, seed=0)
        except ApiError as error:
            refused.append(f"{one.manifest.origin} ({one.manifest.title}): {error.message}")
    if refused:
        raise RejectedError("\n".join(refused))


async def _objects(api: Api, known: set[tuple[Resource, str]]) -> list[Any]:
    """Return the objects that are not in `known`, in the form that the scheduler reads."""
    found: list[Any] = []
    for source in SOURCES:
        with suppress(ApiError):
            page = await api.list(source.resource, source.kind)
            found += [each for each in page.items if (source.resource, each.metadata.name) not in known]
    return joined(found)
