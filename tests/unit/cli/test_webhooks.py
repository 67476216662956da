"""Webhooks that look after themselves: certificate, registration, and being called."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pykai.admission.pod_rules import PodSettings
from pykai.admission.review import AdmissionRules
from pykai.cli.admission import (
    POD_GROUPS,
    PODS,
    QUEUES,
    Webhooks,
    WebhookSettings,
    put_configuration,
    watched_queues,
)
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from pykai.kube.errors import Conflict
from pykai.kube.informer import InformerFactory
from tests.timeouts import TIMEOUT_SECONDS
from tests.unit.controllers.live import DiaryApi, make_queue

MUTATING = MUTATING_WEBHOOK.ref("mutating-kai-admission")
HOST = "127.0.0.1"


def settings(folder: Path, paths: Any = (*PODS, *QUEUES, *POD_GROUPS)) -> WebhookSettings:
    return WebhookSettings(paths, host=HOST, port=0, certificates=folder, own_host=HOST)


@contextlib.asynccontextmanager
async def serving(api: DiaryApi, admission: AdmissionRules, folder: Path) -> AsyncIterator[None]:
    ready = asyncio.Event()
    task = asyncio.create_task(Webhooks(api, admission, settings(folder)).run(ready))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await ready.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def call(config: Object, webhook: int, item: Object, namespace: str = "default") -> Object:
    """What the API server does: call the registered address, trusting the registered authority."""
    client = config["webhooks"][webhook]["clientConfig"]
    trust = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())
    request = {"uid": "1", "operation": "CREATE", "namespace": namespace, "object": item}
    async with (
        aiohttp.ClientSession() as session,
        session.post(client["url"], json={"request": request}, ssl=trust) as answer,
    ):
        response: Object = (await answer.json())["response"]
        return response


async def test_a_server_makes_its_certificate_registers_and_can_be_called(tmp_path: Path) -> None:
    api = DiaryApi()
    async with serving(api, AdmissionRules(PodSettings(gpu_sharing=False)), tmp_path):
        config = await api.get(VALIDATING_WEBHOOK.ref("validating-kai-admission"), Object)
        pod = {
            "metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]},
        }
        refusal = await call(config, 0, pod)
        assert not refusal["allowed"]
        assert "while GPU sharing is disabled" in refusal["status"]["message"]
        found = await api.list(VALIDATING_WEBHOOK, Object)
        assert sorted(item["metadata"]["name"] for item in found.items) == [
            "kai-podgroup-validation-v2alpha2",
            "kai-queue-validation-v2",
            "validating-kai-admission",
        ]


async def test_queues_are_judged_by_the_queues_there_are(tmp_path: Path) -> None:
    api = DiaryApi()
    await make_queue(api, "parent", parent="child")
    watches = InformerFactory(api)
    queues = watched_queues(watches)
    running = asyncio.create_task(watches.run())
    await watches.synced()
    async with serving(api, AdmissionRules(queues=queues), tmp_path):
        config = await api.get(VALIDATING_WEBHOOK.ref("kai-queue-validation-v2"), Object)
        child = {"metadata": {"name": "child"}, "spec": {"parentQueue": "parent", "resources": {}}}
        refusal = await call(config, 0, child)
        assert "cycle of queues" in refusal["status"]["message"]
    running.cancel()


async def test_a_restart_keeps_the_certificate_and_tells_the_new_address(tmp_path: Path) -> None:
    api = DiaryApi()
    async with serving(api, AdmissionRules(), tmp_path):
        first = (await api.get(MUTATING, Object))["webhooks"][0]["clientConfig"]
    injected = {"key": "cloud.example.com/skip", "operator": "DoesNotExist"}
    patch = [{"op": "add", "path": "/webhooks/0/namespaceSelector/matchExpressions/-", "value": injected}]
    await api.patch(MUTATING, Patch.json(patch))
    async with serving(api, AdmissionRules(), tmp_path):
        again = (await api.get(MUTATING, Object))["webhooks"][0]
    assert first["caBundle"] == again["clientConfig"]["caBundle"]
    assert first["url"] != again["clientConfig"]["url"]
    assert injected in again["namespaceSelector"]["matchExpressions"]


async def test_what_is_registered_is_not_written_again() -> None:
    api = DiaryApi()
    wanted = {"metadata": {"name": "x"}, "webhooks": []}
    await put_configuration(api, MUTATING_WEBHOOK, wanted)
    version = (await api.get(MUTATING_WEBHOOK.ref("x"), Object))["metadata"]["resourceVersion"]
    await put_configuration(api, MUTATING_WEBHOOK, wanted)
    assert (await api.get(MUTATING_WEBHOOK.ref("x"), Object))["metadata"]["resourceVersion"] == version


async def test_a_registration_others_write_all_the_time_is_given_up() -> None:
    class Contested(DiaryApi):
        async def update(self, ref: Any, body: Any) -> Object:
            raise Conflict("changed")

    api = Contested()
    await put_configuration(api, MUTATING_WEBHOOK, {"metadata": {"name": "x"}, "webhooks": []})
    with pytest.raises(Conflict, match="being written by others"):
        await put_configuration(
            api, MUTATING_WEBHOOK, {"metadata": {"name": "x", "labels": {"a": "b"}}, "webhooks": []}
        )
