"""Scheduler and binder in one process: plain pods are bound without a request, all others and all failures with one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from pykai.kube.api import Body, Object, Patch, Ref
from pykai.kube.api_resources import BIND_REQUEST, NODE, POD
from pykai.kube.clock import Clock
from pykai.kube.errors import ApiError, Conflict, Forbidden, Timeout, TooManyRequests, Unavailable
from pykai.kube.operations import bind

from .rig import FlakyWritesApi, RecordingApi, Rig, furnish, node, pod, rig, submit

pytestmark = pytest.mark.virtual_time


async def node_of(it: Rig, name: str) -> str:
    found = await it.seen(POD, name)
    return found["spec"].get("nodeName", "") if found else ""


async def reasons(it: Rig) -> set[tuple[str, str]]:
    return {(event["reason"], event["source"]["component"]) for event in await it.events()}


async def test_a_plain_pod_is_bound_without_a_request_and_everything_is_said() -> None:
    async with rig(direct=True) as it:
        await furnish(it.api)
        await submit(it.api, pod("p"))
        place = await it.until(lambda: node_of(it, "p"))
        await it.quiet()
        assert await it.requests() == []
        found = await it.seen(POD, "p")
        assert found is not None
        assert found["metadata"]["annotations"]["received-resource-type"] == "Regular"
        told = {(e["reason"], e["source"]["component"], e["message"]) for e in await it.events()}
        assert told == {
            ("Scheduled", "kai-scheduler", f"Successfully assigned pod team/p to node {place} at node-pool default"),
            ("Bound", "binder", f"Pod bound successfully to node {place}"),
        }
        assert it.api.count("post", "Pod") == 1


async def test_a_pod_that_needs_preparation_takes_a_request() -> None:
    async with rig(direct=True) as it:
        await furnish(it.api)
        await submit(it.api, pod("p", 0, annotations={"gpu-fraction": "0.5"}))
        await it.request("p")


async def test_a_pod_that_says_it_is_not_bound_takes_a_request_that_corrects_it() -> None:
    async with rig(direct=True) as it:
        await furnish(it.api, nodes=0)
        await submit(it.api, pod("p"))
        denied = {"type": "PodBound", "status": "False", "reason": "BindingError"}
        patch = Patch.strategic({"status": {"conditions": [denied]}})
        await it.api.patch(POD.ref("p", "team").sub("status"), patch)
        await it.api.create(NODE, node("node-0"))
        await it.request("p")

        async def corrected() -> bool:
            found = await it.seen(POD, "p")
            shown = {c["type"]: c["status"] for c in found["status"]["conditions"]} if found else {}
            return shown.get("PodBound") == "True"

        await it.until(corrected)


@pytest.mark.parametrize(
    "error", [Timeout("?"), Unavailable("?"), TooManyRequests("?"), ApiError("?"), Forbidden("no")]
)
async def test_a_bind_that_fails_is_made_by_a_request_for_the_same_node(error: ApiError) -> None:
    api = RecordingApi()
    api.failures["post", "Pod"] = [error]
    async with rig(api, direct=True) as it:
        await furnish(it.api)
        await submit(it.api, pod("p"))
        request = await it.request("p")
        assert await it.until(lambda: node_of(it, "p")) == request["spec"]["selectedNode"]
        await it.quiet()
        assert {("Scheduled", "kai-scheduler"), ("Bound", "binder")} == await reasons(it)


async def test_a_bind_whose_answer_is_lost_is_not_made_twice() -> None:
    class Losing(RecordingApi):
        async def post(self, ref: Ref, body: Body) -> Object:
            await super().post(ref, body)
            raise Timeout("lost")

    async with rig(Losing(), direct=True) as it:
        await furnish(it.api)
        await submit(it.api, pod("p"))
        request = await it.request("p")
        assert await node_of(it, "p") == request["spec"]["selectedNode"]
        await it.until(lambda: _phase(it, "p", "Succeeded"))
        assert it.api.count("post", "Pod") == 1


async def _phase(it: Rig, name: str, phase: str) -> bool:
    found = await it.seen(BIND_REQUEST, name)
    return bool(found) and ((found or {}).get("status") or {}).get("phase") == phase


async def test_in_doubt_the_place_stays_taken_although_the_request_is_refused() -> None:
    api = RecordingApi()
    api.failures["post", "Pod"] = [Timeout("?")]
    api.failures["create", "BindRequest"] = [Forbidden("no")]
    async with rig(api, direct=True) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"))
        await it.until(lambda: it.events("FailedBinding"))
        await submit(it.api, pod("b"))
        await it.quiet()
        assert await node_of(it, "b") == ""


async def test_a_pod_that_another_binds_meanwhile_stays_where_it_is() -> None:
    class Overtaken(RecordingApi):
        async def post(self, ref: Ref, body: Body) -> Object:
            await super().post(ref, {**body, "target": {"kind": "Node", "name": "node-1"}})  # type: ignore[dict-item]
            raise Conflict("already assigned")

    async with rig(Overtaken(), direct=True) as it:
        await furnish(it.api)
        await submit(it.api, pod("p"))
        assert await it.until(lambda: node_of(it, "p")) == "node-1"
        await it.quiet()
        assert await it.requests() == []


async def test_who_takes_over_counts_binds_the_watch_has_not_shown() -> None:
    class Blind(RecordingApi):
        """The watch does not show that pod `a` is bound."""

        async def list(self, resource: Any, into: Any, *rest: Any) -> Any:
            page = await super().list(resource, into, *rest)
            fresh = rest and rest[0].fields
            return (
                page if resource != POD or fresh or into is dict else replace(page, items=[*map(_unbound, page.items)])
            )

    api = Blind()
    await furnish(api, nodes=1, gpus=1)
    await submit(api, pod("a"), pod("b"))
    await bind(api, POD.ref("a", "team"), "node-0")
    async with rig(api, takes_over=True, direct=True) as it:
        await it.quiet()
        assert await node_of(it, "b") == ""
        assert api.count("post", "Pod") == 1, "the one of the earlier leader"


def _unbound(raw: Any) -> Any:
    found = msgspec.json.decode(raw)
    found["spec"].pop("nodeName", None)
    return msgspec.Raw(msgspec.json.encode(found))


async def test_a_place_is_not_given_out_again_because_the_watch_of_pods_is_late() -> None:
    class Hung(RecordingApi):
        """The watch of pods does not show binds."""

        async def watch(self, resource: Any, into: Any, where: Any = None, version: str = "") -> Any:
            async for event in super().watch(resource, into, where, version):
                if resource != POD or b"nodeName" not in bytes(event.object):
                    yield event

    late = 0.0
    asyncio.get_running_loop().clock = Clock(wall=lambda: time.time() + late)  # type: ignore[attr-defined]
    async with rig(Hung(), direct=True) as it:
        await furnish(it.api, nodes=1, gpus=1)
        await submit(it.api, pod("a"))
        await it.until(lambda: node_of(it, "a"))
        await it.quiet()
        late = 100.0
        await submit(it.api, pod("b"))
        await it.quiet()
        assert await node_of(it, "b") == ""


class FlakyBindsApi(FlakyWritesApi):
    """Fails binds as well."""

    async def post(self, ref: Ref, body: Body) -> Object:
        return await self.perhaps(partial(super().post, ref, body))


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_fails_every_pod_ends_on_one_node_and_no_node_is_overfull(seed: int) -> None:
    api = FlakyBindsApi(seed)
    await furnish(api, nodes=3, gpus=4)
    await submit(api, *(pod(f"whole-{n}") for n in range(8)))
    await submit(api, *(pod(f"gang-{n}", gang="gang") for n in range(4)), least=4)
    api.peace = False

    async def settled() -> bool:
        pods = (await api.list(POD, Object)).items
        held = Counter(p["spec"].get("nodeName", "") for p in pods)
        assert all(count <= 4 for node, count in held.items() if node), held
        return not held[""]

    for _ in range(4):
        async with rig(api, direct=True):
            await asyncio.sleep(0.1)
            await settled()
    api.peace = True
    async with rig(api, direct=True) as it:
        await it.until(settled)
