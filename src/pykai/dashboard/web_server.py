"""The HTTP server of the dashboard: authentication, routes and security headers.

Started from a shell, it listens on loopback and serves clients that have the secret of the printed address; requests
for another host are rejected, which prevents DNS rebinding. In the cluster every user signs in. Pages load nothing from
other origins, run no inline scripts, and cannot be framed or read by other sites.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from hmac import compare_digest
from importlib.resources import files
from time import monotonic

import jinja2
import msgspec
from aiohttp import web

from pykai import __version__
from pykai.config.fields import FieldError
from pykai.dashboard import answers, pages
from pykai.dashboard.access import (
    Gate,
    LoopbackGate,
    SignInGate,
    Viewer,
    bearer_token,
    is_own_host,
    is_same_site,
)
from pykai.dashboard.board import Board
from pykai.dashboard.pages import PageNotFoundError, Query, Variables
from pykai.dashboard.redaction import RedactedView
from pykai.kube.errors import ApiError
from pykai.observe.http import listening

COOKIE = "kai-dashboard"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STATIC = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_BYTES = 1 << 20
"""The size limit of a pasted manifest."""
SSE_SECONDS = 0.25
"""The minimum time between two messages to one browser."""
PING_SECONDS = 15.0
QUESTIONS = 2
"""The limit of concurrent remedy searches and what-if requests."""
NAVIGATION = (
    ("queues", "Queues"),
    ("devices", "Devices"),
    ("waiting", "Waiting"),
    ("evictions", "Evictions"),
    ("what-if", "What if"),
)
_NO_QUESTION: Variables = {"question": answers.Question(), "outcome": None, "problem": ""}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


VIEWER = web.RequestKey("viewer", Viewer)


class Dashboard:
    """The web application for one board."""

    def __init__(self, board: Board, gate: Gate) -> None:
        self.board, self.gate = board, gate
        self._questions = asyncio.Semaphore(QUESTIONS)
        self._environment = environment()

    def application(self) -> web.Application:
        """Return the application with all routes and the authentication middleware."""
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/", self._home),
                web.get("/healthz", _healthy),
                web.get("/readyz", self._ready),
                web.get("/static/{name}", _static),
                web.get("/sign-in", self._sign_in_page),
                web.post("/sign-in", self._sign_in),
                web.post("/sign-out", self._sign_out),
                web.get("/queues", self._page("queues", pages.queues)),
                web.get("/queues/{name}", self._page("queue", pages.queue)),
                web.get("/devices", self._page("devices", pages.devices)),
                web.get("/devices.json", self._device_columns),
                web.get("/devices/{name}", self._page("node", pages.node)),
                web.get("/waiting", self._page("waiting", pages.waiting)),
                web.get("/evictions", self._page("evictions", pages.evictions)),
                web.get("/workloads/{namespace}/{name}", self._page("workload", pages.workload)),
                web.get("/workloads/{namespace}/{name}/explanation", self._explanation),
                web.get("/what-if", self._page("what-if", lambda *_: _NO_QUESTION)),
                web.post("/what-if", self._what_if),
                web.get("/events", self._events),
            ]
        )
        return app

    # ------------------------------------------------------------------------------------------------------------ gate
    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject other hosts and sites, authenticate the request, and set the headers of every response."""
        try:
            response = await self._authenticate(request, handler)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        except PageNotFoundError as error:
            response = await self._error_page(request, 404, "Not found", str(error))
        except ApiError as error:
            response = await self._error_page(request, 503, "The API server does not answer", error.message)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if isinstance(self.gate, LoopbackGate) and not is_own_host(request):
            raise web.HTTPMisdirectedRequest(text="this dashboard answers on loopback only")
        if request.method != "GET" and not is_same_site(request):
            raise web.HTTPForbidden(text="a request of another site")
        if request.path in ("/healthz", "/readyz", "/sign-in") or request.path.startswith("/static/"):
            return await handler(request)
        viewer = await self._viewer(request)
        if viewer is None:
            return await self._unauthenticated(request)
        if viewer.sees_nothing:
            why = f"{viewer.name} may list no pods, queues or nodes in this cluster."
            return await self._error_page(request, 403, "Access denied", why, viewer)
        request[VIEWER] = viewer
        return await handler(request)

    async def _viewer(self, request: web.Request) -> Viewer | None:
        """Return the user of a request; None if it is not authenticated."""
        given = request.cookies.get(COOKIE, "")
        if isinstance(self.gate, LoopbackGate):
            return Viewer() if compare_digest(given.encode(), self.gate.secret.encode()) else None
        token = bearer_token(request) or self.gate.sessions.token(given)
        user = await self.gate.reviews.user(token) if token else None
        if user is None:
            return None
        moment = self.board.moment()
        namespaces = set(moment.decided.snapshot.gangs.namespaces) if moment else set[str]()
        namespaces |= {each.namespace for each in self.board.evictions()}
        namespaces |= {each.evictor_namespace for each in self.board.evictions()} - {""}
        return await self.gate.reviews.viewer(user, namespaces)

    async def _unauthenticated(self, request: web.Request) -> web.StreamResponse:
        """Answer an unauthenticated request: start the session if it has the secret, or redirect to sign in."""
        if isinstance(self.gate, SignInGate):
            if bearer_token(request) or _fragment(request) or request.path == "/events":
                raise web.HTTPUnauthorized(text="sign in", headers={"WWW-Authenticate": "Bearer"})
            raise web.HTTPSeeOther("/sign-in")
        given = request.query.get("token", "")
        if not compare_digest(given.encode(), self.gate.secret.encode()):
            why = "Open the address that `kai dashboard` printed: it ends with ?token=…"
            return await self._error_page(request, 401, "Sign in", why)
        answer = web.HTTPSeeOther(request.path)
        answer.set_cookie(COOKIE, given, httponly=True, samesite="Strict")
        raise answer

    # --------------------------------------------------------------------------------------------------------- sign in
    async def _sign_in_page(self, request: web.Request) -> web.StreamResponse:
        if isinstance(self.gate, LoopbackGate):
            raise web.HTTPSeeOther("/")
        return await self._render(request, "sign-in", {"problem": ""}, Viewer())

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        gate = self.gate
        if isinstance(gate, LoopbackGate):
            raise web.HTTPNotFound
        token = str((await request.post()).get("token", "")).strip()
        if not token or await gate.reviews.user(token) is None:
            problem = "The API server does not accept this token." if token else "Paste a token."
            return await self._render(request, "sign-in", {"problem": problem}, Viewer(), 401)
        answer = web.HTTPSeeOther("/")
        secure = gate.secure or request.headers.get("X-Forwarded-Proto") == "https"
        answer.set_cookie(COOKIE, gate.sessions.begin(token), httponly=True, samesite="Strict", secure=secure)
        raise answer

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        if isinstance(self.gate, SignInGate):
            self.gate.sessions.end(request.cookies.get(COOKIE, ""))
        answer = web.HTTPSeeOther("/sign-in")
        answer.del_cookie(COOKIE)
        raise answer

    # ----------------------------------------------------------------------------------------------------------- pages
    async def _home(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPSeeOther("/queues")

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        if self.board.moment() is None:
            return web.Response(status=503, text="\n".join(self.board.problems) or "nothing was read yet")
        return web.Response(text="ok")

    def _page(self, name: str, variables: Callable[[RedactedView, Query], Variables]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            view = self._view(request)
            if view is None:
                return await self._render(request, "nothing", {}, request[VIEWER], 503)
            found = await asyncio.to_thread(variables, view, {**request.query, **request.match_info})
            return await self._render(request, name, {**found, "view": view}, request[VIEWER])

        return answer

    def _view(self, request: web.Request) -> RedactedView | None:
        at = _instant(request.query)
        moment = self.board.moment(at)
        return None if moment is None else RedactedView(self.board, moment, request[VIEWER], at)

    async def _render(
        self, request: web.Request, name: str, found: Variables, viewer: Viewer, status: int = 200
    ) -> web.Response:
        made = await asyncio.to_thread(self._text, request, name, found, viewer)
        response = web.Response(text=made, content_type="text/html", status=status)
        response.headers["Cache-Control"] = "no-store"
        response.enable_compression()
        return response

    def _text(self, request: web.Request, name: str, found: Variables, viewer: Viewer) -> str:
        at, instants = _instant(request.query), self.board.moments
        shown = found.get("view")
        common = {
            "page": 0,
            "name": name,
            "fragment": _fragment(request),
            "title": self.board.title,
            "problems": self.board.problems,
            "viewer": viewer,
            "signed_in": isinstance(self.gate, SignInGate) and name != "sign-in",
            "navigation": NAVIGATION,
            "version": __version__,
            "at": at,
            "now": shown.at if shown else None,
            "revision": shown.moment.revision if shown else 0,
            "instants": instants if len(instants) > 1 else (),
            "keep": f"at={at:.3f}" if at is not None else "",
            "path": request.path,
        }
        return self._environment.get_template(f"{name}.html").render({**common, **found})

    async def _error_page(
        self, request: web.Request, status: int, heading: str, text: str, viewer: Viewer | None = None
    ) -> web.Response:
        found = {"heading": heading, "text": text}
        return await self._render(request, "problem", found, viewer or Viewer(), status)

    async def _device_columns(self, request: web.Request) -> web.StreamResponse:
        view = self._view(request)
        if view is None:
            raise web.HTTPServiceUnavailable
        body = await asyncio.to_thread(lambda: msgspec.json.encode(pages.device_columns(view)))
        response = web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})
        response.enable_compression()
        return response

    # ------------------------------------------------------------------------------------------------------- questions
    async def _explanation(self, request: web.Request) -> web.StreamResponse:
        """Return why a workload is pending and its remedies, as a fragment: the search may take seconds."""
        view = self._view(request)
        gang = request.match_info["namespace"], request.match_info["name"]
        if view is None or view.workload(gang) is None:
            raise PageNotFoundError(f"There is no workload {gang[0]}/{gang[1]}.")
        async with self._questions:
            found = await asyncio.to_thread(answers.explanation, view, gang)
        return await self._render(request, "explanation", {"answer": found, "view": view}, request[VIEWER])

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        """Return the effects of a manifest and changes; nothing is written."""
        view = self._view(request)
        if view is None:
            return await self._render(request, "nothing", {}, request[VIEWER], 503)
        given = await request.post()
        question = answers.Question(str(given.get("manifest", "")), str(given.get("changes", "")))
        problem, found = "", None
        try:
            async with self._questions:
                found = await asyncio.to_thread(answers.answer, view, question)
        except (FieldError, ValueError) as error:
            problem = view.text(str(error))
        result = {"question": question, "outcome": found, "problem": problem, "view": view}
        return await self._render(request, "what-if", result, request[VIEWER], 422 if problem else 200)

    # ---------------------------------------------------------------------------------------------------------- events
    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the revision of each newer moment as server-sent events; comments in between detect dead connections."""
        headers = {
            **HEADERS,
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        asked = request.headers.get("Last-Event-ID") or request.query.get("revision", "")
        revision = int(asked) if asked.isdecimal() and len(asked) < 16 else 0
        await response.write(b"retry: 2000\n\n")
        began = monotonic()
        while monotonic() - began < 3600 and await self._viewer(request) is not None:  # the token may have expired
            try:
                async with asyncio.timeout(PING_SECONDS):
                    revision = await self.board.newer_than(revision)
            except TimeoutError:
                await response.write(b": still here\n\n")
                continue
            await response.write(f"id: {revision}\nevent: moment\ndata: {revision}\n\n".encode())
            await asyncio.sleep(SSE_SECONDS)
        return response


def environment() -> jinja2.Environment:
    """Return the template environment with the filters of `pages`; everything is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("pykai.dashboard", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(pages.FILTERS)
    return made


# ------------------------------------------------------------------------------------------------------------- requests
def _instant(query: Mapping[str, str]) -> float | None:
    try:
        at = float(query["at"])
    except (KeyError, ValueError):
        return None
    return at if 0 <= at < 1e12 else None


def _fragment(request: web.Request) -> bool:
    return request.headers.get("X-Fragment") == "1"


async def _healthy(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _static(request: web.Request) -> web.StreamResponse:
    """Serve a file of the package."""
    name = request.match_info["name"]
    kind = STATIC.get(name[name.rfind(".") :])
    file = files("pykai.dashboard").joinpath("static", name)
    if kind is None or "/" in name or not file.is_file():
        raise web.HTTPNotFound
    response = web.Response(body=file.read_bytes(), content_type=kind, charset="utf-8")
    response.headers["Cache-Control"] = "no-cache"
    response.headers["ETag"] = f'"{__version__}-{name}"'
    response.enable_compression()
    return response


def serving(
    dashboard: Dashboard, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AbstractAsyncContextManager[int]:
    """Serve while the block runs; yield the port, which the kernel chooses if `port` is 0."""
    return listening(dashboard.application(), port, host or None, tls, shutdown_seconds=1.0)
