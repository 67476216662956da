"""Sixteen pods with half a GPU each, created at once on a node with eight: two on every device, never more.

Also while scheduler and binder are killed at random moments, in `make test-long` again and again.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykai.cli.install import install
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.controllers.binder.device_index import GroupKey
from pykai.controllers.binder.reservations import reservation_name
from pykai.hollow.hollow_node import GpuShape, NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object
from pykai.kube.api_resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from pykai.kube.client import HttpApi
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests.hollow_nodes import hollow_nodes

from .component_processes import FLAGS, ROUNDS, ComponentProcesses
from .conftest import Eventually, kubectl_on
from .mission_cluster import EXAMPLES, Mission, at_work, sharers
from .shared_devices import DeviceBook, device_book

TIMES = 20
DEVICES = 8
APP = "halves"
"""Name of the Deployment, and label of its pods."""
HALVES = "gpu-sharing/sixteen-halves.yaml"
VICTIMS = (("scheduler",), ("binder",), ("scheduler", "binder"))


async def apply_halves(mission: Mission) -> None:
    """The sixteen of the example, which need no time to end."""
    manifest = yaml.safe_load((EXAMPLES / HALVES).read_text())
    manifest["spec"]["template"]["metadata"]["annotations"][names.STOP_SECONDS] = "0"
    await mission.kubectl("apply", "-n", mission.namespace, "-f", "-", stdin=yaml.safe_dump(manifest))


def halves_run(book: DeviceBook) -> bool:
    """Whether the sixteen run."""
    pods = book.pods(app=APP)
    return len(pods) == 2 * DEVICES and {pod["status"]["phase"] for pod in pods} == {"Running"}


def reserved_once(book: DeviceBook) -> bool:
    """Whether the devices of the sixteen are reserved, and nothing else.

    A reservation that a killed binder had sent may come when its device is taken already; it stays until the next
    binder sees it.
    """
    groups = sharers(book.pods(app=APP))
    reserved = sorted(pod["metadata"]["name"] for pod in book.reservations())
    return reserved == sorted(reservation_name(GroupKey(*group)) for group in groups)


def check_places(book: DeviceBook) -> None:
    """The sixteen lie two on a device, and each device is reserved once."""
    assert list(sharers(book.pods(app=APP)).values()) == [2] * DEVICES
    reservations = book.reservations()
    devices = [pod["metadata"]["annotations"][names.RESERVED_GPU_INDEX] for pod in reservations]
    assert len(set(devices)) == len(devices) == DEVICES


async def end_halves(mission: Mission, book: DeviceBook) -> None:
    """Delete the Deployment and wait until nothing is left of them, reservations included."""
    await mission.kubectl("delete", "deployment", APP, "-n", mission.namespace, "--wait=false")
    await book.until(lambda: not book.pods(app=APP) and not book.reservations())


async def test_sixteen_halves_lie_two_on_a_device_again_and_again(mission: Mission, mission_cluster: Path) -> None:
    async with mission.cordoned("l4-0"), device_book(mission_cluster) as book:
        for _ in range(TIMES):
            await apply_halves(mission)
            await book.until(lambda: halves_run(book) and reserved_once(book))
            check_places(book)
            await end_halves(mission, book)
        assert book.most == 1


@pytest.fixture
async def processes(
    real_api: HttpApi, local_cluster: ControlPlane, tmp_path: Path, eventually: Eventually
) -> AsyncIterator[ComponentProcesses]:
    """Every component that a shared GPU needs, each a process, and one node with eight GPUs."""
    await install(real_api)
    parts = ComponentProcesses(Path(local_cluster.files.kubeconfig), tmp_path)
    settings = KubeletSettings(stop_seconds=0.1, on_start=on_hollow_nodes(lambda: real_api))
    try:
        async with hollow_nodes(real_api, [NodeShape("dgx-0", GpuShape(DEVICES))], settings):
            for name in FLAGS:
                await parts.start(name)
            await eventually(lambda: "webhooks registered" in parts.log("admission"))
            yield parts
            await parts.close()
    finally:
        for resource in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK):
            for item in (await real_api.list(resource, Object)).items:
                await real_api.delete(resource.ref(item["metadata"]["name"]))


async def test_kills_in_the_middle_of_work_change_nothing(
    processes: ComponentProcesses, local_cluster: ControlPlane, eventually: Eventually
) -> None:
    kubeconfig = Path(local_cluster.files.kubeconfig)
    async with at_work(kubectl_on(kubeconfig), eventually) as mission, device_book(kubeconfig) as book:
        for number in range(ROUNDS):
            await apply_halves(mission)
            for moment in moments(book, random.Random(number)):
                await moment
                for victim in VICTIMS[number % len(VICTIMS)]:
                    await processes.kill(victim)
                    await processes.start(victim)
            await book.until(lambda: halves_run(book) and reserved_once(book))
            check_places(book)
            await end_halves(mission, book)
        assert book.most == 1


def moments(book: DeviceBook, chance: random.Random) -> list[Coroutine[Any, Any, None]]:
    """Random moments from the first bind request to the last binding, in this order."""
    return [
        book.reached(book.requested, chance.randint(1, 2 * DEVICES)),
        book.reached(book.reserved, chance.randint(1, DEVICES)),
        book.reached(book.bound, chance.randint(1, 2 * DEVICES)),
    ]
