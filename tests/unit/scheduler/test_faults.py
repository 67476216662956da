"""Anything may fail at any time, answers may get lost, the scheduler may be killed: the end is right all the same."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.operations import bind

from .rig import FlakyWritesApi, RecordingApi, furnish, pod, rig, submit

pytestmark = pytest.mark.virtual_time

HALVES, WHOLES, GANG = 8, 4, 4


async def play_binder(api: FlakyWritesApi) -> None:
    """Bind what is requested; every fifth request fails for good."""
    while True:
        await asyncio.sleep(0.01)
        for request in (await api.list(BIND_REQUEST, Object)).items:
            name = request["metadata"]["name"]
            if (request.get("status") or {}).get("phase"):
                continue
            try:
                if not api.peace and api.chance.random() < 0.2:
                    outcome = {"phase": "Failed", "reason": "bad luck", "failedAttempts": 1}
                else:
                    uid = request["metadata"]["ownerReferences"][0]["uid"]
                    await bind(api, POD.ref(name, "team"), request["spec"]["selectedNode"], uid)
                    outcome = {"phase": "Succeeded"}
                await RecordingApi.patch(
                    api, BIND_REQUEST.ref(name, "team").sub("status"), Patch.merge({"status": outcome})
                )
            except (Conflict, NotFound, AlreadyExists):
                continue


def load(requests: list[Object]) -> Counter[str]:
    """What every device holds in hundredths, whole GPUs as one device of their own per node."""
    held: Counter[str] = Counter()
    for request in requests:
        for group in request["spec"].get("selectedGPUGroups") or ():
            held[group] += round(float(request["spec"]["receivedGPU"]["portion"]) * 100)
    return held


@pytest.mark.parametrize("seed", range(4))
async def test_everything_ends_well(seed: int) -> None:
    api = FlakyWritesApi(seed)
    await furnish(api, nodes=3, gpus=4)
    half = {"gpu-fraction": "0.5"}
    await submit(api, *(pod(f"half-{n}", 0, annotations=half) for n in range(HALVES)))
    await submit(api, *(pod(f"whole-{n}") for n in range(WHOLES)))
    await submit(api, *(pod(f"gang-{n}", gang="gang") for n in range(GANG)), least=GANG)
    everybody = HALVES + WHOLES + GANG
    api.peace = False
    binder = asyncio.create_task(play_binder(api))

    async def settled() -> bool:
        pods = (await api.list(POD, Object)).items
        requests = (await api.list(BIND_REQUEST, Object)).items
        assert max(load(list(requests)).values(), default=0) <= 100
        return len(pods) == everybody and all(p["spec"].get("nodeName") for p in pods) and len(requests) == everybody

    for _ in range(4):
        async with rig(api) as it:
            await asyncio.sleep(0.2)
            assert not binder.done()
    api.peace = True
    async with rig(api) as it:
        await it.until(settled)
        requests = await it.requests()
        used = Counter(
            request["spec"]["selectedNode"] for request in requests if request["spec"]["receivedGPU"]["count"]
        )
        groups = {g: r["spec"]["selectedNode"] for r in requests for g in r["spec"].get("selectedGPUGroups") or ()}
        whole = Counter(r["spec"]["selectedNode"] for r in requests if not r["spec"].get("selectedGPUGroups"))
        assert sum(used.values()) == everybody
        assert all(whole[node] + list(groups.values()).count(node) <= 4 for node in used)
    binder.cancel()
    await asyncio.gather(binder, return_exceptions=True)
