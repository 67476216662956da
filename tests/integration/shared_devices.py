"""The pods that share devices, followed event by event: how much of each device is given out, at every moment.

And how far the work is, so that a test can act in the middle of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

from pykai.kube.api import EventType, Object, Resource
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.informer_store import WatchChange
from pykai.local.cluster_session import connect
from pykai.objects import names
from tests.timeouts import TIMEOUT_SECONDS

from .following import followed
from .mission_cluster import gpu_groups

Device = tuple[str, str]
"""Node and GPU group."""
_ENDED = ("Succeeded", "Failed")


class DeviceBook:
    """Shares of devices; `most` is the largest sum that any device ever had."""

    def __init__(self) -> None:
        self.most = Fraction(0)
        self._objects: dict[Resource, dict[str, Object]] = {POD: {}, BIND_REQUEST: {}}
        self._changed = asyncio.Event()

    def see(self, resource: Resource, change: WatchChange[Object]) -> None:
        """An object changed."""
        held, uid = self._objects[resource], change.object["metadata"]["uid"]
        held.pop(uid, None)
        if change.type is not EventType.DELETED:
            held[uid] = change.object
        self.most = max([self.most, *self.given_out().values()])
        self._changed.set()

    def given_out(self) -> dict[Device, Fraction]:
        """The sum of what pods have of each device."""
        total: dict[Device, Fraction] = {}
        for device, share in (row for pod in self._objects[POD].values() for row in shares(pod)):
            total[device] = total.get(device, Fraction(0)) + share
        return total

    def pods(self, namespace: str = "", app: str = "") -> list[Object]:
        """Pods that exist; empty arguments mean all."""
        found = [pod for pod in self._objects[POD].values() if namespace in ("", pod["metadata"]["namespace"])]
        return [pod for pod in found if app in ("", (pod["metadata"].get("labels") or {}).get("app"))]

    def reservations(self) -> list[Object]:
        """The reservation pods of the cluster."""
        return self.pods(names.RESERVATION_NAMESPACE)

    def requested(self) -> int:
        """How many pods have a bind request."""
        return len(self._objects[BIND_REQUEST])

    def reserved(self) -> int:
        """How many reservation pods there are."""
        return len(self.reservations())

    def bound(self) -> int:
        """How many pods have shares of devices."""
        return sum(bool(shares(pod)) for pod in self.pods())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return at the moment when something holds."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def reached(self, count: Callable[[], int], least: int) -> None:
        """Return at the moment when a count is `least` or more."""
        await self.until(lambda: count() >= least)


def shares(pod: Object) -> list[tuple[Device, Fraction]]:
    """What a pod has of devices, from its binding until it has ended."""
    fraction = (pod["metadata"].get("annotations") or {}).get(names.GPU_FRACTION)
    node = pod["spec"].get("nodeName")
    if not node or not fraction or pod["status"].get("phase") in _ENDED:
        return []
    return [((node, group), Fraction(fraction)) for group in gpu_groups(pod)]


@contextlib.asynccontextmanager
async def device_book(kubeconfig: Path) -> AsyncIterator[DeviceBook]:
    """A book that is kept while the block runs."""
    book = DeviceBook()
    handlers = {resource: partial(book.see, resource) for resource in (POD, BIND_REQUEST)}
    async with connect(kubeconfig) as api, followed(api, handlers):
        yield book
