"""Runs an operator on a local cluster: applies its CRDs, starts its process and registers its webhooks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiohttp
import yaml

from pykai.admission.certificates import ServingCredentials, issue
from pykai.hollow.hollow_node import HOST
from pykai.kube.api import Api, Object, Patch
from pykai.kube.api_resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from pykai.kube.operations import MANAGER, define
from pykai.local.cluster_session import LocalComponent, connect
from pykai.local.clusters import ClusterError, free_ports
from pykai.local.containers import Command, running_process
from pykai.local.control_plane import tail
from pykai.local.operators import OPERATORS, Operator, Place

_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0
_WEBHOOKS = {each.kind: each for each in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK)}


def component(name: str, binary: Path) -> LocalComponent:
    """Return the operator of this name as a component of a local cluster; `binary`: built from its module."""
    return LocalComponent(name, partial(_run, OPERATORS[name], name, binary))


async def _run(operator: Operator, name: str, binary: Path, kubeconfig: Path, ready: asyncio.Event) -> None:
    """Apply its CRDs, run it, and set `ready` once it is healthy and its webhooks are registered."""
    ports = free_ports()
    place = Place(kubeconfig.parent / "operators" / name, kubeconfig, ports.etcd, ports.api)
    place.certificates.mkdir(parents=True, exist_ok=True)
    credentials = issue([HOST], datetime.now(UTC))
    (place.certificates / "tls.crt").write_bytes(credentials.certificate)
    (place.certificates / "tls.key").write_bytes(credentials.key)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(place.directory)}
    command = Command([str(binary), *operator.flags(place)], environment, place.directory)
    files, log = binary.parent / "files", kubeconfig.parent / "logs" / f"{name}.log"
    async with connect(kubeconfig) as api:
        await define(api, _documents(files, operator.definitions))
        with log.open("a", buffering=1) as output:

            def write(line: str) -> None:
                output.write(f"{line}\n")

            async with running_process(command, write, lambda: _STOP_SECONDS) as process:
                ended = asyncio.create_task(process.wait(), name="ended")
                serving = asyncio.create_task(_serve(api, operator, files, place, credentials))
                await asyncio.wait([ended, serving], return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                    ready.set()
                serving.cancel()
                code = await ended
    raise ClusterError(f"it ended with code {code}; the end of {log}:\n{tail(log)}")


async def _serve(api: Api, operator: Operator, files: Path, place: Place, credentials: ServingCredentials) -> None:
    """Wait until the operator is healthy, then register its webhooks."""
    probe = f"http://{operator.health or f'{place.health}/readyz'}"
    async with aiohttp.ClientSession() as session:
        while not await _is_healthy(session, probe):
            await asyncio.sleep(_POLL_SECONDS)
    if not operator.webhooks:
        return
    while not await _is_listening(place.webhook_port):
        await asyncio.sleep(_POLL_SECONDS)
    for document in _documents(files, operator.webhooks):
        resource = _WEBHOOKS[document["kind"]]
        name = f"{place.directory.name}-{document['metadata']['name']}"
        hooks = [_on_loopback(hook, operator.pods_with, place, credentials) for hook in document["webhooks"]]
        wanted = {**document, "metadata": {"name": name}, "webhooks": hooks}
        await api.patch(resource.ref(name), Patch.apply(wanted, MANAGER))


def _on_loopback(hook: Object, pods_with: str, place: Place, credentials: ServingCredentials) -> Object:
    """Return a webhook with a loopback address; one for pods only selects those of its operator."""
    url = f"https://{HOST}:{place.webhook_port}{hook['clientConfig']['service']['path']}"
    client = {"url": url, "caBundle": base64.b64encode(credentials.authority).decode()}
    for_pods = any("pods" in rule["resources"] for rule in hook["rules"])
    selector = {"matchExpressions": [{"key": pods_with, "operator": "Exists"}]}
    return {**hook, "clientConfig": client, **({"objectSelector": selector} if for_pods else {})}


async def _is_healthy(session: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
            return answer.status == 200
    return False


async def _is_listening(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        return True
    return False


def _documents(files: Path, pattern: str) -> list[Object]:
    files_read = (yaml.safe_load_all(path.read_text()) for path in sorted(files.glob(pattern)))
    return [document for documents in files_read for document in documents if document]
