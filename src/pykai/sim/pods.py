"""Pods as objects: what a scheduler, a binder and a kubelet write into them, and what is read out of them.

Every function returns a new object.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from msgspec import json
from msgspec.structs import replace

from pykai.cache.requests import GpuRequest, gpu_request, pod_amounts
from pykai.hollow import spans
from pykai.model.plan import Bind
from pykai.model.pods import GpuKind
from pykai.model.resources import whole_gpus
from pykai.objects import kinds, names
from pykai.objects.pod_template import decode_template
from pykai.objects.units import rfc3339
from pykai.sim.history import PodLife
from pykai.sim.manifests import Object
from pykai.sim.setting import Setting
from pykai.sim.store import Key, key_of


def notes(pod: Object) -> dict[str, str]:
    """The pod's annotations, empty where it has none."""
    found: dict[str, str] = pod["metadata"].get("annotations") or {}
    return found


def group_key(pod: Object) -> Key:
    """The PodGroup the pod says it belongs to; its name is empty where it says nothing."""
    return pod["metadata"]["namespace"], notes(pod).get(names.POD_GROUP_ANNOTATION, "")


def life(pod: Object, at: float, job: str, queue: str) -> PodLife:
    """The life of a pod that arrives now."""
    namespace, name = key_of(pod)
    group = group_key(pod)[1]
    why = _unseen(pod, group, queue)
    return PodLife(namespace, name, queue, group or name, job, at, asks_for=asks(request(pod)), reason=why)


def request(pod: Object) -> GpuRequest:
    """How the pod asks for GPUs."""
    spec = kinds.decode(json.encode(pod["spec"]), kinds.PodSpec)
    return gpu_request(pod_amounts(decode_template(spec)), notes(pod))


def asks(wish: GpuRequest) -> str:
    """What the pod wants of GPUs, for people; empty where it wants none."""
    each = f"{wish.memory_mib} MiB" if wish.kind is GpuKind.MEMORY else f"{wish.portion:g} GPU"
    if wish.kind is GpuKind.MIG or not wish.devices:
        return "MIG" if wish.kind is GpuKind.MIG else ""
    if wish.kind is GpuKind.REGULAR:
        return f"{wish.devices} GPU"
    return f"{wish.devices} x {each}" if wish.devices > 1 else each


def _unseen(pod: Object, group: str, queue: str) -> str:
    """Why no scheduler here will ever look at a pod; empty where ours will."""
    scheduler = pod["spec"].get("schedulerName", "default-scheduler")
    if scheduler != names.SCHEDULER_NAME:
        return f"spec.schedulerName is {scheduler!r}: only {names.SCHEDULER_NAME!r} runs here"
    if not queue:
        return f"there is no PodGroup {group!r}" if group else "it belongs to no PodGroup"
    return ""


# ------------------------------------------------------------------------------------------------------------- places
def with_groups(bind: Bind, groups: Sequence[str]) -> Bind:
    """The same bind with other names for its devices."""
    return replace(bind, gpu_groups=tuple(groups)) if groups else bind


def as_bind(pod: Object, node: Object | None, home: str) -> Bind:
    """The bind of a pod that says itself on which node it is."""
    wish = request(pod)
    labels = pod["metadata"].get("labels") or {}
    groups = tuple(sorted(v for k, v in labels.items() if k.startswith(names.GPU_GROUP_LABEL)))
    portion = wish.portion
    if wish.kind is GpuKind.MEMORY:
        memory = ((node or {}).get("metadata") or {}).get("labels", {}).get(names.GPU_MEMORY_LABEL, "100")
        portion = ceil(100 * wish.memory_mib / int(memory)) / 100
    if wish.kind in (GpuKind.FRACTION, GpuKind.MEMORY) and not groups:
        groups = tuple(f"{home}-{pod['metadata']['name']}-{number}" for number in range(wish.devices))
    kind = "Fraction" if wish.kind is GpuKind.MEMORY else wish.kind.value
    return Bind(key_of(pod), home, kind, wish.devices, portion, groups)


def bound(pod: Object, bind: Bind) -> Object:
    """The pod on its node, with the labels by which the next snapshot knows its devices."""
    meta = pod["metadata"]
    if len(bind.gpu_groups) == 1:
        labels = {names.GPU_GROUP_LABEL: bind.gpu_groups[0]}
    else:
        labels = {names.GPU_GROUP_LABEL_PREFIX + group: group for group in bind.gpu_groups}
    received = {**notes(pod), names.RECEIVED_RESOURCE_TYPE: bind.resource_type}
    meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}, "annotations": received}
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": bind.node}}


def in_phase(pod: Object, phase: str) -> Object:
    """The pod in another phase of its life."""
    return {**pod, "status": {**(pod.get("status") or {}), "phase": phase}}


def deleted(pod: Object, at: float) -> Object:
    """The pod with the instant (seconds since the epoch) by which it has to be gone."""
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": rfc3339(at)}}


def gpus(bind: Bind) -> float:
    """How many GPUs a bind gives out, shares as parts of one."""
    return whole_gpus(bind.portion, bind.devices) if bind.gpu_groups else float(bind.devices)


def place_text(life: PodLife) -> str:
    """Where a pod was put, for people."""
    if not life.devices:
        return f"on {life.node}"
    numbers = ", ".join(map(str, life.devices))
    if life.shared:
        portion = life.gpus / len(life.devices)
        return f"on {life.node}, {portion:.0%} of GPU {numbers}"
    return f"on {life.node}, GPU{'s' if len(life.devices) > 1 else ''} {numbers}"


# -------------------------------------------------------------------------------------------------------------- times
def run_seconds(pod: Object, setting: Setting) -> float | None:
    """How long the pod runs; None: for ever."""
    text = notes(pod).get(names.RUN_SECONDS)
    if text is not None:
        seconds = _drawn(pod, text, setting)
        return None if seconds == spans.NEVER else seconds
    owned = any(owner.get("kind") == "Job" for owner in pod["metadata"].get("ownerReferences") or ())
    return setting.job_runs if owned else None


def stop_seconds(pod: Object, setting: Setting) -> float:
    """How long the pod takes to leave, at most its grace period."""
    text = notes(pod).get(names.STOP_SECONDS)
    seconds = setting.stopping if text is None else _drawn(pod, text, setting)
    grace: Any = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return min(seconds, float(grace))


def _drawn(pod: Object, text: str, setting: Setting) -> float:
    return spans.seconds(text).draw(f"{setting.seed}/{'/'.join(key_of(pod))}/{text}")
