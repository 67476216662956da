"""Leader election by a Lease: at most one of several replicas leads at a time.

The holder renews the lease; other candidates acquire it when they have seen no renewal for its whole duration, by
their own monotonic clock, so that clock skew does not matter. A holder that cannot renew stops leading before the
lease expires for the others: RENEW_SECONDS is shorter than LEASE_SECONDS and counts from when the last renewal was
sent, because its response may arrive long after the others saw it.

A candidate creates a missing lease, unless the lease had owner references: then its owner was deleted, and a new lease
would never be garbage-collected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from pykai.kube.api import Api, Object, Ref
from pykai.kube.clock import wall
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykai.objects.names import object_name

LEASE_SECONDS = 15
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
"""Lease duration, renew deadline and retry period: those of kube-scheduler."""

log = structlog.get_logger()


def scheduler_lease(scheduler_name: str, pool: str) -> str:
    """Return the lease name for the schedulers of a node pool, whose label value need not be a valid object name."""
    return object_name(f"{scheduler_name}-{pool}" if pool else scheduler_name)


class LeadershipLost(RuntimeError):  # noqa: N818
    """The leader could not renew its lease in time and must stop at once."""


class Election:
    """One candidate for `lease`; `identity` names it as the holder."""

    def __init__(self, api: Api, lease: Ref, identity: str) -> None:
        self._api = api
        self._lease = lease
        self._identity = identity
        self._observed: Object = {}
        self._observed_at = 0.0
        self._renewed_at = 0.0
        self._owned = False
        self.leading = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Acquire the lease, run `lead` while holding it, and release it when `lead` returns.

        Raise LeadershipLost, after cancelling `lead`, if the lease could not be renewed.
        """
        await self.acquire()
        work, renewal = asyncio.ensure_future(lead()), asyncio.ensure_future(self.hold())
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if renewal.done():
                await renewal
            await work
        finally:
            for task in (work, renewal):
                task.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)
            await self._release()

    async def acquire(self) -> None:
        """Return once this replica holds the lease."""
        while not (await self._acquire_or_renew() and self._until_deadline() > 0.0):
            await asyncio.sleep(min(self._until_expiry() or RETRY_SECONDS, RETRY_SECONDS))
        self.leading = True
        log.info("leading", lease=self._lease.name, identity=self._identity)

    async def hold(self) -> None:
        """Renew the lease; raise LeadershipLost when that fails for RENEW_SECONDS or another replica holds it."""
        while True:
            await asyncio.sleep(min(RETRY_SECONDS, max(self._until_deadline(), 0.0)))
            try:
                async with asyncio.timeout(max(self._until_deadline(), 0.0)):
                    await self._acquire_or_renew()
            except TimeoutError:
                pass
            if self._until_deadline() <= 0.0 or self._until_expiry():
                self.leading = False
                raise LeadershipLost(f"{self._identity} could not renew the lease {self._lease.name}")

    def _until_deadline(self) -> float:
        """Return the seconds until the renew deadline of this replica; 0 or less: it may not lead."""
        return self._renewed_at + RENEW_SECONDS - asyncio.get_running_loop().time()

    async def _acquire_or_renew(self) -> bool:
        """Acquire or renew the lease; False if another replica holds it or the write fails."""
        try:
            if not self._is_holder():
                await self._read_lease()
            if self._until_expiry():
                return False
            if self._owned and not self._observed:
                log.warning("lease deleted, waiting for its owner to create it", lease=self._lease.name)
                return False
            sent_at = asyncio.get_running_loop().time()
            self._observe(await self._write())
            self._renewed_at = sent_at
        except (Conflict, AlreadyExists):
            self._observed = {}
            return False
        except ApiError as error:
            log.warning("lease not renewed", lease=self._lease.name, error=error.message)
            self._observed = {} if isinstance(error, NotFound) else self._observed
            return False
        return True

    async def _read_lease(self) -> None:
        try:
            self._observe(await self._api.get(self._lease, Object))
        except NotFound:
            self._observed = {}

    def _observe(self, lease: Object) -> None:
        if lease != self._observed:
            self._observed = lease
            self._observed_at = asyncio.get_running_loop().time()
            self._owned = self._owned or bool((lease.get("metadata") or {}).get("ownerReferences"))

    def _spec(self) -> Object:
        return self._observed.get("spec") or {}

    def _is_holder(self) -> bool:
        return self._spec().get("holderIdentity") == self._identity

    def _until_expiry(self) -> float:
        """Return the seconds until the lease of another replica expires; 0 if no other replica holds it."""
        spec = self._spec()
        if self._is_holder() or not spec.get("holderIdentity"):
            return 0.0
        age = asyncio.get_running_loop().time() - self._observed_at
        return max(float(spec.get("leaseDurationSeconds") or LEASE_SECONDS) - age, 0.0)

    async def _write(self) -> Object:
        now = datetime.fromtimestamp(wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {**self._spec(), "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        if not self._is_holder():
            turns = int(spec.get("leaseTransitions") or 0) + (1 if self._spec() else 0)
            spec |= {"holderIdentity": self._identity, "acquireTime": now, "leaseTransitions": turns}
        if not self._observed:
            body = {"metadata": {"name": self._lease.name, "namespace": self._lease.namespace}, "spec": spec}
            return await self._api.create(self._lease.resource, body)
        return await self._api.update(self._lease, {**self._observed, "spec": spec})

    async def _release(self) -> None:
        """Release the lease, so that another replica need not wait for it to expire."""
        self.leading = False
        try:
            try:
                await self._clear_holder()
            except Conflict:  # a cancelled renewal has reached the server
                await self._read_lease()
                await self._clear_holder()
        except ApiError as error:
            log.warning("lease not released", lease=self._lease.name, error=error.message)

    async def _clear_holder(self) -> None:
        if self._is_holder():
            spec = {**self._spec(), "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._api.update(self._lease, {**self._observed, "spec": spec})
