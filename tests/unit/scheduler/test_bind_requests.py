"""Creating bind requests whatever the server answers, and never after they are not wanted any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import BIND_REQUEST, POD
from pykai.kube.errors import ApiError, Conflict, Forbidden, Timeout
from pykai.scheduler.bind_requests import BACKOFF, TRIES, create_request, until_certain

from .rig import RecordingApi, furnish, pod
from .test_trouble import request_for

pytestmark = pytest.mark.virtual_time


class Lossy(RecordingApi):
    """Carries out the first creation and loses the answer."""

    async def create(self, resource, body, namespace=""):  # type: ignore[no-untyped-def]
        made = await super().create(resource, body, namespace)
        if resource == BIND_REQUEST and self.count("create", "BindRequest") == 1:
            raise Timeout("no answer")
        return made


async def furnished(api: RecordingApi) -> Object:
    """The request for a pod that exists."""
    await furnish(api)
    return request_for("a", "node-0", await owner(api, "a"))


async def owner(api: RecordingApi, name: str) -> str:
    """The uid of a new pod."""
    return str((await api.create(POD, pod(name)))["metadata"]["uid"])


async def created(api: RecordingApi, body: Object, wanted: Callable[[], bool]) -> str | None:
    made = await create_request(api, body, wanted)
    return None if made is None else made.spec.selected_node


async def test_what_is_not_wanted_is_not_sent() -> None:
    api = RecordingApi()
    body = await furnished(api)
    assert await created(api, body, lambda: False) is None
    assert api.count("create", "BindRequest") == 0


async def test_a_lost_yes_is_not_sent_again_once_its_request_came_and_went() -> None:
    api = Lossy()
    body = await furnished(api)
    answers = iter([True, False])
    failed = Patch.merge({"status": {"phase": "Failed", "failedAttempts": 1}})

    async def meanwhile() -> None:
        await asyncio.sleep(BACKOFF.initial / 2)
        await api.patch(BIND_REQUEST.ref("a", "team").sub("status"), failed)
        await api.delete(BIND_REQUEST.ref("a", "team"))

    change = asyncio.create_task(meanwhile())
    assert await create_request(api, body, lambda: next(answers)) is None
    await change
    assert (await api.list(BIND_REQUEST, Object)).items == []


async def test_a_lost_yes_that_the_watch_has_shown_is_found() -> None:
    api = Lossy()
    body = await furnished(api)
    answers = iter([True, False])
    assert await created(api, body, lambda: next(answers)) == "node-0"
    assert api.count("create", "BindRequest") == 1


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([Forbidden("no")], Forbidden),
        ([Timeout("lost"), Forbidden("no"), Forbidden("no"), Forbidden("no")], Timeout),
        ([Timeout("lost"), Forbidden("no")], None),
    ],
)
async def test_a_refusal_says_nothing_about_an_earlier_attempt_without_an_answer(
    errors: list[ApiError], raised: type[ApiError] | None
) -> None:
    api = RecordingApi()
    body = await furnished(api)
    api.failures["create", "BindRequest"] = list(errors)
    if raised is None:
        assert await created(api, body, lambda: True) == "node-0"
    else:
        with pytest.raises(raised):
            await created(api, body, lambda: True)


@pytest.mark.parametrize(("wanted", "left"), [([True, True, True], "node-0"), ([True, False, False], "node-1")])
async def test_only_who_is_wanted_takes_the_place_of_another_request(wanted: list[bool], left: str) -> None:
    api = RecordingApi()
    body = await furnished(api)
    await api.create(BIND_REQUEST, request_for("a", "node-1", await owner(api, "other")))
    answers = iter(wanted)
    await created(api, body, lambda: next(answers))
    (found,) = (await api.list(BIND_REQUEST, Object)).items
    assert found["spec"]["selectedNode"] == left


@pytest.mark.parametrize(
    ("errors", "asked", "raised"),
    [
        ([], 1, None),
        ([Timeout("a")] * (TRIES - 1), TRIES, None),
        ([Timeout("a")] * TRIES, TRIES, Timeout),
        ([Timeout("a"), Conflict("b")], 2, Conflict),
        ([Forbidden("a")], 1, Forbidden),
    ],
)
async def test_a_write_is_repeated_while_its_fate_is_uncertain(
    errors: list[ApiError], asked: int, raised: type[ApiError] | None
) -> None:
    left, times = list(errors), 0

    async def write() -> str:
        nonlocal times
        times += 1
        if left:
            raise left.pop(0)
        return "done"

    if raised is None:
        assert await until_certain(write) == "done"
    else:
        with pytest.raises(raised):
            await until_certain(write)
    assert times == asked
