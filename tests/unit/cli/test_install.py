"""What `kai all --install` and `kai local` make in a cluster."""

from __future__ import annotations

import time

from pykai.cli.install import install, objects
from pykai.kube.api import Body, Object, Resource
from pykai.kube.api_resources import PRIORITY_CLASS, QUEUE
from pykai.kube.errors import Unavailable
from pykai.kube.memory import MemoryApi


class WebhookDown(MemoryApi):
    """A server on which a webhook that is not up yet refuses every creation, once `down` is set."""

    down = False

    async def create(self, resource: Resource, body: Body, namespace: str = "") -> Object:
        if self.down:
            raise Unavailable("failed calling webhook")
        return await super().create(resource, body, namespace)


async def test_what_is_there_already_needs_no_webhook() -> None:
    api = WebhookDown(time.time)
    await install(api)
    child = await api.get(QUEUE.ref("default-queue"), Object)
    assert child["spec"]["parentQueue"] == "default-parent-queue"
    assert (await api.get(PRIORITY_CLASS.ref("build"), Object))["value"] == 100
    api.down = True
    await install(api)


def test_parents_come_before_children() -> None:
    queues = [body["metadata"]["name"] for resource, body in objects() if resource == QUEUE]
    assert queues == ["default-parent-queue", "default-queue"]
