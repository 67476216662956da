"""The NUMA placement exporter: what is decided, what is read from the kubelet, what is written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.controllers.numa_exporter.cpus import TopologyError, numa_of_cpus, parse_cpu_list
from pykai.controllers.numa_exporter.exporter import METHOD, Exporter, ExporterSettings, kubelet
from pykai.controllers.numa_exporter.grpc import GrpcError, call
from pykai.controllers.numa_exporter.placement import Devices, Memory, PodResources, placement
from pykai.controllers.numa_exporter.wire import WireError, pods_in
from pykai.kube.api import Object, Patch
from pykai.kube.errors import Unavailable
from pykai.kube.resources import POD
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
def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def numa(*ids: int) -> bytes:
    return b"".join(field(1, field(1, each) if each else b"") for each in ids)


def answer() -> bytes:
    """What a kubelet says about POD_ON_TWO, with a field of the future in it."""
    devices = field(1, "nvidia.com/gpu") + field(2, "a") + field(2, "b") + field(3, numa(0))
    memory = field(1, "memory") + field(2, 2**30) + field(3, numa(1))
    packed = varint(0) + varint(1) + varint(130)
    container = field(1, "c") + field(2, devices) + field(3, packed) + field(4, memory) + field(99, 1)
    return field(1, field(1, "p") + field(2, "default") + field(3, container))


def test_the_kubelets_answer_is_read() -> None:
    assert pods_in(answer()) == [POD_ON_TWO]
    assert pods_in(b"") == []


def test_unpacked_numbers_are_read_too() -> None:
    container = field(3, 5) + field(3, 6)
    assert pods_in(field(1, field(3, container)))[0].cpus == (5, 6)


@pytest.mark.parametrize("wrong", [answer()[:-1], b"\x0a", b"\xff" * 12, field(1, 5), b"\x0b"])
def test_what_is_no_answer_is_refused(wrong: bytes) -> None:
    with pytest.raises(WireError):
        pods_in(wrong)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@contextlib.asynccontextmanager
async def server(socket: Path, *frames: bytes) -> AsyncIterator[list[bytes]]:
    """A gRPC server as far as its frames go; gives what it was sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65536))
        writer.write(frame(4, 0, 0) + frame(6, 0, 0, b"12345678") + b"".join(frames))
        heard.append(await reader.read(65536))
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(serve, socket):
        yield heard


def message(body: bytes) -> bytes:
    return b"\x00" + len(body).to_bytes(4, "big") + body


async def test_a_call_over_a_socket(tmp_path: Path) -> None:
    socket, body = tmp_path / "s", message(answer())
    padded = bytes([3]) + body[10:] + bytes(3)
    frames = (frame(1, 4, 1, b"\x88"), frame(0, 0, 1, body[:10]), frame(0, 8, 1, padded), frame(1, 5, 1, b""))
    async with server(socket, *frames) as heard:
        assert await kubelet(str(socket))() == [POD_ON_TWO]
        await asyncio.sleep(0.01)
    assert heard[0].startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert METHOD.encode() in heard[0]
    assert frame(4, 1, 0) + frame(6, 1, 0, b"12345678") in heard[1], "settings and pings are answered"


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ((frame(1, 5, 1, b""),), "refused the call"),
        ((frame(3, 0, 1, bytes(4)),), "ended the call"),
        ((frame(7, 0, 0, bytes(8)),), "ended the call"),
        ((frame(0, 1, 1, message(b"abc")[:-1]),), "cut short"),
        ((frame(0, 1, 1, b"\x01" + message(b"abc")[1:]),), "compressed"),
    ],
)
async def test_calls_that_fail(tmp_path: Path, frames: tuple[bytes, ...], reason: str) -> None:
    async with server(tmp_path / "s", *frames):
        with pytest.raises(GrpcError, match=reason):
            await call(tmp_path / "s", METHOD, 1)


async def test_a_kubelet_that_is_silent_or_away(tmp_path: Path) -> None:
    async with server(tmp_path / "s"):
        with pytest.raises(GrpcError, match=r"no answer .* in 0.05 s"):
            await call(tmp_path / "s", METHOD, 0.05)
    with pytest.raises(GrpcError, match="absent"):
        await call(tmp_path / "absent", METHOD, 1)


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
