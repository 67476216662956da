"""How hollow kubelets behave, and the point where a caller plugs in programs that pods really run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pykai.local.shapes import Device

Object = dict[str, Any]
Log = Callable[[str], None]
Program = Coroutine[Any, Any, None]
OnStart = Callable[[Object, str, tuple[Device, ...], Log], Program | None]


def nothing_runs(pod: Object, node: str, devices: tuple[Device, ...], log: Log) -> Program | None:
    """No pod runs a program: containers just are."""
    return None


@dataclass(frozen=True, slots=True)
class Habits:
    """Times in seconds, and `on_start`.

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
