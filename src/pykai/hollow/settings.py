"""How hollow kubelets behave, and the points where a caller plugs in what pods really run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pykai.hollow.pod_log import ContainerLog
from pykai.hollow.shapes import Device

Object = dict[str, Any]
Log = Callable[[str], None]
Program = Coroutine[Any, Any, None]
OnStart = Callable[[Object, str, tuple[Device, ...], Log], Program | None]


def nothing_runs(pod: Object, node: str, devices: tuple[Device, ...], log: Log) -> Program | None:
    """No pod runs a program: containers just are."""
    return None


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Times in seconds, and `on_start`; `stop_seconds` is for pods that run no program: a program ends when it ends.

    `on_start(pod, node, devices, log)` is asked when a pod starts, and again at each restart. It gives the program that
    the pod's containers run, or None for a pod that only pretends. The program is a coroutine that sees the devices its
    kubelet gave it (see `nvml.FakeNvml`) and whose `log` lines `kubectl logs` shows. Its return is exit code 0, an
    exception is exit code 1, and it is cancelled when the pod is deleted.
    """

    start_seconds: float = 0.0
    stop_seconds: float = 1.0
    job_seconds: float = 10.0
    restart_seconds: float = 1.0
    on_start: OnStart = nothing_runs


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod as a runtime sees it: as it is now, the logs of its containers by name, and how to patch its status."""

    latest: Callable[[], Object]
    logs: Mapping[str, ContainerLog]
    report: Callable[[Object], Awaitable[None]]


class Runtime(Protocol):
    """Runs the containers of some pods for real."""

    def takes(self, pod: Object) -> bool:
        """Whether it runs this pod; another one only pretends to run."""
        ...

    async def run(self, tenant: Tenant) -> None:
        """Run the pod until it is over, and end what runs when cancelled, within the grace of its deletion."""
        ...
