"""The event recorder: counted, bounded, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from pykai.kube.api import Object
from pykai.kube.api_resources import EVENT
from pykai.kube.clock import wall
from pykai.kube.errors import Timeout, Unavailable
from pykai.kube.events import (
    BACKOFF,
    MESSAGE_BYTES,
    OBJECT_BURST,
    REMEMBERED_SECONDS,
    REPEAT_SECONDS,
    TRIES,
    EventRecorder,
    Regarding,
)
from pykai.kube.memory import MemoryApi
from pykai.objects.units import rfc3339

from .flaky import running, until

pytestmark = pytest.mark.virtual_time

POD = Regarding("v1", "Pod", "p", "default", "u")


class CountingApi(MemoryApi):
    """Counts writes and may refuse them."""

    writes = 0
    down = False
    lost = False

    async def create(self, *args: object, **options: object) -> Object:
        self.writes += 1
        if self.down:
            raise Unavailable("down")
        made = await super().create(*args, **options)  # type: ignore[arg-type]
        if self.lost:
            raise Timeout("no answer")
        return made

    async def patch(self, *args: object) -> Object:
        self.writes += 1
        if self.down:
            raise Unavailable("down")
        return await super().patch(*args)  # type: ignore[arg-type]


@pytest.fixture
def api() -> CountingApi:
    return CountingApi(wall)


@pytest.fixture
def recorder(api: CountingApi) -> EventRecorder:
    return EventRecorder(api, "scheduler")


async def written(recorder: EventRecorder, seconds: float = REPEAT_SECONDS + 1.0) -> None:
    """Let the recorder write for so long."""
    async with running(recorder.run()):
        await asyncio.sleep(seconds)


async def tried(api: CountingApi, times: int) -> None:
    """Return after so many writes."""
    while api.writes < times:
        await asyncio.sleep(1)


async def events(api: CountingApi) -> list[Object]:
    return list((await api.list(EVENT, Object)).items)


async def test_an_event_as_describe_shows_it(api: CountingApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "Scheduled", "Successfully assigned", annotations={"k": "v"})
    async with running(recorder.run()):
        await until(lambda: api.writes == 1)
    (event,) = await events(api)
    involved = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "u"}
    assert (event["involvedObject"], event["source"]) == (involved, {"component": "scheduler"})
    assert (event["type"], event["count"], event["firstTimestamp"]) == ("Normal", 1, rfc3339(wall()))
    assert event["metadata"]["annotations"] == {"k": "v"}


async def test_two_components_may_report_at_the_same_instant(api: CountingApi) -> None:
    recorders = [EventRecorder(api, component) for component in ("scheduler", "binder")]
    for recorder in recorders:
        recorder.record(POD, "Happened", "x")
    async with running(recorders[0].run()), running(recorders[1].run()):
        await asyncio.sleep(1)
    assert {event["source"]["component"] for event in await events(api)} == {"scheduler", "binder"}


async def test_cluster_wide_objects_have_their_events_in_default(api: CountingApi, recorder: EventRecorder) -> None:
    recorder.record(Regarding("v1", "Node", "n"), "Full", "x")
    await written(recorder)
    assert (await events(api))[0]["metadata"]["namespace"] == "default"


async def test_repetitions_wait_for_their_minute(api: CountingApi, recorder: EventRecorder) -> None:
    async with running(recorder.run()):
        recorder.record(POD, "Unschedulable", "no room")
        await until(lambda: api.writes == 1)
        for _ in range(50):
            recorder.record(POD, "Unschedulable", "no room")
            await asyncio.sleep(0)
        await asyncio.sleep(REPEAT_SECONDS - 1)
        assert api.writes == 1
        recorder.record(POD, "Unschedulable", "no room")
        last = rfc3339(wall())
        await asyncio.sleep(2)
        assert api.writes == 2
    (event,) = await events(api)
    assert (event["count"], event["lastTimestamp"]) == (52, last)


async def test_one_object_cannot_flood(api: CountingApi, recorder: EventRecorder) -> None:
    for index in range(OBJECT_BURST + 10):
        recorder.record(POD, "Noise", f"message {index}")
    recorder.record(Regarding("v1", "Pod", "other", "default"), "Quiet", "heard")
    await written(recorder)
    assert (len(await events(api)), recorder.dropped) == (OBJECT_BURST + 1, 10)
    await asyncio.sleep(300)
    recorder.record(POD, "Noise", "later")
    await written(recorder)
    assert len(await events(api)) == OBJECT_BURST + 2


async def test_an_event_that_expired_is_made_again(api: CountingApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "A", "x")
    await written(recorder)
    (old,) = await events(api)
    await api.delete(EVENT.ref(old["metadata"]["name"], "default"))
    recorder.record(POD, "A", "x")
    await written(recorder)
    assert [event["count"] for event in await events(api)] == [2]


async def test_a_server_in_trouble_costs_events_not_the_process(api: CountingApi, recorder: EventRecorder) -> None:
    api.down = True
    recorder.record(POD, "A", "x")
    async with running(recorder.run()):
        await tried(api, TRIES - 1)
        assert recorder.dropped == 0
        await tried(api, TRIES)
        assert recorder.dropped == 1
        await asyncio.sleep(2 * BACKOFF.maximum)
        assert api.writes == TRIES


async def test_tries_of_an_event_are_counted_from_its_last_success(api: CountingApi, recorder: EventRecorder) -> None:
    async with running(recorder.run()):
        for round_ in range(2):
            api.down, api.writes = True, 0
            recorder.record(POD, "A", "x")
            await tried(api, TRIES - 1)
            api.down = False
            await tried(api, TRIES)
            assert (recorder.dropped, [event["count"] for event in await events(api)]) == (0, [round_ + 1])


async def test_an_event_that_could_not_be_written_is_written_later(api: CountingApi, recorder: EventRecorder) -> None:
    api.down = True
    async with running(recorder.run()):
        recorder.record(POD, "A", "x")
        await asyncio.sleep(5)
        api.down = False
        await asyncio.sleep(600)
        assert (api.writes, [event["count"] for event in await events(api)]) == (2, [1])


async def test_what_has_not_happened_for_long_is_forgotten(api: CountingApi, recorder: EventRecorder) -> None:
    async with running(recorder.run()):
        recorder.record(POD, "A", "x")
        await asyncio.sleep(REMEMBERED_SECONDS - 1)
        recorder.record(POD, "A", "x")
        await asyncio.sleep(REMEMBERED_SECONDS + 1)
        recorder.record(POD, "A", "x")
        await asyncio.sleep(1)
        assert sorted(event["count"] for event in await events(api)) == [1, 2]


async def test_an_event_whose_answer_was_lost_is_not_told_twice(api: CountingApi, recorder: EventRecorder) -> None:
    api.lost = True
    recorder.record(POD, "A", "x")
    await written(recorder, 1.0)
    api.lost = False
    await written(recorder)
    recorder.record(POD, "A", "x")
    await written(recorder)
    assert ([event["count"] for event in await events(api)], recorder.dropped) == ([2], 0)


async def test_an_event_that_is_refused_is_not_tried_again(api: CountingApi, recorder: EventRecorder) -> None:
    recorder.record(Regarding("v1", "Pod", "p", "no-such-namespace", "u"), "A", "x")
    await written(recorder, 2 * BACKOFF.maximum)
    assert (api.writes, recorder.dropped) == (1, 1)


async def test_long_messages_are_cut_at_a_character(api: CountingApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "A", "é" * MESSAGE_BYTES)
    await written(recorder)
    assert (await events(api))[0]["message"] == "é" * (MESSAGE_BYTES // 2)


async def test_a_message_is_one_line(api: CountingApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "Unschedulable", "\n0/2 nodes are available: 1 node is full. \n\n1 node is away.\n")
    async with running(recorder.run()):
        await until(lambda: api.writes > 0)
    (event,) = (await api.list(EVENT, Object)).items
    assert event["message"] == "0/2 nodes are available: 1 node is full. 1 node is away."
