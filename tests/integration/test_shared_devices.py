"""Sixteen pods with half a GPU each, created at once on a node with eight: two on every device, never more.

Also while scheduler and binder are killed at random moments. KAI_TEST_ROUNDS says how often each is repeated
(`make test-long`: 20).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.apps.install import install
from pykai.apps.reservation import on_hollow_nodes
from pykai.controllers.binder.groups import GroupKey
from pykai.controllers.binder.reservation_pod import name_for
from pykai.kube.api import Object
from pykai.kube.http import HttpApi
from pykai.kube.resources import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from pykai.local.cluster import ControlPlane
from pykai.local.habits import Habits
from pykai.local.kubelet import hollow_nodes
from pykai.local.shapes import GpuShape, NodeShape
from pykai.objects import names

from .component_processes import FLAGS, ComponentProcesses
from .conftest import Eventually, kubectl_on
from .mission_cluster import Mission, at_work, sharers
from .shared_devices import device_book

ROUNDS = int(os.environ.get("KAI_TEST_ROUNDS", "3"))
DEVICES = 8
HALVES = "gpu-sharing/sixteen-halves.yaml"


async def halves_run(mission: Mission, seconds: float = 30) -> None:
    """Wait until the sixteen run; then check that they lie two on a device and that each device is reserved once."""

    async def all_run() -> bool:
        return len(await mission.running("app=halves")) == 2 * DEVICES

    await mission.eventually(all_run, seconds)
    groups = sharers(await mission.list("pods"))
    assert list(groups.values()) == [2] * DEVICES
    reservations = await mission.reservations()
    assert {pod["metadata"]["name"] for pod in reservations} == {name_for(GroupKey(*group)) for group in groups}
    devices = [pod["metadata"]["annotations"][names.RESERVED_GPU_INDEX] for pod in reservations]
    assert len(set(devices)) == len(devices) == DEVICES


async def test_sixteen_halves_lie_two_on_a_device_again_and_again(mission: Mission, mission_cluster: Path) -> None:
    async with mission.cordoned("l4-0"), device_book(mission_cluster) as book:
        for _ in range(ROUNDS):
            await mission.apply(HALVES)
            await halves_run(mission)
            await mission.clear()
        assert book.most == 1


@pytest.fixture
async def processes(
    real_api: HttpApi, local_cluster: ControlPlane, tmp_path: Path, eventually: Eventually
) -> AsyncIterator[ComponentProcesses]:
    """Every component that a shared GPU needs, each a process, and one node with eight GPUs."""
    await install(real_api)
    parts = ComponentProcesses(Path(local_cluster.site.kubeconfig), tmp_path)
    habits = Habits(stop_seconds=0.1, on_start=on_hollow_nodes(lambda: real_api))
    try:
        async with hollow_nodes(real_api, [NodeShape("dgx-0", GpuShape(DEVICES))], habits):
            for name in FLAGS:
                await parts.start(name)
            await eventually(lambda: "webhooks registered" in parts.log("admission"), 30)
            yield parts
            await parts.close()
    finally:
        for resource in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK):
            for item in (await real_api.list(resource, Object)).items:
                await real_api.delete(resource.ref(item["metadata"]["name"]))


@pytest.mark.parametrize("victims", [("scheduler",), ("binder",), ("scheduler", "binder")], ids="+".join)
async def test_kills_at_random_moments_change_nothing(
    processes: ComponentProcesses, local_cluster: ControlPlane, eventually: Eventually, victims: tuple[str, ...]
) -> None:
    kubeconfig = Path(local_cluster.site.kubeconfig)
    async with at_work(kubectl_on(kubeconfig), eventually) as mission, device_book(kubeconfig) as book:
        for seed in range(max(1, ROUNDS // 3)):
            chance = random.Random(f"{victims} {seed}")
            await mission.apply(HALVES)
            for _ in range(3):
                await asyncio.sleep(chance.uniform(0.0, 0.5))
                for victim in victims:
                    await processes.kill(victim)
                    await processes.start(victim)
                await _at_work_again(mission, chance)
            await halves_run(mission)
            await mission.clear()
        assert book.most == 1


async def _at_work_again(mission: Mission, chance: random.Random) -> None:
    """Wait until something happens again, so that the next kill meets work under way: a further pod runs, or all do."""
    before = len(await mission.running("app=halves"))

    async def goes_on() -> bool:
        now = len(await mission.running("app=halves"))
        return now > before or now == 2 * DEVICES

    await mission.eventually(goes_on, 30)
