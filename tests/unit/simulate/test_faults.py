"""Histories with faults: the product passes the checks, and a planted bug of each class does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.cli.simulate import SimulatedProduct
from pykai.config.scheduler import SchedulerConfig
from pykai.kube.api import AS_SERVER_LIKES, Api, Deletion, Object, Patch, Ref
from pykai.kube.resources import QUEUE
from pykai.objects import names
from pykai.simulate import generate, installed, validation
from pykai.simulate.cluster import Hooks, Setting, Simulation
from pykai.simulate.faults import END_SECONDS, FaultyProduct


class Planted:
    """An API through which a component with a bug seems to write."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._api, verb)


class StaleStatus(Planted):
    """The status of queues is never written."""

    async def patch(self, ref: Ref, patch: Patch) -> Object:
        return {} if ref.resource == QUEUE else await self._api.patch(ref, patch)


class LeakedReservation(Planted):
    """Reservation pods are never deleted."""

    async def delete(self, ref: Ref, how: Deletion = AS_SERVER_LIKES) -> None:
        if ref.namespace != names.RESERVATION_NAMESPACE:
            await self._api.delete(ref, how)


class BrokenProduct(SimulatedProduct):
    """The product with a planted bug."""

    def __init__(self, bug: type[Planted] | None) -> None:
        super().__init__(SchedulerConfig())
        self._bug = bug

    async def run(self, api: Api, hooks: Hooks, ready: asyncio.Event) -> None:
        await super().run(self._bug(api) if self._bug else api, hooks, ready)


def play(seed: int, bug: type[Planted] | None = None) -> FaultyProduct:
    found = generate.small_cluster(seed)
    arrivals = [one.arrival(seed) for one in validation.admit([*installed.missing(found), *found])]
    product = FaultyProduct(BrokenProduct(bug), seed)
    Simulation(product, arrivals, Setting(seed=seed)).play(END_SECONDS)
    return product


def test_the_product_passes() -> None:
    product = play(3)
    assert product.violations == []
    assert sum(product.counts.values()) > 20


@pytest.mark.parametrize(
    ("bug", "text"),
    [
        (StaleStatus, "the status of queue"),
        (LeakedReservation, "reserves a device that no pod shares"),
    ],
)
def test_a_planted_bug_is_found(bug: type[Planted], text: str) -> None:
    assert any(text in violation for seed in (1, 2, 4) for violation in play(seed, bug).violations)
