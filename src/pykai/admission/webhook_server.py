"""The HTTPS server of the webhooks: one path per kind of object, AdmissionReview v1.

Rules are pure and take microseconds, so they run on the event loop. The certificate is reloaded when its files change;
a server that issues its own also renews it. A body that is no AdmissionReview gets status 400.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from aiohttp import web

from pykai.admission.certificates import ReloadingContext
from pykai.admission.review import (
    HANDLERS,
    VALIDATE_RESIZE,
    AdmissionRequest,
    AdmissionRules,
    MalformedReviewError,
    judge,
    judge_resize,
    request_in,
    response_of,
)
from pykai.admission.verdict import AdmissionVerdict
from pykai.observe.http import listening

SERVING_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
_LARGEST_BODY = 16 * 1024 * 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Listen:
    """The address and certificate to serve; port 0 picks a free one.

    The certificate's files are checked every `look_every` seconds. `renew` is awaited before each check if the server
    issues its own certificate (`certificates.renew`); None: the files come from a Secret.
    """

    host: str = "0.0.0.0"
    port: int = 9443
    paths: Collection[str] = field(default_factory=lambda: tuple(HANDLERS))
    certificates: Path = SERVING_CERTIFICATES
    look_every: float = 10.0
    renew: Callable[[], Awaitable[object]] | None = None


class WebhookServer:
    """Serves the paths; use as `async with WebhookServer(admission, listen) as server`."""

    def __init__(self, admission: AdmissionRules, listen: Listen) -> None:
        unknown = sorted(set(listen.paths) - HANDLERS.keys())
        if unknown:
            raise ValueError(f"no webhook is served at {', '.join(unknown)}; known are {', '.join(HANDLERS)}")
        self._admission = admission
        self._listen = listen
        self._running = AsyncExitStack()
        self.port = 0
        """The port the server listens on; 0 before it does."""

    async def __aenter__(self) -> WebhookServer:
        """Start to listen; raise CertificateError without a usable certificate, OSError if the port is taken."""
        if self._listen.renew is not None:
            await self._listen.renew()
        certificate = ReloadingContext(self._listen.certificates)
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.add_routes([web.post(path, self._answer) for path in self._listen.paths])
        app.add_routes([web.get(path, _healthy) for path in ("/healthz", "/readyz")])
        serving = listening(app, self._listen.port, self._listen.host, certificate.context)
        self.port = await self._running.enter_async_context(serving)
        following = asyncio.create_task(self._follow(certificate))
        self._running.callback(following.cancel)
        log.info("webhook server started", port=self.port, paths=sorted(self._listen.paths))
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Finish in-flight requests and stop listening."""
        await self._running.aclose()

    async def _follow(self, certificate: ReloadingContext) -> None:
        while True:
            await asyncio.sleep(self._listen.look_every)
            try:
                if self._listen.renew is not None:
                    await self._listen.renew()
                if certificate.reload():
                    log.info("serving certificate reloaded", directory=str(self._listen.certificates))
            except Exception as problem:  # noqa: BLE001 - if `renew` fails, the certificate in use is kept
                log.warning("serving certificate kept, it could not be renewed", problem=str(problem))

    async def _answer(self, http: web.Request) -> web.Response:
        try:
            request = request_in(await http.read())
        except MalformedReviewError as problem:
            return web.Response(status=400, text=str(problem))
        if http.path == VALIDATE_RESIZE:
            verdict = await judge_resize(request, self._admission)
        else:
            verdict = judge(http.path, request, self._admission)
        _report(http.path, request, verdict)
        return web.Response(body=response_of(request, verdict), content_type="application/json")


async def _healthy(http: web.Request) -> web.Response:
    return web.Response(text="ok")


def _report(path: str, request: AdmissionRequest, verdict: AdmissionVerdict) -> None:
    item = request.object if isinstance(request.object, dict) else {}
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    shown = {"path": path, "operation": request.operation, "namespace": request.namespace, "name": name}
    if not verdict.allowed:
        log.info("request denied", **shown, reason=verdict.message)
    elif verdict.patch:
        log.debug("object mutated", **shown, operations=len(verdict.patch))
