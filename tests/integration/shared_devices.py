"""The pods that share devices, followed event by event: how much of each device is given out, at every moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from pykai.kube.api import EventType
from pykai.kube.replica import Change
from pykai.kube.resources import POD
from pykai.kube.watches import Watches
from pykai.local.session import connect
from pykai.objects import names

from .mission_cluster import gpu_groups

Object = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


class DeviceBook:
    """Shares of devices by pod; `most` is the largest sum that any device ever had."""

    def __init__(self) -> None:
        self.most = Fraction(0)
        self._shares: dict[str, list[tuple[str, str, Fraction]]] = {}

    def see(self, change: Change[Object]) -> None:
        """A pod changed."""
        pod = change.object
        self._shares.pop(pod["metadata"]["uid"], None)
        if change.type is not EventType.DELETED and pod["status"].get("phase") not in _ENDED:
            self._shares[pod["metadata"]["uid"]] = shares(pod)
        self.most = max([self.most, *self.given_out().values()])

    def given_out(self) -> Counter[tuple[str, str]]:
        """(node, device) -> the sum of what its pods have of it."""
        total: Counter[tuple[str, str]] = Counter()
        for node, group, share in (row for rows in self._shares.values() for row in rows):
            total[node, group] += share  # type: ignore[assignment]
        return total


def shares(pod: Object) -> list[tuple[str, str, Fraction]]:
    """What a pod that is bound has of devices: (node, device, share)."""
    fraction = (pod["metadata"].get("annotations") or {}).get(names.GPU_FRACTION)
    node = pod["spec"].get("nodeName")
    return [(node, group, Fraction(fraction)) for group in gpu_groups(pod)] if node and fraction else []


@contextlib.asynccontextmanager
async def device_book(kubeconfig: Path) -> AsyncIterator[DeviceBook]:
    """A book that is kept while the block runs."""
    async with connect(kubeconfig) as api:
        book, watches = DeviceBook(), Watches(api)
        pods = watches.of(POD, Object)
        pods.subscribe(book.see)
        following = asyncio.create_task(watches.run())
        try:
            await watches.synced()
            yield book
            assert not following.done(), following.exception()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
