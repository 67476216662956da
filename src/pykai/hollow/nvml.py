"""NVML as a container on a hollow node would see it: exactly the devices its kubelet gave it.

It has the functions of NVIDIA's own binding (`pynvml`) under the same names, so that a program takes either.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykai.hollow.shapes import Device


class NVMLError(Exception):
    """The library refuses, for the reason in the text."""


class FakeNvml:
    """The visible devices in index order; the shares of one time-sliced device are one device."""

    NVMLError = NVMLError

    def __init__(self, devices: Iterable[Device]) -> None:
        physical = {device.uuid: device for device in sorted(devices, key=lambda device: device.index)}
        self._devices = tuple(physical.values())
        self._open = False

    def nvmlInit(self) -> None:  # noqa: N802 - the binding's name
        """Open the library; every other call needs it."""
        self._open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Close the library."""
        self._open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """How many devices the container sees."""
        self._require_open()
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        """A device by its place among the visible ones."""
        self._require_open()
        if not 0 <= index < len(self._devices):
            raise NVMLError("Invalid Argument")
        return self._devices[index]

    def nvmlDeviceGetUUID(self, handle: Device) -> str:  # noqa: N802
        """The UUID of a device."""
        self._require_open()
        return handle.uuid

    def nvmlDeviceGetName(self, handle: Device) -> str:  # noqa: N802
        """The product name of a device."""
        self._require_open()
        return handle.product

    def _require_open(self) -> None:
        if not self._open:
            raise NVMLError("Uninitialized")
