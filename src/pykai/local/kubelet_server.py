"""The door a kubelet opens to the API server, for `kubectl logs`: one for all hollow nodes, on loopback with TLS.

The API server does not check the certificate of a kubelet unless told to, so a self-signed one of the moment will do.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykai.hollow.addresses import HOST
from pykai.hollow.pod_log import PodLog, Wish

FindLog = Callable[[str, str, str, bool], PodLog | None]


def self_signed() -> bytes:
    """A certificate for loopback and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hollow kubelets")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + secret


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        pem = Path(directory) / "kubelet.pem"
        pem.write_bytes(self_signed())
        context.load_cert_chain(pem)
    return context


def log_options(query: dict[str, str]) -> Wish:
    """The options in the query of a log request, with the API server's parameter names; ValueError if malformed."""
    since = time.time() - int(query["sinceSeconds"]) if "sinceSeconds" in query else 0.0
    if "sinceTime" in query:
        since = datetime.datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00")).timestamp()
    return Wish(
        tail=int(query["tailLines"]) if "tailLines" in query else None,
        since=since,
        follow=query.get("follow") == "true",
        timestamps=query.get("timestamps") == "true",
    )


async def _send_log(request: web.Request, find: FindLog) -> web.StreamResponse:
    namespace, pod, container = (request.match_info[part] for part in ("namespace", "pod", "container"))
    previous = request.query.get("previous") == "true"
    log = find(namespace, pod, container, previous)
    if log is None:
        what = "previous run of container" if previous else "container"
        raise web.HTTPBadRequest(text=f"there is no {what} {container!r} of pod {namespace}/{pod} here\n")
    try:
        options = log_options(dict(request.query))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for text in log.read(options):
        await response.write(text.encode())
    await response.write_eof()
    return response


@asynccontextmanager
async def serving(find: FindLog) -> AsyncIterator[int]:
    """Serve the logs that `find(namespace, pod, container, previous)` knows; gives the port."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _send_log(request, find)

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0, ssl_context=_tls())
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
