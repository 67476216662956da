"""Keep containers that were given no GPU away from the devices of their node.

The NVIDIA runtime shows a container every device that NVIDIA_VISIBLE_DEVICES names, whether or not the scheduler gave
it one. On creation the variable is set to `void` where no device was requested; other values are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.admission.pod_draft import ContainerObject, PodObject, containers_without_share, set_environment
from pykai.admission.verdict import RefusedError
from pykai.objects.gpu_request import VISIBLE_DEVICES
from pykai.objects.names import MIG_PREFIX, NVIDIA_GPU
from pykai.objects.units import parse_quantity

_NO_DEVICE = "void"
_HARMLESS = ("", "void", "none")


def hide_devices(draft: PodObject) -> None:
    """Show no device to the containers that requested none, except the one that receives the pod's share."""
    for container in containers_without_share(draft):
        if not _requests_device(container):
            set_environment(container, {"name": VISIBLE_DEVICES, "value": _NO_DEVICE})


def check_device_access(pod: Mapping[str, Any]) -> None:
    """Refuse a container that names devices by hand."""
    for container in containers_without_share(pod):
        for entry in container.get("env") or []:
            if entry.get("name") == VISIBLE_DEVICES:
                _check_entry(container.get("name") or "", entry)


def _check_entry(container: str, entry: Mapping[str, Any]) -> None:
    what = f"container {container} has an environment variable {VISIBLE_DEVICES} defined with a"
    value = entry.get("value") or ""
    if value not in _HARMLESS:
        raise RefusedError(
            f"{what} value of {value}. This is forbidden due to conflicts with Nvidia's device plugin. "
            "The only values that are allowed are 'void' or 'none'"
        )
    if not value and entry.get("valueFrom") is not None:
        raise RefusedError(
            f"{what} valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
        )


def _requests_device(container: ContainerObject) -> bool:
    requests = (container.get("resources") or {}).get("requests") or {}
    devices = [amount for name, amount in requests.items() if name == NVIDIA_GPU or name.startswith(MIG_PREFIX)]
    return any(_is_some(amount) for amount in devices)


def _is_some(amount: str | int | float) -> bool:
    try:
        return parse_quantity(amount) != 0
    except ValueError:
        # Not a quantity: the API server refuses the pod itself.
        return False
