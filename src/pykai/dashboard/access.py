"""Access control: the API server decides what a user may list; its answers are cached for a minute.

Started from a shell, the dashboard listens on loopback with the permissions of its caller and serves every client that
has the secret of its address. In the cluster users sign in with a token: TokenReview authenticates the user,
SubjectAccessReview authorizes each list. Objects that a user may not list appear only in totals, without names.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web

from pykai.kube.api import Api, Resource
from pykai.kube.api_resources import NODE, POD, QUEUE
from pykai.kube.operations import User, review_access, review_token

KEPT_SECONDS = 60.0
AT_ONCE = 16
MOST_KEPT = 50_000
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 10_000
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
Clock = Callable[[], float]
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Viewer:
    """A user of the dashboard. `namespaces` None: all; `queues`, `nodes`: whether the user may list them."""

    name: str = ""
    namespaces: frozenset[str] | None = None
    queues: bool = True
    nodes: bool = True

    def sees(self, namespace: str) -> bool:
        """Whether names in a namespace are visible."""
        return self.namespaces is None or namespace in self.namespaces

    @property
    def sees_all(self) -> bool:
        """Whether nothing is redacted."""
        return self.namespaces is None and self.queues and self.nodes

    @property
    def sees_nothing(self) -> bool:
        """Whether only totals are visible."""
        return self.namespaces is not None and not self.namespaces and not self.queues and not self.nodes


@dataclass
class Reviews:
    """Reviews by the API server; each result is cached for a minute."""

    api: Api
    clock: Clock
    _users: dict[str, tuple[float, User | None]] = field(default_factory=dict)
    _allowed: dict[tuple[User, str, str], tuple[float, bool]] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None if the API server rejects the token."""
        now, known = self.clock(), self._users.get(token)
        if known is not None and now - known[0] < KEPT_SECONDS:
            return known[1]
        found = await review_token(self.api, token)
        _put(self._users, token, (now, found))
        return found

    async def viewer(self, user: User, namespaces: Iterable[str]) -> Viewer:
        """Return what a user may see of these namespaces, of queues and of nodes."""
        everything, queues, nodes = await asyncio.gather(
            self._may_list(user, POD, ""), self._may_list(user, QUEUE, ""), self._may_list(user, NODE, "")
        )
        if everything:
            return Viewer(user.name, None, queues, nodes)
        asked = sorted(set(namespaces))
        answers = await asyncio.gather(*(self._may_list(user, POD, namespace) for namespace in asked))
        seen = frozenset(namespace for namespace, allowed in zip(asked, answers, strict=True) if allowed)
        return Viewer(user.name, seen, queues, nodes)

    async def _may_list(self, user: User, resource: Resource, namespace: str) -> bool:
        key = (user, resource.qualified, namespace)
        now, known = self.clock(), self._allowed.get(key)
        if known is not None and now - known[0] < KEPT_SECONDS:
            return known[1]
        where = {"namespace": namespace} if namespace else {}
        attributes = {"verb": "list", "group": resource.group, "resource": resource.plural, **where}
        async with self._turns:
            allowed = await review_access(self.api, user, resourceAttributes=attributes)
        _put(self._allowed, key, (now, allowed))
        return allowed


def _put(kept: dict[K, V], key: K, value: V) -> None:
    if len(kept) >= MOST_KEPT:
        kept.clear()
    kept[key] = value


class Sessions:
    """Tokens of signed-in users by the secret in their cookie; kept in memory only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[str, tuple[float, str]] = {}

    def begin(self, token: str) -> str:
        """Begin a session and return its secret."""
        while len(self._tokens) >= MOST_SESSIONS:
            del self._tokens[next(iter(self._tokens))]
        made = secrets.token_urlsafe(32)
        self._tokens[made] = self._clock() + SESSION_SECONDS, token
        return made

    def token(self, secret: str) -> str | None:
        """Return the token of a session; None if it does not exist or has expired."""
        ends, token = self._tokens.get(secret, (0.0, ""))
        if self._clock() >= ends:
            self._tokens.pop(secret, None)
            return None
        return token

    def end(self, secret: str) -> None:
        """End a session."""
        self._tokens.pop(secret, None)


@dataclass(frozen=True)
class LoopbackGate:
    """Access on loopback: a client with the secret may see everything."""

    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))


@dataclass(frozen=True)
class SignInGate:
    """Access in the cluster: the API server authenticates tokens. `secure`: cookies only over TLS."""

    reviews: Reviews
    sessions: Sessions
    secure: bool = False


Gate = LoopbackGate | SignInGate


def bearer_token(request: web.Request) -> str:
    """Return the bearer token of a request; empty if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def is_own_host(request: web.Request) -> bool:
    """Whether the request names loopback as host, and not a foreign name that resolves to it."""
    host = request.headers.get("Host", "")
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    return (name if colon and port.isdecimal() else host) in LOOPBACK


def is_same_site(request: web.Request) -> bool:
    """Whether a form was sent by a page of the dashboard."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("Host", "")
