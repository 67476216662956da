"""The program of reservation pods: it names the one device it sees, once, and holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pykai.cli import resource_reservation as reservation
from pykai.cli.resource_reservation import ReservationError, hold, on_hollow_nodes, own_pod, visible_device
from pykai.hollow.hollow_node import FakeNvml, GpuShape, HollowDevice, NodeShape, shape_devices
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import NAMESPACE, POD
from pykai.kube.errors import Unavailable
from pykai.kube.memory import MemoryApi
from pykai.objects import names
from tests.virtual_time import settle

SPACE = names.RESERVATION_NAMESPACE
REF = POD.ref("r", SPACE)
ONE = shape_devices(NodeShape("n1", GpuShape(1)))


class FailingApi(MemoryApi):
    """Refuses as many patches as `troubles` says, and counts the others."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.patches = 0
        self.troubles = 0

    async def patch(self, ref: object, patch: Patch) -> Object:
        if self.troubles:
            self.troubles -= 1
            raise Unavailable("down")
        self.patches += 1
        return await super().patch(ref, patch)  # type: ignore[arg-type]


async def server(**metadata: object) -> FailingApi:
    api = FailingApi()
    await api.create(NAMESPACE, {"metadata": {"name": SPACE}})
    body = {"metadata": {"name": "r", **metadata}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await api.create(POD, body, SPACE)
    return api


@asynccontextmanager
async def running(
    api: FailingApi, seen: tuple[HollowDevice, ...], said: list[str]
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(hold(api, REF, FakeNvml(seen), said.append))
    await settle()
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_says_which_device_it_holds_and_stays() -> None:
    said: list[str] = []
    api = await server()
    async with running(api, ONE, said) as task:
        assert (await api.get(REF, Object))["metadata"]["annotations"] == {names.RESERVED_GPU_INDEX: ONE[0].uuid}
        assert said == [f"GPU {ONE[0].uuid} ({ONE[0].product}) is reserved by pod {SPACE}/r"]
        assert not task.done()


async def test_a_restarted_container_does_not_look_again() -> None:
    said: list[str] = []
    api = await server(annotations={names.RESERVED_GPU_INDEX: "GPU-before"})
    async with running(api, (), said) as task:
        assert not task.done()
        assert api.patches == 0
        assert "GPU-before" in said[0]


async def test_a_server_in_trouble_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "RETRY_SECONDS", (0.0,))
    said: list[str] = []
    api = await server()
    api.troubles = 3
    async with running(api, ONE, said):
        assert names.RESERVED_GPU_INDEX in (await api.get(REF, Object))["metadata"]["annotations"]
        assert [line.startswith("API request failed") for line in said] == [True, True, True, False]


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one_device_must_be_visible(count: int) -> None:
    with pytest.raises(ReservationError, match=f"found {count} devices, 1 was expected"):
        visible_device(FakeNvml(shape_devices(NodeShape("n1", GpuShape(count))) if count else ()))


def test_the_slices_of_one_device_are_one_device() -> None:
    slices = shape_devices(NodeShape("n1", GpuShape(1, 23034, "NVIDIA-L4", time_slices=4)))
    assert visible_device(FakeNvml(slices[:1]))[0] == slices[0].uuid


def test_older_bindings_answer_in_bytes() -> None:
    class Old(FakeNvml):
        def nvmlDeviceGetUUID(self, handle: HollowDevice) -> bytes:  # type: ignore[override]  # noqa: N802
            return handle.uuid.encode()

    assert visible_device(Old(ONE))[0] == ONE[0].uuid


def test_a_library_that_cannot_be_opened_is_an_error_in_words() -> None:
    class Broken(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError("Driver Not Loaded")

    with pytest.raises(ReservationError, match="NVML: Driver Not Loaded"):
        visible_device(Broken(ONE))


@pytest.mark.parametrize(
    ("environ", "message"),
    [({"POD_NAME": "r"}, "could not find pod namespace"), ({"POD_NAMESPACE": SPACE}, "could not find pod name")],
)
def test_it_must_know_its_own_pod(environ: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", environ)
    with pytest.raises(ReservationError, match=message):
        own_pod()
    monkeypatch.setattr("os.environ", {"POD_NAME": "r", "POD_NAMESPACE": SPACE})
    assert own_pod() == REF


async def test_on_hollow_nodes_only_reservation_pods_run_it() -> None:
    api = await server()
    choose = on_hollow_nodes(lambda: api)
    said: list[str] = []
    pod: Object = {"metadata": {"name": "r", "namespace": SPACE, "labels": {"app": "something"}}}
    assert choose(pod, "n1", ONE, said.append) is None
    pod["metadata"]["labels"] = {"app": names.RESERVATION_APP}
    program = choose(pod, "n1", ONE, said.append)
    assert program is not None
    task = asyncio.create_task(program)
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ONE[0].uuid in said[0]
