"""Node scale adjuster: makes pending GPU shares visible to a cluster autoscaler, which does not support fractions.

For pods pending for a share of a GPU it creates ordinary pods that request whole GPUs ("scaling pods"). Because these
are unschedulable, the autoscaler adds nodes; they are deleted when their origins are scheduled. `desired` decides one
pass over all pods, and the controller writes the result whenever a relevant pod changes. Names of scaling pods are
derived from their origins, so a repeated pass creates nothing twice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from pykai.controllers.unstructured import unstructured_pod
from pykai.kube.api import EVERYTHING, Api, Object, Patch, Selection
from pykai.kube.api_resources import POD
from pykai.kube.clock import steady
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.informer import InformerFactory
from pykai.kube.informer_store import WatchChange
from pykai.kube.workqueue import Meters, Pace, ReconcileLoop, unmetered
from pykai.objects import gpu_request, kinds, names, nvfractions, units
from pykai.objects.units import sum_resources

COOL_DOWN = 60.0
GATHER_SECONDS = 0.2
# Set on creation, because the autoscaler reacts to pods with the condition Unschedulable.
UNSCHEDULABLE_STATUS: Final = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
}
_COPIED = ("affinity", "tolerations", "nodeSelector")
_SUMMED = ("cpu", "memory")
_NAME_LENGTH = 253
_LABEL_LENGTH = 63
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
_PASS = "all pods"
log = structlog.get_logger("node-scale-adjuster")


@dataclass(frozen=True)
class ScalingPodTemplate:
    """The settings of all scaling pods."""

    image: str
    namespace: str = names.SCALING_NAMESPACE
    app: str = names.SCALING_APP
    service_account: str = names.SCALING_APP


def scaling_pod_name(namespace: str, name: str) -> str:
    """Return the name of the scaling pod of this pod."""
    return _cut(f"{namespace}-{name}", _NAME_LENGTH)


def origin(scaling_pod: Object) -> tuple[str, str]:
    """(namespace, name) of the pod that a scaling pod was created for."""
    metadata = scaling_pod["metadata"]
    named = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return named.get(names.SCALED_POD_NAMESPACE, ""), named.get(names.SCALED_POD_NAME, "")


def devices_of(scaling_pod: Object) -> int:
    """Return the number of GPUs that a scaling pod requests."""
    containers = scaling_pod["spec"].get("containers") or ()
    requests = [container.get("resources", {}).get("requests") or {} for container in containers]
    return int(sum(units.parse_quantity(each.get(names.NVIDIA_GPU, 0)) for each in requests))


def scaling_manifest(pod: Object, devices: int, template: ScalingPodTemplate) -> Object:
    """Return the scaling pod for a pod that is pending for shares of this many GPUs.

    It requests what its origin requests and tolerates what its origin tolerates, so that the autoscaler adds a node on
    which the origin fits. Labels name the origin for users and the binder, and, because labels are shorter than names
    may be, annotations of the same keys.
    """
    namespace, name = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
    stands_for = {names.SCALED_POD_NAMESPACE: namespace, names.SCALED_POD_NAME: name}
    copied = {field: pod["spec"][field] for field in _COPIED if pod["spec"].get(field)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": scaling_pod_name(namespace, name),
            "namespace": template.namespace,
            "labels": {
                names.APP_LABEL: template.app,
                **{key: _cut(text, _LABEL_LENGTH) for key, text in stands_for.items()},
            },
            "annotations": stands_for,
        },
        "spec": {
            "containers": [_container(pod, devices, template.image)],
            "restartPolicy": "OnFailure",
            "serviceAccountName": template.service_account,
            **copied,
        },
    }


def _container(pod: Object, devices: int, image: str) -> Object:
    requests = [container.get("resources", {}).get("requests") or {} for container in pod["spec"]["containers"]]
    plain = sum_resources({name: each[name] for name in _SUMMED if name in each} for each in requests)
    gpus = {names.NVIDIA_GPU: str(devices)}
    return {
        "name": "scaling-pod",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {**plain, **gpus}, "limits": gpus},
    }


def _cut(text: str, length: int) -> str:
    return text[:length].rstrip("-._")


# ------------------------------------------------------------------------------------------------------- decision
@dataclass(frozen=True)
class ScalingSettings:
    """The scheduler name, the template of scaling pods, and the assumed fraction of a device of a gpu-memory pod."""

    template: ScalingPodTemplate
    scheduler_name: str = names.SCHEDULER_NAME
    gpu_memory_to_fraction_ratio: float = 0.1


@dataclass(frozen=True)
class GpuShareRequest:
    """The share of each device that a pending pod requests, in hundredths, and the number of devices."""

    hundredths: int
    devices: int


@dataclass(frozen=True)
class Adjustment:
    """The decision of one pass.

    `delete` and `mark` hold names and `create` manifests of scaling pods, `mark` those without the condition
    Unschedulable; `last_scale_up` is the time in seconds for the next pass (None: never); `retry_after` is in seconds
    (None: wait for the next event).
    """

    delete: tuple[str, ...]
    create: tuple[Object, ...]
    last_scale_up: float | None
    retry_after: float | None
    mark: tuple[str, ...] = ()


def desired(pods: Sequence[Object], settings: ScalingSettings, now: float, last_scale_up: float | None) -> Adjustment:
    """Return the scaling pods to delete, mark and create, given all pods of the cluster, scaling pods included.

    Their GPUs must hold all pending shares packed tightly, and one of them must request as many devices as the pending
    pod with most devices. After a deletion none is created during the cool-down, because a new node is expected.
    """
    by_key = {_key(pod): pod for pod in pods}
    scaling = [pod for pod in pods if _key(pod)[0] == settings.template.namespace]
    living = [pod for pod in scaling if not pod["metadata"].get("deletionTimestamp")]
    outdated = tuple(sorted(_key(pod)[1] for pod in living if not is_needed(pod, by_key.get(origin(pod)))))
    unmarked = tuple(sorted({_key(pod)[1] for pod in living if _scheduled_condition(pod) is None}.difference(outdated)))
    last = now if outdated else last_scale_up
    if last is not None and now < last + COOL_DOWN:
        return Adjustment(outdated, (), last, last + COOL_DOWN - now, unmarked)
    shares = waiting_shares((pod for pod in pods if is_waiting(pod, settings.scheduler_name)), settings)
    needed, requested = devices_needed(shares.values()), [devices_of(pod) for pod in living]
    taken = {pod["metadata"]["name"] for pod in scaling}  # a terminating one still occupies its name
    missing: list[Object] = []
    for key, share in shares.items():
        if scaling_pod_name(*key) in taken:
            continue
        if needed > sum(requested) or share.devices > max(requested, default=0):
            requested.append(share.devices)
            taken.add(scaling_pod_name(*key))
            missing.append(scaling_manifest(by_key[key], share.devices, settings.template))
    return Adjustment((), tuple(missing), last, None, unmarked)


def is_needed(scaling_pod: Object, stands_for: Object | None) -> bool:
    """Whether a scaling pod is still needed: it has not run, and its origin (None: gone) is not scheduled."""
    if scaling_pod.get("status", {}).get("phase") == "Succeeded" or stands_for is None:
        return False
    condition = _scheduled_condition(stands_for)
    return condition is None or _is_unschedulable(condition)


def is_waiting(pod: Object, scheduler_name: str) -> bool:
    """Whether the pod requests a share of a GPU and is unschedulable."""
    annotations = pod["metadata"].get("annotations") or {}
    condition = _scheduled_condition(pod)
    return (
        not pod["spec"].get("nodeName")
        and pod["spec"].get("schedulerName") == scheduler_name
        and gpu_request.shares_gpu(annotations)
        and pod.get("status", {}).get("phase") not in _TERMINAL_PHASES
        and condition is not None
        and _is_unschedulable(condition)
    )


def waiting_shares(pods: Iterable[Object], settings: ScalingSettings) -> dict[tuple[str, str], GpuShareRequest]:
    """Return the valid shares that pods request, by (namespace, name) and in this order."""
    shares = {}
    for pod in sorted(pods, key=_key):
        annotations = pod["metadata"].get("annotations") or {}
        devices = gpu_request.positive_count(annotations.get(names.GPU_FRACTION_DEVICES) or "1")
        if fraction := annotations.get(names.GPU_FRACTION):
            portion = gpu_request.portion(fraction)
        else:
            of_container = nvfractions.memory_mib(annotations)
            memory = of_container or gpu_request.positive_count(annotations.get(names.GPU_MEMORY) or "")
            portion = None if memory is None else settings.gpu_memory_to_fraction_ratio
        if devices is not None and portion is not None:
            shares[_key(pod)] = GpuShareRequest(max(1, math.floor(portion * 100 + 0.5)), devices)
    return shares


def devices_needed(shares: Iterable[GpuShareRequest]) -> int:
    """Return the number of whole devices that hold these shares, packed tightly."""
    return math.ceil(sum(share.hundredths * share.devices for share in shares) / 100)


def _key(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _scheduled_condition(pod: Object) -> Object | None:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "PodScheduled"), None)


def _is_unschedulable(condition: Object) -> bool:
    return condition.get("status") == "False" and condition.get("reason") == "Unschedulable"


# ----------------------------------------------------------------------------------------------------- controller
@dataclass(frozen=True)
class NodeScalerSettings:
    """The settings of the decision, and the watched pods."""

    scaling: ScalingSettings
    pods: Selection = EVERYTHING
    meters: Meters = unmetered


class NodeScaler:
    """The controller; `run` works until cancelled."""

    def __init__(self, api: Api, watches: InformerFactory, settings: NodeScalerSettings) -> None:
        self._api = api
        self._settings = settings
        self._pods = watches.of(POD, kinds.Pod, settings.pods)
        self._last_scale_up: float | None = None
        meter = settings.meters("node-scale-adjuster")
        self._loop: ReconcileLoop[str] = ReconcileLoop("node-scale-adjuster", Pace(workers=1), meter)

    async def run(self, ready: asyncio.Event) -> None:
        """Reconcile scaling pods until cancelled."""
        await self._pods.synced()
        leave = self._pods.subscribe(self._changed)
        ready.set()
        try:
            await self._loop.run(self._adjust)
        finally:
            leave()

    def _changed(self, change: WatchChange[kinds.Pod]) -> None:
        if self._counts(change.object) or (change.old is not None and self._counts(change.old)):
            self._loop.add_after(_PASS, GATHER_SECONDS)

    def _counts(self, pod: kinds.Pod) -> bool:
        """Whether a pod is relevant: a scaling pod, or one of ours that requests a share of a GPU."""
        scaling = self._settings.scaling
        if pod.metadata.namespace == scaling.template.namespace:
            return True
        annotations = pod.metadata.annotations or {}
        return pod.spec.scheduler_name == scaling.scheduler_name and gpu_request.shares_gpu(annotations)

    async def _adjust(self, _: str) -> float | None:
        pods = [unstructured_pod(pod) for _, pod in self._pods.items() if self._counts(pod)]
        adjustment = desired(pods, self._settings.scaling, steady(), self._last_scale_up)
        self._last_scale_up = adjustment.last_scale_up  # before the deletions: a failed call may have succeeded
        namespace = self._settings.scaling.template.namespace
        for name in adjustment.delete:
            with suppress(NotFound):
                await self._api.delete(POD.ref(name, namespace))
                log.info("scaling pod deleted", pod=f"{namespace}/{name}")
        for name in adjustment.mark:
            seen = self._pods.get(name, namespace)
            await self._mark(name, seen.metadata.resource_version if seen is not None else "")
        for manifest in adjustment.create:
            name = manifest["metadata"]["name"]
            with suppress(AlreadyExists):
                created = await self._api.create(POD, manifest)
                log.info("scaling pod created", pod=f"{namespace}/{name}")
                await self._mark(name, created["metadata"]["resourceVersion"])
        return adjustment.retry_after

    async def _mark(self, name: str, version: str) -> None:
        """Set the condition Unschedulable, unless the scaling pod changed since that version."""
        body = {"metadata": {"resourceVersion": version}, "status": UNSCHEDULABLE_STATUS}
        ref = POD.ref(name, self._settings.scaling.template.namespace).sub("status")
        with suppress(NotFound, Conflict):
            await self._api.patch(ref, Patch.strategic(body))


async def run(api: Api, watches: InformerFactory, settings: NodeScalerSettings, ready: asyncio.Event) -> None:
    """Reconcile scaling pods until cancelled."""
    await NodeScaler(api, watches, settings).run(ready)
