"""The NUMA placement exporter: what is decided, what is read from the kubelet, what is written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from pykai.controllers.numa_exporter import (
    MESSAGES,
    METHOD,
    Devices,
    Exporter,
    ExporterSettings,
    KubeletError,
    Memory,
    PodResources,
    TopologyError,
    kubelet,
    list_pod_resources,
    numa_of_cpus,
    parse_cpu_list,
    placement,
)
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import POD
from pykai.kube.errors import Unavailable
from pykai.objects import names
from tests.unit.controllers.live import DiaryApi, eventually, make_pod

CPUS = {0: 0, 1: 0, 130: 1}
GPUS = Devices("nvidia.com/gpu", 2, (0,))
POD_ON_TWO = PodResources("default", "p", (GPUS,), (0, 1, 130), (Memory("memory", 2**30, (1,)),))
TEXT = (
    '[{"zone":"node-0","amount":{"cpu":"2","nvidia.com/gpu":"2"}},'
    '{"zone":"node-1","amount":{"cpu":"1","memory":"1073741824"}}]'
)


# ------------------------------------------------------------------------------------------------------- decided
@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (POD_ON_TWO, TEXT),
        (PodResources("n", "p"), ""),
        (PodResources("n", "p", (Devices("x/y", 3, (0, 1)), Devices("x/y", 1, ()))), ""),
        (PodResources("n", "p", (GPUS, GPUS)), '[{"zone":"node-0","amount":{"nvidia.com/gpu":"4"}}]'),
        (
            PodResources("n", "p", memory=(Memory("", 1, (0,)), Memory("hugepages-2Mi", 2, (0,)))),
            '[{"zone":"node-0","amount":{"hugepages-2Mi":"2","memory":"1"}}]',
        ),
        (PodResources("n", "p", cpus=(7,)), ""),
    ],
)
def test_placement(pod: PodResources, expected: str) -> None:
    assert placement(pod, CPUS) == expected


def test_cpus_of_numa_nodes(tmp_path: Path) -> None:
    for node, cpus in (("node0", "0-3,8\n"), ("node1", "12-13\n"), ("power", "99\n")):
        folder = tmp_path / "devices/system/node" / node
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    assert numa_of_cpus(tmp_path) == {0: 0, 1: 0, 2: 0, 3: 0, 8: 0, 12: 1, 13: 1}
    with pytest.raises(TopologyError, match="no CPU of a NUMA node"):
        numa_of_cpus(tmp_path / "elsewhere")
    with pytest.raises(TopologyError, match="'a-b' is not a range"):
        parse_cpu_list("0,a-b")


# ---------------------------------------------------------------------------------------------------------- read
class Kubelet:
    """The gRPC service of a kubelet; `answer` is what it returns, or raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __mapping__(self) -> dict[str, Handler]:
        request, response = MESSAGES["ListPodResourcesRequest"], MESSAGES["ListPodResourcesResponse"]
        return {METHOD: Handler(self.list, Cardinality.UNARY_UNARY, request, response)}

    async def list(self, stream: Any) -> None:
        await stream.recv_message()
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.sleep(60)
        await stream.send_message(self.answer)


@contextlib.asynccontextmanager
async def serving(socket: Path, answer: Any) -> AsyncIterator[str]:
    server = Server([Kubelet(answer)])
    await server.start(path=str(socket))
    yield str(socket)
    server.close()
    await server.wait_closed()


def answer(pods: int = 1) -> Any:
    """What a kubelet returns for POD_ON_TWO, so many times."""
    container = {
        "devices": [{"resource_name": "nvidia.com/gpu", "device_ids": ["a", "b"], "topology": {"nodes": [{"id": 0}]}}],
        "cpu_ids": [0, 1, 130],
        "memory": [{"memory_type": "memory", "size": 2**30, "topology": {"nodes": [{"id": 1}]}}],
    }
    pod = {"name": "p", "namespace": "default", "containers": [container]}
    return json_format.ParseDict({"pod_resources": [pod] * pods}, MESSAGES["ListPodResourcesResponse"]())


async def test_pods_are_listed_over_a_socket(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", answer()) as socket:
        assert await kubelet(socket)() == [POD_ON_TWO]
        assert await kubelet(socket)() == [POD_ON_TWO], "every poll connects anew, as after a restart of the kubelet"


async def test_an_answer_larger_than_a_window_of_http2(tmp_path: Path) -> None:
    many = answer(60_000)
    assert many.ByteSize() > 4 * 2**20
    async with serving(tmp_path / "s", many) as socket:
        assert await kubelet(socket)() == [POD_ON_TWO] * 60_000


async def test_fields_of_newer_kubelets_are_skipped(tmp_path: Path) -> None:
    newer = answer()
    newer.pod_resources[0].containers[0].MergeFromString(b"\x98\x06\x01")  # field 99, a number
    async with serving(tmp_path / "s", newer) as socket:
        assert await kubelet(socket)() == [POD_ON_TWO]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (GRPCError(Status.UNIMPLEMENTED, "not here"), "refused the call: UNIMPLEMENTED, not here"),
        (RuntimeError("broken"), "refused the call: UNKNOWN, Internal Server Error"),
    ],
)
async def test_calls_that_are_refused(tmp_path: Path, refusal: Exception, reason: str) -> None:
    async with serving(tmp_path / "s", refusal) as socket:
        with pytest.raises(KubeletError, match=reason):
            await list_pod_resources(socket)


async def test_a_kubelet_that_is_silent_or_away_or_not_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", None) as socket:
        with pytest.raises(KubeletError, match=r"no answer .* in 0.05 s"):
            await list_pod_resources(socket, 0.05)
    with pytest.raises(KubeletError, match="absent"):
        await list_pod_resources(str(tmp_path / "absent"))

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(garbage, tmp_path / "other"):
        with pytest.raises(KubeletError):
            await list_pod_resources(str(tmp_path / "other"))


# ------------------------------------------------------------------------------------------------------- written
async def observed(api: DiaryApi) -> str | None:
    pod = await api.get(POD.ref("p", "default"), Object)
    value: str | None = (pod["metadata"].get("annotations") or {}).get(names.NUMA_OBSERVED)
    return value


@contextlib.asynccontextmanager
async def exporting(api: DiaryApi, pods: list[PodResources], drift: float = 0.0) -> AsyncIterator[None]:
    async def listed() -> list[PodResources]:
        return pods

    exporter = Exporter(api, listed, ExporterSettings("n", CPUS, 0.01, drift))
    task = asyncio.create_task(exporter.run(asyncio.Event()))
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_placement_is_written_once_and_again_when_it_changes() -> None:
    api, pods = DiaryApi(), [POD_ON_TWO, PodResources("default", "gone", (GPUS,))]
    await make_pod(api, "p", spec={"nodeName": "n"})
    async with exporting(api, pods):
        await eventually(lambda: observed(api))
        assert await observed(api) == TEXT
        await asyncio.sleep(0.05)
        assert [write for write in api.writes if write[2] == "p" and write[0] == "patch"] == [("patch", "Pod", "p")]
        pods[0] = PodResources("default", "p", (GPUS,))

        async def changed() -> bool:
            return await observed(api) == '[{"zone":"node-0","amount":{"nvidia.com/gpu":"2"}}]'

        await eventually(changed)


async def test_a_write_that_fails_is_made_at_the_next_look() -> None:
    api = DiaryApi()
    await make_pod(api, "p", spec={"nodeName": "n"})
    api.refusals["patch", "Pod"] = [Unavailable("restarting")]
    async with exporting(api, [POD_ON_TWO]):
        await eventually(lambda: observed(api))


async def test_what_others_changed_is_put_right() -> None:
    api = DiaryApi()
    await make_pod(api, "p", spec={"nodeName": "n"})
    async with exporting(api, [POD_ON_TWO], drift=0.05):
        await eventually(lambda: observed(api))
        await api.patch(
            POD.ref("p", "default"), Patch.merge({"metadata": {"annotations": {names.NUMA_OBSERVED: "[]"}}})
        )

        async def right() -> bool:
            return await observed(api) == TEXT

        await eventually(right)
