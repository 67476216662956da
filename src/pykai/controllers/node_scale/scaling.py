"""One pass of the adjuster, as a decision: which scaling pods go, which come, and when to look again.

Enough scaling pods are kept that their GPUs hold all waiting shares packed tightly, and that one of them asks for as
many devices as the widest waiting pod. After scaling pods went, nothing comes for a while: a new node is arriving.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pykai.controllers.node_scale.scaling_pod import Object, ScalingPodTemplate, devices_of, manifest, name_for, origin
from pykai.objects import gpu_request, names

COOL_DOWN = 60.0
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class Settings:
    """Whose pods are watched, what scaling pods look like, and which part of a device a gpu-memory pod counts as."""

    template: ScalingPodTemplate
    scheduler_name: str = names.SCHEDULER_NAME
    gpu_memory_to_fraction_ratio: float = 0.1


@dataclass(frozen=True)
class Share:
    """What a waiting pod wants of each of its devices, in hundredths, and of how many devices."""

    hundredths: int
    devices: int


@dataclass(frozen=True)
class Adjustment:
    """The decision of one pass.

    `delete` and `mark` hold names and `create` manifests of scaling pods, those to mark are not called unschedulable
    yet; `last_scale_up` is the time in seconds to hand to the next pass (None: never); `retry_after` is in seconds
    (None: wait for the next event).
    """

    delete: tuple[str, ...]
    create: tuple[dict[str, Any], ...]
    last_scale_up: float | None
    retry_after: float | None
    mark: tuple[str, ...] = ()


def desired(pods: Sequence[Object], settings: Settings, now: float, last_scale_up: float | None) -> Adjustment:
    """What to do about scaling pods, given all pods of the cluster (scaling pods among them)."""
    by_key = {_key(pod): pod for pod in pods}
    scaling = [pod for pod in pods if _key(pod)[0] == settings.template.namespace]
    living = [pod for pod in scaling if not pod["metadata"].get("deletionTimestamp")]
    outdated = tuple(sorted(_key(pod)[1] for pod in living if not is_needed(pod, by_key.get(origin(pod)))))
    unmarked = tuple(sorted({_key(pod)[1] for pod in living if _scheduled_condition(pod) is None}.difference(outdated)))
    last = now if outdated else last_scale_up
    if last is not None and now < last + COOL_DOWN:
        return Adjustment(outdated, (), last, last + COOL_DOWN - now, unmarked)
    shares = waiting_shares((pod for pod in pods if is_waiting(pod, settings.scheduler_name)), settings)
    return Adjustment((), tuple(_missing(shares, by_key, scaling, settings)), last, None, unmarked)


def is_needed(scaling_pod: Object, stands_for: Object | None) -> bool:
    """Whether a scaling pod still serves: it has not run, and its pod (None: gone) is not known to be placed."""
    if scaling_pod.get("status", {}).get("phase") == "Succeeded" or stands_for is None:
        return False
    condition = _scheduled_condition(stands_for)
    return condition is None or _is_unschedulable(condition)


def is_waiting(pod: Object, scheduler_name: str) -> bool:
    """Whether the pod waits for a part of a GPU that the scheduler could not find."""
    annotations = pod["metadata"].get("annotations") or {}
    condition = _scheduled_condition(pod)
    return (
        not pod["spec"].get("nodeName")
        and pod["spec"].get("schedulerName") == scheduler_name
        and bool(annotations.get(names.GPU_FRACTION) or annotations.get(names.GPU_MEMORY))
        and pod.get("status", {}).get("phase") not in _TERMINAL_PHASES
        and condition is not None
        and _is_unschedulable(condition)
    )


def waiting_shares(pods: Iterable[Object], settings: Settings) -> dict[tuple[str, str], Share]:
    """The shares that pods want, by (namespace, name) and in this order; pods that name no valid share are left out."""
    shares = {}
    for pod in sorted(pods, key=_key):
        share = _share(pod["metadata"].get("annotations") or {}, settings.gpu_memory_to_fraction_ratio)
        if share is not None:
            shares[_key(pod)] = share
    return shares


def devices_needed(shares: Iterable[Share]) -> int:
    """The number of whole devices that hold these shares, packed tightly."""
    return math.ceil(sum(share.hundredths * share.devices for share in shares) / 100)


def _share(annotations: Mapping[str, str], memory_ratio: float) -> Share | None:
    """The share that annotations ask for; None where they ask for none or cannot be read."""
    devices = gpu_request.positive_count(annotations.get(names.GPU_FRACTION_DEVICES) or "1")
    if fraction := annotations.get(names.GPU_FRACTION):
        portion = gpu_request.portion(fraction)
    else:
        memory = gpu_request.positive_count(annotations.get(names.GPU_MEMORY) or "")
        portion = None if memory is None else memory_ratio
    if devices is None or portion is None:
        return None
    return Share(max(1, math.floor(portion * 100 + 0.5)), devices)


def _missing(
    shares: Mapping[tuple[str, str], Share],
    by_key: Mapping[tuple[str, str], Object],
    scaling: Sequence[Object],
    settings: Settings,
) -> Iterable[dict[str, Any]]:
    """Manifests of the scaling pods that the waiting shares lack; one that is going still holds its name."""
    taken = {pod["metadata"]["name"] for pod in scaling}
    asked = [devices_of(pod) for pod in scaling if not pod["metadata"].get("deletionTimestamp")]
    needed = devices_needed(shares.values())
    for key, share in shares.items():
        if name_for(*key) in taken:
            continue
        if needed > sum(asked) or share.devices > max(asked, default=0):
            asked.append(share.devices)
            taken.add(name_for(*key))
            yield manifest(by_key[key], share.devices, settings.template)


def _key(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _scheduled_condition(pod: Object) -> Object | None:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "PodScheduled"), None)


def _is_unschedulable(condition: Object) -> bool:
    return condition.get("status") == "False" and condition.get("reason") == "Unschedulable"
