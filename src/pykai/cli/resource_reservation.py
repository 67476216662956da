"""`kai resource-reservation`: the program of reservation pods, which hold a GPU that other pods share.

The kubelet has allocated one device to the pod, so it allocates that device to no other pod. The program writes the
device's UUID to an annotation of its pod, where the binder reads it, and then idles until the pod is deleted. There is
one such process per shared GPU, so it imports little.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import click
import structlog

from pykai.cli.component import reported_errors, run_until, set_up_logs, stop_event
from pykai.cli.flags import LOGS, Flag, takes, warn_ineffective
from pykai.hollow.hollow_node import FakeNvml, HollowDevice
from pykai.hollow.kubelet_settings import Log as PodLog
from pykai.hollow.kubelet_settings import OnStart, Program
from pykai.kube.api import Api, Object, Patch, Ref
from pykai.kube.api_resources import POD
from pykai.kube.auth import find_access
from pykai.kube.client import HttpApi
from pykai.kube.errors import ApiError, NotFound
from pykai.objects import names

FLAGS = (
    Flag("kubeconfig", "", "Path of a kubeconfig; empty: $KUBECONFIG, the pod's service account, ~/.kube/config."),
)
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

Report = Callable[[str], None]
log = structlog.get_logger("resource-reservation")


class Nvml(Protocol):
    """The part of `pynvml` that is used here."""

    @property
    def NVMLError(self) -> type[Exception]:  # noqa: N802 - the binding's names
        """The exception that the functions raise."""
        ...

    def nvmlInit(self) -> None:  # noqa: N802
        """Initialize the library."""
        ...

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Shut the library down."""
        ...

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """The number of visible devices."""
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        """The handle of a device."""
        ...

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:  # noqa: N802
        """The UUID of a device."""
        ...

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        """The product name of a device."""
        ...


class ReservationError(RuntimeError):
    """The device cannot be reserved; the message says why."""


def visible_device(nvml: Nvml) -> tuple[str, str]:
    """UUID and product name of the only device visible in this container."""
    try:
        nvml.nvmlInit()
        try:
            count = nvml.nvmlDeviceGetCount()
            if count != 1:
                raise ReservationError(f"found {count} devices, 1 was expected")
            handle = nvml.nvmlDeviceGetHandleByIndex(0)
            return _decoded(nvml.nvmlDeviceGetUUID(handle)), _decoded(nvml.nvmlDeviceGetName(handle))
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise ReservationError(f"NVML: {error}") from error


def _decoded(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


async def hold(api: Api, pod: Ref, nvml: Nvml, report: Report) -> NoReturn:
    """Annotate the pod with its device unless it is annotated already, then hold the device until cancelled."""
    uuid = await _with_retries(lambda: _annotated_gpu(api, pod), report)
    if uuid:
        report(f"GPU {uuid} is reserved by pod {pod.namespace}/{pod.name}, annotated earlier")
    else:
        uuid, product = visible_device(nvml)
        body = {"metadata": {"annotations": {names.RESERVED_GPU_INDEX: uuid}}}
        await _with_retries(lambda: api.patch(pod, Patch.merge(body)), report)
        report(f"GPU {uuid} ({product}) is reserved by pod {pod.namespace}/{pod.name}")
    while True:
        await asyncio.Event().wait()


async def _annotated_gpu(api: Api, pod: Ref) -> str:
    live = await api.get(pod, Object)
    return str((live["metadata"].get("annotations") or {}).get(names.RESERVED_GPU_INDEX, ""))


async def _with_retries(request: Callable[[], Any], report: Report) -> Any:
    """Send a request until it succeeds, with backoff; NotFound is a ReservationError."""
    attempt = 0
    while True:
        try:
            return await request()
        except NotFound as error:
            raise ReservationError(error.message) from error
        except ApiError as error:
            wait = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            report(f"API request failed, next attempt in {wait:g} s: {error.message}")
            await asyncio.sleep(wait)
            attempt += 1


def own_pod() -> Ref:
    """Return the pod this process runs in, from the downward API."""
    for variable, field in (("POD_NAMESPACE", "namespace"), ("POD_NAME", "name")):
        if not os.environ.get(variable):
            raise ReservationError(f"could not find pod {field}: environment variable {variable} is not set")
    return POD.ref(os.environ["POD_NAME"], os.environ["POD_NAMESPACE"])


def on_hollow_nodes(connection: Callable[[], Api]) -> OnStart:
    """Return the reservation program for hollow kubelets; it sees the devices that the kubelet allocated to the pod.

    `connection` returns the API client when such a pod starts.
    """

    def choose(pod: Object, node: str, devices: tuple[HollowDevice, ...], report: PodLog) -> Program | None:
        metadata = pod["metadata"]
        if (metadata.get("labels") or {}).get(names.APP_LABEL) != names.RESERVATION_APP:
            return None
        return hold(connection(), POD.ref(metadata["name"], metadata["namespace"]), FakeNvml(devices), report)

    return choose


async def _hold_until_signal(kubeconfig: str, nvml: Nvml) -> None:
    stop = stop_event()
    async with HttpApi(find_access(kubeconfig)) as api:
        await run_until(stop.wait(), hold(api, own_pod(), nvml, log.info))
    log.info("GPU reservation ended")


@click.command("resource-reservation")
@takes(FLAGS, LOGS)
def resource_reservation(**flags: Any) -> None:
    """Hold the GPU of this pod for the pods that share it, and report its UUID."""
    import pynvml  # needs NVIDIA's library, which only GPU nodes have

    set_up_logs(flags)
    warn_ineffective(LOGS, flags)
    with reported_errors():
        try:
            asyncio.run(_hold_until_signal(flags["kubeconfig"], pynvml))
        except ReservationError as error:
            raise click.ClickException(str(error)) from error
