"""HTTP transport to a real API server: connections, rate limits, credentials, timeouts and retries.

Requests use lanes, each with its own connections and rate limit: watches, which hold a connection each and are not
limited; binds, with the leader election leases; low-priority requests, which write events and status; and all others.
Low-priority requests can fill their lane without delaying a bind or its prerequisites. They also yield to other lanes:
a busy server divides its time among in-flight requests, so only one is sent at a time while others are in flight.

A request is retried if the server asks for it (429 or 5xx with Retry-After), if it was never sent, or if it failed with
5xx or a lost connection and is idempotent. A create or a JSON patch is not retried after that: it may have succeeded.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum

import aiohttp
from yarl import URL

from pykai import __version__
from pykai.kube.auth import Access
from pykai.kube.backoff import Backoff
from pykai.kube.codec import error_from
from pykai.kube.errors import ApiError, Timeout, Unauthorized, Unavailable

TRIES = 5
BACKOFF = Backoff(0.1, 2.0, jitter=0.5)
LONGEST_WAIT_SECONDS = 30.0
CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 60.0
BESIDE_OTHERS = 1
"""The most low-priority requests of their own lane while other requests are in flight."""
LINGER_SECONDS = 0.2
"""How long after the last of the others that limit lasts."""


class RequestLane(Enum):
    """The connections and the rate limit that a request uses."""

    WATCHES = "watches"
    BINDS = "binds"
    LOW_PRIORITY = "low-priority"
    ORDINARY = "ordinary"


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a client: `qps` and `burst` apply to ordinary and, separately, to low-priority requests; 0: no limit.

    `connections`: the number per lane. `low_priority_kinds`: kinds (plural) without latency requirements,
    which are created with low priority.
    """

    qps: float = 50.0
    burst: int = 300
    bind_qps: float = 200.0
    bind_burst: int = 500
    connections: int = 32
    timeout_seconds: float = 30.0
    watch_idle_seconds: float = 90.0
    low_priority_kinds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `repeatable`: it is idempotent."""

    method: str
    target: str
    lane: RequestLane = RequestLane.ORDINARY
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    data: bytes
    retry_after: float | None


class Transport:
    """Connections to one API server. Create it inside a running event loop and close it."""

    def __init__(self, access: Access, settings: Settings) -> None:
        self._access = access
        self._settings = settings
        ordinary, binds = (settings.qps, settings.burst), (settings.bind_qps, settings.bind_burst)
        rates = {
            RequestLane.WATCHES: (0.0, 1),
            RequestLane.BINDS: binds,
            RequestLane.LOW_PRIORITY: ordinary,
            RequestLane.ORDINARY: ordinary,
        }
        self._limits = {lane: RateLimit(*rate) for lane, rate in rates.items()}
        self._sessions = {lane: self._session(lane) for lane in RequestLane}
        self._timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._low_priority = YieldingLimit(BESIDE_OTHERS, settings.connections)

    def _session(self, lane: RequestLane) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0 if lane is RequestLane.WATCHES else self._settings.connections,
            keepalive_timeout=KEEPALIVE_SECONDS,
            ssl=self._access.tls or True,
        )
        # Inside a data centre, compression costs both sides more CPU than the saved bytes are worth.
        headers = {"User-Agent": f"pykai/{__version__}", "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()

    async def send(self, request: Request) -> bytes:
        """Return the body of the response; raise the ApiError if it is not retriable or retries failed."""
        for attempt in itertools.count(1):
            await self._limits[request.lane].take()
            outcome = await self._in_lane(request, attempt)
            if isinstance(outcome, bytes):
                return outcome
            failure, again = outcome
            if not again or attempt == TRIES:
                raise failure
            await asyncio.sleep(min(LONGEST_WAIT_SECONDS, max(failure.retry_after, BACKOFF.after(attempt))))
        raise AssertionError("the loop above has no end")

    async def _in_lane(self, request: Request, attempt: int) -> bytes | tuple[ApiError, bool]:
        if request.lane is RequestLane.LOW_PRIORITY:
            async with self._low_priority.turn():
                return await self._attempt(request, attempt)
        with self._low_priority.urgent():
            return await self._attempt(request, attempt)

    async def _attempt(self, request: Request, attempt: int) -> bytes | tuple[ApiError, bool]:
        """Return the body of the response, or the error and whether to retry."""
        try:
            async with self._sessions[request.lane].request(
                request.method,
                self._url(request),
                data=request.body,
                headers=self._headers(request),
                timeout=self._timeout,
            ) as answer:
                response = await _read_response(answer)
        except aiohttp.ClientConnectorError as error:
            return _unreachable(error), True
        except TimeoutError:
            return Timeout(f"no answer to {request.method} {request.target}"), request.repeatable
        except (aiohttp.ClientError, OSError) as error:
            return _unreachable(error), request.repeatable
        return response.data if response.status < 400 else self._failure(request, response, attempt)

    async def lines(self, request: Request) -> AsyncIterator[bytes | None]:
        """Yield None when the server has accepted the request, then the lines of the stream as they arrive.

        Raises Timeout if nothing arrives for `watch_idle_seconds`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=self._settings.watch_idle_seconds
        )
        try:
            async with self._sessions[request.lane].get(
                self._url(request), headers=self._headers(request), timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise self._failure(request, await _read_response(response), 1)[0]
                yield None
                rest = b""
                async for chunk in response.content.iter_any():
                    *complete, rest = (rest + chunk).split(b"\n")
                    for line in complete:
                        yield line
        except TimeoutError as error:
            raise Timeout(f"the stream {request.target} was silent for too long") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    def _url(self, request: Request) -> URL:
        return URL(self._access.server + request.target, encoded=True)

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if token := self._access.token.current(time.monotonic()):
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _failure(self, request: Request, response: _Response, attempt: int) -> tuple[ApiError, bool]:
        """Return the error, and whether to retry."""
        failure = error_from(response.data, response.status)
        if isinstance(failure, Unauthorized):
            return failure, self._access.token.refused() and attempt == 1
        if response.retry_after is not None:
            failure.details.setdefault("retryAfterSeconds", response.retry_after)
            return failure, response.status == 429 or response.status >= 500
        return failure, response.status >= 500 and request.repeatable


async def _read_response(response: aiohttp.ClientResponse) -> _Response:
    wait = response.headers.get("Retry-After", "")
    return _Response(response.status, await response.read(), float(wait) if wait.isdigit() else None)


def _unreachable(error: Exception) -> Unavailable:
    return Unavailable(f"the API server cannot be reached: {error or type(error).__name__}")


# --------------------------------------------------------------------------------------------------------------- limits
class RateLimit:
    """A token bucket: on average at most `qps` requests a second, and `burst` at once; `qps` 0 is no limit."""

    def __init__(self, qps: float, burst: int) -> None:
        if qps < 0 or (qps > 0 and burst < 1):
            raise ValueError(f"rate limit: qps must not be negative and burst at least 1, got {qps} and {burst}")
        self._interval = 1.0 / qps if qps else 0.0
        self._burst_seconds = self._interval * burst
        self._reserved_until = 0.0

    async def take(self) -> None:
        """Return when the next request may be sent."""
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        self._reserved_until = max(self._reserved_until, now) + self._interval
        wait = self._reserved_until - self._burst_seconds - now
        if wait > 0:
            await asyncio.sleep(wait)


class YieldingLimit:
    """Admits `most` callers at once, first come first served, but only `least` while urgent requests are in flight.

    Urgent requests come in bursts, so the lower limit lasts for LINGER_SECONDS after the last of them.
    """

    def __init__(self, least: int, most: int) -> None:
        if not 1 <= least <= most:
            raise ValueError(f"1 <= least <= most must hold, got {least} and {most}")
        self._least = least
        self._most = most
        self._urgent = 0
        self._admitted = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Count an urgent request while the block runs."""
        self._urgent += 1
        try:
            yield
        finally:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._urgent_done)

    def _urgent_done(self) -> None:
        self._urgent -= 1
        self._admit_waiting()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for admission; hold it while the block runs."""
        if self._waiting or self._capacity() <= 0:
            await self._wait_for_admission()
        else:
            self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1
            self._admit_waiting()

    async def _wait_for_admission(self) -> None:
        """Return when this caller is admitted; `_admit_waiting` has counted it."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._admitted -= 1
            self._admit_waiting()
            raise

    def _capacity(self) -> int:
        return (self._least if self._urgent else self._most) - self._admitted

    def _admit_waiting(self) -> None:
        """Wake as many waiters as the limit allows now."""
        while self._waiting and (self._waiting[0].done() or self._capacity() > 0):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._admitted += 1
                waiter.set_result(None)
