"""The step `nvfractions`: shares of GPUs as annotations of the pod, without ConfigMaps.

What the container receives is a function of the pod, the node and the bind request. The annotations travel with the
bind, so a bound pod has all of them and an unbound one has none: there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor

import structlog

from pykai.controllers.binder.binding import BindAttempt, BindError, WaitingStep
from pykai.controllers.binder.device_index import Key
from pykai.controllers.binder.gpu_sharing import device_names
from pykai.objects import gpu_request, names, nvfractions
from pykai.objects.kinds import BindRequest, Node, Pod
from pykai.objects.nvfractions import DEVICES, MEMORY_LIMIT, MEMORY_REQUEST
from pykai.objects.pod_template import decode_template

log = structlog.get_logger("binder")


def share_annotations(attempt: BindAttempt, cdi: bool) -> dict[str, str]:
    """The annotations of the container that receives the share; BindError where an amount cannot be computed."""
    held = attempt.pod.metadata.annotations or {}
    container = _container(attempt.pod, held)
    request, limit = (nvfractions.key(container, suffix) for suffix in (MEMORY_REQUEST, MEMORY_LIMIT))
    added: dict[str, str] = {}
    if request not in held:
        added[request] = held.get(limit) or f"{_received_mib(attempt)}Mi"
    portion_limit = held.get(nvfractions.portion_limit_key(container))
    if portion_limit is not None and limit not in held:
        mib = floor(_device_memory(attempt.node) * _portion(portion_limit))
        if mib <= 0:
            raise BindError("calculated gpu memory limit is zero")
        added[limit] = f"{mib}Mi"
    return added | {nvfractions.key(container, DEVICES): device_names(attempt, cdi)}


def _container(pod: Pod, annotations: Mapping[str, str]) -> str:
    template = decode_template(pod.spec)
    init, regular = ([each.name for each in listed] for listed in (template.init_containers, template.containers))
    try:
        return gpu_request.fraction_container(annotations, init, regular).name
    except gpu_request.GpuRequestError as error:
        raise BindError(str(error)) from None


def _received_mib(attempt: BindAttempt) -> int:
    """MiB of each device: the received portion of it."""
    received = attempt.request.spec.received_gpu
    if received is None:
        raise BindError("missing data for NvFractions annotation calculation")
    mib = floor(_device_memory(attempt.node) * _portion(received.portion))
    if mib <= 0:
        raise BindError("calculated gpu memory request is zero")
    return mib


def _device_memory(node: Node) -> int:
    """MiB of each device of a node."""
    text = (node.metadata.labels or {}).get(names.GPU_MEMORY_LABEL)
    if text is None:
        raise BindError(f"node does not include {names.GPU_MEMORY_LABEL} label")
    value = gpu_request.positive_count(text)
    if value is None:
        raise BindError(f'invalid {names.GPU_MEMORY_LABEL} label value "{text}"')
    return value


def _portion(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise BindError(f'invalid received gpu portion "{text}"')
    return value


class NvFractions:
    """Gives the bind of a share its annotations."""

    name = "nvfractions"

    def __init__(self, *, cdi: bool) -> None:
        self._cdi = cdi

    async def prepare(self, attempt: BindAttempt) -> WaitingStep | None:
        """Add the annotations to the bind of a pod that gets a share."""
        if attempt.devices:
            added = share_annotations(attempt, self._cdi)
            attempt.annotations.update(added)
            log.info("GPU share prepared", pod=attempt.title, gpus=list(attempt.devices), annotations=added)
        return None

    async def undo(self, pod: Pod, request: BindRequest | None) -> None:
        """Nothing is written before the bind."""

    async def orphans(self) -> Iterable[Key]:
        """None: nothing is written before the bind."""
        return ()

    def forget(self, pod: Key) -> None:
        """There is no state of a pod."""
